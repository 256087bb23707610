"""Commands about authenticators: how they stand, why one refuses a token, which keys it trusts, and whether it is on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, Any, Final
from urllib.parse import urlencode

import click

from svc.cli.connection import ApiAnswer, ApiConnection, anonymous_command, authenticated_command
from svc.cli.ldap_mapping import list_mappings, map_name, unmap_name
from svc.cli.options import AS_JSON, HOST_OF_JWT, JWT_FILE
from svc.cli.table import escape_text, print_json, print_result, print_table
from svc.workload.faults import Fault

_TYPE: Final = "authn-jwt"

#: The types of which a server shows more than their switches, one of them by two names; of the last an account has one.
_SINGLE: Final = "authn-gcp"
_TYPES: Final = frozenset({_TYPE, "authn-oidc", "authn-cloud", "authn-azure", "authn-iam", _SINGLE})

#: Another type that has a status, and no keys.
_DIRECTORY: Final = "authn-ldap"

#: How the server's sentence about a set without usable key begins; the reasons of the keys follow.
_UNUSABLE: Final = "it has no usable key: "

#: How each outcome of a check is marked, and in which colour where there are colours.
_MARKS: Final = {
    "passed": ("ok", "green"),
    "failed": ("FAILED", "red"),
    "not reached": ("-", None),
    "not tried": ("?", None),
}

_NAME = click.argument("name", metavar="AUTHENTICATOR")
_KEY = click.argument("key")


@click.group()
def authenticator() -> None:
    """See how authenticators stand, and why one refuses a token; switch them, and choose the keys that they trust.

    AUTHENTICATOR is written authn-jwt/ci, or ci for short; those for a cloud's workloads are written authn-cloud/prod,
    authn-iam/prod and authn-gcp.
    """


for _command in (map_name, unmap_name, list_mappings):
    authenticator.add_command(_command)


@authenticator.command("list")
@AS_JSON
@anonymous_command
async def list_all(connection: ApiConnection, as_json: bool) -> None:
    """List the authenticators that policy or the server's configuration names, and which of them may be used.

    Each has two answers: whether policy declares it, and whether it is enabled. A terminal gets them under a header; a
    program gets rows alone, parted by tabs.
    """
    found = (await connection.request("GET", "/authenticators")).expect(200).json()
    states = found["configured"], found["enabled"]
    rows = [(name, *("yes" if name in state else "no" for state in states)) for name in sorted(set().union(*states))]
    empty = "There is no authenticator, neither in policy nor in the server's configuration."
    print_result(as_json, found, ("AUTHENTICATOR", "IN POLICY", "ENABLED"), rows, empty)


@authenticator.command()
@_NAME
@AS_JSON
@authenticated_command
async def status(connection: ApiConnection, name: str, as_json: bool) -> None:
    """Report whether an authenticator works, all that is wrong with it and what to do, and what is known of its keys.

    Of authn-ldap/corp it reports whether the directory takes the account that searches, whether its entries are found, and
    the last refusals.

    The exit code is 1 when something is wrong.
    """
    of_directory = name.startswith(f"{_DIRECTORY}/")
    path = connection.encode_path(*name.split("/", 1), connection.account) if of_directory else _api_path(connection, name)
    answer = _demand_declared(connection, name, await connection.request_with_token("GET", f"{path}/status"))
    found = answer.json() if answer.status in {200, 500} else {}
    if found.get("status") not in {"ok", "error"}:
        answer.expect(200)
    (print_json if as_json else _print_directory if of_directory else _print_status)(found)
    if found["status"] != "ok":
        raise click.ClickException(f"{name} does not work as it is")


@authenticator.command()
@_NAME
@JWT_FILE
@HOST_OF_JWT
@click.option("--of", "whose", help="Whose login, for authn and authn-ldap: alice, or host/ci/runner.")
@click.option("--key", "key_file", type=click.File("rb"), help="File with the API key or password to try; else none is.")
@click.option("--from", "address", help="The address from which the login is to come; else this machine's.")
@AS_JSON
@authenticated_command
async def explain(
    connection: ApiConnection,
    name: str,
    jwt_file: IO[bytes],
    host: str | None,
    whose: str | None,
    key_file: IO[bytes] | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Report why a login is admitted or refused: every check in order, with what was compared. Nothing is issued.

    For authn and authn-ldap a key or password that is tried counts as a login that fails or succeeds. The exit code is 1
    when the login would be refused.

    Example: svc authenticator explain authn-jwt/ci --jwt-file token.txt

    Example: svc authenticator explain authn --of host/web --from 10.0.0.7
    """
    what = "login" if _checks_secret(name) else "token"
    if _checks_secret(name):
        if whose is None:
            raise click.UsageError("say whose login it is: --of alice, or --of host/web")
        fields = {} if address is None else {"address": address}
        evidence = {} if key_file is None else {"evidence": key_file.read().rstrip(b"\r\n")}
        path = connection.encode_path(*name.split("/", 1), connection.account, whose)
        body = urlencode({**fields, **evidence}).encode()
    else:
        if not (whose is None and key_file is None and address is None):
            raise click.UsageError("--of, --key and --from are for authn and authn-ldap: a token has --jwt-file and --host")
        path = _api_path(connection, name) + ("" if host is None else connection.encode_path(host))
        body = urlencode({"jwt": jwt_file.read().strip()}).encode()
    answer = await connection.request_with_token("POST", f"{path}/explain", body)
    found = _demand_declared(connection, name, answer).expect(200).json()
    if as_json:
        print_json(found)
    else:
        _print_checklist(found, what)
    if found["admitted"] is False:
        reasons = [f": {escape_text(step['reason'])}" for step in found["steps"] if step["reason"]]
        raise click.ClickException(f"this {what} would be refused" + "".join(reasons[:1]))


