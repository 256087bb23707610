"""Names of a Vault as ids here: branches, variables, hosts, groups; and what to call those that can't keep theirs.

Ids follow paths there: the secret ``app/db`` of the engine ``secret/`` in the namespace ``team/`` becomes
``team/secret/app/db``. Policies and logins are below ``sys`` and ``auth``, where no engine can be.

Note [Reserved]. Variables below ``conjur/authn-…`` are the settings of authenticators here, its keys among them, and its
groups decide who may log in. The writer of a secret there mustn't choose them, so no path there becomes an id of these.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import quote

import attrs

from svc.importing.inventory import ADMIN_ID, Note, NoteKind, Record, RecordId
from svc.model.names import IDENTIFIER_LIMIT
from svc.model.text import quote_text

_ADMIN: Final = RecordId("user", ADMIN_ID)

#: The ids of authenticators and what is theirs, in both dialects (Note [Reserved]).
_RESERVED: Final = re.compile(r"(?:conjur|svc)/authn")

_CUT: Final = 80  #: The bytes of an id that is too long, before the digest of all of it.


def propose_identifier(path: str) -> str:
    """Return the id of a path: itself, or where ours can't hold it the most similar one, which no other path gets."""
    parts = [_propose_segment(part) for part in path.split("/")]
    proposed = "/".join(parts)
    if len(proposed.encode()) <= IDENTIFIER_LIMIT:
        return proposed
    digest = hashlib.sha256(path.encode()).hexdigest()[:16]
    kept, size = [], 0
    for part in parts[:-1]:
        size += len(part.encode()) + 1
        if size > IDENTIFIER_LIMIT - _CUT - 20:
            break
        kept.append(part)
    begin = parts[-1].encode()[: _CUT - 20].decode("utf-8", "ignore").rstrip()
    return "/".join([*kept, f"{begin}~{digest}"])


def _propose_segment(part: str) -> str:
    """Return a segment without NUL, and without blanks at its ends; a blank one, or one of dots, is encoded as in a URL."""
    if not part.strip() or part in {".", ".."}:
        return "".join(f"%{byte:02X}" for byte in part.encode()) or "%"
    begin, end = len(part) - len(part.lstrip()), len(part.rstrip())
    middle = part[begin:end].replace("\x00", "%00")
    return f"{quote(part[:begin], safe='')}{middle}{quote(part[end:], safe='')}"


@attrs.define
class Records:
    """Records as they are found, each id once, with the branches above them; ``into`` is the branch above all."""

    into: str = ""
    _records: dict[RecordId, Record] = attrs.field(factory=dict, init=False)
    _origins: dict[RecordId, str] = attrs.field(factory=dict, init=False)
    _may_be_reserved: bool = attrs.field(default=False, init=False)
    notes: list[Note] = attrs.field(factory=list, init=False)

    def note(self, kind: NoteKind, what: str, why: str, remedy: str = "") -> None:
        """Add a line of the plan."""
        self.notes.append(Note(kind, what, why, remedy))

    def identify(self, path: str) -> str:
        """Return the id of a path there."""
        return propose_identifier(f"{self.into}/{path}" if self.into else path)

    def add_branch(self, path: str) -> str:
        """Add the branches of a path, which ends with a slash unless it is empty; return the id of the innermost.

        Those of authenticators are left out (Note [Reserved]).
        """
        parts = f"{self.into}/{path}".strip("/").split("/") if f"{self.into}{path}" else []
        above: RecordId | None = None
        for end in range(1, len(parts) + 1):
            identifier = propose_identifier("/".join(parts[:end]))
            if self._is_reserved(identifier):
                break
            name = RecordId("policy", identifier)
            if name not in self._records:
                self._records[name] = Record(name, owner=above or _ADMIN, policy=above.identifier if above else "root")
            above = name
        return above.identifier if above else "root"

    def add(self, kind: str, folder: str, name: str, origin: str, **more: object) -> RecordId | None:
        """Add the record of something that ``origin`` describes; ``None`` where another has its id.

        One that would be an authenticator's is left out, too (Note [Reserved]).

        Its branch is that of ``folder``, which ends with a slash unless it is empty; ``name`` is the rest of its path.

        A user's id is that of the user of this path, as loads of policy make it.
        """
        path = f"{folder}{name}"
        identifier = self.identify(path)
        if self._is_reserved(identifier):
            why = "ids that begin with conjur/authn or svc/authn are those of authenticators and their settings"
            self.note(NoteKind.LEFT_OUT, origin, why, "give a branch by --into, or rename it there")
            return None
        branch = self.add_branch(folder)
        if identifier != (f"{self.into}/{path}" if self.into else path):
            self.note(
                NoteKind.CHANGED, origin, f"no id here can be {quote_text(path)}", f"it is {quote_text(identifier)} here"
            )
        if kind == "user":
            above, slash, last = identifier.rpartition("/")
            identifier = f"{last}@{above.replace('/', '-')}" if slash else last
        added = RecordId(kind, identifier)
        if added in self._records:
            other = self._origins.get(added, "another")
            self.note(NoteKind.LEFT_OUT, origin, f"{other} has the id {quote_text(identifier)}", "rename one of them there")
            return None
        owner = _ADMIN if branch == "root" else RecordId("policy", branch)
        self._records[added] = Record(added, owner=owner, policy=branch, **more)  # type: ignore[arg-type]
        self._origins[added] = origin
        return added

    def add_on_top(self, kind: str, folder: str, name: str, origin: str, **more: object) -> RecordId | None:
        """Add a record of an authenticator, whose place doesn't depend on ``into``."""
        into, self.into, self._may_be_reserved = self.into, "", True
        try:
            return self.add(kind, folder, name, origin, **more)
        finally:
            self.into, self._may_be_reserved = into, False

    def _is_reserved(self, identifier: str) -> bool:
        return not self._may_be_reserved and _RESERVED.match(identifier) is not None

    def change(self, name: RecordId, **changes: object) -> None:
        """Replace attributes of a record."""
        self._records[name] = attrs.evolve(self._records[name], **changes)  # type: ignore[arg-type]

    def __getitem__(self, name: RecordId) -> Record:
        return self._records[name]

    def sorted(self) -> tuple[Record, ...]:
        """Return all records in order."""
        return tuple(_withhold_key(self._records[name]) for name in sorted(self._records))


def _withhold_key(record: Record) -> Record:
    """Return a host or user that had no key with the annotation by which it gets none here."""
    if record.id.kind not in {"host", "user"} or record.had_api_key:
        return record
    return attrs.evolve(record, annotations={**record.annotations, "authn/api-key": "false"})
