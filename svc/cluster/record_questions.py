"""Searches of audit records, as the servers of a cluster ask each other (AUD-64).

Note [Sealed]. A question counts only with a code (HMAC-SHA-256) under a key that is derived from the data key, as those of
``peer_claims`` do: strangers start no search. The code covers a random challenge and the whole question. The answer is
encrypted under a key that is derived for this challenge, and opens for nobody but the server that asked: so a server that
pretends to be a member, or somebody between the two, reads no record, and whoever sends a question once more gets nothing
that could be read. A process of a server answers a question once, and none of its own.

Note [Until when]. A question has the time of the server that asks, so that one that somebody kept starts no search later.
The server that is asked says so in an answer where the clocks differ too much: it may be its own that is wrong.

Note [While it is rotated]. As in ``peer_claims``, questions are under the old data key until nothing needs it, and an answer
is under the key of its question.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
from collections import deque
from typing import Any, Final

import attrs

from svc.audit.record_files import RecordQuery, is_record
from svc.audit.record_search import RecordKey, RecordsPage, RecordsQuestion
from svc.crypto.vault import Vault
from svc.model.clocks import WallClock
from svc.model.errors import WrongDataKey
from svc.model.query_results import Sealed

_PURPOSE: Final = b"svc: searches of the audit between servers of a cluster"
_CHALLENGE_BYTES: Final = 16
_CHALLENGE: Final = re.compile(f"[0-9a-f]{{{2 * _CHALLENGE_BYTES}}}", re.ASCII)
_TEXT: Final = re.compile("[A-Za-z0-9_-]{1,60000}", re.ASCII)

#: Questions that a server knows again, its own and those that it answered.
RECENT_CHALLENGES: Final = 1000

#: Seconds by which the clocks of two servers may differ.
CLOCK_DIFFERENCE: Final = 120


@attrs.frozen
class SentQuestion:
    """A question as it is sent: its text, a challenge and the code of both; ``key`` opens the answer."""

    text: str
    challenge: str
    code: str
    key: bytes = attrs.field(repr=False)

    @property
    def query_string(self) -> str:
        """The query of the request that asks it."""
        return f"question={self.text}&challenge={self.challenge}&code={self.code}"


class RecordQuestions:
    """Makes and reads questions and answers of one process of a server (Note [Sealed])."""

    def __init__(self, vault: Vault, wall: WallClock) -> None:
        self._vault, self._wall = vault, wall
        self._seen: deque[str] = deque(maxlen=RECENT_CHALLENGES)

    def make_question(self, question: RecordsQuestion) -> SentQuestion:
        """Return a question to one member."""
        challenge, key = os.urandom(_CHALLENGE_BYTES).hex(), self._vault.derive_keys(_PURPOSE).own
        self._seen.append(challenge)
        text = _encode_document(_question_document(question) | {"asked_at": int(self._wall.seconds())})
        return SentQuestion(text, challenge, _sign(key, "question", challenge, text), key)

    def read_question(self, text: str, challenge: str, code: str) -> tuple[RecordsQuestion, SentQuestion] | None:
        """Return a question of another server; ``None`` where none asks, or this one was answered before."""
        if not _CHALLENGE.fullmatch(challenge) or not _TEXT.fullmatch(text) or challenge in self._seen:
            return None
        given = code.encode("utf-8", "surrogatepass")
        keys = self._vault.derive_keys(_PURPOSE).answered
        for key in keys:
            if hmac.compare_digest(given, _sign(key, "question", challenge, text).encode("ascii")):
                self._seen.append(challenge)
                question = _decode_question(text)
                return None if question is None else (question, SentQuestion(text, challenge, code, key))
        return None

    def find_clock_fault(self, asked: SentQuestion) -> str | None:
        """Return why a question that was read isn't to be answered by a search: its time is another (Note [Until when])."""
        ahead = self._wall.seconds() - _decode_document(asked.text)["asked_at"]
        if abs(ahead) <= CLOCK_DIFFERENCE:
            return None
        way = "ahead of" if ahead > 0 else "behind"
        differ = f"its clock is {abs(ahead):.0f} s {way} that of the server that asks"
        return f"{differ}, and they may differ by {CLOCK_DIFFERENCE} s: synchronize the clocks of both"

    @staticmethod
    def seal_page(asked: SentQuestion, page: RecordsPage) -> bytes:
        """Return the answer to a question."""
        return bytes(_answer_vault(asked).seal(_answer_name(asked), b"".join(page.encode())))

    @staticmethod
    def open_page(asked: SentQuestion, body: bytes) -> RecordsPage | None:
        """Return the page of an answer; ``None`` where no server of the cluster gave it, or not to this question."""
        try:
            page = RecordsPage.decode(_answer_vault(asked).open(_answer_name(asked), Sealed(body)))
        except (WrongDataKey, ValueError):
            return None
        # The records are merged by what stands in them.
        return page if all(map(is_record, page.lines)) and bool(page.lines) >= page.more else None


def _sign(key: bytes, *parts: str) -> str:
    return hmac.digest(key, "\n".join(parts).encode("ascii"), "sha256").hex()


def _answer_vault(asked: SentQuestion) -> Vault:
    return Vault(bytes.fromhex(_sign(asked.key, "answer", asked.challenge)))


def _answer_name(asked: SentQuestion) -> str:
    return f"audit-records/{asked.challenge}"


def _question_document(question: RecordsQuestion) -> dict[str, Any]:
    return {
        "query": {name: value for name, value in attrs.asdict(question.query).items() if value is not None},
        "account": question.account,
        "limit": question.limit,
        "before": None if question.before is None else str(question.before),
        "role": question.role,
        "reads_all": question.reads_all,
    }


def _encode_document(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode("ascii")).rstrip(b"=").decode("ascii")


def _decode_document(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _decode_question(text: str) -> RecordsQuestion | None:
    """Read a question, which a server of the cluster made; ``None`` for that of another version, which asks for more."""
    try:
        document = _decode_document(text)
        before = document["before"]
        if type(document["asked_at"]) is not int:
            return None
        return RecordsQuestion(
            RecordQuery(**document["query"]),
            document["account"],
            document["limit"],
            None if before is None else RecordKey.parse(before),
            document["role"],
            document["reads_all"] is True,
        )
    except (ValueError, KeyError, TypeError):
        return None
