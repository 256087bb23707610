"""Authenticated messages in which the servers of a cluster tell each other what their databases are.

Note [Sealed by the data key]. A server that says that it has a newer primary makes another one refuse writes. So a message
counts only with a code (HMAC-SHA-256) under a key that is derived from the data key, which all servers of a cluster share
and nobody else has, no holder of a certificate either. The code covers the random challenge of the question, so that nothing
old can be told again, and no clock has to be right. The question has a code too: strangers have no database asked, and learn
nothing. Questions and answers begin with different words, so that neither can pass for the other.

Note [Led back]. A server that got its own answer would take a rival's database for its own, and the rival for gone. So no
server answers a question of its own, led back by somebody between the two or by an address that leads here now.
"""

from __future__ import annotations

import hmac
import json
import os
import re
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from svc.model.query_results import DatabaseIdentity

#: Bytes of a challenge, which stands in questions as hexadecimal digits.
CHALLENGE_BYTES: Final = 16
_CHALLENGE: Final = re.compile(f"[0-9a-f]{{{2 * CHALLENGE_BYTES}}}", re.ASCII)

#: How many of its own questions a server knows again; each is answered, or given up, within seconds.
KNOWN: Final = 1000

_PURPOSE: Final = b"svc: what servers of a cluster tell each other"


class PeerClaims:
    """Makes and reads questions and answers of one server (Notes [Sealed by the data key] and [Led back])."""

    def __init__(self, data_key: bytes) -> None:
        self._key = hmac.digest(data_key, _PURPOSE, "sha256")
        self._asked: deque[str] = deque(maxlen=KNOWN)

    def question(self) -> tuple[str, str]:
        """Return a new challenge, and the code that shows who asks."""
        challenge = os.urandom(CHALLENGE_BYTES).hex()
        self._asked.append(challenge)
        return challenge, self._code("question", challenge)

    def is_asked(self, challenge: str | None, code: str | None) -> bool:
        """Return whether another server of the cluster asks."""
        if challenge is None or code is None or not _CHALLENGE.fullmatch(challenge):
            return False
        return _same(code, self._code("question", challenge)) and challenge not in self._asked

    def answer(self, challenge: str, identity: DatabaseIdentity) -> dict[str, Any]:
        """Return the answer to this challenge, as JSON."""
        return {
            "system": identity.system,
            "timeline": identity.timeline,
            "started": identity.started,
            "standby": identity.standby,
            "code": self._code("answer", challenge, identity),
        }

    def read(self, challenge: str, body: bytes) -> DatabaseIdentity | None:
        """Return the database of an answer to this challenge; ``None`` when no server of the cluster gave it."""
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return None
        identity = _identity(document) if isinstance(document, dict) else None
        code = document.get("code") if identity is not None else None
        if not isinstance(code, str) or not _same(code, self._code("answer", challenge, identity)):
            return None
        return identity

    def _code(self, word: str, challenge: str, identity: DatabaseIdentity | None = None) -> str:
        said = [word, challenge]
        if identity is not None:
            role = "standby" if identity.standby else "primary"
            said += [str(identity.system), str(identity.timeline), str(identity.started), role]
        return hmac.digest(self._key, "\n".join(said).encode("ascii"), "sha256").hex()


def _identity(document: Mapping[str, Any]) -> DatabaseIdentity | None:
    system, timeline, started = (_number(document.get(name)) for name in ("system", "timeline", "started"))
    standby = document.get("standby")
    if system is None or timeline is None or started is None or not isinstance(standby, bool):
        return None
    return DatabaseIdentity(system, timeline, started, standby)


def _number(value: object) -> int | None:
    """Return a number that PostgreSQL may have."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64 else None


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("ascii"))
