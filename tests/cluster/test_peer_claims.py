"""What servers tell each other of their databases can be told by nobody else, and not twice."""

from __future__ import annotations

import json
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.cluster.peer_claims import RECENT_CHALLENGES, PeerClaims, decode_batch, encode_batch
from svc.crypto.vault import Vault, data_key_id
from svc.model.data_keys import StoredDataKey
from svc.model.databases import DatabaseIdentity
from svc.model.readings import CountedReads, ReadingBatch

CLAIMS = PeerClaims(Vault(bytes(32)))
IDENTITY = DatabaseIdentity(7_711_051_369_545_791_476, 3, 1_795_369_055_073_057, False)
NUMBERS = st.integers(0, (1 << 64) - 1)


class ClaimsTests(SynchronousTestCase):
    """Questions and answers under a data key."""

    @given(st.builds(DatabaseIdentity, NUMBERS, NUMBERS, NUMBERS, st.booleans()), st.binary(min_size=32, max_size=32))
    def test_told(self, identity: DatabaseIdentity, data_key: bytes) -> None:
        """Every identity is read as it was told, by who has the data key and asked; by nobody else (CLU-20)."""
        asking, answering = PeerClaims(Vault(data_key)), PeerClaims(Vault(data_key))
        challenge, code = asking.new_challenge()
        self.assertTrue(answering.is_peer_challenge(challenge, code))
        body = json.dumps(answering.sign_answer(challenge, code, identity)).encode()
        self.assertEqual(asking.read_identity(challenge, body), identity)
        self.assertIsNone(asking.read_identity(asking.new_challenge()[0], body))
        stranger = PeerClaims(Vault(bytes(octet ^ 1 for octet in data_key)))
        self.assertFalse(stranger.is_peer_challenge(challenge, code))
        self.assertIsNone(stranger.read_identity(challenge, body))

    def test_questions(self) -> None:
        """No two questions are alike; the code of one is for its challenge alone, and is no answer's (CLU-20)."""
        questions = [CLAIMS.new_challenge() for _ in range(100)]
        self.assertEqual(len(set(questions)), 100)
        (challenge, code), (other, _) = questions[:2]
        self.assertFalse(CLAIMS.is_peer_challenge(other, code))
        answer = CLAIMS.sign_answer(challenge, code, IDENTITY)
        self.assertFalse(CLAIMS.is_peer_challenge(challenge, answer["code"]))
        self.assertIsNone(CLAIMS.read_identity(challenge, json.dumps({**answer, "code": code}).encode()))

    def test_led_back(self) -> None:
        """No server answers what it has asked itself, so that nobody shows it its own database for another's (CLU-20)."""
        asking, answering = PeerClaims(Vault(bytes(32))), PeerClaims(Vault(bytes(32)))
        challenge, code = asking.new_challenge()
        self.assertFalse(asking.is_peer_challenge(challenge, code))
        self.assertTrue(answering.is_peer_challenge(challenge, code))
        for _ in range(2 * RECENT_CHALLENGES):
            asking.new_challenge()
        self.assertEqual(len(asking._own_challenges), RECENT_CHALLENGES)

    def test_altered(self) -> None:
        """An answer in which anything was altered, or that isn't one, says nothing (CLU-21)."""
        challenge, code = CLAIMS.new_challenge()
        answer = CLAIMS.sign_answer(challenge, code, IDENTITY)
        altered: list[Any] = [
            *({**answer, name: value} for name in ("system", "timeline", "started") for value in (1, 3.0, "3", True, None)),
            *({**answer, name: -answer[name]} for name in ("system", "timeline", "started")),
            *(
                {name: value for name, value in answer.items() if name != left_out}
                for left_out in answer
                if "keys" not in left_out
            ),
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
            self.assertIsNone(CLAIMS.read_identity(challenge, body), body[:200])
        self.assertEqual(CLAIMS.read_identity(challenge, json.dumps(answer).encode()), IDENTITY)

    def test_every_field_counts(self) -> None:
        """No two identities have the same code (CLU-20)."""
        challenge, code = CLAIMS.new_challenge()
        others = [
            IDENTITY,
            attrs.evolve(IDENTITY, system=1),
            attrs.evolve(IDENTITY, timeline=4),
            attrs.evolve(IDENTITY, started=1),
            attrs.evolve(IDENTITY, standby=True),
        ]
        self.assertEqual(len({CLAIMS.sign_answer(challenge, code, each)["code"] for each in others}), len(others))


class DataKeyTests(SynchronousTestCase):
    """Claims while the data key is rotated, and the keys that servers say they know."""

    OLD, NEW, OTHER = (bytes([number]) * 32 for number in (1, 2, 3))
    IDS = data_key_id(OLD), data_key_id(NEW)

    def vault(self, *given: bytes, begun: bool = True, retired: bool = False) -> Vault:
        """A vault with these keys; of a database that has gone over to the new one, if that has ``begun``."""
        vault = Vault(*given)
        stored = [StoredDataKey(self.IDS[0], closed=retired, retired=retired), StoredDataKey(self.IDS[1])]
        vault.use_stored_keys(stored if begun else stored[:1])
        return vault

    def heard(self, asking: Vault, answering: Vault) -> tuple[DatabaseIdentity | None, tuple[str, ...] | None]:
        """What one server learns of another by a question: the database, and the keys."""
        asker, answerer = PeerClaims(asking), PeerClaims(answering)
        challenge, code = asker.new_challenge()
        if not answerer.is_peer_challenge(challenge, code):
            return None, None
        body = json.dumps(answerer.sign_answer(challenge, code, IDENTITY)).encode()
        return asker.read_identity(challenge, body), asker.read_data_keys(challenge, body)

    def test_rotated(self) -> None:
        """During a rotation, servers that have heard of it, have not, or know the old key alone understand each other
        (CLU-20).
        """
        both = (self.NEW, self.OLD)
        before, during = self.vault(*both, begun=False), self.vault(*both)
        ignorant = self.vault(self.OLD, begun=False)
        for asking in (before, during, ignorant):
            for answering in (before, during, ignorant):
                self.assertEqual(self.heard(asking, answering), (IDENTITY, answering.given_ids))

    def test_retired(self) -> None:
        """Who has heard that the old key is retired believes nothing under it, and answers who hasn't heard while it is
        still given (CLU-20).
        """
        both = (self.NEW, self.OLD)
        after, during = self.vault(*both, retired=True), self.vault(*both)
        self.assertEqual(self.heard(after, during)[0], IDENTITY)
        self.assertEqual(self.heard(during, after)[0], IDENTITY)
        self.assertEqual(self.heard(during, self.vault(self.NEW, retired=True)), (None, None))
        old, claims = PeerClaims(self.vault(self.OLD, begun=False)), PeerClaims(after)
        challenge, code = claims.new_challenge()
        self.assertFalse(old.is_peer_challenge(challenge, code))
        forged = json.dumps(old.sign_answer(challenge, code, IDENTITY)).encode()
        self.assertIsNone(claims.read_identity(challenge, forged))
        self.assertIsNone(claims.read_data_keys(challenge, forged))

    def test_altered(self) -> None:
        """The keys that a server knows can't be altered on the way, and need not be told (CLU-20)."""
        claims = PeerClaims(self.vault(self.NEW, self.OLD))
        challenge, code = claims.new_challenge()
        answer = claims.sign_answer(challenge, code, IDENTITY)
        known = answer["data_keys"]
        for altered in (known[:1], [*known, "0" * 16], known[::-1], [], known[0], [known[0], 1], ["\n".join(known)], None):
            body = json.dumps({**answer, "data_keys": altered}).encode()
            self.assertIsNone(claims.read_data_keys(challenge, body), altered)
            self.assertEqual(claims.read_identity(challenge, body), IDENTITY)
        earlier = {name: value for name, value in answer.items() if "keys" not in name}
        self.assertIsNone(claims.read_data_keys(challenge, json.dumps(earlier).encode()))
        self.assertEqual(claims.read_identity(challenge, json.dumps(earlier).encode()), IDENTITY)


class BatchFormTests(SynchronousTestCase):
    """Batches as other servers read them."""

    @given(
        st.dictionaries(st.tuples(st.text(), st.integers(0), st.text()), st.integers(1)),
        st.integers(0, 10**6),
        st.lists(st.integers(0, 10**6)),
    )
    def test_round_trip(self, reads: dict[tuple[str, int, str], int], day: int, lost: list[int]) -> None:
        """A batch is read as it was written (READ-7)."""
        ordered = sorted((*key, number) for key, number in reads.items())
        batch = ReadingBatch("here", 3, day, tuple(CountedReads(*read) for read in ordered), tuple(lost))
        read = decode_batch(encode_batch(batch))
        self.assertEqual((read.source, read.sequence, read.day, read.lost_days), ("here", 3, day, tuple(lost)))
        self.assertEqual(sorted(read.reads), ordered)

    def test_other_forms(self) -> None:
        """What another version writes in another form is refused, whole (READ-7)."""
        good = {"source": "s", "sequence": 1, "day": 2, "lost_days": [], "reads": []}
        for name, value in (("source", 1), ("sequence", "1"), ("day", True), ("lost_days", [None]), ("reads", [["r", 0]])):
            with self.assertRaises(ValueError):
                decode_batch(repr({**good, name: value}).replace("'", '"').replace("None", "null").encode())
        for text in (b"", b"[]", b"{}", b"\xff", b'{"reads": {}}'):
            with self.assertRaises(ValueError):
                decode_batch(text)
