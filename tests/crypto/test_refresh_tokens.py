"""Tests of ``svc.crypto.refresh_tokens``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.refresh_tokens import RefreshTokens, new_session_id
from svc.crypto.vault import Vault
from svc.model.names import RoleName

ALICE, BOB = RoleName("acme", "user", "alice"), RoleName("acme", "user", "bob")
TOKENS = RefreshTokens(Vault(b"k" * 32))
SEED = b"s" * 32


class RefreshTokensTests(SynchronousTestCase):
    """Tokens of one server."""

    def test_known_again(self) -> None:
        """A token is 86 characters, and tells its session to the role and under the data key that it was made for alone
        (TOK-42).
        """
        session_id = new_session_id()
        token = TOKENS.first_token(ALICE, session_id)
        self.assertRegex(token, r"\A[A-Za-z0-9_-]{86}\Z")
        self.assertNotEqual(token, TOKENS.first_token(ALICE, session_id), "the secret is random")
        following = TOKENS.next_token(ALICE, session_id, token.encode(), SEED)
        for text in (token, following):
            self.assertEqual(TOKENS.find_session(ALICE, text.encode()), session_id)
            self.assertIsNone(TOKENS.find_session(BOB, text.encode()))
            self.assertIsNone(RefreshTokens(Vault(b"l" * 32)).find_session(ALICE, text.encode()))

    def test_altered(self) -> None:
        """With any character changed it is no token, be it of the id, the secret, the code, or the bits that are left over
        (TOK-42).
        """
        token = TOKENS.first_token(ALICE, new_session_id()).encode()
        for place in range(len(token)):
            for other in b"AZaz09-_+/= \xff":
                if token[place] != other:
                    altered = token[:place] + bytes([other]) + token[place + 1 :]
                    self.assertIsNone(TOKENS.find_session(ALICE, altered), (place, other))
        for text in (token[:-1], token + b"=", token + b"\n", b" " + token[1:], b""):
            self.assertIsNone(TOKENS.find_session(ALICE, text))

    @given(st.binary(max_size=100))
    def test_noise(self, noise: bytes) -> None:
        """Whatever is shown as a token is none, and nothing else happens."""
        self.assertIsNone(TOKENS.find_session(ALICE, noise))

    def test_following(self) -> None:
        """The next token is the same for the same token and seed, and another for another; nobody derives it without the
        data key (TOK-44).
        """
        session_id = new_session_id()
        one, two = (TOKENS.first_token(ALICE, session_id).encode() for _ in range(2))
        following = TOKENS.next_token(ALICE, session_id, one, SEED)
        self.assertEqual(TOKENS.next_token(ALICE, session_id, one, SEED), following)
        others = (
            TOKENS.next_token(ALICE, session_id, two, SEED),
            TOKENS.next_token(ALICE, session_id, one, b"t" * 32),
            RefreshTokens(Vault(b"l" * 32)).next_token(ALICE, session_id, one, SEED),
        )
        self.assertNotIn(following, others)

    def test_digests(self) -> None:
        """What is kept of a token depends on the data key, and is nothing that the other keys make of it (TOK-42)."""
        token = TOKENS.first_token(ALICE, new_session_id()).encode()
        digest = TOKENS.digest_token(token)
        self.assertEqual((len(digest), digest), (32, TOKENS.digest_token(token)))
        self.assertNotEqual(digest, RefreshTokens(Vault(b"l" * 32)).digest_token(token))
        self.assertNotIn(token, digest)
