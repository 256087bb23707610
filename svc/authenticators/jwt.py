"""The JWT authenticator: a token signed by a third party, and the host that it speaks for.

Note [Optimistic settings]. What an operator sets (addresses, issuer, audience) lives in variables, sealed, in the database.
A login decides with the settings remembered from before, and then makes one reading of all else that it needs, which also
tells the ``edition`` the settings have now. If that is another one, the settings are read again and the login is decided
afresh, from the signature on. So a login costs one round trip, and none is decided, either way, with settings that were
out of date when it was: an operator who replaces a provider's address locks its tokens out at once, on every server.

Note [Same work]. That reading is made for every token, proven or not, and for a role that can't exist when none is known. So
an unknown host, a wrong claim and a missing membership cost the same, and a stopwatch learns nothing (rulings 2.11). It also
makes refusals that depend on the settings as fresh as admissions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svc.authenticators.claims import (
    check_annotations,
    check_audience,
    check_begun,
    check_expiry,
    check_issuer,
    host_of,
    name_fault,
    role_of,
)
from svc.dialect import Dialect
from svc.errors import InvalidName, KeysUnavailable, Reason, StoreUnavailable, WrongDataKey
from svc.interfaces import IAuthenticator, IAuthenticatorReadings, IProviderKeys
from svc.jose import (
    EvidenceRefused,
    KeyRefused,
    KeySet,
    Malformed,
    SignedClaims,
    Unverified,
    json_object,
    key_set,
    parse_compact,
    shown,
)
from svc.names import ResourceName, RoleName, account_name
from svc.records import Admitted, Applicant, Attempt, AuthenticatorSettings, Refused
from svc.vault import Vault

#: Variables that no part of this program reads yet. A policy that declares one means something that wouldn't be done.
_NOT_YET: Final = ("provider-uri", "ca-cert", "enforced-claims", "claim-aliases", "mapping-claims")

#: Every variable that is asked for.
VARIABLES: Final = ("jwks-uri", "public-keys", "issuer", "audience", "token-app-property", "identity-path", *_NOT_YET)

#: Authenticators whose settings are remembered.
_REMEMBERED: Final = 1000

#: How often a login is decided afresh because its settings changed meanwhile.
_DECISIONS: Final = 3


@attrs.frozen
class Configuration:
    """The settings of one authenticator, read and understood.

    ``keys`` is a set, or the address of one. ``issuer`` and ``audience`` are what tokens must carry, ``None`` if nothing.
    ``identity_claim`` names the claim that identifies the host, ``None`` when the path of the request does.
    """

    edition: str
    keys: KeySet | str
    issuer: str | None
    audience: str | None
    identity_claim: str | None
    identity_path: str


@attrs.frozen
class Misconfiguration:
    """Settings with which nobody can log in; each of ``faults`` says what to change."""

    edition: str
    faults: tuple[str, ...]


def configuration_of(edition: str, values: Mapping[str, str | None], dialect: Dialect) -> Configuration | Misconfiguration:
    """Understand an authenticator's variables (wire facts, authn 3.3, 3.6, 3.7; rulings 1).

    ``values`` has the declared variables; ``None`` stands for one that was never set. What is declared must be set, and is
    never ignored, except for an identity path that nothing uses.
    """
    faults = [f"the variable {name} is not supported yet" for name in _NOT_YET if name in values]
    texts = {}
    for name in VARIABLES:
        if name in _NOT_YET or name not in values or (name == "identity-path" and "token-app-property" not in values):
            continue
        text = values[name]
        if text is None:
            faults.append(f"the variable {name} is declared and has no value")
        elif not text.strip():
            faults.append(f"the variable {name} is blank")
        else:
            texts[name] = text
    if ("jwks-uri" in values) == ("public-keys" in values):
        faults.append("exactly one of the variables jwks-uri and public-keys must be declared")
    if "public-keys" in values and "issuer" not in values:
        faults.append("the variable public-keys needs the variable issuer beside it")
    keys: KeySet | str = texts.get("jwks-uri", "")
    if "public-keys" in texts:
        try:
            keys = _public_keys(texts["public-keys"])
        except Malformed as error:
            faults.append(f"the variable public-keys is not usable: {error}")
    issuer = texts.get("issuer")
    if dialect.issuer_mandatory and "issuer" not in values and "jwks-uri" in texts:
        issuer = _host(texts["jwks-uri"])
        if not issuer:
            faults.append("the variable jwks-uri names no host, from which the issuer could be known")
    identity_claim = texts.get("token-app-property")
    if identity_claim is not None:
        fault = name_fault(identity_claim, nested=dialect.nested_claims)
        if fault is not None:
            faults.append(f"the variable token-app-property is not usable: {fault}")
    if faults:
        return Misconfiguration(edition, tuple(faults))
    return Configuration(edition, keys, issuer, texts.get("audience"), identity_claim, texts.get("identity-path", ""))


def _public_keys(text: str) -> KeySet:
    """Read ``{"type": "jwks", "value": {"keys": [...]}}`` (wire facts, authn 3.3).

    :raises Malformed: it is something else, or has no usable key.
    """
    document = json_object(text.encode("utf-8"))
    value = document.get("value")
    if document.get("type") != "jwks" or not isinstance(value, dict):
        raise Malformed('it has not the form {"type": "jwks", "value": {"keys": [...]}}')
    keys = key_set(value)
    if not keys.keys:
        raise Malformed(keys.why_unusable)
    return keys


def _host(uri: str) -> str:
    """The host of an address as it is written there, without port."""
    authority = uri.partition("://")[2].partition("/")[0].partition("?")[0]
    host, bracket, _ = authority.partition("]")
    return host + bracket if bracket else authority.partition(":")[0]


@attrs.frozen
class _Proof:
    """A verified token, and the role that it may speak for."""

    role: RoleName
    claims: SignedClaims


def _nobody(account: str) -> RoleName:
    """A role that can't exist, since no identifier is empty (Note [Same work])."""
    return RoleName(account, "host", "")


