"""Pieces of an inventory as documents of policy, each for one policy of the target.

Note [Places]. A load is recorded by the policy that it goes to (POL-34). So each record goes to the policy that declared it,
as far as its id can be declared there, and else to the root; the id comes out as it was, also of users, whose ids the
language rewrites (POL-29).

Note [Quoted]. Every text is in double quotes and spelt out where it isn't plain, so that no reader takes it for a number, a
date, an alias or a directive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import attrs

from svc.importing.inventory import Grant, Permission, Record, RecordId

ROOT: Final = "root"

#: Statements, and characters, of a document at the most.
STATEMENTS: Final = 500
SIZE: Final = 512 * 1024

_TAGS: Final = {
    **{kind: kind for kind in ("policy", "user", "host", "group", "layer", "variable", "webservice")},
    "host_factory": "host-factory",
}

#: The longest key of YAML that needs no mark of its own.
_KEY: Final = 128


@attrs.frozen
class Statement:
    """A statement of policy, and the policy to load it into. ``about`` is what it is about, for messages."""

    branch: str
    text: str
    about: str
    #: The host or user that it makes, if it makes one.
    actor: RecordId | None = None


@attrs.frozen
class Piece:
    """Statements for one load."""

    branch: str
    statements: tuple[Statement, ...]

    @property
    def text(self) -> str:
        """Return the document."""
        return "".join(f"- {each.text}\n" for each in self.statements)

    def halves(self) -> tuple[Piece, Piece]:
        """Return it in two."""
        half = len(self.statements) // 2
        return Piece(self.branch, self.statements[:half]), Piece(self.branch, self.statements[half:])


def cut_pieces(statements: Iterable[Statement]) -> Iterator[Piece]:
    """Return pieces that are small enough, each with statements of one policy; the order within a policy is kept."""
    branches: dict[str, list[Statement]] = {}
    for each in statements:
        branches.setdefault(each.branch, []).append(each)
    for branch, found in branches.items():
        piece: list[Statement] = []
        size = 0
        for each in found:
            if piece and (len(piece) == STATEMENTS or size + len(each.text) > SIZE):
                yield Piece(branch, tuple(piece))
                piece, size = [], 0
            piece.append(each)
            size += len(each.text)
        if piece:
            yield Piece(branch, tuple(piece))


def find_place(record: Record, policies: Collection[str]) -> tuple[str, str | None]:
    """Return the policy to load a record into, and its id there, ``None`` for the policy's own (Note [Places])."""
    name, branch = record.id.identifier, record.policy
    if branch is None or branch == ROOT or branch not in policies:
        return ROOT, name
    if record.id.kind == "user":
        own = name.removesuffix("@" + branch.replace("/", "-"))
        return (branch, own) if own not in {"", name} and "/" not in own else (ROOT, name)
    if name == branch and record.id.kind != "policy":
        return branch, None
    below = name.removeprefix(f"{branch}/")
    return (branch, below) if below != name and below and not below.startswith("/") else (ROOT, name)


def default_owner(branch: str) -> RecordId:
    """Return the owner of what a policy declares without one (POL-32)."""
    return RecordId("user", "admin") if branch == ROOT else RecordId("policy", branch)


def declare(record: Record, policies: Collection[str]) -> Statement:
    """Return the declaration of a record, with all its attributes; without an owner it gets the default."""
    branch, ident = find_place(record, policies)
    attributes = [f'"kind": {quote_text(record.id.kind)}'] if record.id.kind not in _TAGS else []
    if ident is not None:
        attributes.append(f'"id": {quote_text(ident)}')
    if record.owner is not None and record.owner != default_owner(branch):
        attributes.append(f'"owner": {write_reference(record.owner)}')
    if record.annotations:
        pairs = ", ".join(_write_pair(name, value) for name, value in sorted(record.annotations.items()))
        attributes.append(f'"annotations": {{{pairs}}}')
    if record.restricted_to:
        attributes.append(f'"restricted_to": [{", ".join(map(quote_text, record.restricted_to))}]')
    if record.public_keys:
        attributes.append(f'"public_keys": [{", ".join(quote_text(text) for _, text in record.public_keys)}]')
    if record.id.kind == "host_factory":
        attributes.append(f'"layers": [{", ".join(map(write_reference, record.layers))}]')
    actor = record.id if record.id.kind in {"user", "host"} else None
    body = f" {{{', '.join(attributes)}}}" if attributes else ""
    return Statement(branch, f"!{_tag(record.id.kind)}{body}", str(record.id), actor)


def grant_membership(grant: Grant, policies: Collection[str]) -> Statement:
    """Return the statement of a membership, with its admin option."""
    member = write_reference(grant.member)
    if grant.admin:
        member = f'!member {{"role": {member}, "admin": true}}'
    text = f'!grant {{"role": {write_reference(grant.role)}, "member": {member}}}'
    return Statement(_branch(grant.policy, policies), text, f"{grant.member} in {grant.role}")


def permit(permission: Permission, policies: Collection[str]) -> Statement:
    """Return the statement of a permission."""
    text = (
        f'!permit {{"role": {write_reference(permission.role)}, "privilege": {quote_text(permission.privilege)},'
        f' "resource": {write_reference(permission.resource)}}}'
    )
    about = f"{permission.privilege} on {permission.resource} for {permission.role}"
    return Statement(_branch(permission.policy, policies), text, about)


def _branch(policy: str | None, policies: Collection[str]) -> str:
    return policy if policy is not None and policy in policies else ROOT


def write_reference(name: RecordId) -> str:
    """Return a reference by an absolute id (POL-26)."""
    path = quote_text(f"/{name.identifier}")
    if name.kind in _TAGS:
        return f"!{_TAGS[name.kind]} {path}"
    return f'!resource {{"kind": {quote_text(name.kind)}, "id": {path}}}'


def _tag(kind: str) -> str:
    return _TAGS.get(kind, "resource")


def _write_pair(name: str, value: str) -> str:
    key = quote_text(name)
    return f"{key}: {quote_text(value)}" if len(key) <= _KEY else f"? {key} : {quote_text(value)}"


def quote_text(text: str) -> str:
    """Return a text as a scalar of YAML (Note [Quoted])."""
    plain = (char if char.isprintable() and char not in '"\\%' else _escape(char) for char in text)
    return '"' + "".join(plain) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
