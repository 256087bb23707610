"""The differences that a load would make, thing by thing, limited to what the caller may know (POL-69 to POL-72).

An *item* is a thing at one moment, in the form of the API. Of its unchanged rows it may list only a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

import attrs

from svc.model.names import ROLE_KINDS, is_role_kind
from svc.model.policy_loads import (
    BATCH_CHARACTERS,
    Batches,
    Changes,
    DryRun,
    Item,
    ResourceRow,
    Rows,
    Surroundings,
    count_characters,
)

_Row = TypeVar("_Row", bound=tuple[Any, ...])

REDACTED: Final = "[REDACTED]"  # in the place of an identifier that the caller may not know
_PART: Final = 250  # names or texts that a part of an item has


@attrs.frozen
class LoadImpact:
    """The rows that a load may change, the things that these concern, and the owners whom the changes name.

    Concerned are the things themselves, and both ends of memberships and permissions; the owner of an ownership only on
    request.
    """

    rows: Rows
    concerned: tuple[str, ...]
    owners: frozenset[str]


def find_impact(changes: Changes, impact: Rows, owners_too: bool) -> LoadImpact:
    """Return what the changes touch, with ``impact``, the rows that go when others do; ``owners_too`` of roles in either."""
    merged = _merge_rows([changes.create, changes.update, changes.delete, impact])
    concerned = tuple(sorted({*_concerned_names(merged, owners_too)}))
    rows = attrs.evolve(merged, resources=tuple(ResourceRow(name, "") for name in concerned), restrictions=())
    owners = frozenset(row.owner for changed in (changes.create, changes.update) for row in changed.resources)
    return LoadImpact(rows, concerned, owners)


def _merge_rows(several: Sequence[Rows]) -> Rows:
    return Rows(
        _unique_by_key((row for rows in several for row in rows.resources), 1),
        _unique_by_key((row for rows in several for row in rows.memberships), 3),
        _unique_by_key((row for rows in several for row in rows.permissions), 3),
        _unique_by_key((row for rows in several for row in rows.annotations), 2),
        _unique_by_key((row for rows in several for row in rows.restrictions), 2),
    )


def _unique_by_key(rows: Iterable[_Row], width: int) -> tuple[_Row, ...]:
    return tuple({row[:width]: row for row in rows}.values())


def _concerned_names(rows: Rows, owners_too: bool) -> Iterator[str]:
    yield from (row.resource for row in rows.resources)
    yield from (role for row in rows.memberships if owners_too or not row.ownership for role in row[:2])
    yield from (name for row in rows.permissions for name in (row.resource, row.role))
    yield from (row.resource for row in rows.annotations)
    yield from (row.role for row in rows.restrictions)


def list_mentioned(policy: str, touched: LoadImpact, surroundings: Surroundings) -> list[str]:
    """Return the full ids that items may name when ``policy`` is loaded."""
    names = {policy, *touched.concerned, *touched.owners}
    for rows in (touched.rows, surroundings.rows):
        names.update(name for row in rows.memberships for name in row[:2])
        names.update(name for row in rows.permissions for name in (row.resource, row.role))
    names.update(
        name for seen in surroundings.recorded_owners.values() for name in (seen.owner, seen.policy) if name is not None
    )
    return sorted(names)


def compute_differences(
    policy: str, touched: LoadImpact, surroundings: Surroundings, before: Rows, after: Rows, visible: frozenset[str] | None
) -> DryRun:
    """Compare what was stored before and after a load into ``policy``; the caller sees what is ``visible``, or all."""
    old, new = (_ItemSnapshot(touched.rows, surroundings.rows, stored) for stored in (before, after))
    shown = _Redaction(policy, surroundings, visible)
    created, updated, deleted = list[Item](), list[tuple[Item, Item]](), list[Item]()
    for name in touched.concerned:
        first, then = old.build_item(name, shown), new.build_item(name, shown)
        if first is None and then is not None:
            created.append(shown.redact_item(name, then))
        elif then is None and first is not None:
            deleted.append(shown.redact_item(name, first))
        elif first is not None and then is not None and first != then:
            updated.append((shown.redact_item(name, first), shown.redact_item(name, then)))
    # In the order of what is shown: the order of the names would reveal something about hidden ones.
    created.sort(key=_item_identifier)
    deleted.sort(key=_item_identifier)
    updated.sort(key=lambda items: _item_identifier(items[0]))
    return DryRun(
        _batch_items(created),
        _batch_items(before for before, _ in updated),
        _batch_items(after for _, after in updated),
        _batch_items(deleted),
    )


def _item_identifier(item: Item) -> str:
    return str(item["identifier"])


def _batch_items(items: Iterable[Item]) -> Batches[Item]:
    return Batches.from_values(chain.from_iterable(map(_split_item, items)))


def _split_item(item: Item) -> Iterator[Item]:
    """Divide an item that is longer than a batch."""
    if count_characters(item) <= BATCH_CHARACTERS:
        yield item
        return
    for field, value in item.items():
        for some in _split_value(value):
            yield {field: some}


def _split_value(value: object) -> Iterator[object]:
    """Divide a list, or what a mapping maps to; what is empty stays so."""
    if isinstance(value, list) and value:
        yield from (value[start : start + _PART] for start in range(0, len(value), _PART))
    elif isinstance(value, dict) and value:
        yield from ({name: some} for name, each in value.items() for some in _split_value(each))
    else:
        yield value


class _Redaction:
    def __init__(self, policy: str, surroundings: Surroundings, visible: frozenset[str] | None) -> None:
        self._policy = policy
        self._surroundings = surroundings
        self._visible = visible

    def recorder_of(self, name: str) -> str | None:
        """Return the policy that recorded a thing; new things are recorded by the loaded one."""
        seen = self._surroundings.recorded_owners.get(name)
        return self._policy if seen is None else seen.policy

    def is_visible(self, name: str) -> bool:
        """Return whether the caller sees a thing."""
        return self._visible is None or name in self._visible

    def redact_name(self, name: str) -> str:
        """Return a full id as the caller may know it."""
        if self.is_visible(name):
            return name
        account, kind, _ = name.split(":", 2)
        return f"{account}:{kind}:{REDACTED}"

    def redact_names(self, names: Iterable[str]) -> list[str]:
        """Return full ids as the caller may know them."""
        return sorted(self.redact_name(name) for name in names)

    def redact_item(self, name: str, item: Item) -> Item:
        """Return an item, with only the type left when the caller doesn't see the thing."""
        if not self.is_visible(name):
            return {"identifier": self.redact_name(name), "type": item["type"]}
        shown = dict(item)
        for field in ("owner", "policy"):
            if isinstance(value := item.get(field), str):
                shown[field] = self.redact_name(value)
        for field in ("members", "memberships"):
            if isinstance(value := item.get(field), list):
                shown[field] = self.redact_names(value)
        for field in ("permissions", "permitted"):
            if isinstance(value := item.get(field), dict):
                shown[field] = {privilege: self.redact_names(names) for privilege, names in value.items()}
        return shown


