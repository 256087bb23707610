"""Commands that load policy, and that show it, with the gains and losses of access in words."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from shlex import quote
from typing import IO, Any, Final

import click

from svc.cli.changes import Effect, Sentence, change_sentences, describe_id, join_texts
from svc.cli.connection import ApiAnswer, ApiConnection, authenticated_command, build_query
from svc.cli.options import AS_JSON
from svc.cli.progress import show_progress
from svc.cli.readers import describe_recent, describe_uncertainty
from svc.cli.table import escape_text, print_json
from svc.model.access import PathStep, StepKind, describe_path, pluralize_kind
from svc.workload.faults import request_suffix

_METHODS: Final = {"load": "POST", "update": "PATCH", "replace": "PUT"}

_COLOURS: Final = {Effect.GAIN: "green", Effect.LOSS: "red", Effect.NEITHER: None}

#: The server's message for a document that removes something where nothing may be removed (POL-42).
_DELETION_REFUSED: Final = "policy_text may not contain deletion statements"

#: Rows that an answer counts beside records.
_ROWS: Final = ("grant", "permission")

#: The exit code of a dry run that finds that somebody would gain access (POL-89).
GAINS: Final = 3

#: The tag of a policy's version.
_VERSION_TAG: Final = re.compile(r'"([0-9]{1,18})"', re.ASCII)

_DRY_RUN: Final = click.option(
    "--dry-run", is_flag=True, help="Change nothing; print who would gain and who would lose which access."
)
_FAIL_ON_GAIN: Final = click.option(
    "--fail-on-gain",
    is_flag=True,
    help="With --dry-run: exit code 3 if any role would gain any access, be it or the resource new or not.",
)
_FAIL_ON_GAIN_OF_EXISTING: Final = click.option(
    "--fail-on-gain-of-existing",
    is_flag=True,
    help="With --dry-run: exit code 3 only if a role would gain access to a resource, both of which are there already.",
)


_IF_VERSION: Final = click.option(
    "--if-version",
    type=click.IntRange(0),
    metavar="N",
    help="Load only if the policy is still at version N, as `svc policy show` and loads say; 0: if it never was loaded.",
)


@click.group()
def policy() -> None:
    """Load policy: who there is, and who may do what; and show it."""


def _load_command(declaration: Callable[[], None]) -> click.Command:
    """Return the command that loads; a function gives its name, which is a key of ``_METHODS``, and its help."""

    async def send_document(connection: ApiConnection, **given: Any) -> None:
        await _send_policy(connection, declaration.__name__, **given)

    command: Callable[..., Any] = authenticated_command(send_document)
    command.__doc__ = declaration.__doc__
    for option in (
        AS_JSON,
        _FAIL_ON_GAIN_OF_EXISTING,
        _FAIL_ON_GAIN,
        _DRY_RUN,
        _IF_VERSION,
        click.argument("file", type=click.File("rb")),
        click.argument("branch"),
    ):
        command = option(command)
    return policy.command(declaration.__name__)(command)


async def _send_policy(
    connection: ApiConnection,
    mode: str,
    branch: str,
    file: IO[bytes],
    dry_run: bool,
    as_json: bool,
    if_version: int | None = None,
    fail_on_gain: bool = False,
    fail_on_gain_of_existing: bool = False,
) -> None:
    if (fail_on_gain or fail_on_gain_of_existing) and not dry_run:
        raise click.UsageError("--fail-on-gain and --fail-on-gain-of-existing are for --dry-run, which changes nothing")
    path = _api_path(connection, branch) + build_query(dryRun=dry_run)
    shows = "" if dry_run else f"svc policy show {quote(branch)}"
    given: dict[str, Any] = {"shows": shows, "Content_Type": "application/x-yaml"}
    if if_version is not None:
        given["If_Match"] = f'"{if_version}"'
    request = (_METHODS[mode], path, file.read())
    sending = (
        connection.request_with_token(*request, **given)
        if dry_run
        else connection.send_change(connection.request_with_token, *request, **given)
    )
    answer = await show_progress(sending, f"Loading policy {branch}", sys.stderr)
    if answer.status == 422 and answer.error_message == _DELETION_REFUSED and not (dry_run and as_json):
        raise click.ClickException(
            f"{_DELETION_REFUSED}: `svc policy update` does these (status 422){request_suffix(answer.request_id)}"
        )
    if answer.status == 422 and not (dry_run or as_json) and _has_faults(answer):
        raise click.ClickException(
            f"{_format_faults(answer)}\nNothing was changed (status 422){request_suffix(answer.request_id)}"
        )
    if answer.status == 412 and answer.is_from_service:
        raise click.ClickException(_describe_overtaken(answer, branch, if_version))
    if as_json:
        print_json(answer.expect(*((200, 422) if dry_run else (201,))).json())
        if answer.status == 422:
            raise click.exceptions.Exit(1)
    elif dry_run:
        _print_changes(answer)
    else:
        _print_loaded(answer, branch)
    if if_version is not None and answer.status == 201 and _find_version(answer) is None:
        raise click.ClickException("the document was loaded whatever the version: this server doesn't know --if-version")
    if fail_on_gain or fail_on_gain_of_existing:
        _fail_on_gain(answer.json(), fail_on_gain)


def _describe_overtaken(answer: ApiAnswer, branch: str, expected: int | None) -> str:
    """Return the words for the refusal of a load into another version of the policy."""
    version = _find_version(answer)
    now = "at another version now" if version is None else f"at version {version} now"
    return (
        f"policy {escape_text(branch)} is {now}, not at {expected}: somebody loaded it meanwhile, and nothing was changed"
        f" (status 412). See `svc policy show {quote(branch)}`, and load with the version that it states"
        f"{request_suffix(answer.request_id)}"
    )


def _find_version(answer: ApiAnswer) -> int | None:
    """Return the version of a policy that is the tag of an answer, ``None`` for another tag and for none."""
    match = _VERSION_TAG.fullmatch(answer.headers.get("etag", ""))
    return None if match is None else int(match[1])


def _print_version(answer: ApiAnswer, branch: str) -> None:
    version = _find_version(answer)
    if version is not None:
        click.echo(f"Policy {escape_text(branch)} is at version {version}.", err=True)


def _fail_on_gain(result: Any, new_too: bool) -> None:
    """End with an exit code of its own if there are gains, also where the answer doesn't say that there are none."""
    try:
        found = gain_sentence(result, new_too=new_too)
    except (KeyError, TypeError):
        raise click.ClickException("the answer doesn't tell who gains access; does this server know that?") from None
    if found is not None:
        click.echo(found, err=True)
        raise click.exceptions.Exit(GAINS)


