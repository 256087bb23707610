"""The use cases of reading many secrets at once (SEC-13, SEC-14, SEC-37 to SEC-42), and of logging in and reading them in
one request (SEC-43 to SEC-46).

Note [In pieces]. Ten thousand values are too many for one statement, and for one turn of the reactor. So they are read
``PIECE`` at a time, in the order of the request, and other requests are served between any two pieces. Each piece is read
from one state of the database; permission and value always are. A piece that is larger than ``PIECE_BYTES`` is read in
halves.

Note [One comparison]. The tag of a batch is a digest of the names of versions, not of values. If a client sends the tag that
it has, only the digest is read, which the store caches with all that it depends on, the caller's privileges first of all: if
one secret can't be read there is no digest, and the batch is read as without a tag, so that it is refused with the same
message. For a batch that wasn't read since it changed this costs one more read.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from svc.crypto.vault import Vault
from svc.model.authentication import LoginRequest
from svc.model.authorization import Denial, Denied, decide_privilege
from svc.model.errors import (
    AuthenticationRefused,
    CallerReplaced,
    Forbidden,
    InvalidName,
    InvalidParameter,
    NotText,
    NoValue,
    Refusal,
    TooLarge,
    WrongDataKey,
)
from svc.model.names import ResourceName
from svc.model.query_results import AccessFacts, Caller, SecretReading
from svc.model.reasons import Reason
from svc.services.invocation import Recorder
from svc.services.login import LoginService
from svc.services.reading_counts import ReadingCounter
from svc.storage.secrets import SecretStore

T = TypeVar("T")

#: How many secrets are read with one statement, and of how many bytes, sealed.
PIECE: Final = 1000
PIECE_BYTES: Final = 1024 * 1024

#: How many values are opened, or checked, before other requests are served.
_PAUSE_EVERY: Final = 500


@attrs.frozen
class BatchLimits:
    """How many secrets a batch may have, and of how many bytes all of them may be, sealed."""

    ids: int
    bytes: int


#: Those of a batch whose ids are in the query, of one whose ids are in the body, and of a login (LIM-16).
SHORT: Final = BatchLimits(1000, 1024 * 1024)
LONG: Final = BatchLimits(10_000, 4 * 1024 * 1024)
WITH_LOGIN: Final = BatchLimits(100, 1024 * 1024)


@attrs.frozen
class SecretBatch:
    """Values by the requested full ids, and why others aren't returned, by theirs.

    ``tag`` is ``None`` where something is refused, or no tag is wanted. ``known``: the tag shows that the reader has the
    values, and there are none here.
    """

    values: Mapping[str, bytes] = attrs.field(factory=dict, repr=False)
    refused: Mapping[str, Refusal] = attrs.field(factory=dict)
    tag: str | None = None
    known: bool = False


@attrs.frozen
class BatchService:
    """The use case of reading many secrets at once; the caller needs ``execute`` on each."""

    store: SecretStore
    vault: Vault
    clock: IReactorTime
    counter: ReadingCounter

    async def read_secrets(
        self,
        caller: Caller,
        recorder: Recorder,
        ids: Sequence[str],
        limits: BatchLimits = SHORT,
        *,
        is_known: Callable[[str], bool] | None = None,
        partial: bool = False,
        texts: bool = True,
        tagged: bool = True,
    ) -> SecretBatch:
        """Return the newest values of resources by their full ids, of which repeated ones count once.

        The first refusal is for one that is visible without ``execute``, then for one that isn't visible, then for one
        without a value; then for values that are too long together, for one that doesn't open, and, with ``texts``, for one
        that is no text (SEC-14). ``partial``: what can be read is returned, with the refusals of the others. ``is_known``
        returns whether the caller has the batch of a tag.

        :raises InvalidParameter: they are more than the limit.
        :raises Forbidden: the caller lacks the privilege on one that it sees, or its own role is gone.
        :raises NoValue: there is no value of one for this caller.
        :raises TooLarge: those that may be read have more bytes than the limit.
        :raises WrongDataKey: a value doesn't open.
        :raises NotText: a value is no UTF-8.
        """
        if len(ids) > limits.ids:
            raise InvalidParameter("variable_ids", f"'variable_ids' may name at most {limits.ids} secrets at once")
        recorder.add_audit_facts(resources=ids)
        if is_known is not None:
            tag = await self._compute_tag(caller, ids)
            if tag is not None and is_known(tag):
                recorder.add_audit_facts(resources=(), batch=tag, count=len(ids), known=True)
                self.counter.count_reads(caller, dict.fromkeys(ids).keys())
                return SecretBatch(tag=tag, known=True)
        recorder.add_audit_facts(resources=list(dict.fromkeys(ids)))
        readings = await self._read_pieces(caller, ids, limits.bytes)
        refused = await self._find_refusals(readings, limits, partial=partial)
        values = await self._decrypt_values(readings, refused, texts=texts, partial=partial)
        self.counter.count_reads(caller, values.keys())
        if refused or not tagged:
            return SecretBatch(values, refused)
        tag = _combine_digests([_digest_versions(piece, [readings[text] for text in piece]) for piece in _split_pieces(ids)])
        recorder.add_audit_facts(batch=tag, count=len(ids))
        return SecretBatch(values, tag=tag)

    async def _compute_tag(self, caller: Caller, ids: Sequence[str]) -> str | None:
        """Return the tag of a batch; ``None`` if one of its secrets can't be read (Note [One comparison])."""
        digests: list[str] = []
        for piece in _split_pieces(ids):
            if digests:
                await self._pause()
            digests.append(await self.store.digest_values(caller, piece, functools.partial(_digest_versions, piece)))
        return _combine_digests(digests) if all(digests) else None

    async def _read_pieces(self, caller: Caller, ids: Sequence[str], most: int) -> dict[str, SecretReading | None]:
        """Return the reading of each; ``None`` for a text that can't be an id (Note [In pieces])."""
        readings: dict[str, SecretReading | None] = {}
        for piece in _split_pieces(ids):
            if readings:
                await self._pause()
            names = {text: name for text in piece if (name := name_of(text)) is not None}
            some = await self._read_piece(caller, [*names.values()], most) if names else []
            found = dict(zip(names, some, strict=True))
            readings |= {text: found.get(text) for text in piece}
            most -= sum(len(reading.sealed) for reading in some if reading.sealed is not None)
        return readings

    async def _read_piece(self, caller: Caller, names: Sequence[ResourceName], most: int) -> list[SecretReading]:
        """Read at most so many bytes of values, or none where there are more."""
        readings = await self.store.read_newest_values(caller, names, min(most, PIECE_BYTES))
        if most <= PIECE_BYTES or len(names) == 1 or not any(map(_is_withheld, readings)):
            return readings
        half = len(names) // 2
        before = await self._read_piece(caller, names[:half], most)
        most -= sum(len(reading.sealed) for reading in before if reading.sealed is not None)
        await self._pause()
        return before + await self._read_piece(caller, names[half:], most)

    async def _find_refusals(
        self, readings: Mapping[str, SecretReading | None], limits: BatchLimits, *, partial: bool
    ) -> dict[str, Refusal]:
        """Return the refusals of what can't be read, if the rest is to be returned; else raise the first, by their order."""
        refused: dict[str, Refusal] = {}
        first: dict[SecretFault, Refusal] = {}
        allowed: AccessFacts | None = None
        for step, (text, reading) in enumerate(readings.items(), 1):
            if not step % _PAUSE_EVERY:
                await self._pause()
            # Most have the access facts of the one before.
            if reading is not None and reading.access_facts is allowed and reading.sealed is not None:
                continue
            fault = fault_of(reading)
            if fault is None:
                allowed = None if reading is None else reading.access_facts
                continue
            refused[text] = refusal_of(fault, text, reading, limits)
            # Hidden and missing secrets are reported in the order of the request, so that they look alike.
            first.setdefault(SecretFault.MISSING if fault is SecretFault.INVISIBLE else fault, refused[text])
        whole = {fault for fault in first if not partial or fault in _FATAL_FAULTS}
        if whole:
            raise first[min(whole)]
        return refused

    async def _decrypt_values(
        self,
        readings: Mapping[str, SecretReading | None],
        refused: dict[str, Refusal],
        *,
        texts: bool,
        partial: bool,
    ) -> dict[str, bytes]:
        """Return the values of those that aren't refused; further refusals are added to ``refused``, or raised."""
        values: dict[str, bytes] = {}
        unfit: list[Refusal] = []
        for step, (text, reading) in enumerate(readings.items(), 1):
            if not step % _PAUSE_EVERY:
                await self._pause()
            if text in refused or reading is None or reading.sealed is None:
                continue
            try:
                value = self.vault.open(text, reading.sealed)
            except WrongDataKey as refusal:
                if not partial:
                    raise
                refused[text] = refusal
                continue
            if texts and not _is_text(value):
                refused[text] = NotText(text)
                unfit.append(refused[text])
            else:
                values[text] = value
        if unfit and not partial:
            raise unfit[0]
        return values

    async def _pause(self) -> None:
        """Let other requests be served."""
        await deferLater(self.clock, 0)


