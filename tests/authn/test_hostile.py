"""Evidence that is wrong in one way: the tables of ``docs/spec/hostile.md`` are read, and each row is tried at each type.

A row that no test makes, and one that the page doesn't have, is a failure.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.model.authentication import Admitted, Refused
from svc.model.aws import StsUnavailable
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.reasons import POSTPONING_REASONS, RefusalKind
from tests.authn import tenant, test_gcp, world
from tests.authn.oidc_world import CLAIMS as PERSON
from tests.authn.oidc_world import CLIENT, NONCE, OidcCase
from tests.authn.shapes import GROUP
from tests.authn.tenant import CloudCase
from tests.authn.test_gcp import GoogleCase
from tests.authn.test_iam import NAMED, SERVER, AwsCase
from tests.authn.world import ALICE, NOW, PROVIDER, URI, Case
from tests.aws import ACCOUNT, KEYS, Keys, body, date
from tests.signing import base64url, decoded, jwk, jwk_for, jwks, signed, token

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "spec" / "hostile.md"

AUDIENCE: Final = "https://svc.example.org"


def table(rule: str) -> dict[str, list[str]]:
    """The rows of the table of a rule, by their first cell."""
    text = PAGE.read_text(encoding="utf-8").partition(f"**{rule}.**")[2].partition("\n**")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"(?m)^\|.+\|$", text)]
    return {row[0]: row[1:] for row in rows[2:]}


class JwtWorld(Case):
    """``authn-jwt``, with an audience."""

    source = URI
    other_role: ClassVar[Mapping[str, object]] = {"app": "nobody"}

    def setUp(self) -> None:
        """A world in which ``good`` is admitted."""
        super().setUp()
        self.readings.set(self.branch, audience=AUDIENCE)
        self.good: dict[str, object] = {**world.CLAIMS, "aud": AUDIENCE}


class CloudWorld(CloudCase):
    """``authn-cloud``, with an audience."""

    source = tenant.TENANT
    other_role: ClassVar[Mapping[str, object]] = {"xms_mirid": tenant.MACHINE.replace(GROUP, "other")}

    def setUp(self) -> None:
        """A world in which ``good`` is admitted."""
        super().setUp()
        self.readings.set(self.branch, audience=AUDIENCE)
        self.good: dict[str, object] = {**tenant.CLAIMS, "aud": AUDIENCE}


class GoogleWorld(GoogleCase):
    """``authn-gcp``."""

    source = test_gcp.GOOGLE

    def setUp(self) -> None:
        """A world in which ``good`` is admitted."""
        super().setUp()
        self.good: dict[str, object] = {**test_gcp.CLAIMS, "aud": self.audience}
        self.other_role = {"aud": f"{self.dialect.prefix}/acme/host/nobody"}


class PersonWorld(OidcCase):
    """``authn-oidc`` with id tokens."""

    source = PROVIDER
    by_code = False
    other_role: ClassVar[Mapping[str, object]] = {"preferred_username": "nobody"}

    def setUp(self) -> None:
        """A world in which ``good`` is admitted."""
        super().setUp()
        self.good: dict[str, object] = dict(PERSON)

    def attempt(self, evidence: bytes, **options: Any) -> Admitted | Refused:
        """Try it at the authenticator of this world."""
        return super().attempt(evidence, **{"service": "corp", **options})


WORLDS: Final = (JwtWorld, CloudWorld, GoogleWorld, PersonWorld)


def changed(name: str, value: object) -> Callable[[Any], bytes]:
    """A good token with another value of a claim; ``...`` leaves it out."""
    return lambda case: token({k: v for k, v in {**case.good, name: value}.items() if v is not ...})


def parts(case: Any) -> list[bytes]:
    """The parts of a good token."""
    return token(case.good).split(b".")


def unsigned(algorithm: str, signature: bytes = b"") -> Callable[[Any], bytes]:
    """A token that says it isn't signed."""

    def made(case: Any) -> bytes:
        header = base64url(json.dumps({"alg": algorithm, "kid": "k1"}).encode()).encode()
        return b".".join((header, parts(case)[1], signature))

    return made


def by_public_key(case: Any) -> bytes:
    """A token that is signed with the public key, as if that were a secret."""
    secret = json.dumps(jwk()).encode()
    header = base64url(json.dumps({"alg": "HS256", "kid": "k1"}).encode()).encode()
    text = header + b"." + parts(case)[1]
    return text + b"." + base64url(hmac.digest(secret, text, hashlib.sha256)).encode()


