"""Values and ports of authentication: requests, decisions, what they depend on, and what operators see of them.

Values cross the seams between those who prove identities, the store, and the web. What the store may raise is told in
``interfaces``.

Note [Not all at once]. Who is told to come again is told a moment of his own, up to twice as far away as need be, so that
clients that were put off together don't come back together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
from zope.interface import Interface

from svc.model.events import EventBatch
from svc.model.key_sets import DEFAULT_ALGORITHMS, KeySet
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import Network, Sealed
from svc.model.reasons import PUT_OFF, Reason, RefusalKind


@attrs.frozen
class LoginRequest:
    """A request to be authenticated: what came from outside, nothing verified.

    ``login`` is the decoded id of the path, ``None`` when left out. ``evidence`` is the API key, or the JWT's text.
    ``fault`` says why no evidence could be read from the request, if that is so: a code, and what was found.
    """

    account: str
    login: str | None
    evidence: bytes = attrs.field(repr=False)
    client_ip: str
    service_id: str | None = None
    fault: tuple[Reason, str] | None = None


@attrs.frozen
class Admitted:
    """The identity is proven and may be admitted; ``signing_key`` is the id of the key to sign its access token with.

    ``creation``: that of the role, as it was read (see ``records.Caller``).
    """

    role: RoleName
    signing_key: str
    creation: int = 0


@attrs.frozen
class Refused:
    """The authentication failed. ``detail`` names and compares what an operator needs to see, never evidence.

    ``role`` is the full id of the would-be role where one was determined. ``kind`` is what the client learns, and with
    ``retry_after`` the seconds after which it may come again.
    """

    reason: Reason
    detail: str
    role: str | None = None
    kind: RefusalKind = RefusalKind.UNPROVEN
    retry_after: int | None = None

    @classmethod
    def of(
        cls,
        reason: Reason,
        detail: str,
        role: str | None = None,
        kind: RefusalKind = RefusalKind.UNPROVEN,
        *,
        chance: Callable[[], float] = random.random,
    ) -> Refused:
        """Make a refusal of this kind; for a reason of ``PUT_OFF``, one that postpones; for ``chance`` see ``moment``."""
        if reason in PUT_OFF:
            return cls(reason, detail, role, RefusalKind.POSTPONED, moment(chance=chance))
        return cls(reason, detail, role, kind)


#: After how many seconds somebody may come again where nothing tells when he can be judged, and over how many others are
#: spread at least.
AGAIN: Final = 2.0
_SPREAD: Final = 2.0


def moment(seconds: float = AGAIN, chance: Callable[[], float] = random.random) -> int:
    """Return after how many whole seconds to come again for one who can be judged in ``seconds`` (Note [Not all at once]).

    ``chance`` tells numbers from 0 to 1.
    """
    return max(1, math.ceil(seconds + chance() * max(seconds, _SPREAD)))


@attrs.frozen
class AuthenticatorSettings:
    """The settings of one authenticator, as they stood at ``edition``, which changes whenever any of them does.

    ``values`` has a key for each *declared* variable among those asked for; its value is ``None`` when none was ever set.
    ``switched``: whether ``PATCH`` switched it on or off, ``None`` when it never did. ``distrusted``: ids and thumbprints of
    keys that verify nothing here. ``refreshes``: the number of an operator's last wish for newer keys, 0 when there was
    none; each wish, for whatever authenticator, has a larger number than those before it.
    """

    edition: str
    values: Mapping[str, Sealed | None] = attrs.field(repr=False)
    switched: bool | None = None
    distrusted: frozenset[str] = frozenset()
    refreshes: int = 0


@attrs.frozen
class LoginCandidate:
    """A role that asks to be admitted by an authenticator, read in one round trip.

    ``edition`` is that of the authenticator's settings at the time of reading (see ``authn/federated.py``,
    Note [Optimistic settings]). ``annotations`` are those of the role's resource whose names lie under the branch asked for,
    in the order of their names, and ``None`` where they are more than ``ANNOTATIONS_LIMIT``, or have more than
    ``ANNOTATIONS_BYTES``. ``restrictions``: from where the role may log in, as far as ``RESTRICTIONS_LIMIT``; empty means
    from everywhere. ``may_authenticate`` is told of the first ``ROLES_FOLLOWED`` roles that it holds, the nearest first.
    """

    edition: str
    account_exists: bool
    role_exists: bool
    webservice_exists: bool
    may_authenticate: bool
    annotations: Mapping[str, str] | None
    signing_key: str | None
    restrictions: tuple[Network, ...] = ()
    #: The role's (see ``records.Caller``). Not compared: no two stores make the same.
    creation: int = attrs.field(default=0, eq=False)


@attrs.frozen
class KeySource:
    """Where an identity provider publishes its keys.

    ``uri`` is that of a JWK set, or that of an OIDC provider whose discovery document names one, when ``discovered``.
    ``ca_cert`` has the certificates, in PEM, of the only authorities that are trusted there; ``None`` stands for the
    platform's. ``algorithms`` are those that its keys are for: keys for others are none of its keys.
    """

    uri: str
    discovered: bool = False
    ca_cert: str | None = attrs.field(default=None, repr=False)
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS


@attrs.frozen
class KeysState:
    """The state of a provider's keys on this server; moments are in seconds since the epoch.

    ``keys`` are the ids of the usable ones with their thumbprints, ``problems`` what is wrong with others, and ``unused``
    those that are for something else, a sentence each. ``fetched_at``: when the set at hand was fetched, ``None`` when there
    is none. ``asked_at``: when the provider was last asked, and ``failure`` why that failed, ``None`` when it didn't.
    """

    keys: tuple[tuple[str | None, str], ...] = ()
    problems: tuple[str, ...] = ()
    fetched_at: float | None = None
    asked_at: float | None = None
    failure: str | None = None
    unused: tuple[str, ...] = ()


#: How much of a role a login has read: roles that it holds, annotations and their bytes, and networks.
ROLES_FOLLOWED: Final = 10_000
ANNOTATIONS_LIMIT: Final = 256
ANNOTATIONS_BYTES: Final = 256 * 1024
RESTRICTIONS_LIMIT: Final = 1000

#: Webservices of authenticators that are listed, for anyone who asks.
WEBSERVICES_LIMIT: Final = 1000

#: How many of one account's are looked at, where those of many accounts are.
WEBSERVICES_EACH: Final = 20

#: Keys that one authenticator can distrust: every login reads them.
DISTRUSTED_LIMIT: Final = 256


@attrs.frozen
class DistrustedKey:
    """A key, by its id or its thumbprint, that an authenticator was told to distrust, by whom and when (epoch seconds)."""

    key: str
    since: float
    by: str


@attrs.frozen
class Problem:
    """Something that is wrong with a configuration, and what to do about it: a sentence each."""

    what: str
    remedy: str


@attrs.frozen
class AuthenticatorStatus:
    """The state of an authenticator, for operators.

    ``source`` says where its keys come from: ``jwks-uri``, ``provider-uri`` or ``public-keys``, ``None`` when that can't be
    told; ``keys`` what is known of them. ``clock_offset``: by how many seconds the clock here is ahead of the provider's at
    most, as recent tokens' ``iat`` tell, of which there were ``tokens``; ``None`` when there were none. ``algorithms`` are
    those with which a token may be signed.
    """

    problems: tuple[Problem, ...]
    source: str | None = None
    uri: str | None = None
    keys: KeysState = KeysState()
    distrusted: tuple[DistrustedKey, ...] = ()
    clock_offset: float | None = None
    tokens: int = 0
    algorithms: tuple[str, ...] = ()


@attrs.frozen
class Step:
    """One check of an authentication, for operators.

    ``check`` is its name, of a fixed list. ``outcome`` is ``passed``, ``failed`` or ``not reached``. ``detail`` has the
    names and values that were compared, never the evidence. ``reason`` is that of a failure.
    """

    check: str
    outcome: str
    detail: str = ""
    reason: Reason | None = None


@attrs.frozen
class Explanation:
    """The decision on a request: every check in order, and the full id of the role where one was determined."""

    steps: tuple[Step, ...]
    role: str | None
    admitted: bool


class IAuthenticator(Interface):
    """A way to prove an identity: evidence to role, or refusal. Wrappers (audit, throttling) provide it too."""

    async def authenticate(request: LoginRequest) -> Admitted | Refused:
        """Decide on one request. A refusal is a value; an exception other than ``StoreUnavailable`` is a bug."""


class ILogin(Interface):
    """A way for a role to get its own API key. Wrappers (audit, throttling) provide it too."""

    async def api_key(request: LoginRequest) -> bytes | Refused:
        """Return the role's API key, unchanged, when ``request.evidence`` proves the role: the key itself, or its password.

        A refusal is a value; an exception other than ``StoreUnavailable`` and ``PasswordsBusy`` is a bug.
        """


class IExplainer(Interface):
    """An authenticator that explains its decisions to operators, and reports its state."""

    async def explain(request: LoginRequest) -> Explanation:
        """Decide on a request as ``authenticate`` would, and return every check's outcome; nothing is admitted."""

    async def status(account: str, service_id: str) -> AuthenticatorStatus:
        """Return the state of one authenticator, whose provider is asked for the keys unless they are at hand.

        Who distrusted which keys is for the caller to add (``IAuthenticators.distrusted``).

        :raises InvalidName: there can't be such an authenticator.
        """


