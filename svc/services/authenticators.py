"""The use cases of authenticators, for operators: list them, show their state, explain refusals, and change them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from svc.authn.evaluation import FederatedAuthenticator
from svc.authn.ldap.authenticator import LdapAuthenticator
from svc.model.authentication import AuthenticatorStatus, Explanation, LoginRequest
from svc.model.authorization import Denial, Denied, decide_privilege, require_privilege
from svc.model.clocks import WallClock
from svc.model.dialect import SINGLE_TYPES, Dialect, authenticator_name
from svc.model.errors import AuthenticationRefused, Forbidden, RecordNotFound, TooLarge, TooOften
from svc.model.ldap_directories import DirectoryStatus
from svc.model.listed_authenticators import is_pattern
from svc.model.names import ResourceName
from svc.model.query_results import Caller
from svc.model.reasons import Reason
from svc.model.refusals import IRefusals, RefusalsQuery, RefusedRequest
from svc.services.invocation import Invocation, can_read_all, printable_facts
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.roles import RoleStore

DEFAULT: Final = "authn"  # is always enabled
DIRECTORY_TYPE: Final = "authn-ldap"
#: How many of an account's last refusals are read for the status of a directory, and shown with it.
_REFUSALS_READ: Final = 1000
_REFUSALS_REPORTED: Final = 10
#: Seconds between two refreshes of one authenticator's keys: each makes every server ask the provider.
REFRESH_PAUSE: Final = 1.0

_log = Logger()


@attrs.frozen
class KnownAuthenticators:
    """The names of authenticators: types that are installed, those that policy defines, and those that may be used."""

    installed: Sequence[str]
    configured: Sequence[str]
    enabled: Sequence[str]


@attrs.frozen
class AuthenticatorService:
    """The use cases of authenticators of all types.

    ``installed`` are the types beside ``authn``, such as ``authn-jwt``; ``listed`` the configured ``authn-jwt/ci``.
    """

    store: AuthenticatorStore
    roles: RoleStore
    installed: Sequence[str]
    listed: Collection[str]
    dialect: Dialect

    async def list_authenticators(self) -> KnownAuthenticators:
        """Return which types there are, and which authenticators policy defines and may be used (AUTH-4).

        One that is enabled in any account counts, and so does one that is listed and defined in none. Anyone may call this,
        so only so many webservices are read (``AuthenticatorStore.list_webservices``).
        """
        switches: dict[str, list[bool | None]] = {name: [] for name in self.listed if not is_pattern(name)}
        configured = {DEFAULT}
        for webservice, switch in await self.store.list_webservices(self.dialect.prefix):
            name = webservice.identifier.removeprefix(f"{self.dialect.prefix}/")
            if name.startswith("authn-") and not is_nested(name):
                configured.add(name)
                switches.setdefault(name, []).append(switch)
        enabled = {
            name
            for name, found in switches.items()
            if any(self.dialect.is_enabled(name in self.listed, switch) for switch in found or [None])
        }
        return KnownAuthenticators(sorted({DEFAULT, *self.installed}), sorted(configured), sorted({DEFAULT, *enabled}))

    async def switch_authenticator(self, invocation: Invocation, account: str, name: str, on: Callable[[], bool]) -> bool:
        """Switch an authenticator on or off, in one account alone (AUTH-3, AUTH-5, AUTH-6).

        Return whether it may be used now, which is also a matter of what the configuration lists (AUTH-2, AUTH-90).
        ``on`` is called after the caller's privilege is checked, and refuses what can't be read. A foreign account is
        treated as missing.

        :raises AuthenticationRefused: there is no such account, or no such authenticator.
        :raises Forbidden: the caller lacks ``update`` on its webservice.
        """
        caller = invocation.caller
        if account != caller.role.account:
            raise AuthenticationRefused(Reason.ACCOUNT_UNKNOWN)
        webservice = webservice_of(self.dialect, account, name)
        match decide_privilege(await self.roles.access_facts(caller, webservice), "update"):
            case Denied(Denial.MISSING):
                message = await self._explain_missing(caller, webservice)
                raise AuthenticationRefused(Reason.WEBSERVICE_UNKNOWN, client_message=message, vendor_code="CONJ00005E")
            case _ if is_nested(name):
                raise AuthenticationRefused(Reason.WEBSERVICE_UNKNOWN)
            case Denied(denial):
                raise Forbidden(f"may not switch {webservice}: {denial.value}")
        wanted = on()
        invocation.recorder.add_audit_facts(enabled=wanted)
        await self.store.switch_authenticator(webservice, wanted, invocation.recorder.event_batch)
        facts = printable_facts(role=caller.role, webservice=webservice, state="on" if wanted else "off")
        _log.info("{role} switched {webservice} {state}", **facts)
        return name == DEFAULT or self.dialect.is_enabled(name in self.listed, wanted)

    async def _explain_missing(self, caller: Caller, webservice: ResourceName) -> str | None:
        """Return the message to a caller about a missing webservice; ``None`` for one who might not see it (AUTH-6)."""
        policy = ResourceName(webservice.account, "policy", webservice.identifier)
        facts = await self.roles.access_facts(caller, policy)
        if not (await can_read_all(self.roles, caller) or facts.owns or facts.inspects):
            return None
        return (
            f"Webservice '{webservice.identifier}' not found in account '{webservice.account}':"
            " policy declares it before it can be switched"
        )


@attrs.frozen
class AuthenticatorReport:
    """The state of an authenticator, and whether the configuration lists it.

    ``age``: seconds since its keys were fetched, ``None`` when none are cached. ``requested_at``: when they were last
    requested from its provider, in seconds since the epoch.
    """

    status: AuthenticatorStatus
    listed: bool
    age: float | None
    requested_at: float | None


@attrs.frozen
class FederatedService:
    """The use cases of the authenticators ``<name>/<service id>``, or ``<name>`` alone, which trust a third party's tokens.

    Their tokens have at most ``token_limit`` bytes. ``listed`` are the names in the configuration.

    :raises NotFound: by all methods: there is no such account, or it isn't the caller's (AUTH-59), or no such webservice.
    :raises Forbidden: by all methods: the caller lacks ``update`` on the webservice to distrust and trust keys, for others
        ``read`` on its ``read_status``, visible or not.
    """

    name: str
    explainer: FederatedAuthenticator
    store: AuthenticatorStore
    roles: RoleStore
    listed: Collection[str]
    dialect: Dialect
    token_limit: int
    clock: IReactorTime
    wall: WallClock
    _refreshed: dict[ResourceName, float] = attrs.field(factory=dict, init=False)

    async def read_status(
        self, invocation: Invocation, account: str, service_id: str | None, *, ask: bool = True
    ) -> AuthenticatorReport:
        """Return an authenticator's faults, and the state of its keys (AUTH-59); ``ask`` is as in
        ``FederatedAuthenticator.read_status``.
        """
        webservice = await self._require_operator(invocation, account, service_id)
        status = await self.explainer.read_status(account, service_id, ask=ask)
        return self._make_report(
            attrs.evolve(status, distrusted=await self.store.list_distrusted_keys(webservice)), service_id
        )

    async def explain_token(
        self, invocation: Invocation, account: str, service_id: str | None, login: str | None, token: Callable[[], bytes]
    ) -> Explanation:
        """Return how a token would be evaluated, check by check; nothing is issued.

        ``token`` is called after the caller's privilege is checked, and refuses what can't be read.

        :raises TooLarge: the token is longer than any that is accepted.
        """
        webservice = await self._require_operator(invocation, account, service_id)
        evidence = token()
        if len(evidence) > self.token_limit:
            raise TooLarge("a JWT", self.token_limit)
        request = LoginRequest(account, login, evidence, invocation.client_ip, service_id)
        explanation = await self.explainer.explain(request)
        outcome, subject = "admitted" if explanation.admitted else "refused", explanation.role or "no role"
        facts = printable_facts(role=invocation.caller.role, webservice=webservice, outcome=outcome, subject=subject)
        _log.info("{role} had a token for {webservice} explained: {outcome}, {subject}", **facts)
        return explanation

    async def refresh_keys(self, invocation: Invocation, account: str, service_id: str | None) -> AuthenticatorReport:
        """Fetch the provider's keys again, here at once, elsewhere by the next login (AUTH-63).

        :raises TooOften: they were fetched a moment ago.
        """
        webservice = await self._require_operator(invocation, account, service_id)
        now = self.clock.seconds()
        for other in [other for other, at in self._refreshed.items() if now - at >= REFRESH_PAUSE]:
            del self._refreshed[other]
        if webservice in self._refreshed:
            raise TooOften("the keys were fetched again a moment ago: try again in a second")
        self._refreshed[webservice] = now
        await self.store.request_key_refresh(webservice, invocation.recorder.event_batch)
        facts = printable_facts(role=invocation.caller.role, webservice=webservice)
        _log.info("{role} has the keys for {webservice} fetched again", **facts)
        return self._make_report(await self.explainer.read_status(account, service_id), service_id)

    async def distrust_key(self, invocation: Invocation, account: str, service_id: str | None, key: str) -> None:
        """Distrust a key, by its id or its thumbprint: it verifies nothing any more (AUTH-64)."""
        webservice = await self._require_update(invocation, account, service_id)
        await self.store.distrust_key(webservice, key, invocation.caller.role, invocation.recorder.event_batch)
        _log_key(invocation, "distrusts", key, webservice)

    async def trust_key(self, invocation: Invocation, account: str, service_id: str | None, key: str) -> None:
        """Trust a distrusted key again; ``NotFound`` also when the key isn't distrusted."""
        webservice = await self._require_update(invocation, account, service_id)
        if not await self.store.trust_key(webservice, key, invocation.recorder.event_batch):
            raise RecordNotFound(account, "key", key)
        _log_key(invocation, "trusts again", key, webservice)

    async def _require_operator(self, invocation: Invocation, account: str, service_id: str | None) -> ResourceName:
        return await require_operator(self.roles, self.dialect, invocation, account, self.name, service_id)

    async def _require_update(self, invocation: Invocation, account: str, service_id: str | None) -> ResourceName:
        invocation.recorder.add_audit_facts(authenticator=self.name)
        webservice = webservice_of(self.dialect, account, authenticator_name(self.name, service_id))
        require_privilege(await self.roles.access_facts(invocation.caller, webservice), "update", webservice)
        return webservice

    def _make_report(self, status: AuthenticatorStatus, service_id: str | None) -> AuthenticatorReport:
        keys, now = status.keys, self.clock.seconds()
        return AuthenticatorReport(
            status,
            authenticator_name(self.name, service_id) in self.listed,
            None if keys.fetched_at is None else now - keys.fetched_at,
            None if keys.attempted_at is None else self.wall.seconds() - (now - keys.attempted_at),
        )


