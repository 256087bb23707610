"""A record of the audit, one line in the form of RFC 5424, and the chain of a server's records.

::

    <86>1 2026-… host svc r-42 fetch [chain@43868 id="5f…" number="17" length="210" digest="…"][subject@43868 …]… message

Text from outside is escaped first: nothing can end a line, or look like the end of a value. So each record is one line, and
a parser of the RFC reads back exactly what was written. Parts that many records have in common aren't cached: that helped
no more callers than fit, and cost each of them a lookup.

Each record has a number and a keyed digest, which depends on all before it (AUD-33). The digest is BLAKE2b under the audit
key (RFC 7693), of 24 bytes, over the digest of the record before and the bytes of this one without its own; an HMAC would
take three times as long. ``length`` counts the bytes after the element: so a truncated line is recognized.

Note [Under the lock]. Number and digest are taken under the lock of the file, by the sink that writes first. An incomplete
record has taken no number: so the lines of files are numbered without gaps, whichever process dies, and whatever a disk has
no room for. The end of the chain is moved on after the write. A process that dies in between leaves the mark of the lock,
and then the last line of the file decides (:meth:`Chain.recover_end`). Numbers that were given out before the write would be
lost with a process, and look like records that somebody removed.

Note [One key]. The key is not replaced by its hash after each record. That would keep an intruder from writing old records
again if the first key were nowhere on the server; but verifying takes it, and the server can open it. An anchor, which is
kept elsewhere, protects the past in all cases, and is simpler.

Note [The end]. The end outlives a restart: it is saved when the server stops. After a crash it is found in the audit file:
the last record whose digest fits. Where there is none, another chain begins, whose first record says after which, and the
number up to which that one is known to have come: nobody knows what else it had.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from svc.model.clocks import WallClock
from svc.model.events import OUTCOME_UNKNOWN, WARNING, AuditContext, Event, EventSource, Outcome
from svc.model.text import escape_unprintable

#: Bytes of a parameter's value, and of a message, before they are escaped; longer ones are truncated, and end with "…".
VALUE_LIMIT: Final = 1200
MESSAGE_LIMIT: Final = 2400

#: Bytes of a record, whose values are cut to ``SHORT_VALUE_LIMIT`` where it would have more, and of its header up to the
#: request's id with the element of the chain.
RECORD_LIMIT: Final = 16 * 1024
SHORT_VALUE_LIMIT: Final = 240
HEADER_LIMIT: Final = 768

#: Characters up to which a record is within its limit, whatever they are: one takes four bytes at most.
_SAFE_LENGTH: Final = (RECORD_LIMIT - HEADER_LIMIT) // 4

#: The number under which the ids of structured data are registered (AUD-11).
ENTERPRISE: Final = "43868"

#: Values that need no escape, as most; characters that need one; fields of the header, and characters that none has
#: (RFC 5424, 6: PRINTUSASCII).
_PLAIN: Final = re.compile(r"[ !#-\[^-~]*")
_ESCAPED: Final = re.compile(r'["\\\]]')
_FIELD: Final = re.compile(r"[!-~]+")
_NO_FIELD: Final = re.compile(r"[^!-~]")

#: The beginning of a message that has more than ASCII (RFC 5424, 6.4).
_BOM: Final = "\ufeff"


def truncate_printable(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` bytes and an ellipsis, in which every character can be seen."""
    shown = escape_unprintable(text, limit)
    encoded = shown.encode()
    return shown if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"


def quote_value(text: str, limit: int = VALUE_LIMIT) -> str:
    """Return a value as it stands between the quotation marks of a parameter (RFC 5424, 6.3.3)."""
    if len(text) <= limit and _PLAIN.fullmatch(text):
        return text
    return _ESCAPED.sub(r"\\\g<0>", truncate_printable(text, limit))


def format_field(text: str, limit: int) -> str:
    """Return a field of the header: printable ASCII without blanks, and ``-`` where there is none."""
    if len(text) <= limit and _FIELD.fullmatch(text):
        return text
    return _NO_FIELD.sub("?", text)[:limit] or "-"


