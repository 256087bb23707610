"""The facts from which ``svc doctor`` finds risks: settings, files, certificates, and the database.

Nothing is changed: no schema is migrated, no key is made, and where the embedded database doesn't exist none is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from svc._version import VERSION
from svc.crypto.keyfiles import admin_key_file, data_key_file
from svc.health.doctor_checks import AuditFacts, CertificateFacts, DiskFacts, Facts, FileFacts, PortFacts, ServerFacts
from svc.model.clocks import MachineClock
from svc.model.databases import DatabaseFacts
from svc.model.errors import ConfigurationInvalid, Refusal
from svc.model.listed_authenticators import ListedAuthenticators
from svc.server import certificates
from svc.server.authenticator_list import find_unlisted, name_some
from svc.server.bootstrap import run_on_database
from svc.server.effective_settings import ChosenSettings
from svc.server.endpoints import listening_endpoint, parse_port
from svc.server.startup import describe_refusal
from svc.settings.config import Settings, usable_cores
from svc.settings.parsers import STANDARD_OUTPUT
from svc.storage.authenticators import AuthenticatorStore
from svc.storage.diagnostics import DatabaseDiagnostics
from svc.storage.driver.database import Database
from svc.storage.driver.location import dsn_parameters
from svc.storage.driver.migrations import load_migrations

#: Where the shipped unit writes the audit, which isn't known outside of the unit.
_UNIT_AUDIT: Final = Path("/var/log/svc/audit.log")

#: Hosts of a DSN that are this machine, beside sockets.
_LOCAL_HOSTS: Final = frozenset({"", "localhost", "127.0.0.1", "::1"})


async def collect_facts(
    reactor: Any, chosen: ChosenSettings, server: ServerFacts | None, *, tokens: Path | None = None
) -> Facts:
    """Find the facts. ``server`` is the report of the running server; ``tokens`` the file in which commands keep theirs."""
    wall, settings = MachineClock(), chosen.settings
    database, skew, unlisted, fault = await _database_facts(reactor, settings)
    remote, verified = _connection_security(settings)
    return Facts(
        now=wall.seconds(),
        version=VERSION,
        ports=list(_port_facts(settings)),
        listen_given="listen" in settings.written,
        trusts_loopback=settings.trusted_proxies is None,
        processes=settings.serving_processes,
        cores=usable_cores(),
        audit=audit_facts(settings),
        certificates=list(_certificate_facts(reactor, settings)),
        files=list(_file_facts(settings, tokens)),
        admin_keys=[str(path) for path in sorted(settings.data_dir.glob(admin_key_file(Path(), "*").name))],
        database=database,
        database_fault=fault,
        skew=skew,
        remote=remote,
        verified=verified,
        ldap_failures=settings.ldap_failures,
        server=server,
        disk=disk_facts(settings, database, remote=remote),
        unlisted=[name_some(unlisted)] if unlisted else [],
        differing=chosen.differing,
        settings_fault=chosen.fault,
    )


async def _database_facts(
    reactor: Any, settings: Settings
) -> tuple[DatabaseFacts | None, float | None, Sequence[str], str | None]:
    """Return the facts of the database, by how much its clock is ahead of ours, the authenticators that nothing lists, and
    why it can't be reached if it can't.
    """

    async def query_database(database: Database) -> tuple[DatabaseFacts, float, Sequence[str]]:
        facts, skew = await _query_database(database)
        if facts.schema_behind:
            return facts, skew, ()
        listed = ListedAuthenticators(settings.authenticators)
        return facts, skew, await find_unlisted(AuthenticatorStore(database), listed, settings.dialect)

    try:
        facts, skew, unlisted = await run_on_database(reactor, settings, query_database)
    except Refusal as refusal:
        return None, None, (), describe_refusal(refusal)
    return facts, skew, unlisted, None


async def _query_database(database: Database) -> tuple[DatabaseFacts, float]:
    examination, wall = DatabaseDiagnostics(database, len(load_migrations())), MachineClock()
    facts = await examination.read_facts()
    before = wall.seconds()
    there = await examination.read_clock()
    return facts, there - (before + wall.seconds()) / 2


def _database_parameters(settings: Settings) -> Mapping[str, str]:
    """Return the parameters of the database's URL, if there is one.

    :raises ConfigurationInvalid: it can't be used.
    """
    try:
        return {} if settings.database_url is None else dsn_parameters(settings.database_url)
    except ConfigurationInvalid as refusal:
        raise ConfigurationInvalid(settings.name_of("database_url"), refusal.message) from None


def _connection_security(settings: Settings) -> tuple[bool, bool]:
    """Return whether a database is on another machine, and whether its certificate is verified."""
    given = _database_parameters(settings)
    hosts = given.get("host", given.get("hostaddr", "")).split(",")
    remote = any(host not in _LOCAL_HOSTS and not host.startswith(("/", "@")) for host in hosts)
    return remote, given.get("sslmode") == "verify-full"


def _port_facts(settings: Settings) -> Iterator[PortFacts]:
    metrics = [] if settings.metrics_listen is None else [("metrics_listen", settings.metrics_listen)]
    for setting, text in [*(("listen", text) for text in settings.listen), *metrics]:
        place = parse_port(text)
        if place is None:
            yield PortFacts(setting, text, tls=False, host=None)
        else:
            yield PortFacts(setting, text, place.tls, place.host, place.has_proxy_header)


def _certificate_facts(reactor: Any, settings: Settings) -> Iterator[CertificateFacts]:
    for text in (*settings.listen, *filter(None, [settings.metrics_listen])):
        try:
            shown = list(certificates.list_port_certificates([listening_endpoint(reactor, text)]))
        except Exception as error:  # the types of endpoints are plugins, and raise what they like
            yield CertificateFacts(text, None, str(error) or type(error).__name__)
        else:
            yield from (CertificateFacts(each.name, each.expires) for each in shown)
    files = certificates.client_files(settings)
    read = {each.setting: each for each in certificates.read_file_certificates(files)}
    for setting, path in files.items():
        found = read.get(setting)
        fault = None if found is not None else "it can't be read, or is none"
        yield CertificateFacts(str(path), None if found is None else found.expires, fault)


def _file_facts(settings: Settings, tokens: Path | None) -> Iterator[FileFacts]:
    """Return what others than the owner have rights on, among what is the server's alone."""
    places = [parse_port(text) for text in (*settings.listen, *filter(None, [settings.metrics_listen]))]
    private = [
        # Where root makes it, PostgreSQL's user has to pass (``storage/embedded/directory.py``).
        (settings.data_dir, 0o066, 0o711),
        (data_key_file(settings.data_dir), 0o077, 0o600),
        *((path, 0o077, 0o600) for path in settings.data_dir.glob(admin_key_file(Path(), "*").name)),
        # A group may share a key, as on Debian.
        *((Path(place.key), 0o027, 0o640) for place in places if place is not None and place.key is not None),
        *((path, 0o077, 0o600) for path in [audit_path(settings), tokens] if path is not None),
    ]
    passfile = _database_parameters(settings)
    if "passfile" in passfile:
        private.append((Path(passfile["passfile"]), 0o077, 0o600))
    if settings.config is not None:
        # Beside it is what the unit reads the data key from.
        private.append((settings.config.with_name("environment"), 0o077, 0o600))
    if (
        settings.config is not None
        and "password" in passfile
        and not settings.name_of("database_url").startswith(("-", "SERV"))
    ):
        private.append((settings.config, 0o007, 0o640))
    for path, wrong, right in private:
        try:
            mode = path.stat().st_mode & 0o7777
        except OSError:
            continue
        if mode & wrong:
            yield FileFacts(str(path), mode, right)


