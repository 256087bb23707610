"""Commands about mappings of LDAP authenticators: which groups here a directory's groups and logins give."""

from __future__ import annotations

import json
from collections.abc import Callable
from shlex import quote
from typing import Any, Final, TypeVar

import click

from svc.cli.connection import ApiConnection, authenticated_command
from svc.cli.options import AS_JSON
from svc.cli.table import escape_text, print_json, print_table

F = TypeVar("F", bound=Callable[..., Any])

_LDAP_TYPE: Final = "authn-ldap"
_NAME = click.argument("name", metavar="AUTHENTICATOR")


def _subject_options(command: F) -> F:
    """Declare the options that say what is mapped."""
    text = "A group of the directory: a name right below its group_base_dn, or a distinguished name."
    return click.option("--group", help=text)(click.option("--user", help="A login, instead of a group.")(command))


@click.command("map")
@_NAME
@_subject_options
@click.argument("roles", metavar="ROLE...", nargs=-1, required=True)
@authenticated_command
async def map_name(
    connection: ApiConnection, name: str, group: str | None, user: str | None, roles: tuple[str, ...]
) -> None:
    """Make all whom a directory has in a group members of ROLEs, each with its next login by password.

    The ROLEs take the place of those that the group was mapped to before. It takes the privilege update on the
    authenticator's webservice, and the authority to grant each new ROLE.

    Example: svc authenticator map authn-ldap/corp --group developers group:apps/readers
    """
    path, body = _mapping_path(connection, name, group, user), json.dumps({"roles": roles}).encode()
    found = (
        (await connection.request_with_token("POST", path, body, shows=f"svc authenticator mappings {quote(name)}"))
        .expect(200, 201)
        .json()
    )
    click.echo(
        f"{escape_text(_describe_subject(group, user))} is mapped to {', '.join(map(escape_text, found['roles']))}.",
        err=True,
    )


@click.command("unmap")
@_NAME
@_subject_options
@authenticated_command
async def unmap_name(connection: ApiConnection, name: str, group: str | None, user: str | None) -> None:
    """Map a directory's group, or a login, no longer: memberships that followed from it alone end at once.

    Example: svc authenticator unmap authn-ldap/corp --group developers
    """
    (await connection.request_with_token("DELETE", _mapping_path(connection, name, group, user))).expect(204)
    click.echo(f"{escape_text(_describe_subject(group, user))} is mapped no longer.", err=True)


@click.command("mappings")
@_NAME
@AS_JSON
@authenticated_command
async def list_mappings(connection: ApiConnection, name: str, as_json: bool) -> None:
    """List what an LDAP authenticator maps, each with its roles.

    Example: svc authenticator mappings authn-ldap/corp
    """
    base, rows, found = _base_path(connection, name), list[tuple[str, str, str]](), dict[str, dict[str, list[str]]]()
    for kind in ("groups", "users"):
        found[kind] = {}
        for key in (await connection.request_with_token("GET", f"{base}/{kind}")).expect(200).json()["keys"]:
            answer = await connection.request_with_token("GET", f"{base}/{kind}{_path_segment(connection, key)}")
            roles = answer.expect(200).json()["roles"]
            found[kind][key] = roles
            rows.append((kind.removesuffix("s"), key, ", ".join(roles)))
    if as_json:
        print_json(found)
    else:
        print_table(("KIND", "NAME", "ROLES"), rows, f"{escape_text(name)} maps nothing.")


def _describe_subject(group: str | None, user: str | None) -> str:
    return f"the group {group}" if user is None else f"the login {user}"


def _base_path(connection: ApiConnection, name: str) -> str:
    kind, _, service_id = name.partition("/")
    if kind != _LDAP_TYPE or not service_id:
        raise click.UsageError(f"an LDAP authenticator is written {_LDAP_TYPE}/corp, not {name}")
    return connection.encode_path(kind, service_id, connection.account)


def _mapping_path(connection: ApiConnection, name: str, group: str | None, user: str | None) -> str:
    if (group is None) == (user is None):
        raise click.UsageError("say what is mapped: --group developers, or --user alice")
    word, subject = ("groups", group) if user is None else ("users", user)
    return f"{_base_path(connection, name)}/{word}{_path_segment(connection, subject or '')}"


def _path_segment(connection: ApiConnection, name: str) -> str:
    """Return a name in a path; the words that paths of logins end with are encoded, too."""
    if name in {"authenticate", "explain"}:
        return f"/%{ord(name[0]):02X}{name[1:]}"
    return connection.encode_path(name)