def twice(case: Any) -> bytes:
    """A token whose payload has a claim twice, of which the first is good."""
    payload = json.dumps(case.good).encode()[:-1] + b', "iss": "https://evil.example"}'
    return signed({"alg": "RS256", "kid": "k1"}, payload)


def altered(case: Any) -> bytes:
    """A good token with another payload."""
    header, _, signature = parts(case)
    payload = base64url(json.dumps({**case.good, "exp": NOW + 61}).encode()).encode()
    return b".".join((header, payload, signature))


def elliptic(case: Any) -> bytes:
    """A token that is signed with a key of the provider for an algorithm that isn't accepted."""
    case.provider.published[case.source] = jwks(jwk(), jwk_for("ES256", "e1"))
    return token(case.good, "e1", "ES256")


def padded(case: Any) -> bytes:
    """A good token whose signature is written in another way that means the same."""
    header, payload, signature = parts(case)
    assert decoded(signature + b"=") == decoded(signature)
    return b".".join((header, payload, signature + b"="))


def away(case: Any) -> bytes:
    """A good token, while the provider can't be asked."""
    case.provider.refused = "nobody there"
    return token(case.good)


def distrusted(case: Any) -> bytes:
    """A good token by a key that an operator distrusts."""
    case.readings.tell(case.branch, distrusted=frozenset({"k1"}))
    return token(case.good)


def unprivileged(case: Any) -> bytes:
    """A good token of a role that may not authenticate."""
    case.readings.permitted.clear()
    return token(case.good)


def elsewhere(case: Any) -> bytes:
    """A good token of a role that may log in from another network."""
    for role in (world.HOST, tenant.HOST, test_gcp.HOST, ALICE):
        case.readings.restrictions[role] = ("198.51.100.0/24",)
    return token(case.good)


#: How the tokens of BAD-1 are made.
TOKENS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "nothing": lambda _: b"",
    "no JWT": lambda _: b"x.y",
    "five parts, as an encrypted token": lambda case: b".".join([*parts(case), b"x", b"x"]),
    "the JSON form": lambda case: json.dumps({"payload": parts(case)[1].decode(), "signatures": []}).encode(),
    "a signature that is padded": padded,
    "more than 16 KiB": lambda case: token({**case.good, "x": "x" * 16_384}),
    "`alg` is `none`, without a signature": unsigned("none"),
    "`alg` is `nOnE`": unsigned("nOnE"),
    "`alg` is `none`, with a signature": unsigned("none", b"eA"),
    "`alg` is `HS256`, with the public key as the secret": by_public_key,
    "`alg` is `rs256`": lambda case: signed({"alg": "rs256", "kid": "k1"}, case.good),
    "`alg` is ES256, by a key of the provider": elliptic,
    "`crit` in the header": lambda case: token(case.good, crit=["exp"]),
    "`b64` in the header": lambda case: token(case.good, b64=False),
    "an unknown `kid`": lambda case: token(case.good, "k2"),
    "another key under a known `kid`": lambda case: token(case.good, "k2", kid="k1"),
    "its own key in `jwk`": lambda case: token(case.good, "k2", kid="k1", jwk=jwk("k2")),
    "the address of its own keys in `jku`": lambda case: token(case.good, "k2", kid="k1", jku="https://evil.example"),
    "another payload under a good signature": altered,
    "a distrusted key": distrusted,
    "the keys can't be had": away,
    "a payload that is no object": lambda _: signed({"alg": "RS256", "kid": "k1"}, b"[]"),
    "a claim twice": twice,
    "no `exp`": changed("exp", ...),
    "`exp` as text": changed("exp", str(int(NOW) + 60)),
    "`exp` beyond all numbers": lambda case: signed(
        {"alg": "RS256", "kid": "k1"}, re.sub(rb'"exp": [0-9.]+', b'"exp": 1e999', json.dumps(case.good).encode())
    ),
    "`exp` is now": changed("exp", NOW),
    "`nbf` is ahead": changed("nbf", NOW + 1),
    "`iat` is ahead": changed("iat", NOW + 1),
    "another issuer": changed("iss", "https://evil.example"),
    "the issuer with a longer path": lambda case: changed("iss", f"{case.good['iss']}/x")(case),
    "the issuer in a list": lambda case: changed("iss", [case.good["iss"]])(case),
    "no issuer": changed("iss", ...),
    "another audience": changed("aud", "https://other.example"),
    "the audience and more behind it": lambda case: changed("aud", f"{case.good['aud']}.evil.example")(case),
    "the audience in a list": lambda case: changed("aud", [case.good["aud"]])(case),
    "an empty list of audiences": changed("aud", []),
    "no audience": changed("aud", ...),
    "another workload, person or role": lambda case: token({**case.good, **case.other_role}),
    "a role without the privilege": unprivileged,
    "a role that may not come from there": elsewhere,
    "an access token by its `typ`": lambda case: token(case.good, typ="at+jwt"),
}


