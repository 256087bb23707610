"""The LDAP authenticator: it admits a user whose name and password a directory accepts.

A role's own API key proves it too, without the directory: so clients go on that were told their key.

Note [Same work]. The directory is asked about every request whose evidence isn't the role's API key, whether or not the role
exists and may log in. So an unknown role, a missing privilege and a wrong password take the same time (FAIL-18); only an
authenticator that can't be used is refused before. Failures count in the order of TOK-6.

Note [Who can't be judged]. When the directory couldn't be asked (``reasons.PUT_OFF``), that counts before all else, so that
known and unknown roles are alike told to come again (AUTH-57). What the directory says of a single entry is unproven. So is
what comes before it is asked: a login that can't be one, an authenticator that isn't enabled or defined, settings that don't
fit.

Note [Who may]. Entries of a directory are people, so hosts don't log in here. Neither does ``admin``, whom a directory's
administrators would otherwise be (AUTH-53).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
from zope.interface import implementer

from svc.authn.checks import why_disabled
from svc.authn.ldap.directory_settings import NAME, VARIABLES, LdapMisconfiguration, LdapServers
from svc.crypto.vault import DECOY, Vault, api_key_name
from svc.model.authentication import (
    Admitted,
    AuthenticatorSettings,
    IAuthenticator,
    IAuthenticatorReadings,
    ILogin,
    LoginCandidate,
    LoginRequest,
    Refused,
)
from svc.model.clocks import WallClock
from svc.model.credentials import Credential, ICredentials, new_api_key, same_key
from svc.model.dialect import Dialect
from svc.model.errors import InvalidName, WrongDataKey
from svc.model.ldap_directories import DirectoryRefused, IDirectories
from svc.model.names import ResourceName, RoleName, admin_of
from svc.model.query_results import Sealed, is_within
from svc.model.reasons import PUT_OFF, Reason, RefusalKind
from svc.model.text import shown

#: The longest password, in bytes.
PASSWORD_LIMIT: Final = 1024

_Objection = tuple[Reason, str]


@attrs.frozen
class _Tried:
    """The findings about a request; ``unproven`` says why it proves nobody, if that is so."""

    role: RoleName
    candidate: LoginCandidate
    credential: Credential
    api_key: bytes | None = attrs.field(repr=False)
    unproven: _Objection | None


@implementer(IAuthenticator, ILogin)
@attrs.define(eq=False, repr=False)
class LdapAuthenticator:
    """Admits users by a directory's password or their own API key, to the webservices ``<prefix>/authn-ldap/<service id>``.

    ``directories`` returns the client of directories; it is called when one is asked. ``enabled`` has the names
    ``authn-ldap/<service id>`` that the configuration lists.
    """

    _readings: IAuthenticatorReadings
    _credentials: ICredentials
    _servers: LdapServers
    _directories: Callable[[], IDirectories]
    _vault: Vault
    _dialect: Dialect
    _enabled: frozenset[str]
    _wall: WallClock
    _decoy: Sealed = attrs.field(init=False)

    @_decoy.default
    def _sealed_decoy(self) -> Sealed:
        return self._vault.seal(DECOY, new_api_key().encode("ascii"))

    async def authenticate(self, request: LoginRequest) -> Admitted | Refused:
        """Decide on one request.

        :raises StoreUnavailable: the store can't be asked.
        """
        tried = await self._decided(request, request.client_ip)
        if isinstance(tried, Refused):
            return tried
        if tried.candidate.signing_key is None:
            return Refused.of(Reason.SIGNING_KEY_UNUSABLE, "the account has no signing key", str(tried.role))
        return Admitted(tried.role, tried.candidate.signing_key, tried.candidate.creation)

    async def api_key(self, request: LoginRequest) -> bytes | Refused:
        """Return the role's API key, from any address: authentication with the key checks that (TOK-3).

        :raises StoreUnavailable: the store can't be asked.
        """
        tried = await self._decided(request, None)
        if isinstance(tried, Refused):
            return tried
        if tried.api_key is None:
            return Refused(Reason.CREDENTIALS_MISSING, "the role has no API key", str(tried.role))
        return tried.api_key

    async def _decided(self, request: LoginRequest, client_ip: str | None) -> _Tried | Refused:
        """Return the findings, or the failure that counts; a ``client_ip`` of ``None`` isn't checked."""
        tried = await self._tried(request)
        return tried if isinstance(tried, Refused) else self._refused(tried, client_ip) or tried

    async def _tried(self, request: LoginRequest) -> _Tried | Refused:
        """Return the findings about a request (Note [Same work]), or a refusal before the directory is asked."""
        service = f"{NAME}/{request.service_id}"
        try:
            role = RoleName.from_login(request.account, request.login or "")
            webservice = ResourceName.of(role.account, "webservice", f"{self._dialect.prefix}/{service}")
        except InvalidName as refusal:
            return Refused(Reason.REQUEST_MALFORMED, str(refusal))
        listed = service in self._enabled
        if not (listed or self._dialect.switch_enables):
            detail = f"{shown(service)} is not listed in the configuration"
            return Refused(Reason.AUTHENTICATOR_NOT_ENABLED, detail, str(role))
        objection = _unfit(role, request.evidence)
        if objection is not None:
            return Refused(*objection, str(role))
        settings = await self._servers.settings(webservice)
        disabled = why_disabled(self._dialect, service, listed, settings.switched)
        if disabled is not None:
            return Refused(Reason.AUTHENTICATOR_NOT_ENABLED, disabled.what, str(role))
        candidate = await self._readings.candidate(role, webservice.identifier, VARIABLES, NAME)
        credential = await self._credentials.credential(role)
        unreadable: _Objection | None = None
        try:
            opened = None if credential.api_key is None else self._vault.open(api_key_name(role), credential.api_key)
        except WrongDataKey:
            opened, unreadable = None, (Reason.CREDENTIALS_UNREADABLE, "the stored API key doesn't open under the data key")
        matches = same_key(self._vault.open(DECOY, self._decoy) if opened is None else opened, request.evidence)
        is_key = matches and opened is not None and not credential.is_expired(self._wall.seconds())
        unproven = None if is_key else await self._unproven(webservice, settings, role, request.evidence)
        if unreadable is not None and (unproven is None or unproven[0] not in PUT_OFF):
            unproven = unreadable
        return _Tried(role, candidate, credential, opened, unproven)

    async def _unproven(
        self, webservice: ResourceName, settings: AuthenticatorSettings, role: RoleName, password: bytes
    ) -> _Objection | None:
        """Return why the directory doesn't prove the role; ``None`` when it does."""
        server = await self._servers.of(webservice, settings)
        if isinstance(server, LdapMisconfiguration):
            return Reason.CONFIGURATION_INVALID, str(server)
        try:
            await self._directories().prove(server, role.identifier, password)
        except DirectoryRefused as refusal:
            return refusal.reason, refusal.detail
        return None

    def _refused(self, tried: _Tried, client_ip: str | None) -> Refused | None:
        """Return the failure that counts, if there is one."""
        role, candidate = tried.role, tried.candidate
        objection: _Objection | None = None
        kind = RefusalKind.UNPROVEN
        if tried.unproven is not None and tried.unproven[0] in PUT_OFF:  # Note [Who can't be judged]
            objection = tried.unproven
        elif not candidate.account_exists:
            objection = Reason.ACCOUNT_UNKNOWN, f"there is no account {shown(role.account)}"
        elif not candidate.webservice_exists:
            objection = Reason.WEBSERVICE_UNKNOWN, "no policy defines the authenticator's webservice"
        elif not candidate.role_exists:
            objection = Reason.ROLE_UNKNOWN, f"there is no role {shown(str(role))}"
        elif not candidate.may_authenticate:
            objection = Reason.PRIVILEGE_MISSING, f"{shown(str(role))} has no privilege authenticate on the authenticator"
            if tried.unproven is None and self._dialect.tells_missing_privilege:
                kind = RefusalKind.UNPRIVILEGED
        elif client_ip is not None and candidate.restrictions and not is_within(client_ip, candidate.restrictions):
            detail = f"the request comes from {shown(client_ip)}, where the role may not log in from"
            objection = Reason.ORIGIN_REFUSED, detail
        else:
            objection = tried.unproven
        return None if objection is None else Refused.of(*objection, str(role), kind)


def _unfit(role: RoleName, evidence: bytes) -> _Objection | None:
    """Return why a request is refused before the directory is asked; ``None`` when it isn't."""
    if role.kind != "user" or role == admin_of(role.account):
        return Reason.LDAP_ROLE_REFUSED, "neither hosts nor admin log in by a directory"
    if not evidence:
        return Reason.CREDENTIALS_MISSING, "there is no password"
    if len(evidence) > PASSWORD_LIMIT or b"\0" in evidence:
        return Reason.REQUEST_MALFORMED, f"a password has at most {PASSWORD_LIMIT} bytes, and none of them is NUL"
    return None
