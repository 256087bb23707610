"""The result of a dry run in words: which roles gain or lose which access."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from svc.cli.table import escape_text

_DELETED_TOO: Final = {"variable": " and its values", "user": " and its API key", "host": " and its API key"}


class Effect(enum.Enum):
    """The effect of a change on access."""

    GAIN = "gain"
    LOSS = "loss"
    NEITHER = "neither"


class Sentence(NamedTuple):
    """A change, in words."""

    effect: Effect
    text: str


def change_sentences(answer: Mapping[str, Any]) -> list[Sentence]:
    """Return the changes that the answer to a valid dry run lists: losses of things first, then new things, then access.

    :raises KeyError, TypeError, ValueError: it is another answer.
    """
    created, deleted = answer["created"]["items"], answer["deleted"]["items"]
    before, after = answer["updated"]["before"]["items"], answer["updated"]["after"]["items"]
    old, new = _AccessState([*before, *deleted]), _AccessState([*after, *created])
    sentences = [
        Sentence(Effect.LOSS, f"{describe_id(item['identifier'])}{_DELETED_TOO.get(item['type'], '')} will be deleted")
        for item in deleted
    ]
    sentences += [
        Sentence(Effect.GAIN, f"{describe_id(item['identifier'])} will be created, owned by {_describe_owner(item)}")
        for item in created
    ]
    sentences += _owner_changes(old, new)
    sentences += _permission_changes(Effect.LOSS, "may no longer", old.permissions - new.permissions)
    sentences += _permission_changes(Effect.GAIN, "may now", new.permissions - old.permissions)
    sentences += _membership_changes(Effect.LOSS, "is no longer a member of", old.memberships - new.memberships)
    sentences += _membership_changes(Effect.GAIN, "is now a member of", new.memberships - old.memberships)
    sentences += _restriction_changes(old, new)
    sentences += _annotation_changes(old, new)
    hidden = Counter(item["type"] for item in before if "id" not in item)
    sentences += [
        Sentence(Effect.NEITHER, f"{number} of kind {kind} that you may not see will change")
        for kind, number in sorted(hidden.items())
    ]
    return sentences


def describe_id(full: str) -> str:
    """Return a full id as people say it: ``host apps/shop``."""
    _, kind, identifier = full.split(":", 2)
    kind = kind.replace("_", " ")
    return f"a {kind} that you may not see" if identifier == "[REDACTED]" else f"{kind} {escape_text(identifier)}"


class _AccessState:
    """Things at one moment that the caller sees, by full id, and access, counted since unknown ids look the same."""

    def __init__(self, items: Iterable[Mapping[str, Any]]) -> None:
        self.items = {item["identifier"]: item for item in items if "id" in item}
        #: Role, resource and privilege.
        self.permissions: Counter[tuple[str, str, str]] = Counter()
        #: Member and role. The owner of a role is its member, too, and isn't counted.
        self.memberships: Counter[tuple[str, str]] = Counter()
        for name, item in self.items.items():
            for privilege, resources in item.get("permissions", {}).items():
                self.permissions.update((name, resource, privilege) for resource in resources)
            for privilege, roles in item.get("permitted", {}).items():
                # The others say it themselves.
                self.permissions.update((role, name, privilege) for role in roles if role not in self.items)
            self.memberships.update((member, name) for member in item.get("members", ()) if member != item.get("owner"))
            self.memberships.update((name, role) for role in item.get("memberships", ()) if role not in self.items)


def _describe_owner(item: Mapping[str, Any]) -> str:
    return describe_id(item["owner"]) if "owner" in item else "one that you may not see"


def _common_items(old: _AccessState, new: _AccessState) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    return ((name, old.items[name], item) for name, item in new.items.items() if name in old.items)


def _owner_changes(old: _AccessState, new: _AccessState) -> Iterator[Sentence]:
    for name, before, after in _common_items(old, new):
        if before["owner"] != after["owner"]:
            text = f"{describe_id(name)} will be owned by {_describe_owner(after)}, no longer by {_describe_owner(before)}"
            yield Sentence(Effect.NEITHER, text)


def _permission_changes(effect: Effect, words: str, permissions: Counter[tuple[str, str, str]]) -> Iterator[Sentence]:
    privileges: dict[tuple[str, str], list[str]] = {}
    for role, resource, privilege in sorted(permissions):
        privileges.setdefault((role, resource), []).append(privilege)
    joint = " or " if effect is Effect.LOSS else " and "
    for (role, resource), several in privileges.items():
        yield Sentence(effect, f"{describe_id(role)} {words} {join_texts(several, joint)} {describe_id(resource)}")


def _membership_changes(effect: Effect, words: str, memberships: Counter[tuple[str, str]]) -> Iterator[Sentence]:
    return (Sentence(effect, f"{describe_id(member)} {words} {describe_id(role)}") for member, role in sorted(memberships))


def _restriction_changes(old: _AccessState, new: _AccessState) -> Iterator[Sentence]:
    for name, before, after in _common_items(old, new):
        ranges = after.get("restricted_to", [])
        if sorted(before.get("restricted_to", [])) == sorted(ranges):
            continue
        where = f"from {join_texts(sorted(ranges), ' and ')} only" if ranges else "from anywhere"
        yield Sentence(Effect.NEITHER, f"{describe_id(name)} may now log in {where}")


def _annotation_changes(old: _AccessState, new: _AccessState) -> Iterator[Sentence]:
    for name, before, after in _common_items(old, new):
        first, then = before.get("annotations", {}), after.get("annotations", {})
        differing = [key for key in sorted({*first, *then}) if first.get(key) != then.get(key)]
        if differing:
            yield Sentence(Effect.NEITHER, f"{describe_id(name)} has other annotations: {join_texts(differing, ' and ')}")


def join_texts(texts: list[str], joint: str) -> str:
    """Return texts as a list in words: ``a, b and c``."""
    texts = [escape_text(text) for text in texts]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])}{joint}{texts[-1]}"