class Tables(SynchronousTestCase):
    """What the tests of all tables have in common."""

    dialect: Dialect = NATIVE

    def world(self, kind: type[Any]) -> Any:
        """A world of a type of authenticator, in this dialect."""
        case = kind("setUp")
        case.dialect = self.dialect
        case.setUp()
        return case

    def told(self, decision: Admitted | Refused) -> str:
        """What the page calls a decision; all that a provider is needed for is put off, and all else is not."""
        if isinstance(decision, Admitted):
            return "admitted"
        self.assertEqual(decision.kind is RefusalKind.POSTPONED, decision.reason in POSTPONING_REASONS)
        return str(decision.reason.value)

    def expected(self, cell: str) -> str:
        """What a cell says for this dialect."""
        words: list[str] = re.findall(r"`([a-z-]+)`", cell)
        return words[-1 if self.dialect is CONJUR else 0]

    def compare(self, rule: str, made: Mapping[str, Sequence[str]]) -> None:
        """The table of a rule has these rows, and says this of each."""
        rows = table(rule)
        self.assertEqual(list(rows), list(made), f"the rows of {rule}")
        for name, found in made.items():
            self.assertEqual([self.expected(cell) for cell in rows[name]], list(found), f"{rule}: {name}")


class TokensTests(Tables):
    """BAD-1."""

    def outcome(self, kind: type[Any], make: Callable[[Any], bytes]) -> str:
        """What becomes of a token at a type of authenticator, where the good one is admitted."""
        case = self.world(kind)
        self.assertIsInstance(case.attempt(token(case.good)), Admitted, kind.__name__)
        case = self.world(kind)
        return self.told(case.attempt(make(case)))

    def test_tokens(self) -> None:
        """Each token is refused for the reason in the table, by each type of authenticator (BAD-1)."""
        self.compare("BAD-1", {name: [self.outcome(kind, make) for kind in WORLDS] for name, make in TOKENS.items()})


class ConjurTokensTests(TokensTests):
    """BAD-1, in the other dialect."""

    dialect = CONJUR


class CodeWorld(OidcCase):
    """``authn-oidc`` with codes, for which the provider gives any id token."""


def unverified(case: Any) -> dict[str, object]:
    """Claims by an address that nobody has verified."""
    case.readings.set(case.branch, claim_mapping="email", id_token_user_property="email")
    return {"email": "alice", "email_verified": False}


#: What the id tokens of BAD-2 say in another way.
ID_TOKENS: Final[Mapping[str, Mapping[str, object] | Callable[[Any], dict[str, object]]]] = {
    "for another client": {"aud": "other"},
    "for several, without `azp`": {"aud": [CLIENT, "other"]},
    "for several, and issued to another": {"aud": [CLIENT, "other"], "azp": "other"},
    "issued to another (`azp`)": {"azp": "other"},
    "of an issuer that differs in a final slash": {"iss": f"{PROVIDER}/"},
    "an access token, by `typ`": {"typ": "Bearer"},
    "a refresh token, by `typ`": {"typ": "Refresh"},
    "an access token, by `token_use`": {"token_use": "access"},
    "with `scope`, as access tokens have": {"scope": "openid"},
    "with `scp`, as access tokens have": {"scp": ["x"]},
    "with another nonce": {"nonce": f"{NONCE}x"},
    "without a nonce": {"nonce": ...},
    "of nobody": {"preferred_username": ...},
    "of a user by a number": {"preferred_username": 7},
    "of a list of users": {"preferred_username": ["alice"]},
    "of `admin`": {"preferred_username": "admin"},
    "of a host, by its login": {"preferred_username": "host/alice"},
    "of an address that isn't verified": unverified,
}


class IdTokensTests(Tables):
    """BAD-2."""

    def test_id_tokens(self) -> None:
        """Each id token is refused for the reason in the table, brought by a client or exchanged for a code (BAD-2)."""
        made: dict[str, list[str]] = {}
        for name, changes in ID_TOKENS.items():
            made[name] = []
            for kind in (PersonWorld, CodeWorld):
                case = self.world(kind)
                self.assertIsInstance(case.tried(token(PERSON)), Admitted)
                changed_claims = changes(case) if callable(changes) else changes
                made[name].append(self.told(case.tried(case.claims(**changed_claims))))
        self.compare("BAD-2", made)


