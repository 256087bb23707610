"""Sealing and opening."""

from __future__ import annotations

import base64
import hashlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.vault import (
    CANARY,
    DECOY,
    Decoy,
    Vault,
    api_key_name,
    data_key_id,
    new_data_key,
    parse_data_key,
    signing_key_name,
)
from svc.model.data_keys import StoredDataKey
from svc.model.errors import ConfigurationInvalid, InvalidName, WrongDataKey
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Sealed

NAME = "acct:variable:db/password"


class DataKeyTests(SynchronousTestCase):
    """The text of a data key."""

    def test_a_new_data_key_is_32_bytes(self) -> None:
        """A generated data key reads back as 32 bytes, and the next one differs (DATA-1)."""
        first, second = parse_data_key(new_data_key()), parse_data_key(new_data_key())
        self.assertEqual(len(first), 32)
        self.assertNotEqual(first, second)

    def test_other_texts_are_refused(self) -> None:
        """A data key of another length, alphabet, padding or spelling is refused by the name of its setting (DATA-1)."""
        good = base64.b64encode(b"\xff" * 32).decode()
        texts = {
            "empty": "",
            "31 bytes": base64.b64encode(b"k" * 31).decode(),
            "33 bytes": base64.b64encode(b"k" * 33).decode(),
            "64 bytes": base64.b64encode(b"k" * 64).decode(),
            "hexadecimal": "00" * 32,
            "without padding": good.rstrip("="),
            "too much padding": good + "=",
            "base64url": good.replace("/", "_").replace("+", "-"),
            "newline at the end": good + "\n",
            "blank in front": " " + good,
            "newline inside": good[:20] + "\n" + good[20:],
            "stray low bits": good[:-2] + "9=",
            "not ASCII": "é" * 44,
            "half a surrogate": "\ud800" * 44,
        }
        self.assertEqual(parse_data_key(good), b"\xff" * 32)
        for flaw, text in texts.items():
            refusal = self.assertRaises(ConfigurationInvalid, parse_data_key, text)
            self.assertEqual(refusal.key, "SERVICE_DATA_KEY", flaw)

    def test_a_refusal_does_not_tell_the_key(self) -> None:
        """The message about a bad data key doesn't repeat it (DATA-6)."""
        text = base64.b64encode(b"almost a key, but too short").decode()
        refusal = self.assertRaises(ConfigurationInvalid, parse_data_key, text)
        self.assertNotIn(text, f"{refusal} {refusal!r}")

    def test_the_vault_takes_32_bytes_alone(self) -> None:
        """A vault isn't made from a key of another length, not even one that AES knows."""
        for length in (0, 16, 24, 31, 33):
            self.assertRaises(ValueError, Vault, b"k" * length)