@attrs.frozen
class LdapStatusService:
    """The use case of the state of the authenticators ``authn-ldap/<service id>``, which use directories."""

    states: LdapAuthenticator
    roles: RoleStore
    refusals: IRefusals
    dialect: Dialect

    async def read_status(
        self, invocation: Invocation, account: str, service_id: str
    ) -> tuple[DirectoryStatus, list[RefusedRequest]]:
        """Return the state of an authenticator, and its last refusals, the newest first (AUTH-58).

        :raises NotFound: as ``require_operator``.
        :raises Forbidden: as ``require_operator``.
        """
        webservice = await require_operator(self.roles, self.dialect, invocation, account, DIRECTORY_TYPE, service_id)
        status = await self.states.read_directory_status(webservice, f"{DIRECTORY_TYPE}/{service_id}")
        recent = (await self.refusals.find_recent(RefusalsQuery(account, limit=_REFUSALS_READ))).refusals
        own = (each for each in recent if (each.authenticator, each.service_id) == (DIRECTORY_TYPE, service_id))
        return status, list(islice(own, _REFUSALS_REPORTED))


async def require_operator(
    roles: RoleStore, dialect: Dialect, invocation: Invocation, account: str, kind: str, service_id: str | None
) -> ResourceName:
    """Return the webservice of an authenticator that the caller operates: it has ``read`` on its ``status`` (AUTH-59).

    :raises NotFound: there is no such account, or it isn't the caller's, or no such webservice.
    :raises Forbidden: the caller lacks ``read`` on the status, visible or not.
    """
    invocation.recorder.add_audit_facts(authenticator=kind)
    caller = invocation.caller
    if account != caller.role.account:
        raise RecordNotFound(account, "account", account)
    name = authenticator_name(kind, service_id)
    webservice, status = webservice_of(dialect, account, name), webservice_of(dialect, account, f"{name}/status")
    match decide_privilege(await roles.access_facts(caller, status), "read"):
        case Denied(Denial.MISSING):
            raise RecordNotFound.for_name(status)
        case Denied(Denial.CALLER_GONE):
            raise Forbidden("no longer exists")
        case Denied():
            raise Forbidden(f"lacks read on {status}")
    if not (await roles.access_facts(caller, webservice)).exists:
        raise RecordNotFound.for_name(webservice)
    return webservice


def webservice_of(dialect: Dialect, account: str, name: str) -> ResourceName:
    """Return the webservice of an authenticator of this name."""
    return ResourceName.from_parts(account, "webservice", f"{dialect.prefix}/{name}")


def is_nested(name: str) -> bool:
    """Return whether a webservice is an authenticator's ``status``, and no authenticator itself."""
    above = name.removesuffix("/status")
    return above != name and ("/" in above or above in SINGLE_TYPES)


def _log_key(invocation: Invocation, does: str, key: str, webservice: ResourceName) -> None:
    facts = printable_facts(role=invocation.caller.role, does=does, key=key, webservice=webservice)
    _log.info("{role} {does} the key {key} for {webservice}", **facts)