def _api_path(connection: ApiConnection, branch: str) -> str:
    return connection.encode_path("policies", connection.account, "policy", branch)


def _print_loaded(answer: ApiAnswer, branch: str) -> None:
    result = answer.expect(201).json()
    for role in result["created_roles"].values():
        key = "no API key" if role["api_key"] is None else f"API key: {role['api_key']}"
        click.echo(f"{escape_text(role['id'])}\t{key}")
    for text in summary_sentences(result):
        click.echo(text, err=True)
    _print_warnings(result)
    click.echo(f"Policy {branch} is now at version {result['version']}.", err=True)


def _print_changes(answer: ApiAnswer) -> None:
    if answer.status == 422:
        raise click.ClickException(_format_faults(answer))
    result = answer.expect(200).json()
    try:
        access, changes = access_sentences(result), change_sentences(result)
    except (KeyError, TypeError, ValueError):
        raise click.ClickException("the answer is not that of a dry run; does this server know them?") from None
    for effect, text in access:
        click.echo(click.style(text, fg=_COLOURS[effect]))
    if access and changes:
        click.echo("\nWhat would change:")
    for effect, text in changes:
        click.echo(click.style(text, fg=_COLOURS[effect]))
    if not access and not changes:
        click.echo("Nothing would change, except admin options and the texts of public keys, which a dry run doesn't tell.")
    for text in absence_sentences(result):
        click.echo(text, err=True)
    for text in reader_sentences(result):
        click.echo(text, err=True)
    _print_warnings(result)
    click.echo("This was a dry run: nothing has been changed.", err=True)


def _format_faults(answer: ApiAnswer) -> str:
    """Return what is wrong with the document, a line for each fault and for each piece of advice."""
    try:
        faults = answer.json()["errors"]
        places = [f"line {fault['line']}, column {fault['column']}: " if "line" in fault else "" for fault in faults]
        return "\n".join(f"{place}{fault['message']}" for place, fault in zip(places, faults, strict=True))
    except (KeyError, TypeError):
        answer.expect(200)
        raise