def disk_facts(settings: Settings, database: DatabaseFacts | None, *, remote: bool) -> DiskFacts | None:
    """Return the facts of the disk where PostgreSQL itself says that its data are, if that is on this machine."""
    embedded = settings.database_url is None
    path = None if database is None else database.directory
    if path is None and embedded and settings.data_dir.exists():
        path = str(settings.data_dir)
    if remote:
        return DiskFacts(path, None, "the database is on another machine")
    if path is None:
        return None if database is None else DiskFacts(path, None, "svc's role in PostgreSQL may not see where its data are")
    try:
        return DiskFacts(path, shutil.disk_usage(path).free)
    except OSError as error:
        return DiskFacts(path, None, f"{path} can't be looked at from here: {error.strerror}")


def audit_path(settings: Settings, unit: Path = _UNIT_AUDIT) -> Path | None:
    """Return the audit's file; ``None`` for standard output. Where none is set, it is that of the unit or a daemon."""
    if settings.audit_file is not None:
        return None if settings.audit_file == STANDARD_OUTPUT else settings.audit_file
    return next((path for path in (unit, settings.data_dir / unit.name) if path.exists()), None)


def audit_facts(settings: Settings) -> AuditFacts:
    """Return how it stands with the audit's file."""
    path, continues = audit_path(settings), settings.audit_failure == "continue"
    if path is None:
        return AuditFacts(None, continues=continues)
    fault, size, room = None, 0, None
    try:
        status = path.stat()
        size, room = status.st_size, shutil.disk_usage(path.parent).free
        if not os.access(path, os.W_OK):
            fault = "can't be written"
    except FileNotFoundError:
        fault = "is gone"
    except OSError as error:
        fault = f"can't be looked at: {error.strerror}"
    rotated = any(other != path for other in path.parent.glob(f"{path.name}*"))
    return AuditFacts(str(path), fault, size, rotated, room, continues)
