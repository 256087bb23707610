"""Authenticated messages in which the servers of a cluster report the state of their databases to each other.

Note [Sealed by the data key]. A server that says that it has a newer primary makes another one refuse writes. So a message
counts only with a code (HMAC-SHA-256) under a key that is derived from the data key, which all servers of a cluster share
and nobody else has, no holder of a certificate either. The code covers the random challenge of the question, so that no old
message can be replayed, and no clock has to be right. The question has a code too: strangers cause no query, and get no
information. Questions and answers begin with different words, so that neither can pass for the other.

Note [While it is rotated]. All use the old data key, which all know, until nothing needs it (``crypto.vault``). An answer is
under the key of its question. It also lists the data keys that its server knows, with a code of its own, so that earlier
versions of the program, which know nothing of it, read the rest.

Note [Counts]. A server that can't write its counts of reads hands them out to one that can. They name roles and variables,
so they are sealed, under a name that has the challenge: whoever repeats a question that he has seen can't read the answer.
A question also says what has been added, and its code covers that. A server that is led back to itself gets its own counts,
which is harmless, since a batch is added once.

Note [Led back]. A server that got its own answer would take another primary's database for its own, and the other primary
for gone. So no server answers a question of its own, led back by somebody between the two or by an address that leads here
now.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from svc.crypto.vault import Vault
from svc.model.databases import DatabaseIdentity
from svc.model.errors import WrongDataKey
from svc.model.query_results import Sealed
from svc.model.readings import CountedReads, ReadingBatch

T = TypeVar("T", str, int)

#: Bytes of a challenge, which stands in questions as hexadecimal digits.
CHALLENGE_BYTES: Final = 16
_CHALLENGE: Final = re.compile(f"[0-9a-f]{{{2 * CHALLENGE_BYTES}}}", re.ASCII)
_KEY_ID: Final = re.compile("[0-9a-f]{16}", re.ASCII)

#: How many of its own questions a server knows again; each is answered, or given up, within seconds.
RECENT_CHALLENGES: Final = 1000

#: The beginning of the name that counts are sealed under.
_READINGS: Final = "readings/"

_PURPOSE: Final = b"svc: what servers of a cluster tell each other"


class PeerClaims:
    """Makes and reads questions and answers of one server (Notes [Sealed by the data key] and [Led back])."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._own_challenges: deque[str] = deque(maxlen=RECENT_CHALLENGES)

    def new_challenge(self) -> tuple[str, str]:
        """Return a new challenge, and the code that authenticates the question."""
        challenge = os.urandom(CHALLENGE_BYTES).hex()
        self._own_challenges.append(challenge)
        return challenge, _sign_message(self._vault.derive_keys(_PURPOSE).own, "question", challenge)

    def is_peer_challenge(self, challenge: str | None, code: str | None) -> bool:
        """Return whether another server of the cluster asks."""
        if challenge is None or code is None or not _CHALLENGE.fullmatch(challenge):
            return False
        return self._find_question_key(challenge, code) is not None and not self.is_own_challenge(challenge)

    def new_readings_question(self, source: str, confirmed: int) -> tuple[str, str]:
        """Return a challenge for the next batch of counts, and the code of the question (Note [Counts])."""
        challenge = os.urandom(CHALLENGE_BYTES).hex()
        return challenge, _sign_message(self._vault.derive_keys(_PURPOSE).own, "readings", challenge, source, str(confirmed))

    def is_readings_question(self, challenge: str | None, code: str | None, source: str, confirmed: int) -> bool:
        """Return whether a server of the cluster asks for counts."""
        if challenge is None or code is None or not _CHALLENGE.fullmatch(challenge) or not source.isascii():
            return False
        answered = self._vault.derive_keys(_PURPOSE).answered
        return any(_equal_codes(code, _sign_message(key, "readings", challenge, source, str(confirmed))) for key in answered)

    def seal_readings(self, challenge: str, batch: ReadingBatch) -> str:
        """Return the answer to this challenge, as text.

        :raises WrongDataKey: the data key that seals isn't here.
        """
        return base64.b64encode(self._vault.seal(_READINGS + challenge, encode_batch(batch))).decode("ascii")

    def open_readings(self, challenge: str, body: bytes) -> ReadingBatch | None:
        """Return the counts in an answer to this challenge; ``None`` when no server of the cluster gave it."""
        sealed = _parse_document(body).get("readings")
        try:
            plain = self._vault.open(_READINGS + challenge, Sealed(base64.b64decode(sealed or "", validate=True)))
            return decode_batch(plain)
        except (ValueError, TypeError, WrongDataKey):
            return None

    def is_own_challenge(self, challenge: str) -> bool:
        """Return whether this was the challenge of a question of one's own (Note [Led back])."""
        return challenge in self._own_challenges

    def sign_answer(self, challenge: str, code: str | None, identity: DatabaseIdentity) -> dict[str, Any]:
        """Return the answer to this challenge, which came with this code, as JSON."""
        key = self._find_question_key(challenge, code or "") or self._vault.derive_keys(_PURPOSE).own
        known = list(self._vault.given_ids)
        return {
            "system": identity.system,
            "timeline": identity.timeline,
            "started": identity.started,
            "standby": identity.standby,
            "code": _identity_code(key, challenge, identity),
            "data_keys": known,
            "data_keys_code": _sign_message(key, "data keys", challenge, *known),
        }

    def read_identity(self, challenge: str, body: bytes) -> DatabaseIdentity | None:
        """Return the database of an answer to this challenge; ``None`` when no server of the cluster gave it."""
        document = _parse_document(body)
        identity, code = _read_identity(document), document.get("code")
        if identity is None or not isinstance(code, str):
            return None
        believed = self._vault.derive_keys(_PURPOSE).accepted
        return identity if any(_equal_codes(code, _identity_code(key, challenge, identity)) for key in believed) else None

    def read_data_keys(self, challenge: str, body: bytes) -> tuple[str, ...] | None:
        """Return the ids of the data keys that the answering server knows; ``None`` as :meth:`read_identity`, or if it has
        none.
        """
        document = _parse_document(body)
        known, code = document.get("data_keys"), document.get("data_keys_code")
        if not isinstance(code, str) or not isinstance(known, list):
            return None
        if not all(isinstance(each, str) and _KEY_ID.fullmatch(each) for each in known):
            return None
        believed = self._vault.derive_keys(_PURPOSE).accepted
        good = any(_equal_codes(code, _sign_message(key, "data keys", challenge, *known)) for key in believed)
        return tuple(known) if good else None

    def _find_question_key(self, challenge: str, code: str) -> bytes | None:
        """Return the key that made the code of a question."""
        answered = self._vault.derive_keys(_PURPOSE).answered
        return next((key for key in answered if _equal_codes(code, _sign_message(key, "question", challenge))), None)


