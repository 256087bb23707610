"""The options of ``twistd svc``, and the start of the server.

Note [While the database starts]. Half of a start is Python reading modules, and half is PostgreSQL. So this module imports
only what a database is started with; the rest is imported while PostgreSQL starts, a part at a time, since the reactor has
the processes of the start to attend to in between.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any, Final, NoReturn, TypeVar

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python import usage

from svc._version import VERSION
from svc.model.clocks import use_steady_clock
from svc.model.errors import ConfigurationInvalid, Refusal
from svc.model.limits import connections_by_file_limit
from svc.server.bootstrap import POOL_SIZE, WRITERS, Installation, StartPlan, check_data_key, demand_database
from svc.server.endpoints import bound_endpoint, client_endpoint
from svc.server.lifecycle import ServerService, Started, add_child, running_services
from svc.server.listening import BoundPorts, Endpoint
from svc.server.notifying import SystemdNotifier
from svc.server.serverlog import ServerLog
from svc.server.shares import SUPERVISOR as SUPERVISOR_SESSIONS
from svc.server.start_cleanup import AuditFileRemover
from svc.server.startup import Launch, ProcessConsole, describe_refusal
from svc.settings.config import OPTIONS, Settings
from svc.settings.options import Option
from svc.settings.reading import read_settings, unknown_variables

T = TypeVar("T")

#: Modules of which each brings a part of what the server consists of, besides the installation. Signals are heeded between
#: two of them, so that none takes much longer than the others.
_PARTS: Final = (
    *("treq", "werkzeug", "klein", "svc.web.http.routing", "svc.authn.evaluation", "svc.worker.pool"),
    *("svc.services.policy_loads", "svc.server.foundation", "svc.server.singletons", "svc.authn.ldap.authenticator"),
    *("svc.authn.providers.oidc_endpoints", "svc.cluster.overview", "svc.web.openapi.routes"),
    *("svc.server.graph", "svc.server.serving"),
)

log = Logger()


def _option_help(option: Option) -> str:
    metavar = option.parser.metavar
    unit = f" {metavar.lower()}" if metavar in {"SECONDS", "BYTES"} and option.default != "off" else ""
    return f"{option.help} [default: {option.default}{unit}]"


class Options(usage.Options):
    """The command line of ``twistd svc``, made from the table of settings."""

    synopsis = "[options]"
    longdesc = (
        "Keeps secrets and decides who may read them. What is an option --some-name here can be given as the environment"
        " variable SERVICE_SOME_NAME, too, or as some_name in the TOML file that --config names; the first of these counts."
        " The data key comes from the environment, as SERVICE_DATA_KEY, from a file or from a command; never from an option."
    )
    optFlags = [
        [option.name, None, _option_help(option)]
        for option in OPTIONS
        if option.on_command_line and not option.parser.metavar
    ]
    optParameters = [
        [option.name, None, None, _option_help(option)]
        for option in OPTIONS
        if option.on_command_line and option.parser.metavar and option.field != "listen"
    ]

    def opt_listen(self, endpoint: str) -> None:
        """Add an endpoint; the only option that can be repeated."""
        self["listen"] = f"{self.get('listen', '')} {endpoint}"

    opt_listen.__doc__ = next(_option_help(option) for option in OPTIONS if option.field == "listen")

    def opt_version(self) -> NoReturn:
        """Display the version and exit."""
        print(f"svc {VERSION}")  # noqa: T201 - the requested output
        raise SystemExit(0)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Read a command line. A mistake goes to standard error, not to standard output as ``twistd`` has it."""
        try:
            super().parseOptions(options)  # type: ignore[no-untyped-call] # Twisted's
        except usage.UsageError as error:
            raise SystemExit(f"svc did not start: {error}; see twistd svc --help") from None

    def given_settings(self) -> dict[str, str | bool | None]:
        """Return the settings that the command line gives, by field."""
        values = {option.field: self.get(option.name) for option in OPTIONS}
        return {field: bool(value) if isinstance(value, int) else value for field, value in values.items()}


def makeService(options: Options) -> MultiService:
    """Make the server that ``twistd`` starts.

    :raises SystemExit: it can't be started so; the reason goes to standard error, and the exit code is 1.
    """
    from twisted.internet import reactor as installed  # noqa: PLC0415 - twistd may install another until now

    reactor: Any = installed
    use_steady_clock(reactor)
    console = ProcessConsole.of_process(options.parent)

    def show_admin_key(api_key: str) -> bool:
        return console.print_line(f"API key for admin: {api_key}")

    try:
        settings = read_settings(options.given_settings())
        server = build_server(reactor, settings, None if console.is_daemon else show_admin_key)
    except Refusal as refusal:
        raise SystemExit(f"svc did not start: {describe_refusal(refusal)}") from None
    for variable in unknown_variables():
        log.warn("The environment variable {variable} names no setting of svc", variable=variable)
    atexit.register(console.exit_process)
    server_log = None
    if options.parent is not None:
        server_log = ServerLog.of_process(options.parent, reactor, settings.log_format, settings.log_level)
    notifying = SystemdNotifier(reactor, settings.unit, os.getpid())
    launch = Launch(reactor, server, console, server_log=server_log, notifying=notifying)
    launch.note_interrupts()
    return launch


