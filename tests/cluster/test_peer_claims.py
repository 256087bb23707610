"""What servers tell each other of their databases can be told by nobody else, and not twice."""

from __future__ import annotations

import json
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cluster.peer_claims import KNOWN, PeerClaims
from svc.model.query_results import DatabaseIdentity

CLAIMS = PeerClaims(bytes(32))
IDENTITY = DatabaseIdentity(7_711_051_369_545_791_476, 3, 1_795_369_055_073_057, False)
NUMBERS = st.integers(0, (1 << 64) - 1)


class ClaimsTests(SynchronousTestCase):
    """Questions and answers under a data key."""

    @given(st.builds(DatabaseIdentity, NUMBERS, NUMBERS, NUMBERS, st.booleans()), st.binary(min_size=32, max_size=32))
    def test_told(self, identity: DatabaseIdentity, data_key: bytes) -> None:
        """Every identity is read as it was told, by who has the data key and asked; by nobody else (CLU-20)."""
        asking, answering = PeerClaims(data_key), PeerClaims(data_key)
        challenge, code = asking.question()
        self.assertTrue(answering.is_asked(challenge, code))
        body = json.dumps(answering.answer(challenge, identity)).encode()
        self.assertEqual(asking.read(challenge, body), identity)
        self.assertIsNone(asking.read(asking.question()[0], body))
        stranger = PeerClaims(bytes(reversed(data_key)) + b"x")
        self.assertFalse(stranger.is_asked(challenge, code))
        self.assertIsNone(stranger.read(challenge, body))

    def test_questions(self) -> None:
        """No two questions are alike; the code of one is for its challenge alone, and is no answer's (CLU-20)."""
        questions = [CLAIMS.question() for _ in range(100)]
        self.assertEqual(len(set(questions)), 100)
        (challenge, code), (other, _) = questions[:2]
        self.assertFalse(CLAIMS.is_asked(other, code))
        answer = CLAIMS.answer(challenge, IDENTITY)
        self.assertFalse(CLAIMS.is_asked(challenge, answer["code"]))
        self.assertIsNone(CLAIMS.read(challenge, json.dumps({**answer, "code": code}).encode()))

    def test_led_back(self) -> None:
        """No server answers what it has asked itself, so that nobody shows it its own database for another's (CLU-20)."""
        asking, answering = PeerClaims(bytes(32)), PeerClaims(bytes(32))
        challenge, code = asking.question()
        self.assertFalse(asking.is_asked(challenge, code))
        self.assertTrue(answering.is_asked(challenge, code))
        for _ in range(2 * KNOWN):
            asking.question()
        self.assertEqual(len(asking._asked), KNOWN)

    def test_altered(self) -> None:
        """An answer in which anything was altered, or that isn't one, says nothing (CLU-21)."""
        challenge, _ = CLAIMS.question()
        answer = CLAIMS.answer(challenge, IDENTITY)
        altered: list[Any] = [
            *({**answer, name: value} for name in ("system", "timeline", "started") for value in (1, 3.0, "3", True, None)),
            *({**answer, name: -answer[name]} for name in ("system", "timeline", "started")),
            *({name: value for name, value in answer.items() if name != left_out} for left_out in answer),
            {**answer, "standby": True},
            {**answer, "standby": 0},
            {**answer, "timeline": 1 << 64},
            *({**answer, "code": code} for code in ("", "é", answer["code"][:-1], answer["code"].upper(), 1, None)),
            [answer],
            None,
        ]
        bodies = [json.dumps(each).encode() for each in altered]
        bodies += [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5000]
        for body in bodies:
            self.assertIsNone(CLAIMS.read(challenge, body), body[:200])
        self.assertEqual(CLAIMS.read(challenge, json.dumps(answer).encode()), IDENTITY)

    def test_every_field_counts(self) -> None:
        """No two identities have the same code (CLU-20)."""
        challenge, _ = CLAIMS.question()
        others = [
            IDENTITY,
            attrs.evolve(IDENTITY, system=1),
            attrs.evolve(IDENTITY, timeline=4),
            attrs.evolve(IDENTITY, started=1),
            attrs.evolve(IDENTITY, standby=True),
        ]
        self.assertEqual(len({CLAIMS.answer(challenge, each)["code"] for each in others}), len(others))
