"""The composition root: what ``twistd svc`` understands, and how the parts of the server are made and put together."""

from __future__ import annotations

import atexit
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

import attrs
from twisted.application.service import MultiService
from twisted.internet.endpoints import serverFromString
from twisted.internet.ssl import optionsForClientTLS
from twisted.logger import Logger
from twisted.python import usage

from svc._version import VERSION
from svc.audit import LoggedAuthenticator, LoggedLogin
from svc.authenticators.apikey import ApiKeyAuthenticator
from svc.authenticators.jwt import JwtAuthenticator
from svc.config import OPTIONS, Option, Settings, read_settings, unknown_variables
from svc.credentials import new_api_key
from svc.errors import ConfigurationInvalid, Conflict, Refusal
from svc.foundation import Foundation, check_data_key
from svc.health.probes import AuthnProbe, AuthzProbe, CoreProbe, DatabaseProbe
from svc.health.rounds import Rounds
from svc.interfaces import ILoads
from svc.keyfiles import admin_key_file, write_admin_key
from svc.keyring import AccessTokens, AccountKeys
from svc.listening import Endpoint, Listening
from svc.policy.document import Bounds
from svc.providers.fetch import GuardedClient
from svc.providers.keys import ProviderKeys
from svc.records import Sealed
from svc.server import Server, Succession
from svc.startup import Console, Launch, reason_of
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.credentials import CredentialStore
from svc.storage.effective import EffectiveStore
from svc.storage.policies import PolicyStore
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore
from svc.vault import CANARY
from svc.web.authn import Authn
from svc.web.effective import EffectivePolicies
from svc.web.health import Health
from svc.web.loading import NEAR_ROWS, Loads, NearAndFar
from svc.web.origin import TrustedProxies
from svc.web.policies import Policies
from svc.web.request import Edge
from svc.web.resources import Resources
from svc.web.roles import Roles
from svc.web.routing import Router
from svc.web.secrets import Secrets
from svc.web.site import Site
from svc.worker.messages import Task
from svc.worker.pool import Workers

T = TypeVar("T")

#: Bytes of the random ids under which requests and bugs are logged.
_ID_BYTES: Final = 8

log = Logger()


def _documented(option: Option) -> str:
    unit = f" {option.form.metavar.lower()}" if option.form.metavar in {"SECONDS", "BYTES"} else ""
    return f"{option.help} [default: {option.default}{unit}]"


