"""The gains and losses of access by a load, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svc.cli.changes import Effect, Sentence, describe_id, join_texts
from svc.cli.table import escape_text
from svc.model.access import PathStep, StepKind, describe_path, pluralize_kind


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
