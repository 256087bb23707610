"""Access tokens: minted, sent, read, verified."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import jwt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.tokens import (
    AUTHORIZATION_LIMIT,
    INVALID,
    MALFORMED,
    MISSING,
    UNRECOGNIZED,
    AccessToken,
    SigningKey,
    parse_authorization,
)
from svc.model.errors import BearerRefused
from svc.model.names import IDENTIFIER_LIMIT, RoleName

NOW = 1_700_000_000
KEY = SigningKey.generate("acct")
OTHER = SigningKey.generate("acct")
HOST = RoleName("acct", "host", "apps/web")

#: Users and hosts of every name there can be, those that ask for escapes more often than chance would have it.
ROLES = st.builds(
    RoleName,
    st.just("acct"),
    st.sampled_from(["user", "host"]),
    st.tuples(
        st.sampled_from(["", "user/", "host/", "group/"]),
        st.one_of(
            st.text('abc>?~\x7f"\\/é\x01 ', min_size=1, max_size=40),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=200),
        ),
    ).map("".join),
)


def header(token: bytes) -> bytes:
    """The ``Authorization`` header that carries the token."""
    return b'Token token="%s"' % base64.b64encode(token)


def b64(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(key: SigningKey, head: str, payload: str, signature: bytes | None = None) -> bytes:
    """A token of these parts with a true signature by ``key``, unless another is given."""
    private = load_der_private_key(key.private_bytes(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    signed = f"{b64(head.encode('utf-8', 'surrogatepass'))}.{b64(payload.encode('utf-8', 'surrogatepass'))}"
    r, s = decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    true = r.to_bytes(32) + s.to_bytes(32)
    protected, claims = signed.split(".")
    return json.dumps({"protected": protected, "payload": claims, "signature": b64(signature or true)}).encode()


def true_head(key: SigningKey) -> str:
    """The header that tokens of the key have."""
    return json.dumps({"alg": "ES256", "kid": key.verification.key_id})


def claims(**changes: Any) -> str:
    """The payload of a good token with some claims changed, or left out where the change is ``None``."""
    read = {"iat": NOW, "sub": "host/apps/web", "exp": NOW + 480} | changes
    return json.dumps({name: value for name, value in read.items() if value is not None})


class TokenCase(SynchronousTestCase):
    """What the tests below share."""

    def assertRefused(self, message: str, authorization: bytes | None, now: float = NOW, note: object = None) -> None:
        """Reading and verifying the header with ``KEY`` is refused with ``message``."""
        refusal = self.assertRaises(BearerRefused, lambda: KEY.verification.verify(parse_authorization(authorization), now))
        self.assertEqual(refusal.message, message, note)

    def read(self, authorization: bytes, now: float = NOW) -> AccessToken:
        """What the header says."""
        return KEY.verification.verify(parse_authorization(authorization), now)


class MintTests(TokenCase):
    """The token as clients see it."""

    def test_three_members(self) -> None:
        """A token is a JSON object of exactly the texts protected, payload and signature, in base64url with padding
        (TOK-25).
        """
        token = json.loads(KEY.mint_token(HOST, NOW, 480))
        self.assertEqual(list(token), ["protected", "payload", "signature"])
        for part in token.values():
            self.assertRegex(part, r"\A[A-Za-z0-9_-]+={0,2}\Z")
            self.assertEqual(len(part) % 4, 0)
        self.assertEqual(len(base64.urlsafe_b64decode(token["signature"])), 64)

    def test_claims(self) -> None:
        """The claims are iat, sub and exp in that order: whole seconds, the login, and iat with the lifetime added
        (TOK-28).
        """
        payload = base64.b64decode(json.loads(KEY.mint_token(HOST, NOW, 480))["payload"])
        self.assertEqual(payload, b'{"iat":1700000000,"sub":"host/apps/web","exp":1700000480}')

    def test_creation(self) -> None:
        """A token of a role that has a number says which, as an integer; it comes back, and is 0 where there is none
        (TOK-28).
        """
        largest = 2**53 - 1
        token = KEY.mint_token(HOST, NOW, 480, largest)
        payload = base64.b64decode(json.loads(token)["payload"])
        self.assertEqual(payload, b'{"iat":1700000000,"sub":"host/apps/web","exp":1700000480,"creation":9007199254740991}')
        self.assertEqual(self.read(header(token)), AccessToken(HOST, NOW, NOW + 480, largest))
        self.assertEqual(self.read(header(KEY.mint_token(HOST, NOW, 480))).creation, 0)

    def test_epoch(self) -> None:
        """A token of a role whose tokens were revoked says the number of that, behind the creation; it comes back, and is 0
        where there is none (TOK-28, TOK-36).
        """
        token = KEY.mint_token(HOST, NOW, 480, 5, 2**53 - 1)
        payload = base64.b64decode(json.loads(token)["payload"])
        numbers = b'"creation":5,"epoch":9007199254740991}'
        self.assertEqual(payload, b'{"iat":1700000000,"sub":"host/apps/web","exp":1700000480,' + numbers)
        self.assertEqual(self.read(header(token)), AccessToken(HOST, NOW, NOW + 480, 5, 2**53 - 1))
        alone = base64.b64decode(json.loads(KEY.mint_token(HOST, NOW, 480, 0, 7))["payload"])
        self.assertTrue(alone.endswith(b'"exp":1700000480,"epoch":7}'))
        self.assertEqual(self.read(header(KEY.mint_token(HOST, NOW, 480, 5))).epoch, 0)

    def test_head(self) -> None:
        """The header names the algorithm and the key, and nothing else (TOK-27)."""
        head = json.loads(base64.b64decode(json.loads(KEY.mint_token(HOST, NOW, 480))["protected"]))
        self.assertEqual(head, {"alg": "ES256", "kid": KEY.verification.key_id})

    @given(ROLES)
    def test_plain_base64_decodes(self, role: RoleName) -> None:
        """For any role, a decoder of plain base64 reads its header and payload, and finds the login in it
        (TOK-25).
        """
        token = json.loads(KEY.mint_token(role, NOW, 480))
        self.assertNotRegex(token["protected"] + token["payload"], r"[-_]")
        payload = base64.b64decode(token["payload"], validate=True)
        self.assertTrue(payload.isascii())
        self.assertEqual(json.loads(payload)["sub"], role.login)

    @given(ROLES)
    def test_every_token_proves_its_role(self, role: RoleName) -> None:
        """A minted token, sent back, proves the very role it was minted for, whatever that role is called."""
        self.assertEqual(self.read(header(KEY.mint_token(role, NOW, 480))), AccessToken(role, NOW, NOW + 480))

    def test_the_longest_name_fits(self) -> None:
        """The token of the role with the longest name, all of it escapes, is read back."""
        role = RoleName("acct", "host", "\x7f" * IDENTIFIER_LIMIT)
        authorization = header(KEY.mint_token(role, NOW, 480, 2**53 - 1, 2**53 - 1))
        self.assertLess(len(authorization), AUTHORIZATION_LIMIT)
        self.assertEqual(self.read(authorization).role, role)

    def test_only_actors_of_the_account(self) -> None:
        """A key signs no token for a group, nor for a role of another account (TOK-35)."""
        for role in (RoleName("acct", "group", "ops"), RoleName("other", "user", "alice")):
            self.assertRaises(ValueError, KEY.mint_token, role, NOW, 480)


class StandardTests(TokenCase):
    """Tokens are what other libraries expect."""

    def test_any_jose_library_verifies(self) -> None:
        """Stripped of padding and joined by dots, a token is a JWS that PyJWT verifies with the published key (TOK-26)."""
        token = json.loads(KEY.mint_token(RoleName("acct", "user", "zoë>?~"), NOW, 480))
        compact = ".".join(part.rstrip("=") for part in token.values())
        published = jwt.PyJWK.from_dict(KEY.verification.public_jwk())
        read = jwt.decode(compact, published, algorithms=["ES256"], options={"verify_exp": False, "verify_iat": False})
        self.assertEqual(read, {"iat": NOW, "sub": "zoë>?~", "exp": NOW + 480})
        foreign = jwt.PyJWK.from_dict(OTHER.verification.public_jwk())
        self.assertRaises(jwt.InvalidSignatureError, jwt.decode, compact, foreign, algorithms=["ES256"])

    def test_the_published_key(self) -> None:
        """The published key says what it is for, and holds no private part (TOK-33)."""
        published = KEY.verification.public_jwk()
        self.assertEqual(published.keys(), {"kty", "crv", "x", "y", "kid", "alg", "use"})
        self.assertEqual([published[name] for name in ("kty", "crv", "alg", "use")], ["EC", "P-256", "ES256", "sig"])

    def test_the_id_of_a_key_is_its_thumbprint(self) -> None:
        """The id of a key is the thumbprint that RFC 7638 defines (TOK-27)."""
        published = KEY.verification.public_jwk()
        required = f'{{"crv":"P-256","kty":"EC","x":"{published["x"]}","y":"{published["y"]}"}}'
        digest = hashes.Hash(hashes.SHA256())
        digest.update(required.encode())
        self.assertEqual(published["kid"], b64(digest.finalize()))

    def test_a_stored_key_is_the_same(self) -> None:
        """A key that was stored and loaded has its id, and verifies what the first one signed."""
        loaded = SigningKey.from_bytes("acct", KEY.private_bytes())
        self.assertEqual(loaded.verification, KEY.verification)
        token = parse_authorization(header(KEY.mint_token(HOST, NOW, 480)))
        self.assertEqual(loaded.verification.verify(token, NOW).role, HOST)

    def test_keys_are_not_shown(self) -> None:
        """What a signing key shows of itself is its account and its id."""
        self.assertEqual(
            repr(KEY),
            f"SigningKey(verification=VerificationKey(account='acct', key_id='{KEY.verification.key_id}'))",
        )

    def test_coordinates_keep_their_zeros(self) -> None:
        """A coordinate that begins with zeros is published in its full length, 43 characters, and the key verifies."""
        for scalar, coordinate in ((379, "x"), (43, "y")):
            private = ec.derive_private_key(scalar, ec.SECP256R1())
            key = SigningKey.from_bytes("acct", private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
            published = key.verification.public_jwk()
            self.assertEqual((len(published[coordinate]), published[coordinate][0]), (43, "A"))
            token = json.loads(key.mint_token(HOST, NOW, 480))
            compact = ".".join(part.rstrip("=") for part in token.values())
            jwt.decode(
                compact,
                jwt.PyJWK.from_dict(published),
                algorithms=["ES256"],
                options={"verify_exp": False, "verify_iat": False},
            )

    def test_signatures_keep_their_zeros(self) -> None:
        """A signature has 64 bytes, also when a number in it begins with zeros."""
        signatures = [json.loads(KEY.mint_token(HOST, NOW, 480))["signature"] for _ in range(500)]
        self.assertEqual({len(base64.urlsafe_b64decode(signature)) for signature in signatures}, {64})


class HeaderTests(TokenCase):
    """The ``Authorization`` header."""

    def setUp(self) -> None:
        """Mint a token."""
        self.token = KEY.mint_token(HOST, NOW, 480)
        self.encoded = base64.b64encode(self.token)

    def test_forms_that_are_read(self) -> None:
        """A token is read with and without quotation marks, padding, and blanks or newlines in the base64 (WIRE-28)."""
        bare = self.encoded.rstrip(b"=")
        for authorization in (
            b'Token token="%s"' % self.encoded,
            b"Token token=%s" % self.encoded,
            b'Token token="%s"' % bare,
            b"Token token=%s" % bare,
            b'Token token=" %s\t"' % self.encoded,
            b'Token token="%s"' % base64.encodebytes(self.token),
            b'Token token="%s"' % base64.encodebytes(self.token).replace(b"\n", b"\r\n "),
        ):
            self.assertEqual(self.read(authorization).role, HOST, authorization)

    def test_other_headers_are_missing(self) -> None:
        """No header, another scheme, another parameter, or quotation marks that don't pair, are no authorization
        (WIRE-30).
        """
        self.assertRefused(MISSING, None)
        for form in (
            b"",
            b"%s",
            b"Bearer %s",
            b"Basic %s",
            b'token token="%s"',
            b'Token  token="%s"',
            b'Token token ="%s"',
            b'Token  "%s"',
            b'Token key="%s"',
            b'Token token="%s',
            b'Token token=%s"',
            b'Token token=""%s""',
            b"Token\x00token=%s",
            b"x Token token=%s",
        ):
            self.assertRefused(MISSING, form.replace(b"%s", self.encoded), note=form)

    def test_what_is_no_json_is_malformed(self) -> None:
        """A header whose token is not base64 of strict JSON is malformed (WIRE-30)."""
        member = self.token[1:-1]
        for flaw, text in {
            "empty": b"",
            "not JSON": b"alice",
            "cut": self.token[:-1],
            "twice": self.token * 2,
            "a member twice": b"{%s,%s}" % (member, member),
            "NaN": b'{%s,"x":NaN}' % member,
            "Infinity": b"[-Infinity]",
            "invalid UTF-8": self.token[:-1] + b',"x":"\xff"}',
            "byte order mark": b"\xef\xbb\xbf" + self.token,
            "UTF-16": self.token.decode().encode("utf-16"),
            "deep": b"[" * 9000,
            "a number of too many digits": b"9" * 5000,
            "control character": b'{"\x00":1}',
        }.items():
            self.assertRefused(MALFORMED, header(text), note=flaw)
        odd = base64.b64encode(self.token + b" " * ((1 - len(self.token)) % 3))
        even = base64.b64encode(self.token + b" " * (-len(self.token) % 3))
        self.assertEqual(self.read(b'Token token="%s"' % odd), self.read(b'Token token="%s"' % even))
        for flaw, value in {
            "no base64": b"?" * 40,
            "base64url": self.encoded[:4] + b"-_" + self.encoded[6:],
            "impossible length": even + b"A",
            "padding inside": self.encoded[:8] + b"=" + self.encoded[8:],
            "half the padding": odd[:-1],
            "more padding": odd + b"=",
            "padding for none": even + b"====",
            "stray low bits": odd[:-3] + b"B==",
            "no ASCII": self.encoded + b"\xc3\xa9",
            "the bare JSON": self.token.replace(b'"', b"'"),
        }.items():
            self.assertRefused(MALFORMED, b'Token token="%s"' % value, note=flaw)

    def test_too_long_a_header_is_malformed(self) -> None:
        """A header over the limit is refused, whatever it holds (WIRE-28)."""
        blanks = AUTHORIZATION_LIMIT - len(header(self.token))
        fits = b'Token token="%s%s"' % (b" " * blanks, self.encoded)
        self.assertEqual(self.read(fits).role, HOST)
        self.assertRefused(MALFORMED, fits.replace(b'"', b'" ', 1))

    def test_json_of_another_shape_is_invalid(self) -> None:
        """JSON that isn't an object of exactly the three texts is no token (WIRE-30)."""
        parts = json.loads(self.token)
        wrong: tuple[object, ...] = (None, 1, [], {}, "", "é", "\ud800", ".", "*")
        shapes: list[object] = [[], [parts], {}, None, True, 1, "text", {**parts, "header": {"kid": "x"}}]
        for name in parts:
            shapes.append({key: value for key, value in parts.items() if key != name})
            shapes.extend({**parts, name: value} for value in wrong)
        for shape in shapes:
            self.assertRefused(INVALID, header(json.dumps(shape).encode()), note=shape)

    def test_the_nested_json_is_as_strict(self) -> None:
        """A header or payload inside the token that is no strict JSON makes it invalid."""
        kid = KEY.verification.key_id
        for head in ("", "[", "[" * 3000, "null", f'{{"alg":"ES256","kid":"{kid}","kid":"{kid}"}}', "\ud800"):
            self.assertRefused(INVALID, header(forged(KEY, head, claims())), note=head)
        for payload in ("", "[", "[" * 3000, "null", claims()[:-1] + ',"exp":99999999999}', claims(sub="\ud800"), "\ud800"):
            self.assertRefused(INVALID, header(forged(KEY, true_head(KEY), payload)), note=payload)

    def test_rewritten_json_is_read(self) -> None:
        """A client may write the JSON of a token again: other order, blanks, escapes, and parts without padding (TOK-30)."""
        parts = json.loads(self.token)
        turned = dict(reversed(parts.items()))
        bare = {name: part.rstrip("=") for name, part in parts.items()}
        for text in (
            json.dumps(turned, indent=2),
            json.dumps(bare),
            self.token.decode().replace("=", "\\u003d"),
            re.sub("[a-z]", lambda letter: f"\\u{ord(letter[0]):04x}", json.dumps(parts["payload"])).join(
                self.token.decode().split(json.dumps(parts["payload"]))
            ),
        ):
            self.assertEqual(self.read(header(text.encode())).role, HOST, text)

    def test_parts_have_one_spelling(self) -> None:
        """A part with half its padding, with more, with stray low bits, blanks, or in the other alphabet is refused
        (TOK-30).
        """
        parts = json.loads(self.token)
        signature = parts["signature"]
        for flaw, text in {
            "half the padding": signature[:-1],
            "more padding": signature + "=",
            "newline": signature + "\n",
            "low bits": signature[:-3] + chr(ord(signature[-3]) + 1) + "==",
            "a dot": signature[:10] + "." + signature[10:],
            "plain base64": base64.b64encode(b"\xfb" * 64).decode(),
        }.items():
            self.assertRefused(INVALID, header(json.dumps({**parts, "signature": text}).encode()), note=flaw)

    @given(st.binary(max_size=200))
    def test_noise_is_refused(self, noise: bytes) -> None:
        """Whatever stands in the header, it is a token or is refused, and nothing else happens."""
        for authorization in (noise, b"Token token=" + noise, header(noise)):
            self.assertRaises(BearerRefused, parse_authorization, authorization)

    @given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
    def test_any_json_is_refused(self, value: object) -> None:
        """JSON of any shape in the place of the token, of its parts or of what these hold is refused."""
        parts = {**json.loads(self.token), "protected": b64(json.dumps(value).encode())}
        for text in (json.dumps(value), json.dumps({**parts, "payload": value}), json.dumps(parts)):
            self.assertRaises(BearerRefused, parse_authorization, header(text.encode()))