@authenticator.command("refresh-keys")
@_NAME
@AS_JSON
@authenticated_command
async def refresh_keys(connection: ApiConnection, name: str, as_json: bool) -> None:
    """Have the provider's keys fetched again: here at once, on other servers of the cluster by their next login.

    The exit code is 1 when they can't be fetched; the keys at hand go on serving then.
    """
    answer = await connection.request_with_token("POST", f"{_api_path(connection, name)}/refresh-keys")
    found = _demand_declared(connection, name, answer).expect(200).json()
    if as_json:
        print_json(found)
    else:
        found = _shorten_status(found)
        print_table(("WHAT", "VALUE"), list(_key_rows(found["keys"])))
        _print_problems(found)
    outcome = (found["keys"]["last_fetch"] or {}).get("outcome")
    if found["problems"] or outcome not in {None, "ok"}:
        raise click.ClickException("the keys were not refreshed" + (f": {escape_text(outcome)}" if outcome else ""))


@authenticator.command("distrust-key")
@_NAME
@_KEY
@authenticated_command
async def distrust_key(connection: ApiConnection, name: str, key: str) -> None:
    """Let the key with the id or thumbprint KEY verify nothing any more, on every server, whatever the provider says.

    "svc authenticator status" shows ids and thumbprints. It takes the privilege update on the authenticator's webservice.

    Example: svc authenticator distrust-key authn-jwt/ci 2024-leaked
    """
    (await connection.request_with_token("PUT", _key_path(connection, name, key))).expect(204)
    click.echo(f"{name} distrusts the key {escape_text(key)}.", err=True)
    keys = await _fetch_keys(connection, name)
    if keys is not None and key not in {*keys["ids"], *keys["thumbprints"]}:
        known = ", ".join(escape_text(value) for what, value in _key_rows(keys) if what == "key") or "none"
        click.secho(f"warning: no key at hand has that id or thumbprint; those at hand: {known}", fg="yellow", err=True)


@authenticator.command("trust-key")
@_NAME
@_KEY
@authenticated_command
async def trust_key(connection: ApiConnection, name: str, key: str) -> None:
    """Take back that KEY is distrusted, by the name that "svc authenticator status" shows; this takes update, too."""
    answer = await connection.request_with_token("DELETE", _key_path(connection, name, key))
    if answer.status == 404 and answer.error_message.startswith("Key "):
        message = f"{name} doesn't distrust {escape_text(key)}: `svc authenticator status` shows what it distrusts"
        raise click.ClickException(message)
    answer.expect(204)
    click.echo(f"{name} no longer distrusts the key {escape_text(key)}.", err=True)