def _format_record(origin: AuditContext, event: Event, outcome: Outcome, limit: int) -> str:
    """Return a record from the kind of its message to its end (AUD-11), with values of at most so many bytes."""
    msgid, operation, subject, did, does, user, authenticator, service, policy, _, _, _ = event
    client_ip, reason = origin.client_ip, outcome.reason
    user = user or origin.user
    if reason is None:
        result, message = "success", f"{user or 'somebody'} {did}"
    elif reason == OUTCOME_UNKNOWN:
        result, message = "unknown", f"{user or 'somebody'} tried to {does}, and may have: {reason}"
    else:
        result, message = "failure", f"{user or 'somebody'} failed to {does}: {reason}"
    values = "".join([value for _, value in subject])
    values += "" if policy is None else policy[0]
    texts = f"{msgid}{message}{authenticator}{service}{client_ip}{operation}{reason}{values}"
    # Most have nothing to quote, which is found sooner of all together.
    if len(texts) > limit or not _PLAIN.fullmatch(texts) or " " in msgid:
        msgid = format_field(msgid, 32)
        user, authenticator, service, reason = (
            None if text is None else quote_value(text, limit) for text in (user, authenticator, service, reason)
        )
        operation, client_ip, message = (
            quote_value(operation, limit),
            quote_value(client_ip, limit),
            truncate_printable(message, MESSAGE_LIMIT),
        )
        subject = tuple([(name, quote_value(value, limit)) for name, value in subject])
        policy = None if policy is None else (quote_value(policy[0], limit), policy[1])
        message = message if message.isascii() else _BOM + message
    about = "".join([f' {name}="{value}"' for name, value in subject])
    about = f"[subject@{ENTERPRISE}{about}]" if about else ""
    who = "" if user is None else f' user="{user}"'
    if authenticator is not None:
        who += f' authenticator="{authenticator}"'
    if service is not None:
        who += f' service="{service}"'
    who = who or ' user="-"'
    done = f'result="{result}" operation="{operation}"' + ("" if reason is None else f' reason="{reason}"')
    done += ' stale="true"' if outcome.stale else ""
    loaded = "" if policy is None else f'[policy@{ENTERPRISE} id="{policy[0]}" version="{policy[1]}"]'
    data = f'[auth@{ENTERPRISE}{who}][client@{ENTERPRISE} ip="{client_ip}"][action@{ENTERPRISE} {done}]{loaded}'
    return f"{msgid} {about}{data} {message}"


class RecordFormatter:
    """Writes records of one server."""

    def __init__(self, server: EventSource, wall: WallClock) -> None:
        self._server = f"Z {format_field(server.hostname, 255)} {format_field(server.appname, 48)} "
        self._wall = wall
        self._second = -1
        self._date = ""

    def format_events(self, origin: AuditContext, events: Sequence[Event], outcome: Outcome) -> list[bytes]:
        """Return the lines of events, without their ends."""
        now = self._wall.seconds()
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        milliseconds = int((now - second) * 1000)
        header = f">1 {self._date}.{milliseconds:03}{self._server}{format_field(origin.request_id, 128)} "
        lines: list[bytes] = []
        for event in events:
            its = outcome if event.reason is None or outcome.reason is not None else Outcome(event.reason, outcome.stale)
            text = _format_record(origin, event, its, VALUE_LIMIT)
            if len(text) > _SAFE_LENGTH and len(text.encode()) > RECORD_LIMIT - HEADER_LIMIT:
                text = _format_record(origin, event, its, SHORT_VALUE_LIMIT)
            severity = event.severity if its.reason is None else WARNING
            lines.append(f"<{event.facility * 8 + severity}{header}{text}".encode())
        return lines


KEY_BYTES: Final = 32
DIGEST_BYTES: Final = 24
_ID_BYTES: Final = 8

#: Bytes at the end of a file among which the last records are looked for.
TAIL_BYTES: Final = 16 * RECORD_LIMIT