class Options(usage.Options):
    """The command line of ``twistd svc``, made from the table of settings."""

    synopsis = "[options]"
    longdesc = (
        "Keeps secrets and decides who may read them. What is an option --some-name here can be given as the environment"
        " variable SERVICE_SOME_NAME, too, or as some_name in the TOML file that --config names; the first of these counts."
        " The data key comes from the environment alone, as SERVICE_DATA_KEY."
    )
    optFlags = [
        [option.name, None, _documented(option)] for option in OPTIONS if option.on_command_line and not option.form.metavar
    ]
    optParameters = [
        [option.name, None, None, _documented(option)]
        for option in OPTIONS
        if option.on_command_line and option.form.metavar and option.field != "listen"
    ]

    def opt_listen(self, endpoint: str) -> None:
        """Add an endpoint; the only option that can be repeated."""
        self["listen"] = f"{self.get('listen', '')} {endpoint}"

    opt_listen.__doc__ = next(_documented(option) for option in OPTIONS if option.field == "listen")

    def opt_version(self) -> NoReturn:
        """Display the version and exit."""
        print(f"svc {VERSION}")  # noqa: T201 - what was asked for
        raise SystemExit(0)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read a command line. A mistake is told on standard error, not on standard output as ``twistd`` does."""
        try:
            super().parseOptions(options)  # type: ignore[no-untyped-call] # Twisted's
        except usage.UsageError as error:
            raise SystemExit(f"svc did not start: {error}; see twistd svc --help") from None

    def given(self) -> dict[str, str | bool | None]:
        """The settings that the command line gives, by field."""
        values = {option.field: self.get(option.name) for option in OPTIONS}
        return {field: bool(value) if isinstance(value, int) else value for field, value in values.items()}


def makeService(options: Options) -> MultiService:
    """Make the server that ``twistd`` starts.

    :raises SystemExit: it can't be started so; the reason goes to standard error, and the exit code is 1.
    """
    from twisted.internet import reactor as installed  # noqa: PLC0415 - twistd may install another until now

    reactor: Any = installed
    console = Console.of_process(options.parent)
    try:
        settings = read_settings(options.given())
        server = build(reactor, settings, None if console.is_daemon else _tell_admin_key(console))
    except Refusal as refusal:
        raise SystemExit(f"svc did not start: {reason_of(refusal)}") from None
    for variable in unknown_variables():
        log.warn("The environment variable {variable} names no setting of svc", variable=variable)
    atexit.register(console.leave)
    return Launch(reactor, server, console)


def _tell_admin_key(console: Console) -> Callable[[str], bool]:
    return lambda api_key: console.say(f"API key for admin: {api_key}")


def build(reactor: Any, settings: Settings, tell_admin_key: Callable[[str], bool] | None) -> Server:
    """Make a server. Nothing happens before it is started, but what is wrong with its settings alone is found here.

    ``tell_admin_key`` is called with the API key of an account's admin when the account has been made, and tells whether
    somebody took notice; the key goes to a file otherwise, and from the first when it is ``None``.

    :raises ConfigurationInvalid: an endpoint or the data key isn't one, or the data key is lacking.
    """
    check_data_key(settings)
    endpoints = [_endpoint(reactor, settings, text) for text in settings.listen]
    composition = _Composition(reactor, settings, endpoints, tell_admin_key)
    return Server(reactor, composition.compose)


async def administer(reactor: Any, settings: Settings, work: Callable[[Foundation], Awaitable[T]]) -> T:
    """Do an administrative command's work beside a server that may be running, and close everything behind it.

    :raises Refusal: as ``Foundation.lay``, or as ``work`` does.
    """
    services = Succession()  # type: ignore[no-untyped-call] # Twisted's
    services.startService()  # type: ignore[no-untyped-call] # Twisted's
    try:
        return await work(await Foundation.lay(services, reactor, settings, joining=True))
    finally:
        await services.stopService()


def _endpoint(reactor: Any, settings: Settings, text: str) -> Endpoint:
    try:
        return Endpoint(text, serverFromString(reactor, text))
    except Exception as error:  # The types of endpoints are plugins, and raise what they like.
        message = f"has an endpoint that can't be used, {text!r}: {error}"
        raise ConfigurationInvalid(settings.key("listen"), message) from None


@attrs.frozen
class _Composition:
    """The making of one server."""

    reactor: Any
    settings: Settings
    endpoints: Sequence[Endpoint]
    tell_admin_key: Callable[[str], bool] | None

    async def compose(self, server: MultiService) -> Sequence[str]:
        """Make every part, each when those below it stand, and return the URLs of the ports that were opened last."""
        reactor, settings = self.reactor, self.settings
        foundation = await Foundation.lay(server, reactor, settings)
        await self._make_account(foundation)
        keys = AccountKeys(foundation.accounts, foundation.vault, reactor)
        tokens = AccessTokens(keys, reactor, settings.user_token_ttl, settings.host_token_ttl)
        rounds = self._rounds(foundation, keys, tokens)
        rounds.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        router = Router(
            self._nouns(foundation, keys, tokens, self._loads(foundation, server), rounds),
            caller=tokens.caller,
            limits=settings.limits,
            new_id=_new_id,
        )
        site = Site(
            Edge(
                respond=router.respond,
                limits=settings.limits,
                clock=reactor,
                new_id=_new_id,
                proxies=TrustedProxies(settings.trusted_proxies),
            )
        )
        listening = Listening(self.endpoints, site, site.drain)
        listening.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        urls = await listening.open()
        await rounds.first_round()
        return urls

    def _nouns(
        self, foundation: Foundation, keys: AccountKeys, tokens: AccessTokens, loads: ILoads, rounds: Rounds
    ) -> list[Any]:
        settings, database, vault = self.settings, foundation.database, foundation.vault
        roles = RoleStore(database)
        by_api_key = ApiKeyAuthenticator(CredentialStore(database), vault)
        return [
            Authn(
                by_api_key=LoggedAuthenticator(by_api_key, "authn"),
                login=LoggedLogin(by_api_key, "authn"),
                by_jwt=LoggedAuthenticator(self._jwt_authenticator(foundation), "authn-jwt"),
                tokens=tokens,
                keys=keys,
                roles=roles,
            ),
            Resources(ResourceStore(database), roles, settings.dialect),
            Roles(roles, settings.dialect),
            Policies(loads, roles),
            EffectivePolicies(EffectiveStore(database), roles, vault, self.reactor),
            Secrets(SecretStore(database, settings.dialect), vault),
            Health(rounds, settings.dialect),
        ]

    def _loads(self, foundation: Foundation, server: MultiService) -> ILoads:
        settings = self.settings
        bounds = Bounds(nesting=settings.nesting_limit, aliases=settings.alias_limit)
        task = Task(foundation.dsn, settings.statement_timeout, foundation.data_key, settings.dialect, bounds)
        workers = Workers(self.reactor, task)
        workers.setServiceParent(server)  # type: ignore[no-untyped-call] # Twisted's
        near = Loads(PolicyStore(foundation.database), foundation.vault, settings.dialect, bounds, NEAR_ROWS)
        return NearAndFar(near, workers)

    def _jwt_authenticator(self, foundation: Foundation) -> JwtAuthenticator:
        reactor, settings = self.reactor, self.settings
        client = GuardedClient(
            reactor,
            reactor.nameResolver,
            optionsForClientTLS,
            allow_http=settings.allow_http_providers,
            private_networks=settings.allow_private_providers,
        )
        return JwtAuthenticator(
            AuthenticatorStore(foundation.database),
            ProviderKeys(client.fetch, reactor, settings.jwks_refetch_interval),
            foundation.vault,
            reactor,
            settings.dialect,
            frozenset(settings.authenticators),
            clock_skew=settings.clock_skew,
            token_limit=settings.jwt_limit,
            ignore_missing_issuer=settings.ignore_missing_issuer,
        )

    def _rounds(self, foundation: Foundation, keys: AccountKeys, tokens: AccessTokens) -> Rounds:
        settings, state, vault = self.settings, foundation.state, foundation.vault

        def open_canary(sealed: Sealed) -> object:
            return vault.open(CANARY, sealed)

        # Each round tries the keys as the store has them now, which is also how this server learns that one retires.
        return Rounds(
            self.reactor,
            [CoreProbe(state, open_canary), AuthnProbe(keys.refresh, tokens, self.reactor), AuthzProbe(state)],
            DatabaseProbe(state),
            settings.health_interval,
        )

    async def _make_account(self, foundation: Foundation) -> None:
        """Make the account that the settings name, unless it is there."""
        account = self.settings.account
        if account is None or account in await foundation.accounts.names():
            return
        api_key, path, tell = new_api_key(), admin_key_file(self.settings.data_dir, account), self.tell_admin_key
        # Before the account is made: nobody could ever use an account whose key is lost.
        if tell is None:
            write_admin_key(path, api_key)
        try:
            await foundation.create_account(account, api_key)
        except Conflict:
            # Another server has just made it, and knows the key.
            if tell is None:
                path.unlink()
            return
        if tell is not None and tell(api_key):
            return
        if tell is not None:
            write_admin_key(path, api_key)
        log.warn("The account {account} was made. The API key of its admin is in {path}", account=account, path=str(path))


def _new_id() -> str:
    return os.urandom(_ID_BYTES).hex()