class IProviderKeys(Interface):
    """The verification keys of third parties (AUTH-43 to AUTH-49)."""

    async def current(source: KeySource, refreshes: int = 0, request: LoginRequest | None = None) -> KeySet:
        """Return the set at hand for a source, fetching it when there is none.

        ``refreshes`` is the number of an operator's newest wish for newer keys. Authenticators share sources, so each wish
        needs a greater number than any before, for whichever of them it was. What was asked for when it was less is fetched
        anew, once for each number, whatever the budget; when that fails, the set at hand stays, and is returned. ``request``
        is the login that may have to wait, if it is one.

        :raises KeysUnavailable: there is no set at hand, and none could be fetched, or may be fetched yet, or waited for.
        """

    async def newer(source: KeySource, seen: KeySet, request: LoginRequest | None = None) -> KeySet:
        """Return a set fetched after ``seen``, which did not verify a token: unknown ``kid`` or wrong signature.

        Fetches when no newer one is at hand and the budget allows it; concurrent calls share one fetch. A failed fetch
        leaves the old set in place. Where the budget is spent and ``seen`` was fetched a moment ago it is the newest that
        there is, and returned.

        :raises KeysUnavailable: there is no newer set, and none could be fetched, or may be fetched yet, or waited for.
        """

    def state(source: KeySource) -> KeysState:
        """Return the state of a source; asks nobody."""