@authenticator.command()
@_NAME
@authenticated_command
async def enable(connection: ApiConnection, name: str) -> None:
    """Switch an authenticator on in this account, which takes effect at once.

    In the native dialect it may be used if the server's configuration lists it too, by its name or by a pattern such as
    authn-jwt/*; a warning says when it doesn't, and what to write where.
    """
    await _set_enabled(connection, name, "true", "on")


@authenticator.command()
@_NAME
@authenticated_command
async def disable(connection: ApiConnection, name: str) -> None:
    """Switch an authenticator off in this account, which takes effect at once.

    In the conjur dialect one that the server's configuration lists may be used nevertheless.
    """
    await _set_enabled(connection, name, "false", "off")


async def _set_enabled(connection: ApiConnection, name: str, enabled: str, word: str) -> None:
    path = connection.encode_path(*_full_name(name).split("/", 1), connection.account)
    answer = await connection.request_with_token("PATCH", path, f"enabled={enabled}".encode())
    if answer.status == 401 and (not answer.body or "Webservice '" in answer.error_message):
        raise click.ClickException(f"account {connection.account} has no authenticator {name}{_message_suffix(answer)}")
    answer.expect(204)
    click.echo(f"{name} is switched {word}.", err=True)
    usable = answer.headers.get("svc-enabled")
    if usable is not None and (usable == "true") is not (enabled == "true"):
        _warn_of_list(name, listed=usable == "true")


def _warn_of_list(name: str, *, listed: bool) -> None:
    """Warn that the list of the server's configuration counts, and not the switch."""
    full = _full_name(name)
    pattern = f", or the pattern {full.partition('/')[0]}/*" if full.count("/") == 1 else ""
    what = f"nobody can log in there, since the server's setting authenticators doesn't list {full}. Add it{pattern}"
    if listed:
        what = f"logins there go on, since the server's setting authenticators lists {full}. Remove it"
    places = (
        "where it stands in the file that --config names, SIGHUP has the server read it again; where"
        " SERVICE_AUTHENTICATORS or --authenticators gives the list, start the server again"
    )
    click.secho(f"warning: {what}: {places}", fg="yellow", err=True)


def _message_suffix(answer: ApiAnswer) -> str:
    return f": {escape_text(answer.error_message)}" if answer.error_message else ""


def _full_name(name: str) -> str:
    return name if name == "authn" or name.startswith("authn-") else f"{_TYPE}/{name}"


def _checks_secret(name: str) -> bool:
    return name == "authn" or name.startswith(f"{_DIRECTORY}/")


def _api_path(connection: ApiConnection, name: str) -> str:
    """Return the path of an authenticator that trusts a third party."""
    kind, _, service_id = _full_name(name).partition("/")
    if kind not in _TYPES or (kind == _SINGLE) == bool(service_id):
        written = f"{_TYPE}/ci, or ci for short, authn-cloud/prod, authn-iam/prod, or authn-gcp"
        raise click.UsageError(f"an authenticator is written {written}, not {name}")
    return connection.encode_path(*filter(None, (kind, service_id)), connection.account)


def _key_path(connection: ApiConnection, name: str, key: str) -> str:
    return _api_path(connection, name) + connection.encode_path("distrusted-keys", key)


def _demand_declared(connection: ApiConnection, name: str, answer: ApiAnswer) -> ApiAnswer:
    """Return an answer to operators, who are answered where policy declares an authenticator with its ``status``."""
    if answer.status == 404 and "Webservice '" in answer.error_message:
        raise click.ClickException(
            f"account {connection.account} has no {_full_name(name)}, or policy declares no `!webservice status` beneath it,"
            " on which your role has `read`: `svc authenticator list` shows which there are"
        )
    return answer


async def _fetch_keys(connection: ApiConnection, name: str) -> Any:
    """Return the keys in the status; ``None`` when it can't be read, by this role or now."""
    try:
        answer = await connection.request_with_token("GET", f"{_api_path(connection, name)}/status")
        return answer.json().get("keys") if answer.status in {200, 500} else None
    except (Fault, click.ClickException):
        return None