def _has_faults(answer: ApiAnswer) -> bool:
    """Return whether the refusal of a load has all faults of the document; an older server's has the first alone."""
    document = answer.json()
    return isinstance(document, dict) and bool(document.get("errors"))


def _print_warnings(result: Any) -> None:
    for warning in result.get("warnings", []):
        click.echo(f"Warning: {escape_text(warning)}", err=True)


@_load_command
def load() -> None:
    """Add what FILE declares to policy BRANCH (root, or the id of a policy); change and remove nothing.

    `svc policy update` also changes what is there, and removes what !delete, !deny and !revoke name.

    Prints the API keys of the users and hosts that were made: they are not shown again. Standard error says what was created
    and what was there already.

    While its answer is lost on the way, it asks again, for eleven minutes at most; the change is made once.
    """


@_load_command
def update() -> None:
    """Add what FILE declares to policy BRANCH and change what is there to match.

    Only the things that FILE names in !delete, !deny and !revoke are removed. `svc deleted list` shows what can be restored.
    Standard error says what was created, changed and deleted, and what FILE removes that wasn't there.

    While its answer is lost on the way, it asks again, for eleven minutes at most; the change is made once.
    """


@_load_command
def replace() -> None:
    """Make policy BRANCH what FILE declares, and remove everything else that was loaded into it, with its secrets.

    `svc deleted list` shows what can be restored. Standard error says what was created, changed and deleted.

    While its answer is lost on the way, it asks again, for eleven minutes at most; the change is made once.
    """


@policy.command()
@click.argument("branch")
@click.option("--depth", type=click.IntRange(0, 64), help="Only ids with at most so many slashes more than BRANCH.")
@click.option("--limit", type=click.IntRange(0, 100_000), help="Fail when there are more objects than these.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON instead of YAML.")
@authenticated_command
async def show(connection: ApiConnection, branch: str, depth: int | None, limit: int | None, as_json: bool) -> None:
    """Print policy BRANCH as it stands now, with everything beneath it; what is printed can be loaded again.

    A policy other than root is printed as the one around it declares it, and loads into that one. Standard error says its
    version, for --if-version: `svc policy update --if-version 7 shop shop.yml` is refused if somebody loads it meanwhile.
    """
    path = _api_path(connection, branch) + build_query(depth=depth, limit=limit)
    headers = {"Content_Type": "application/json"} if as_json else {}
    answer = (await connection.request_with_token("GET", path, None, **headers)).expect(200)
    if as_json:
        print_json(answer.json())
    else:
        click.echo(answer.body.decode("utf-8"), nl=False)
    _print_version(answer, branch)


def access_sentences(answer: Mapping[str, Any]) -> list[Sentence]:
    """Return who gains and who loses access by the answer to a valid dry run, losses first; nothing for an older server's.

    :raises KeyError, TypeError, ValueError: it is another answer.
    """
    if "access" not in answer:
        return []
    access = answer["access"]
    untold = access["untold"]
    sentences = [Sentence(Effect.LOSS, _describe_change(change, "lose", "deleted")) for change in access["losses"]]
    if untold["losses"]:
        sentences.append(Sentence(Effect.LOSS, "there are losses that you may not see"))
    sentences += [Sentence(Effect.GAIN, _describe_change(change, "gain", "new")) for change in access["gains"]]
    if untold["gains"] or untold["new_gains"]:
        sentences.append(Sentence(Effect.GAIN, "there are gains that you may not see"))
    if not access["complete"]:
        text = "the load reaches too far for all of that to be found: this is gained and lost, and there may be more"
        sentences.append(Sentence(Effect.GAIN, f"{text}. {escape_text(access['advice'])}"))
    return sentences


def summary_sentences(answer: Mapping[str, Any]) -> list[str]:
    """Return what the answer to a load says it did; nothing for an older server's."""
    if "changes" not in answer:
        return []
    named = ((verb, _describe_counts(answer["changes"][verb])) for verb in ("created", "changed", "deleted", "unchanged"))
    sentences = [f"{verb.capitalize()}: {counts}." for verb, counts in named if counts]
    return [*(sentences or ["The document declares nothing."]), *absence_sentences(answer)]


def absence_sentences(answer: Mapping[str, Any]) -> list[str]:
    """Return what the document was to remove that wasn't there; nothing for an older server's answer."""
    absent = _describe_counts(answer["changes"]["absent"]) if "changes" in answer else ""
    return [f"Nothing to remove, as it isn't there: {absent}."] if absent else []