class IAuthenticatorReadings(Interface):
    """The readings of the store that authenticators with variables need."""

    async def settings(account: str, branch: str, names: Sequence[str]) -> AuthenticatorSettings:
        """Read the variables ``<branch>/<name>``, and what operators set at the webservice ``<branch>`` besides.

        ``branch`` is a policy id such as ``svc/authn-jwt/ci``.
        """

    async def candidate(role: RoleName, branch: str, names: Sequence[str], annotated: str) -> LoginCandidate:
        """Read all that bears on admitting ``role`` to the webservice ``branch`` of its own account, in one round trip.

        Annotations whose name begins with ``<annotated>/`` are returned. ``edition`` is that of ``settings`` for the same
        ``names``.
        """

    async def webservice_annotations(webservice: ResourceName, names: Sequence[str], limit: int) -> Mapping[str, str]:
        """Read those annotations of a webservice that have these names, each as far as ``limit`` characters."""


class IAuthenticators(Interface):
    """Authenticators as operators see and change them. Their webservices are named by full id."""

    async def webservices(prefix: str) -> list[tuple[ResourceName, bool | None]]:
        """Return the first ``WEBSERVICES_LIMIT`` webservices of all accounts under ``<prefix>/``, in order.

        Each comes with its switch: whether it was switched on or off, ``None`` when it never was.
        """

    async def some_webservices(prefix: str, after: str, limit: int) -> dict[str, list[tuple[ResourceName, bool | None]]]:
        """Return the next accounts in order after that name, fewer than ``limit`` at the end.

        Each comes with its first ``WEBSERVICES_EACH`` webservices under ``<prefix>/``, as in ``webservices``.
        """

    async def switch(webservice: ResourceName, on: bool, trail: EventBatch | None = None) -> None:
        """Switch an authenticator on or off.

        :raises NotFound: there is no such webservice; so do the next three.
        """

    async def refresh(webservice: ResourceName, trail: EventBatch | None = None) -> int:
        """Note that an operator wants newer keys, and return the wish's number (see ``AuthenticatorSettings``)."""

    async def distrust(webservice: ResourceName, key: str, by: RoleName, trail: EventBatch | None = None) -> None:
        """Distrust a key, by its id or thumbprint; one that is distrusted already stays so, since when it was.

        :raises InvalidParameter: ``DISTRUSTED_LIMIT`` others are.
        """

    async def trust(webservice: ResourceName, key: str, trail: EventBatch | None = None) -> bool:
        """Trust a key again, and return whether it was distrusted."""

    async def distrusted(webservice: ResourceName) -> tuple[DistrustedKey, ...]:
        """Return the keys that are distrusted, in the order of their names; none where there is no webservice."""