class ConjurIdTokensTests(IdTokensTests):
    """BAD-2, in the other dialect."""

    dialect = CONJUR


def of_aws(headers: Mapping[str, object] | None = None, **signing: Any) -> Callable[[Any], bytes]:
    """A request that is signed in another way, or whose headers are others afterwards."""
    return lambda case: body({**case.headers(**signing), **(headers or {})})


def by_caller(arn: str, account: str = ACCOUNT) -> Callable[[Any], bytes]:
    """A good request of another caller."""

    def made(case: Any) -> bytes:
        case.sts.keys = [Keys(arn=arn, account=account)]
        return body(case.headers())

    return made


def reused(case: Any) -> bytes:
    """A request that has admitted once."""
    evidence = body(case.headers())
    assert isinstance(case.attempt(evidence), Admitted)
    return evidence


def stolen(case: Any) -> bytes:
    """A request by an access key that an operator distrusts."""
    case.readings.tell(case.branch, distrusted=frozenset({KEYS.key_id}))
    return body(case.headers())


def unreachable(case: Any, *, answered: bool = False) -> bytes:
    """A good request, while AWS can't be asked, or gives an answer that is none."""
    case.sts.away = StsUnavailable("no route", answered)
    return body(case.headers())


def forbidden(case: Any) -> bytes:
    """A good request of a role that may not authenticate."""
    case.readings.permitted.clear()
    return body(case.headers())


#: How the requests of BAD-3 are made.
REQUESTS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "nothing": lambda _: b"",
    "no JSON": lambda _: b"x",
    "a header twice": lambda case: body({**case.headers(), "HOST": "sts.eu-west-1.amazonaws.com"}),
    "without `authorization`": lambda case: body({k: v for k, v in case.headers().items() if k != "authorization"}),
    "more than 16 KiB": of_aws({"x": "y" * 20_000}),
    "for a host that isn't AWS's": of_aws(host="evil.example"),
    "for a host that begins like AWS's": of_aws(host="sts.amazonaws.com.evil.example"),
    "for another service of AWS": of_aws(host="s3.amazonaws.com"),
    "for a region that isn't known": of_aws(host="sts.xx-west-1.amazonaws.com"),
    "with a header that changes what is asked": of_aws(x_amz_target="GetSecretValue"),
    "with a line end in a value": of_aws({"x-amz-date": f"{date(NOW)}\r\nHost: evil.example"}),
    "older than 15 minutes": of_aws(at=NOW - 900),
    "of the future": of_aws(at=NOW + 1),
    "for another server": of_aws(named="evil.example/acme"),
    "for another account of this server": of_aws(named=f"{SERVER}/other"),
    "for no server": of_aws(named=None),
    "for this server, but not signed": of_aws({"x-svc-server-id": NAMED}, named=None),
    "altered after it was signed": of_aws({"x-svc-server-id": f"{NAMED}/other"}),
    "signed by a guessed key": of_aws(keys=Keys(secret="x" * 40)),
    "with another session's token": of_aws({"x-amz-security-token": "another"}),
    "used before": reused,
    "by a distrusted access key": stolen,
    "of another role": by_caller(f"arn:aws:sts::{ACCOUNT}:assumed-role/other/i-0abc"),
    "of the role in another case": by_caller(f"arn:aws:sts::{ACCOUNT}:assumed-role/Web/i-0abc"),
    "of the role in another account of AWS": by_caller("arn:aws:sts::210987654321:assumed-role/web/i-0abc", "210987654321"),
    "of a user of AWS with the role's name": by_caller(f"arn:aws:iam::{ACCOUNT}:user/web"),
    "of a federated user": by_caller(f"arn:aws:sts::{ACCOUNT}:federated-user/web"),
    "of the account itself": by_caller(f"arn:aws:iam::{ACCOUNT}:root"),
    "of a role without the privilege": forbidden,
    "while AWS can't be asked": unreachable,
    "while AWS's answer is none": lambda case: unreachable(case, answered=True),
}


class RequestsTests(Tables):
    """BAD-3."""

    def test_requests(self) -> None:
        """Each signed request is refused for the reason in the table (BAD-3)."""
        made = {}
        for name, make in REQUESTS.items():
            case = self.world(AwsCase)
            self.assertIsInstance(case.attempt(body(case.headers())), Admitted)
            case = self.world(AwsCase)
            made[name] = [self.told(case.attempt(make(case)))]
        self.compare("BAD-3", made)


class ConjurRequestsTests(RequestsTests):
    """BAD-3, in the other dialect, with a name of the server."""

    dialect = CONJUR