def reader_sentences(answer: Mapping[str, Any]) -> list[str]:
    """Return who has read what a dry run would delete, and whether others may have; nothing for an older server's answer."""
    if (found := answer.get("readers")) is None:
        return []
    sentences = list[str]()
    for each in found["variables"]:
        recent = describe_recent({"readers": each["readers"], "after": True if each["more"] else None, "certain": True})
        sentences.append(f"Before you delete {escape_text(each['variable'].split(':', 2)[2])}: {recent}")
    if not found["complete"]:
        sentences.append("Others that would be deleted may have been read, too: `svc readers VARIABLE` lists who did.")
    if not found["certain"]:
        known = "others may have read" if sentences else "nobody is known to have read"
        sentences.append(f"Of the variables that would be deleted: {known} them lately. {describe_uncertainty(found)}")
    return sentences


def _describe_counts(counts: Mapping[str, Any]) -> str:
    """Return how many there are of everything: ``2 hosts (a, b), 1 grant``."""
    parts = [_describe_kind(records) for records in counts["records"]]
    parts += [f"{counts[f'{row}s']} {pluralize_kind(row, counts[f'{row}s'])}" for row in _ROWS if counts[f"{row}s"]]
    return ", ".join(parts)


def _describe_kind(records: Mapping[str, Any]) -> str:
    names = [escape_text(full.split(":", 2)[2]) for full in records["first"]]
    if names and records["count"] > len(names):
        names.append(f"{records['count'] - len(names)} more")
    kind = pluralize_kind(escape_text(records["kind"]), records["count"])
    return f"{records['count']} {kind}" + (f" ({join_texts(names, ' and ')})" if names else "")


def gain_sentence(answer: Mapping[str, Any], *, new_too: bool) -> str | None:
    """Return a sentence if somebody gains access, or if that can't be excluded; ``None`` if nobody does.

    Unless ``new_too``, only what an existing role gains on an existing resource counts.

    :raises KeyError, TypeError: the answer lacks them.
    """
    access = answer["access"]
    untold = access["untold"]
    gains = any(new_too or not (change["roles"]["new"] or change["resources"]["new"]) for change in access["gains"])
    if gains or untold["gains"] or (new_too and untold["new_gains"]):
        return "Access would be gained."
    if access["complete"] is not True:
        return "The server can't exclude that access would be gained, which counts as a gain."
    return None


def _describe_change(change: Mapping[str, Any], verb: str, differs: str) -> str:
    roles, resources = change["roles"], change["resources"]
    through = "" if change["through"] is None else _describe_through(change["through"])
    verb = verb if roles["count"] > 1 else f"{verb}s"
    holders = _describe_names(roles, differs, through)
    text = f"{holders} {verb} {_describe_privileges(change)} on {_describe_names(resources, differs)}"
    if change["pairs"] < roles["count"] * resources["count"]:
        text += f", not each on each: {change['pairs']} times in all"
    return text + _describe_path(change)


def _describe_names(names: Mapping[str, Any], differs: str, more: str = "") -> str:
    """Return what several are called: ``412 new hosts of layer web (a, b and 410 more)``."""
    adjective = f"{differs} " if names[differs] else ""
    kind = pluralize_kind(escape_text(names["kind"]), names["count"])
    first = [escape_text(full.split(":", 2)[2]) for full in names["first"]]
    if names["count"] == 1:
        return f"{adjective}{kind} {first[0]}{more}"
    rest = names["count"] - len(first)
    return f"{names['count']} {adjective}{kind}{more} ({join_texts([*first, f'{rest} more'] if rest else first, ' and ')})"


def _describe_through(role: str) -> str:
    _, kind, _ = role.split(":", 2)
    return f" {'of' if kind in ('group', 'layer') else 'through'} {describe_id(role)}"


def _describe_privileges(change: Mapping[str, Any]) -> str:
    if not change["owner"]:
        return join_texts(change["privileges"], " and ")
    excepted = join_texts(change["except"], " and ") if change["except"] else ""
    return "all privileges" + (f" but {excepted}" if excepted else "")


def _describe_path(change: Mapping[str, Any]) -> str:
    """Return the way, unless all of it has been printed."""
    way = change["way"]
    if way is None or len(way) < (3 if change["through"] is not None else 2):
        return ""
    text = describe_path(tuple(PathStep(step["role"], StepKind(step["by"])) for step in way))
    return f" [{describe_id(change['roles']['first'][0])} {escape_text(text)}]"