class _ItemSnapshot:
    """Things at one moment: the stored rows that the load touches, and those that it leaves alone."""

    def __init__(self, touched: Rows, around: Rows, stored: Rows) -> None:
        self._owners = dict(stored.resources)
        self._members: dict[str, set[str]] = {}
        self._memberships: dict[str, set[str]] = {}
        self._permissions: dict[str, dict[str, set[str]]] = {}
        self._permitted: dict[str, dict[str, set[str]]] = {}
        self._annotations: dict[str, dict[str, str]] = {}
        self._restrictions: dict[str, list[str]] = {}
        for role, cidr in sorted(stored.restrictions):
            self._restrictions.setdefault(role, []).append(cidr)
        for role, member, *_ in (*_untouched_rows(around.memberships, touched.memberships, 3), *stored.memberships):
            self._members.setdefault(role, set()).add(member)
            self._memberships.setdefault(member, set()).add(role)
        for resource, privilege, role in (*_untouched_rows(around.permissions, touched.permissions, 3), *stored.permissions):
            self._permissions.setdefault(role, {}).setdefault(privilege, set()).add(resource)
            self._permitted.setdefault(resource, {}).setdefault(privilege, set()).add(role)
        for resource, name, value in (*_untouched_rows(around.annotations, touched.annotations, 2), *stored.annotations):
            self._annotations.setdefault(resource, {})[name] = value

    def build_item(self, name: str, shown: _Redaction) -> Item | None:
        """Return the item of a thing, ``None`` when it isn't there; ids as they are."""
        owner = self._owners.get(name)
        if owner is None:
            return None
        _, kind, identifier = name.split(":", 2)
        item: Item = {"identifier": name, "id": identifier, "type": kind, "owner": owner}
        recorder = shown.recorder_of(name)
        if recorder is not None:
            item["policy"] = recorder
        is_role = is_role_kind(kind)
        if is_role:
            item["permissions"] = _sorted_lists(self._permissions.get(name, {}))
        if kind not in ROLE_KINDS:
            item["permitted"] = _sorted_lists(self._permitted.get(name, {}))
        item["annotations"] = dict(sorted(self._annotations.get(name, {}).items()))
        if is_role:
            item["members"] = sorted(self._members.get(name, ()))
            item["memberships"] = sorted(self._memberships.get(name, ()))
            item["restricted_to"] = self._restrictions.get(name, [])
        return item


def _untouched_rows(rows: Sequence[_Row], touched: Sequence[_Row], width: int) -> Iterable[_Row]:
    """Return the rows that the load doesn't touch."""
    keys = {row[:width] for row in touched}
    return (row for row in rows if row[:width] not in keys)


def _sorted_lists(names: dict[str, set[str]]) -> dict[str, list[str]]:
    return {key: sorted(values) for key, values in sorted(names.items())}