class SecretFault(enum.IntEnum):
    """Why a value isn't returned, in the order of reporting. Values that weren't read are ``TOO_LARGE``."""

    CALLER_GONE = 0
    FORBIDDEN = 1
    MISSING = 2
    INVISIBLE = 3
    VALUELESS = 4
    TOO_LARGE = 5


#: The faults that affect a whole batch.
_FATAL_FAULTS: Final = frozenset({SecretFault.CALLER_GONE, SecretFault.TOO_LARGE})

_DENIALS: Final = {
    Denial.CALLER_GONE: SecretFault.CALLER_GONE,
    Denial.PRIVILEGE_MISSING: SecretFault.FORBIDDEN,
    Denial.MISSING: SecretFault.MISSING,
    Denial.INVISIBLE: SecretFault.INVISIBLE,
}


def fault_of(reading: SecretReading | None) -> SecretFault | None:
    """Return why a value isn't returned, ``None`` where it is; a text that can't be an id is never read."""
    if reading is None:
        return SecretFault.MISSING
    decision = decide_privilege(reading.access_facts, "execute")
    if isinstance(decision, Denied):
        return _DENIALS[decision.reason]
    if reading.version is None or reading.expired_at is not None:
        return SecretFault.VALUELESS
    return SecretFault.TOO_LARGE if reading.sealed is None else None