class VaultTests(SynchronousTestCase):
    """What is sealed opens only as it was sealed."""

    def setUp(self) -> None:
        """Make a vault."""
        self.key = bytes(range(32))
        self.vault = Vault(self.key)

    @given(st.text(st.characters(exclude_categories=["Cs"])), st.binary())
    def test_what_is_sealed_opens(self, name: str, plain: bytes) -> None:
        """Any bytes sealed under any name open under that name, also in another vault with the same key (DATA-3)."""
        vault = Vault(bytes(range(32)))
        self.assertEqual(Vault(bytes(range(32))).open(name, vault.seal(name, plain)), plain)

    def test_sealed_is_not_plain(self) -> None:
        """The sealed form doesn't contain the plain one, and two sealings of one value share nothing but the format
        (DATA-3).
        """
        plain = b"a value long enough to be found"
        first, second = self.vault.seal(NAME, plain), self.vault.seal(NAME, plain)
        self.assertNotIn(plain, first)
        self.assertNotEqual(first[1:13], second[1:13])
        self.assertNotEqual(first[13:], second[13:])
        self.assertEqual(first[0], 1)

    def test_another_name_does_not_open(self) -> None:
        """A value that was moved to another name doesn't open there, and the refusal says where (DATA-4, DATA-5)."""
        sealed = self.vault.seal(NAME, b"value")
        refusal = self.assertRaises(WrongDataKey, self.vault.open, "acct:variable:other", sealed)
        self.assertEqual(refusal.name, "acct:variable:other")

    def test_another_key_does_not_open(self) -> None:
        """A value sealed under one data key doesn't open under another (DATA-5)."""
        sealed = self.vault.seal(NAME, b"value")
        self.assertRaises(WrongDataKey, Vault(b"k" * 32).open, NAME, sealed)

    def test_every_bit_counts(self) -> None:
        """A sealed value with any one bit turned, the format's included, doesn't open (DATA-3)."""
        sealed = self.vault.seal(NAME, b"value")
        for position in range(len(sealed) * 8):
            altered = bytearray(sealed)
            altered[position // 8] ^= 1 << position % 8
            self.assertRaises(WrongDataKey, self.vault.open, NAME, Sealed(bytes(altered)))

    def test_cut_or_longer_does_not_open(self) -> None:
        """A sealed value that was cut anywhere, or to which something was added, doesn't open (DATA-3)."""
        sealed = self.vault.seal(NAME, b"value")
        for length in range(len(sealed)):
            self.assertRaises(WrongDataKey, self.vault.open, NAME, Sealed(sealed[:length]))
        self.assertRaises(WrongDataKey, self.vault.open, NAME, Sealed(sealed + b"\x00"))

    def test_fingerprints(self) -> None:
        """Of two sealings, of one value even, the fingerprints differ; of one they don't, whichever vault is asked
        (SEC-16).
        """
        vault = Vault(bytes(32))
        sealed = [vault.seal("a:variable:v", b"value") for _ in range(100)]
        self.assertEqual(len({vault.fingerprint(each) for each in sealed}), 100)
        self.assertEqual(Vault(b"k" * 32).fingerprint(sealed[0]), vault.fingerprint(sealed[0]))
        self.assertRegex(vault.fingerprint(sealed[0]), r"\A[0-9a-f]{24}\Z")

    def test_the_key_is_not_shown(self) -> None:
        """What a vault shows of itself holds nothing of the key (DATA-6)."""
        shown = repr(self.vault) + str(self.vault)
        self.assertNotIn(repr(self.key)[2:-1], shown)
        self.assertNotIn(self.key.hex(), shown)
        self.assertFalse(hasattr(self.vault, "__dict__"))


class NameTests(SynchronousTestCase):
    """Names of things that are no secret values."""

    def test_purposes_do_not_collide(self) -> None:
        """No name of another purpose is the full id of a resource, whatever the account and the role are called (DATA-4)."""
        role = RoleName("variable", "user", "acct:variable:x")
        names = [
            api_key_name(role),
            signing_key_name("acct", "k:variable:x"),
            signing_key_name("variable", "x"),
            CANARY,
            DECOY,
        ]
        self.assertEqual(len(set(names)), len(names))
        for name in names:
            self.assertRaises(InvalidName, ResourceName.parse, name)

    def test_names_tell_things_apart(self) -> None:
        """Two roles have two names for their API keys, and a signing key has one in each account (DATA-4)."""
        user, host = RoleName("acct", "user", "x"), RoleName("acct", "host", "x")
        self.assertNotEqual(api_key_name(user), api_key_name(host))
        self.assertNotEqual(signing_key_name("one", "key"), signing_key_name("two", "key"))


class RotatedVaultTests(SynchronousTestCase):
    """A vault while the data key is rotated."""

    OLD, NEW = b"o" * 32, b"n" * 32
    IDS = data_key_id(OLD), data_key_id(NEW)

    def setUp(self) -> None:
        """Make a vault before the first rotation, which knows the next key."""
        self.vault = Vault(self.NEW, self.OLD)
        self.first = StoredDataKey(self.IDS[0])
        self.vault.use_stored_keys([self.first])

    def test_before(self) -> None:
        """The database's key seals, not the newest one that is given, as every version of the program opens it (DATA-3)."""
        sealed = self.vault.seal(NAME, b"value")
        self.assertEqual(Vault(self.OLD).open(NAME, sealed), b"value")
        self.assertEqual(
            (self.vault.current_id, self.vault.needed_ids, self.vault.missing_ids), (self.IDS[0], self.IDS[:1], ())
        )
        self.assertEqual(self.vault.given_ids, self.IDS[::-1])

    def test_during(self) -> None:
        """What is sealed names its key; both keys open, and neither opens the other's (DATA-3, DATA-28)."""
        old = self.vault.seal(NAME, b"value")
        next_one = self.vault.seal_next(self.NEW, NAME, b"value")
        self.assertEqual(self.vault.open(NAME, next_one), b"value")
        self.vault.use_stored_keys([self.first, StoredDataKey(self.IDS[1])])
        new = self.vault.seal(NAME, b"value")
        self.assertEqual((new[:1], new[1:9].hex()), (b"\x02", self.IDS[1]))
        for sealed in (old, new, next_one):
            self.assertEqual(self.vault.open(NAME, sealed), b"value")
        self.assertEqual(self.vault.needed_ids, self.IDS)
        alone = Vault(self.OLD)
        alone.use_stored_keys([self.first, StoredDataKey(self.IDS[1])])
        self.assertEqual(alone.open(NAME, old), b"value")
        self.assertRaises(WrongDataKey, alone.open, NAME, new)
        self.assertRaises(WrongDataKey, alone.seal, NAME, b"value")
        self.assertEqual(alone.missing_ids, self.IDS[1:])

    def test_header(self) -> None:
        """The id of the key is authenticated: what names another key opens under neither (DATA-3)."""
        self.vault.use_stored_keys([self.first, StoredDataKey(self.IDS[1])])
        new = self.vault.seal(NAME, b"value")
        for altered in (b"\x01" + new[9:], b"\x02" + bytes.fromhex(self.IDS[0]) + new[9:], new[:9], new[:5], b"\x02"):
            self.assertRaises(WrongDataKey, self.vault.open, NAME, Sealed(altered))

    def test_retired(self) -> None:
        """A retired key opens nothing, even where it is still given (DATA-31)."""
        old = self.vault.seal(NAME, b"value")
        self.vault.use_stored_keys([StoredDataKey(self.IDS[0], closed=True, retired=True), StoredDataKey(self.IDS[1])])
        self.assertRaises(WrongDataKey, self.vault.open, NAME, old)
        self.assertEqual((self.vault.needed_ids, self.vault.missing_ids), (self.IDS[1:], ()))
        self.vault.use_stored_keys(self.vault.stored, forgotten=())
        self.assertEqual(self.vault.open(NAME, old), b"value")

    def test_reseal(self) -> None:
        """What is sealed again is under the new key; what doesn't open is left (DATA-31)."""
        old = self.vault.seal(NAME, b"value")
        self.vault.use_stored_keys([self.first, StoredDataKey(self.IDS[1])])
        again = self.vault.reseal(NAME, old)
        assert again is not None
        self.assertEqual((again[1:9].hex(), self.vault.open(NAME, again)), (self.IDS[1], b"value"))
        self.assertIsNone(self.vault.reseal("another name", old))
        self.assertNotEqual(self.vault.fingerprint(again), self.vault.fingerprint(old))

    def test_decoy(self) -> None:
        """A decoy opens under whichever key seals (DATA-31)."""
        decoy = Decoy(self.vault, b"value")
        self.vault.use_stored_keys([StoredDataKey(self.IDS[0], closed=True, retired=True), StoredDataKey(self.IDS[1])])
        self.assertEqual(decoy.open(), b"value")

    def test_ids(self) -> None:
        """Ids differ, and hold nothing of the key (DATA-27)."""
        self.assertNotEqual(*self.IDS)
        for key, key_id in zip((self.OLD, self.NEW), self.IDS, strict=True):
            self.assertRegex(key_id, r"\A[0-9a-f]{16}\Z")
            self.assertNotIn(key_id, key.hex())
            self.assertNotIn(key_id, hashlib.sha256(key).hexdigest())