#: A record with its element: what the digest is of before it, id, number, predecessor, length, digest, and what follows.
CHAINED_RECORD: Final = re.compile(
    rb'((?:[^ ]+ ){6}\[chain@%b id="([0-9a-f]{16})" number="([1-9][0-9]{0,18})"'
    rb'(?: after="(none|[0-9a-f]{16} [0-9]{1,19})")? length="([0-9]{1,6})") digest="([A-Za-z0-9+/]{32})"\](.*)'
    % ENTERPRISE.encode(),
    re.DOTALL,
)

#: In shared memory: id, number and digest of the last record; id and number of the end after which this chain began.
_STATE: Final = struct.Struct(f"<{_ID_BYTES}sQ{DIGEST_BYTES}s{_ID_BYTES}sQ")
_LAST: Final = struct.Struct(f"<Q{DIGEST_BYTES}s")
STATE_BYTES: Final = _STATE.size

_NO_CHAIN: Final = bytes(_ID_BYTES)
_NO_DIGEST: Final = bytes(DIGEST_BYTES)

_log = Logger("svc.audit.chain")


@attrs.frozen
class ChainEnd:
    """The last record of a chain: its number, 0 before the first, and its digest."""

    chain: str
    number: int
    digest: bytes = _NO_DIGEST


def digest_of(key: bytes, before: bytes, head: bytes, rest: bytes) -> bytes:
    """Return the digest of a record, after that of the one before."""
    return blake2b(before + head + rest, key=key, digest_size=DIGEST_BYTES).digest()