class VerifyTests(TokenCase):
    """Signature, header and claims."""

    def test_a_token_lives_until_it_expires(self) -> None:
        """A token is good up to its exp and refused from then on, with no leeway (TOK-29)."""
        authorization = header(KEY.mint_token(HOST, NOW, 480))
        self.assertEqual(self.read(authorization, NOW + 479.999).expires_at, NOW + 480)
        self.assertRefused(INVALID, authorization, NOW + 480)

    def test_a_token_of_the_future_is_read(self) -> None:
        """The time of issue is not compared with the clock (TOK-29)."""
        self.assertEqual(self.read(header(KEY.mint_token(HOST, NOW, 480)), NOW - 1000).issued_at, NOW)

    def test_another_key_refuses(self) -> None:
        """A token signed by one key of the account is refused by another, also when it claims to be signed by that one."""
        self.assertRefused(INVALID, header(OTHER.mint_token(HOST, NOW, 480)))
        self.assertRefused(INVALID, header(forged(OTHER, true_head(KEY), claims())))

    def test_an_altered_token_is_refused(self) -> None:
        """A token whose claims or signature were altered in any way is refused."""
        parts = json.loads(KEY.mint_token(HOST, NOW, 480))
        signature = base64.urlsafe_b64decode(parts["signature"])
        for flaw, change in {
            "claims": {"payload": b64(claims(sub="admin").encode())},
            "one bit": {"signature": b64(bytes([signature[0] ^ 1]) + signature[1:])},
            "short": {"signature": b64(signature[:-1])},
            "long": {"signature": b64(signature + b"\x00")},
            "empty": {"signature": ""},
            "zeros": {"signature": b64(bytes(64))},
            "the order of the curve": {"signature": b64(ec.SECP256R1().group_order.to_bytes(32) * 2)},
            "ones": {"signature": b64(b"\xff" * 64)},
            "halves exchanged": {"signature": b64(signature[32:] + signature[:32])},
        }.items():
            self.assertRefused(INVALID, header(json.dumps(parts | change).encode()), note=flaw)

    def test_the_header_is_pinned(self) -> None:
        """A header with another algorithm, an odd key id, or any other member is refused, though the signature be true
        (TOK-27).
        """
        kid = KEY.verification.key_id
        for head in (
            {"alg": "ES256"},
            {"kid": kid},
            {"alg": "none", "kid": kid},
            {"alg": "HS256", "kid": kid},
            {"alg": "es256", "kid": kid},
            {"alg": "ES384", "kid": kid},
            {"alg": "ES256", "kid": kid + "="},
            {"alg": "ES256", "kid": kid + "\n"},
            {"alg": "ES256", "kid": "\x00" * 43},
            {"alg": "ES256", "kid": [kid]},
            {"alg": "ES256", "kid": None},
            {"alg": "ES256", "kid": kid, "crit": ["b64"]},
            {"alg": "ES256", "kid": kid, "jwk": KEY.verification.public_jwk()},
            {"alg": "ES256", "kid": kid, "typ": "JWT"},
        ):
            self.assertRefused(INVALID, header(forged(KEY, json.dumps(head), claims())), note=head)

    def test_claims_have_their_types(self) -> None:
        """A signed token without iat, sub or exp, or with one of another type, is invalid (TOK-28)."""
        self.assertEqual(self.read(header(forged(KEY, true_head(KEY), claims()))).role, HOST)
        for name, values in {
            "iat": (None, True, "1", 1.5, float(NOW), [NOW]),
            "exp": (None, True, str(NOW + 480), NOW + 480.5, 1e400, {}),
            "creation": (True, "1", 1.5, -1, 2**63, [1]),
            "epoch": (True, "1", 1.5, -1, 2**63, [1]),
            "sub": (None, True, 1, ["host/apps/web"], "", "host/", "a\x00b", "x" * (IDENTIFIER_LIMIT + 1)),
        }.items():
            for value in values:
                self.assertRefused(INVALID, header(forged(KEY, true_head(KEY), claims(**{name: value}))), note=(name, value))

    def test_other_claims_are_not_ignored(self) -> None:
        """A signed token with any other claim says something that this service doesn't understand, and is refused for it
        (WIRE-30, TOK-28).
        """
        for name in ("cidr", "aud", "iss", "nbf", "admin", ""):
            self.assertRefused(UNRECOGNIZED, header(forged(KEY, true_head(KEY), claims(**{name: "x"}))), note=name)

    def test_one_account_does_not_speak_for_another(self) -> None:
        """The account of the caller is the key's, whatever the token says."""
        other = SigningKey.generate("other")
        token = parse_authorization(header(other.mint_token(RoleName("other", "host", "apps/web"), NOW, 480)))
        self.assertEqual(other.verification.verify(token, NOW).role.account, "other")
        self.assertRaises(BearerRefused, KEY.verification.verify, token, NOW)