@implementer(IAuthenticator)
class JwtAuthenticator:
    """Admits roles that prove themselves with a JWT, to the webservices ``<prefix>/authn-jwt/<service id>``.

    ``enabled`` has the names ``authn-jwt/<service id>`` that may be used. ``clock_skew`` is in seconds, ``token_limit`` in
    bytes. ``ignore_missing_issuer`` lets a token be without ``iss`` where the dialect demands one.
    """

    def __init__(
        self,
        readings: IAuthenticatorReadings,
        keys: IProviderKeys,
        vault: Vault,
        clock: IReactorTime,
        dialect: Dialect,
        enabled: frozenset[str],
        *,
        clock_skew: float,
        token_limit: int,
        ignore_missing_issuer: bool,
    ) -> None:
        self._readings = readings
        self._keys = keys
        self._vault = vault
        self._clock = clock
        self._dialect = dialect
        self._enabled = enabled
        self._clock_skew = clock_skew
        self._token_limit = token_limit
        self._issuer_mandatory = dialect.issuer_mandatory and not ignore_missing_issuer
        self._remembered: OrderedDict[tuple[str, str], Configuration | Misconfiguration] = OrderedDict()

    async def authenticate(self, attempt: Attempt) -> Admitted | Refused:
        """Decide on one attempt, in the order of the wire facts, authn 3.2; settings are looked at all at once.

        :raises StoreUnavailable: the store can't be asked, or the settings changed again and again while it was.
        """
        service = f"authn-jwt/{attempt.service_id}"
        if attempt.service_id is None or service not in self._enabled:
            return Refused(Reason.AUTHENTICATOR_NOT_ENABLED, f"the authenticator {shown(service)} is not enabled")
        try:
            account_name(attempt.account)
        except InvalidName:
            return Refused(Reason.ACCOUNT_UNKNOWN, f"there is no account {shown(attempt.account)}")
        branch = f"{self._dialect.prefix}/{service}"
        token = self._well_formed(attempt)
        if isinstance(token, Refused):
            applicant = await self._readings.applicant(_nobody(attempt.account), branch, VARIABLES)
            return self._decision(token, applicant, service)
        for _ in range(_DECISIONS):
            configuration = await self._configuration(attempt.account, branch)
            proof = await self._proof(token, attempt, configuration)
            role = _nobody(attempt.account) if isinstance(proof, Refused) else proof.role
            applicant = await self._readings.applicant(role, branch, VARIABLES)
            if applicant.edition == configuration.edition:
                return self._decision(proof, applicant, service)
            self._forget(attempt.account, branch, configuration)
        raise StoreUnavailable(f"the settings of {branch} kept changing while a login was decided")

    def _well_formed(self, attempt: Attempt) -> Unverified | Refused:
        text = attempt.evidence.strip()
        if not text:
            return Refused(Reason.TOKEN_MISSING, "the request has no token", status=400)
        try:
            return parse_compact(text, self._token_limit)
        except EvidenceRefused as refusal:
            status = 413 if refusal.reason is Reason.TOKEN_TOO_LARGE else 401
            return Refused(refusal.reason, refusal.detail, status=status)

    async def _proof(
        self, token: Unverified, attempt: Attempt, configuration: Configuration | Misconfiguration
    ) -> _Proof | Refused:
        """Everything that can be found out without the store."""
        if isinstance(configuration, Misconfiguration):
            return Refused(Reason.CONFIGURATION_INVALID, "; ".join(configuration.faults))
        try:
            claims = await self._claims(token, configuration.keys)
            self._check(claims, configuration)
            return _Proof(self._role(claims, attempt, configuration), claims)
        except EvidenceRefused as refusal:
            return Refused(refusal.reason, refusal.detail)

    async def _claims(self, token: Unverified, source: KeySet | str) -> SignedClaims:
        """Verify the signature; a failure that newer keys could mend asks for them, once."""
        if isinstance(source, KeySet):
            return source.verify(token)
        try:
            keys = await self._keys.current(source)
        except KeysUnavailable as error:
            raise EvidenceRefused(Reason.KEYS_UNAVAILABLE, error.why) from None
        try:
            return keys.verify(token)
        except KeyRefused as error:
            refusal = error
        try:
            keys = await self._keys.newer(source, keys)
        except KeysUnavailable as error:
            raise EvidenceRefused(refusal.reason, f"{refusal.detail}; no newer keys: {error.why}") from None
        return keys.verify(token)

    def _check(self, claims: SignedClaims, configuration: Configuration) -> None:
        now, skew = self._clock.seconds(), self._clock_skew
        check_expiry(claims, now, skew)
        check_begun(claims, "nbf", now, skew)
        check_issuer(claims, configuration.issuer, mandatory=self._issuer_mandatory)
        check_begun(claims, "iat", now, skew)
        check_audience(claims, configuration.audience)

    def _role(self, claims: SignedClaims, attempt: Attempt, configuration: Configuration) -> RoleName:
        """The identity comes from the token or from the path, as the settings say, and never from both."""
        if configuration.identity_claim is None:
            if attempt.login is None:
                raise EvidenceRefused(
                    Reason.IDENTITY_AMBIGUOUS, "the path names no host, and token-app-property is not declared"
                )
            return role_of(attempt.login, attempt.account)
        if attempt.login is not None:
            raise EvidenceRefused(Reason.IDENTITY_AMBIGUOUS, "the path names a host, and token-app-property is declared")
        return host_of(
            claims,
            attempt.account,
            configuration.identity_claim,
            configuration.identity_path,
            nested=self._dialect.nested_claims,
        )

    def _decision(self, proof: _Proof | Refused, applicant: Applicant, service: str) -> Admitted | Refused:
        """Lay what was proven beside what the store knows."""
        if not applicant.account_exists or applicant.signing_key is None:
            return Refused(Reason.ACCOUNT_UNKNOWN, "there is no such account")
        if isinstance(proof, Refused):
            if proof.reason is Reason.CONFIGURATION_INVALID and not applicant.webservice_exists:
                return Refused(Reason.WEBSERVICE_UNKNOWN, f"no policy defines the webservice of {shown(service)}")
            return proof
        role = str(proof.role)
        if not applicant.role_exists:
            return Refused(Reason.ROLE_UNKNOWN, f"there is no role {shown(role)}", role)
        if not applicant.webservice_exists:
            return Refused(Reason.WEBSERVICE_UNKNOWN, f"no policy defines the webservice of {shown(service)}", role)
        if not applicant.may_authenticate:
            return Refused(
                Reason.PRIVILEGE_MISSING,
                f"{shown(role)} has no privilege authenticate on {shown(service)}; its group is not in apps",
                role,
                self._dialect.privilege_missing_status,
            )
        annotations = {name.removeprefix(f"{service}/"): value for name, value in applicant.annotations.items()}
        try:
            check_annotations(annotations, proof.claims, nested=self._dialect.nested_claims)
        except EvidenceRefused as refusal:
            return Refused(refusal.reason, refusal.detail, role)
        return Admitted(proof.role, applicant.signing_key)

    async def _configuration(self, account: str, branch: str) -> Configuration | Misconfiguration:
        """The settings as remembered, else as read now (Note [Optimistic settings])."""
        known = self._remembered.get((account, branch))
        if known is not None:
            self._remembered.move_to_end((account, branch))
            return known
        settings = await self._readings.settings(account, branch, VARIABLES)
        configuration = self._understood(account, branch, settings)
        if settings.values:  # names that nobody declared come from outside, and may not fill the memory
            self._remembered[account, branch] = configuration
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
        return configuration

    def _forget(self, account: str, branch: str, configuration: Configuration | Misconfiguration) -> None:
        """Drop a configuration, but not one that took its place meanwhile."""
        if self._remembered.get((account, branch)) is configuration:
            del self._remembered[account, branch]

    def _understood(self, account: str, branch: str, settings: AuthenticatorSettings) -> Configuration | Misconfiguration:
        values: dict[str, str | None] = {}
        for name, sealed in settings.values.items():
            resource = ResourceName(account, "variable", f"{branch}/{name}")
            try:
                values[name] = None if sealed is None else self._vault.open(str(resource), sealed).decode("utf-8")
            except (WrongDataKey, UnicodeDecodeError):
                fault = f"the value of the variable {name} is not UTF-8, or does not open under the data key"
                return Misconfiguration(settings.edition, (fault,))
        return configuration_of(settings.edition, values, self._dialect)