def refusal_of(fault: SecretFault, text: str, reading: SecretReading | None = None, limits: BatchLimits = SHORT) -> Refusal:
    """Return the refusal to return the value of a full id."""
    match fault:
        case SecretFault.CALLER_GONE:
            return Forbidden("role of the token no longer exists")
        case SecretFault.FORBIDDEN:
            return Forbidden(f"lacks execute on {text}")
        case SecretFault.TOO_LARGE:
            return TooLarge("all secrets that are read at once, sealed and together,", limits.bytes)
        case SecretFault.VALUELESS if reading is not None:
            return NoValue(text, reading.expired_at, readable=True)
        case _:
            return NoValue(text, hidden=fault is SecretFault.INVISIBLE)


def _digest_versions(ids: Sequence[str], readings: Sequence[SecretReading | None]) -> str:
    """Return a digest of the names of the newest versions; empty if the caller can't read one, or one has no value."""
    named = []
    for text, reading in zip(ids, readings, strict=True):
        if fault_of(reading) not in {None, SecretFault.TOO_LARGE} or reading is None:
            return ""
        named.append(f"{text} {reading.version} {reading.stamp}")
    return hashlib.sha256("\n".join(named).encode("utf-8")).hexdigest()


def _combine_digests(digests: Sequence[str]) -> str:
    """Return the tag of a batch of pieces with these digests."""
    return hashlib.sha256("".join(digests).encode("ascii")).hexdigest()[:32]


def _split_pieces(things: Sequence[T]) -> Iterator[Sequence[T]]:
    return (things[start : start + PIECE] for start in range(0, len(things), PIECE))


def _is_text(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_withheld(reading: SecretReading) -> bool:
    return fault_of(reading) is SecretFault.TOO_LARGE


@functools.lru_cache(1024)
def name_of(text: str) -> ResourceName | None:
    """Return the resource of a full id; ``None`` when none can have that id. Cached, since requests repeat ids."""
    try:
        return ResourceName.parse(text)
    except InvalidName:
        return None


async def login_and_read(
    login: LoginService,
    batches: BatchService,
    request: LoginRequest,
    recorder: Recorder,
    ids: Sequence[str],
    *,
    partial: bool,
    texts: bool,
) -> tuple[bytes, SecretBatch]:
    """Return an access token for the role that a request proves, and secrets as ``BatchService.read_secrets`` reads them for
    it.

    Nothing is looked up before the login is admitted, and no token is issued if the secrets are refused.

    :raises AuthenticationRefused: the login is refused.
    :raises Forbidden: as ``BatchService.read_secrets``, which raises the rest, too.
    """
    admitted = await login.admit_request(request, recorder)
    caller = Caller(admitted.role, 0, admitted.creation, admitted.epoch)
    try:
        batch = await batches.read_secrets(caller, recorder, ids, WITH_LOGIN, partial=partial, texts=texts, tagged=False)
    except CallerReplaced:
        # The role was deleted, or its tokens revoked, while it logged in.
        raise AuthenticationRefused(Reason.ROLE_UNKNOWN) from None
    return await login.issue_token(admitted), batch