def _print_checklist(found: Mapping[str, Any], what: str) -> None:
    steps = found["steps"]
    width = max((len(step["check"]) for step in steps), default=0)
    for step in steps:
        mark, colour = _MARKS.get(step["outcome"], (step["outcome"], None))
        reason = f"{escape_text(step['reason'])}: " if step["reason"] else ""
        line = f"{escape_text(mark):6}  {escape_text(step['check']):{width}}  {reason}{escape_text(step['detail'])}"
        click.secho(line.rstrip(), fg=colour)
        if step["outcome"] == "failed" and reason:
            click.echo(f"{'':6}  what to do: svc explain-reason {escape_text(step['reason'])}")
    if found["admitted"]:
        click.echo(f"This {what} would be admitted as {escape_text(found['role'] or '')}.")
    elif found["admitted"] is None:
        click.echo(
            "Nothing but the key or password, which was not tried, decides whether"
            f" {escape_text(found['role'])} is admitted."
        )


def _shorten_status(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a status without the reasons, in sentences, why no key is usable: each key has a line of its own."""
    keys = found["keys"]
    if keys["ids"] or not (keys["problems"] or keys["unused"]):
        return found
    fetch = keys["last_fetch"] and {**keys["last_fetch"], "outcome": _without_reasons(keys["last_fetch"]["outcome"])}
    problems = [{**problem, "what": _without_reasons(problem["what"])} for problem in found["problems"]]
    return {**found, "keys": {**keys, "last_fetch": fetch}, "problems": problems}


def _without_reasons(text: str) -> str:
    before, unusable, _ = text.partition(_UNUSABLE)
    return f"{before}{unusable.removesuffix(': ')}." if unusable else text


def _print_status(found: Mapping[str, Any]) -> None:
    found = _shorten_status(found)
    rows = [("status", found["status"])]
    if found["algorithms"]:
        rows.append(("algorithms", ", ".join(found["algorithms"])))
    rows += _key_rows(found["keys"])
    rows += [("distrusted key", f"{key['key']} (since {key['since']}, by {key['by']})") for key in found["distrusted"]]
    if found["clock_offset"] is not None:
        offset, whose = found["clock_offset"], "the provider's clock is ahead of this server's by"
        if offset >= 0:
            whose = "this server's clock is ahead of the provider's by at most"
        rows.append(("clocks", f"{whose} {abs(offset):g} s, judging by {found['recent_tokens']} recent tokens"))
    print_table(("WHAT", "VALUE"), rows)
    _print_problems(found)


def _print_directory(found: Mapping[str, Any]) -> None:
    bind = found["bind"]
    again = "" if bind["again"] is None else f", tried again in {bind['again']} s"
    rows = [("status", found["status"]), ("account", bind["account"] or "none: the search is anonymous")]
    rows.append(("bind", f"{bind['outcome']}{again}"))
    rows += [(base["annotation"], f"{base['dn']}: {base['fault'] or 'found'}") for base in found["bases"]]
    rows += [("refusal", f"{each['at']} {each['reason']} (request {each['request_id']})") for each in found["refusals"]]
    print_table(("WHAT", "VALUE"), rows)
    _print_problems(found)


def _key_rows(keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "keys from", " ".join(filter(None, (keys["source"], keys["uri"]))) or "nowhere"
    for kid, thumbprint in zip(keys["ids"], keys["thumbprints"], strict=True):
        yield "key", f"{'without id' if kid is None else kid} (thumbprint {thumbprint})"
    if keys["age"] is not None:
        yield "age", f"{keys['age']:g} s"
    if keys["last_fetch"] is not None:
        yield "last fetch", f"{keys['last_fetch']['at']}: {keys['last_fetch']['outcome']}"
    for problem in keys["problems"]:
        yield "unusable key", problem
    for key in keys["unused"]:
        yield "unused key", key


def _print_problems(found: Mapping[str, Any]) -> None:
    for problem in found["problems"]:
        click.secho(f"PROBLEM  {escape_text(problem['what'])}", fg="red")
        click.echo(f"  to do  {escape_text(problem['remedy'])}")