def _sign_message(key: bytes, *parts: str) -> str:
    return hmac.digest(key, "\n".join(parts).encode("ascii"), "sha256").hex()


def _identity_code(key: bytes, challenge: str, identity: DatabaseIdentity) -> str:
    role = "standby" if identity.standby else "primary"
    return _sign_message(key, "answer", challenge, str(identity.system), str(identity.timeline), str(identity.started), role)


def _parse_document(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _read_identity(document: Mapping[str, Any]) -> DatabaseIdentity | None:
    system, timeline, started = (_read_number(document.get(name)) for name in ("system", "timeline", "started"))
    standby = document.get("standby")
    if system is None or timeline is None or started is None or not isinstance(standby, bool):
        return None
    return DatabaseIdentity(system, timeline, started, standby)


def _read_number(value: object) -> int | None:
    """Return a number that PostgreSQL may have."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64 else None


def _equal_codes(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("ascii"))


def encode_batch(batch: ReadingBatch) -> bytes:
    """Return a batch as JSON, for another server."""
    reads: dict[tuple[str, int], dict[str, int]] = {}
    for read in batch.reads:
        reads.setdefault((read.role, read.creation), {})[read.variable] = read.number
    document = {
        "source": batch.source,
        "sequence": batch.sequence,
        "day": batch.day,
        "lost_days": batch.lost_days,
        "reads": [[role, creation, variables] for (role, creation), variables in reads.items()],
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def decode_batch(text: bytes) -> ReadingBatch:
    """Return the batch that another server has written as JSON.

    :raises ValueError: the text is of another form, as of another version of the program.
    """
    try:
        document = json.loads(text)
        reads = tuple(
            CountedReads(_checked(role, str), _checked(creation, int), variable, _checked(count, int))
            for role, creation, variables in document["reads"]
            for variable, count in variables.items()
        )
        days = tuple(_checked(day, int) for day in document["lost_days"])
        source, sequence, day = _checked(document["source"], str), document["sequence"], document["day"]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no batch of counts: {error}") from None
    return ReadingBatch(source, _checked(sequence, int), _checked(day, int), reads, days)


def _checked(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise ValueError(f"no batch of counts: {value!r} is no {kind.__name__}")
    return value