class Chain:
    """The chain of one server, whose processes share ``state``, of ``STATE_BYTES``; one that has none begins with it.

    ``saved`` is the file that has its end while the server doesn't run, for the process that begins and ends it.
    """

    def __init__(self, key: bytes, state: bytearray | memoryview | None = None, saved: Path | None = None) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of a chain has {KEY_BYTES} bytes")
        self._key, self._end_file = key, saved
        self._state = bytearray(STATE_BYTES) if state is None else state
        self._stamped: list[tuple[int, bytes]] = []
        #: How elements begin in the chain of this id.
        self._element_chain = self._element = b""

    @property
    def end(self) -> ChainEnd:
        """The last record."""
        chain, number, digest, _, _ = _STATE.unpack_from(self._state)
        return ChainEnd(chain.hex(), number, digest)

    def stamp_records(self, records: Sequence[bytes]) -> list[bytes]:
        """Return records as they are written if all of them are; the end stays where it is (:meth:`advance_end`)."""
        chain, number, digest, after_chain, known = _STATE.unpack_from(self._state)
        key, after = self._key, b"" if number else _format_predecessor(after_chain, known)
        following: list[tuple[int, bytes]] = []
        lines: list[bytes] = []
        if chain != self._element_chain:
            self._element_chain, self._element = chain, b'[chain@43868 id="%b" number="' % chain.hex().encode()
        element = self._element
        for record in records:
            rest = record.split(b" ", 6)[6]
            number += 1
            head = b'%b%b%d"%b length="%d"' % (record[: -len(rest)], element, number, after, len(rest))
            digest = blake2b(digest + head + rest, key=key, digest_size=DIGEST_BYTES).digest()
            lines.append(b'%b digest="%b"]%b' % (head, b2a_base64(digest, newline=False), rest))
            following.append((number, digest))
            after = b""
        self._stamped = following
        return lines

    def advance_end(self, count: int) -> None:
        """Move the end to the last of the first ``count`` that were stamped."""
        if count:
            _LAST.pack_into(self._state, _ID_BYTES, *self._stamped[count - 1])

    def resume_chain(self, path: Path | None) -> None:
        """Go on where the chain ended; ``path`` is the file to which records are appended, if that can be read."""
        saved, stopped = self._read_saved_end()
        found = find_chain_end(self._key, _read_file_tail(path), saved)
        if found is not None:
            self._continue_from(found)
        elif saved is not None and stopped:
            self._continue_from(saved)
        else:
            self._begin_new_chain(saved)
            if saved is not None:
                _log.warn(
                    "The end of the audit's chain {chain} was not found, so another one begins, which `svc audit verify`"
                    " tells of",
                    chain=saved.chain,
                )
        self._save_end(stopped=False)

    def recover_end(self, descriptor: int) -> None:
        """Find the end where a process died that may have written to this file (Note [Under the lock])."""
        end = self.end
        try:
            readable = stat.S_ISREG(os.fstat(descriptor).st_mode)
            tail = _read_tail(descriptor) if readable else None
        except OSError:
            tail = None
        if tail is None:
            self._begin_new_chain(end)
        else:
            self._continue_from(find_chain_end(self._key, tail, end) or end)

    def close(self) -> None:
        """Save the end, for the next start."""
        self._save_end(stopped=True)

    def _continue_from(self, end: ChainEnd) -> None:
        # Of a chain without any record, the predecessor stays known.
        after = _STATE.unpack_from(self._state)[3:]
        _STATE.pack_into(self._state, 0, bytes.fromhex(end.chain), end.number, end.digest, *after)

    def _begin_new_chain(self, after: ChainEnd | None) -> None:
        before = (_NO_CHAIN, 0) if after is None else (bytes.fromhex(after.chain), after.number)
        _STATE.pack_into(self._state, 0, os.urandom(_ID_BYTES), 0, _NO_DIGEST, *before)

    def _read_saved_end(self) -> tuple[ChainEnd | None, bool]:
        """Return the end that was saved, and whether the server had stopped then."""
        if self._end_file is None:
            return None, False
        with suppress(OSError, ValueError):
            chain, number, digest, state = self._end_file.read_text("ascii").split()
            if len(bytes.fromhex(chain)) == _ID_BYTES and len(a2b_base64(digest)) == DIGEST_BYTES:
                return ChainEnd(chain, int(number), a2b_base64(digest)), state == "stopped"
        return None, False

    def _save_end(self, *, stopped: bool) -> None:
        if self._end_file is None:
            return
        end = self.end
        digest = b2a_base64(end.digest, newline=False).decode("ascii")
        text = f"{end.chain} {end.number} {digest} {'stopped' if stopped else 'running'}\n"
        new = self._end_file.with_name(f"{self._end_file.name}.new")
        try:
            self._end_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                new.unlink()
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(text)
            new.replace(self._end_file)
        except OSError as error:
            warning = "The end of the audit's chain can't be saved in {path}: {why}"
            _log.warn(warning, path=str(self._end_file), why=error.strerror)


def find_chain_end(key: bytes, tail: bytes, known: ChainEnd | None) -> ChainEnd | None:
    """Return the last record at the end of a file that follows from the one before it, or from ``known``.

    ``None`` where there is none of the chain that is known, or only older ones; if none is known, of the last one's.
    """
    found = [matched for line in tail.split(b"\n") if (matched := CHAINED_RECORD.fullmatch(line)) is not None]
    if known is None:
        if not found:
            return None
        known = ChainEnd(found[-1][2].decode(), 0)
    last: ChainEnd | None = None
    before = {known.number: known.digest}
    if known.number == 0:
        before[0] = _NO_DIGEST
    for matched in found:
        number, digest = int(matched[3]), a2b_base64(matched[6])
        if matched[2].decode() != known.chain:
            continue
        previous = before.get(number - 1)
        genuine = previous is not None and digest_of(key, previous, matched[1], matched[7]) == digest
        if (genuine and number >= known.number) or (number, digest) == (known.number, known.digest):
            last = ChainEnd(known.chain, number, digest)
        before[number] = digest
    return last


def _format_predecessor(chain: bytes, number: int) -> bytes:
    return b' after="none"' if chain == _NO_CHAIN else b' after="%b %d"' % (chain.hex().encode(), number)


def _read_file_tail(path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return _read_tail(descriptor)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _read_tail(descriptor: int) -> bytes:
    """Return the last bytes of a file; raises ``OSError`` where it can't be read."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