def build_server(reactor: Any, settings: Settings, show_admin_key: Callable[[str], bool] | None) -> ServerService:
    """Make a server. Nothing happens before it is started, but faults of its settings alone are found here.

    ``show_admin_key`` is called with the API key of an account's admin when the account has been made, and returns whether
    somebody took notice; the key goes to a file otherwise, and from the first when it is ``None``.

    :raises ConfigurationInvalid: an endpoint or the data key isn't one, the data key is lacking, or more connections are
        wanted than the process may open files for.
    """
    check_data_key(settings)
    _check_open_files(settings)
    if settings.database_url is not None:
        import_module(_PARTS[-1])  # No database of ours starts meanwhile, and twistd may be about to change its root.
    endpoints = [_make_endpoint(reactor, settings, "listen", text, bound_endpoint) for text in settings.listen]
    metrics, syslog = settings.metrics_listen, settings.audit_syslog
    metrics_endpoint = (
        None if metrics is None else _make_endpoint(reactor, settings, "metrics_listen", metrics, bound_endpoint)
    )
    syslog_endpoint = None if syslog is None else _make_endpoint(reactor, settings, "audit_syslog", syslog, client_endpoint)
    several = settings.serving_processes > 1
    if several:
        _check_keys(settings, endpoints)
    audit_file = AuditFileRemover(settings)

    async def compose_server(services: ServerService) -> Started:
        await add_child(services, BoundPorts([*endpoints, *filter(None, [metrics_endpoint])])).bind()
        importing = Deferred.fromCoroutine(_import_parts(reactor))
        sessions = SUPERVISOR_SESSIONS if several else (POOL_SIZE, WRITERS)
        installation = await Installation.open(
            services, reactor, settings, sessions=sessions, undone=lambda: services.is_undone
        )
        audit_file.begin()
        await importing
        plan = StartPlan(
            services=services,
            reactor=reactor,
            settings=settings,
            installation=installation,
            endpoints=endpoints,
            metrics_endpoint=metrics_endpoint,
            audit_syslog=syslog_endpoint,
            show_admin_key=show_admin_key,
        )
        return await _starter(several)(plan)

    return ServerService(reactor, compose_server, audit_file.remove)


def _starter(several: bool) -> Callable[[StartPlan], Awaitable[Started]]:
    """Return what starts a server of one process, or of several: see Note [While the database starts]."""
    if several:
        from svc.server.supervisor import start_supervisor  # noqa: PLC0415

        return start_supervisor
    from svc.server.serving import start_server  # noqa: PLC0415

    return start_server


def _check_keys(settings: Settings, endpoints: Sequence[Endpoint]) -> None:
    """Only a process at the terminal can ask for the password of a key."""
    for endpoint in endpoints:
        if endpoint.text.lower().startswith("ssl") and endpoint.certificate is None:
            raise ConfigurationInvalid(
                settings.name_of("listen"),
                f"has an endpoint whose key has a password, {endpoint.text!r}, which several processes can't ask for",
            )


def _check_open_files(settings: Settings) -> None:
    """Only a server needs the open files: an administrator's shell may have another limit."""
    most = connections_by_file_limit()
    if settings.connection_limit > most:
        raise ConfigurationInvalid(
            settings.name_of("connection_limit"),
            f"is {settings.connection_limit}, and the number of files that this process may open leaves room for {most}:"
            " raise that number (LimitNOFILE= of a unit, ulimit -n of a shell), or lower this one",
        )


async def _import_parts(reactor: IReactorTime) -> None:
    for part in _PARTS:
        await deferLater(reactor, 0)
        import_module(part)


async def run_on_installation(
    reactor: Any, settings: Settings, work: Callable[[Installation], Awaitable[T]], *, making: bool = False
) -> T:
    """Run an administrative command's work, beside a server that may be running, and close everything after it.

    An embedded database that doesn't exist is made if ``making``.

    :raises Refusal: as ``Installation.open``, or as ``work`` does.
    """
    if not making:
        demand_database(settings)
    async with running_services() as services:
        return await work(await Installation.open(services, reactor, settings, joining=True))


def _make_endpoint(reactor: Any, settings: Settings, field: str, text: str, make: Callable[[Any, str], T]) -> T:
    try:
        return make(reactor, text)
    except Exception as error:  # The types of endpoints are plugins, and raise what they like.
        message = f"has an endpoint that can't be used, {text!r}: {error}"
        raise ConfigurationInvalid(settings.name_of(field), message) from None
