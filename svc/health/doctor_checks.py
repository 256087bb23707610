"""The risks of an installation, with advice: evaluated from facts that were found elsewhere (CLI-40).

Note [Risks and notes]. A risk loses secrets, records or data, stops the server, or lets strangers in, now or soon. A note is
worth a thought, and describes what is intended in many installations.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

from svc.model.databases import OLDEST_TESTED_POSTGRESQL, DatabaseFacts, VerifiedBackup

_DAY: Final = 86400.0

#: Days after which a backup or a signing key is old, and before its end that a certificate or a password is near it.
BACKUP_DAYS: Final = 2
KEY_DAYS: Final = 400
CERTIFICATE_DAYS: Final = 14
PASSWORD_DAYS: Final = 14

#: Seconds by which clocks may differ and a standby may lag, and from how many cores on one process is few.
SKEW: Final = 2.0
LAG: Final = 30.0
CORES: Final = 4

#: Bytes of an audit file that isn't rotated; of free space that is too little; and the shares that are too large.
UNROTATED: Final = 256 * 1024 * 1024
ROOM: Final = 256 * 1024 * 1024
EVICTED: Final = 0.1
CONNECTED: Final = 0.8

#: The least evictions that say something.
EVICTIONS: Final = 1000

#: When versions of PostgreSQL get their last corrections, in epoch seconds (www.postgresql.org/support/versioning).
END_OF_LIFE: Final = {13: 1762992000, 14: 1794441600, 15: 1825891200, 16: 1857340800, 17: 1888790400, 18: 1920844800}


@attrs.frozen
class Risk:
    """A finding: its name, what was found, what to do; ``severe``: a risk, else a note (Note [Risks and notes])."""

    name: str
    found: str
    action: str
    severe: bool = True


@attrs.frozen
class PortFacts:
    """A port: its setting and its text, whether it speaks TLS, and its interface, empty for all; ``None`` if unknown.

    ``has_proxy_header``: it takes its clients' addresses from a PROXY header.
    """

    setting: str
    text: str
    tls: bool
    host: str | None
    has_proxy_header: bool = False

    @property
    def is_exposed(self) -> bool:
        """Return whether other machines reach it, as far as the text says."""
        if self.host is None:
            return False
        try:
            return not self.host or not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    @property
    def is_on_all_interfaces(self) -> bool:
        """Return whether it is on all interfaces of its machine."""
        return self.host in {"", "0.0.0.0", "::"}  # noqa: S104 - it is compared


@attrs.frozen
class AuditFacts:
    """The audit's file, ``None`` where records go to standard output; its fault, its size in bytes, the room beside it."""

    path: str | None
    fault: str | None = None
    size: int = 0
    rotated: bool = False
    room: int | None = None
    continues: bool = False


@attrs.frozen
class DiskFacts:
    """The disk of the database: its directory, and the free bytes there, or why they aren't known."""

    path: str | None
    room: int | None
    fault: str | None = None


@attrs.frozen
class CertificateFacts:
    """A certificate: its name, and when it expires, in epoch seconds, or why it can't be used."""

    name: str
    expires: float | None
    fault: str | None = None


@attrs.frozen
class FileFacts:
    """A file or folder that others have rights on which they shouldn't: its path, its mode, and the mode that is right."""

    path: str
    mode: int
    right: int


@attrs.frozen
class ServerFacts:
    """The report of the running server: why it couldn't be reached, its version, failed services, members' lags and
    counters.
    """

    fault: str | None = None
    version: str | None = None
    failing: Sequence[str] = ()
    lags: Sequence[tuple[str, float]] = ()
    evicted: float = 0.0
    misses: float = 0.0
    has_metrics: bool = True


@attrs.frozen(kw_only=True)
class Facts:
    """All facts that are evaluated. ``now`` is in epoch seconds, ``skew`` the database's clock less ours, in seconds.

    ``database`` is ``None`` where it couldn't be reached, and then ``database_fault`` says why; ``remote``: it is on another
    machine, and ``verified``: its certificate is verified.
    """

    now: float
    version: str
    ports: Sequence[PortFacts]
    listen_given: bool
    #: Whether loopback is trusted only since no setting says whom to trust.
    trusts_loopback: bool
    processes: int
    cores: int
    audit: AuditFacts
    certificates: Sequence[CertificateFacts]
    files: Sequence[FileFacts]
    admin_keys: Sequence[str]
    database: DatabaseFacts | None
    database_fault: str | None
    skew: float | None
    remote: bool
    verified: bool
    #: How many refused logins of an entry are sent to a directory, 0 for any number.
    ldap_failures: int
    #: ``None`` where no address of it was known.
    server: ServerFacts | None
    #: ``None`` where there is no database to look at.
    disk: DiskFacts | None = None
    #: The authenticators that policy defines and nothing lists.
    unlisted: Sequence[str] = ()
    #: The given settings that the running server hasn't, by name; and why its settings aren't known.
    differing: Sequence[str] = ()
    settings_fault: str | None = None


def find_risks(facts: Facts) -> list[Risk]:
    """Return the risks and notes, risks first."""
    rules: Sequence[Callable[[Facts], Iterator[Risk]]] = (
        _check_ports, _check_audit, _check_certificates, _check_files, _check_database, _check_access, _check_ages,
        _check_directories, _check_clock, _check_server, _check_size, _check_disk, _check_settings,
    )  # fmt: skip
    return sorted((risk for rule in rules for risk in rule(facts)), key=lambda risk: not risk.severe)


def _check_ports(facts: Facts) -> Iterator[Risk]:
    if not facts.listen_given:
        found = "listen isn't set: only this machine reaches the server, without TLS"
        yield Risk("listen-default", found, "set listen to an ssl: endpoint, or say by it that a proxy here is meant", False)
    for port in facts.ports:
        if port.is_exposed and not port.tls:
            found = f"{port.setting} has {port.text}, where other machines reach the server without TLS"
            if port.setting == "metrics_listen":
                action = (
                    "add interface=127.0.0.1 or the address of a network for monitoring: it tells why logins are refused"
                )
                yield Risk("metrics-exposed", found, action)
            else:
                action = "use ssl:, or add interface=127.0.0.1 and a proxy with TLS, as docs/operations/proxies.md shows"
                yield Risk("listen-plain", found, action)
        if port.has_proxy_header and port.is_on_all_interfaces:
            found = f"{port.setting} has {port.text}, where each client can name any address as its client's"
            action = "add the interface that only the proxy reaches: restricted_to and the audit go by that address"
            yield Risk("proxy-header-exposed", found, action)
        if (
            port.setting == "listen"
            and facts.trusts_loopback
            and port.host is not None
            and not (port.is_exposed or port.has_proxy_header)
        ):
            found = f"{port.text} believes X-Forwarded-For of every program on this machine, tunnels included"
            action = "set trusted_proxies to 127.0.0.1 if a proxy here sets that header itself, otherwise to none"
            yield Risk("loopback-trusted", found, action, facts.listen_given)


def _check_audit(facts: Facts) -> Iterator[Risk]:
    audit = facts.audit
    if audit.path is None:
        found = "audit records go to standard output, and whether something keeps them isn't known"
        yield Risk("audit-output", found, "set audit_file, as etc/svc.toml shows")
    elif audit.fault is not None:
        yield Risk(
            "audit-file", f"the audit file {audit.path} {audit.fault}", "give it back to the server's user, mode 0600"
        )
    if audit.continues:
        found = "audit_failure is continue: secrets are read without a record when records can't be written"
        yield Risk("audit-continue", found, "set audit_failure to refuse")
    if audit.size > UNROTATED and not audit.rotated:
        found = f"the audit file {audit.path} has {audit.size // 2**20} MiB and was never rotated"
        yield Risk("audit-rotation", found, "install etc/logrotate.d/svc")
    if audit.room is not None and audit.room < ROOM:
        found = f"the disk of {audit.path} has room for {audit.room // 2**20} MiB"
        yield Risk("audit-room", found, "make room: requests are refused when records can't be written")


def _check_certificates(facts: Facts) -> Iterator[Risk]:
    for each in facts.certificates:
        renew = "write the renewed certificate over the old files; it is in force within half a minute"
        if each.fault is not None or each.expires is None:
            yield Risk("certificate-unusable", f"the certificate of {each.name} can't be used: {each.fault}", renew)
        elif (left := each.expires - facts.now) < CERTIFICATE_DAYS * _DAY:
            when = f"expires in {left / _DAY:.1f} days" if left > 0 else "has expired"
            yield Risk("certificate-expires", f"the certificate of {each.name} {when}", renew)


def _check_files(facts: Facts) -> Iterator[Risk]:
    for file in facts.files:
        found = f"{file.path} has mode {file.mode:04o}: others than its owner can read or change it"
        yield Risk("file-mode", found, f"chmod {file.right:04o} {file.path}")
    for path in facts.admin_keys:
        found = f"{path} holds the API key of an account's admin"
        yield Risk("admin-key-file", found, "note the key in a safe place, log in with it, then delete the file", False)


def _check_database(facts: Facts) -> Iterator[Risk]:
    database = facts.database
    if database is None:
        yield Risk("database-away", f"the database can't be asked: {facts.database_fault}", "see docs/operations/servers.md")
        return
    if database.schema_behind:
        found = f"the schema lacks {database.schema_behind} migrations of this program"
        yield Risk("schema-behind", found, "restart the primary's server with this program, or run svc migrate", False)
    if database.lag is not None and database.lag > LAG:
        found = f"this standby is {database.lag:.0f} s behind its primary"
        yield Risk("replication-lag", found, "is the primary there, the connection to it up, replay paused, the disk slow?")
    if not database.durable:
        yield Risk(
            "not-durable", "fsync or synchronous_commit of PostgreSQL is off: a crash loses changes", "set both to on"
        )
    if database.connections > CONNECTED * database.most_connections:
        found = f"{database.connections} of {database.most_connections} connections of PostgreSQL are in use"
        yield Risk("connections-few", found, "raise max_connections: docs/operations/capacity.md says how many are needed")
    major = database.server_version // 10000
    end = END_OF_LIFE.get(major)
    if (end is not None and facts.now > end) or major < min(END_OF_LIFE):
        yield Risk("postgresql-old", f"PostgreSQL {major} gets no corrections any more", "upgrade to a newer major version")
    elif major < OLDEST_TESTED_POSTGRESQL:
        found = f"PostgreSQL {major} is older than {OLDEST_TESTED_POSTGRESQL}, the oldest that this program is tested with"
        yield Risk("postgresql-old", found, "upgrade to a newer major version")
    if (
        database.password_expires_at is not None
        and (days := (database.password_expires_at - facts.now) / _DAY) < PASSWORD_DAYS
    ):
        found = f"the password of svc's role in PostgreSQL expires in {days:.1f} days"
        if days < 0:
            found = "the password of svc's role in PostgreSQL has expired: no new connection can be made"
        yield Risk("database-password-expires", found, "give it a new password, and ALTER ROLE … VALID UNTIL 'infinity'")


def _check_access(facts: Facts) -> Iterator[Risk]:
    if facts.remote and not facts.verified:
        found = "the connection to the database on another machine isn't verified"
        yield Risk("database-unverified", found, "add sslmode=verify-full and sslrootcert=… to database_url")
    if facts.database is None:
        return
    everywhere = {"*", "0.0.0.0", "::"} & {each.strip() for each in facts.database.listens.split(",")}  # noqa: S104
    if everywhere and facts.database.open_rules != 0:
        rule = "" if facts.database.open_rules is None else ", and pg_hba.conf admits any address"
        found = f"PostgreSQL listens on all addresses of its machine{rule}"
        yield Risk(
            "database-exposed", found, "set listen_addresses to the addresses that servers use, and name those in pg_hba"
        )
    if facts.database.superuser:
        found = "the role of svc in PostgreSQL is a superuser, who can read and run anything there"
        yield Risk("database-superuser", found, "make a role without, as docs/operations/servers.md shows")


def _check_ages(facts: Facts) -> Iterator[Risk]:
    if facts.database is None or facts.database.schema_behind:
        return
    ages, archived = facts.database.ages, facts.database.archived
    last = max((moment for moment in (ages.backup, archived) if moment is not None), default=None)
    make = "run svc backup create and svc backup verify every day, and keep the data key elsewhere: see backup.md"
    if last is None:
        yield Risk("no-backup", "svc backup create has made no backup of this database, and nothing is archived", make)
    elif (days := (facts.now - last) / _DAY) > BACKUP_DAYS:
        yield Risk("no-backup", f"the last backup was made {days:.1f} days ago", make)
    yield from _check_verified_backup(facts.now, ages.verified, ages.backup is not None)
    if ages.signing_key is not None and (days := (facts.now - ages.signing_key) / _DAY) > KEY_DAYS:
        found = f"an account has signed with the same key for {days:.0f} days"
        yield Risk("signing-key-old", found, "run svc account rotate-signing-key for each account, once a year")


def _check_directories(facts: Facts) -> Iterator[Risk]:
    if not facts.ldap_failures:
        found = "ldap_failures is 0: strangers can lock accounts of an LDAP directory by guessing here"
        yield Risk("ldap-unlimited", found, "set it below the directory's own threshold, divided by the number of servers")


def _check_verified_backup(now: float, verified: VerifiedBackup | None, made: bool) -> Iterator[Risk]:
    """Yield what is wrong with the newest backup that was verified; ``made``: whether there is a backup to verify."""
    verify = "run svc backup verify with each backup: one that can't be restored is found when it is needed, otherwise"
    if verified is None:
        if made:
            yield Risk("backup-unverified", "svc backup verify has verified no backup of this database", verify)
        return
    if (days := (now - verified.dumped) / _DAY) > BACKUP_DAYS:
        yield Risk("backup-unverified", f"the newest backup that was verified is {days:.1f} days old", verify)
    if verified.beside:
        found = f"the newest backup that was verified, {verified.file}, was on the database's own disk"
        yield Risk("backup-beside", found, "copy each backup to another machine: that disk takes both with it")


def _check_clock(facts: Facts) -> Iterator[Risk]:
    if facts.skew is not None and abs(facts.skew) > SKEW:
        found = f"the clocks of this machine and of the database's differ by {abs(facts.skew):.1f} s"
        yield Risk("clock-skew", found, "synchronise both by NTP: tokens and lags depend on it")


def _check_server(facts: Facts) -> Iterator[Risk]:
    server = facts.server
    if server is None:
        found = "the running server wasn't asked: its settings name no port without TLS on this machine"
        yield Risk("server-not-asked", found, "give its address as --url, and --ca-file if its authority is your own", False)
        return
    if server.fault is not None:
        yield Risk("server-away", f"the server can't be asked: {server.fault}", "start it, and look at its log")
        return
    if server.failing:
        found = f"checks of health fail: {', '.join(server.failing)}"
        yield Risk("unhealthy", found, "the log has the reasons; docs/operations/health.md says what each means")
    if server.version is not None and server.version != facts.version:
        found = f"the server runs version {server.version}, and {facts.version} is installed"
        yield Risk("old-version", found, "restart the server")
    for name, lag in server.lags:
        if lag > LAG:
            yield Risk("replication-lag", f"{name} is {lag:.0f} s behind its primary", "look at PostgreSQL there")
    if server.evicted > EVICTIONS and server.evicted > EVICTED * server.misses:
        found = (
            f"{server.evicted:.0f} remembered answers gave way for want of room, {server.misses:.0f} were asked for again"
        )
        yield Risk("memory-small", found, "raise memory_limit, if the machine has the memory, for each process")
    if not server.has_metrics:
        yield Risk("no-metrics", "metrics aren't served", "set metrics_listen, and use etc/prometheus/alerts.yml", False)


def _check_size(facts: Facts) -> Iterator[Risk]:
    if facts.processes == 1 and facts.cores >= CORES:
        found = f"one process serves on a machine with {facts.cores} cores"
        yield Risk("one-process", found, 'set processes = "auto" when svc_reactor_lag_seconds grows', False)


def _check_disk(facts: Facts) -> Iterator[Risk]:
    disk = facts.disk
    if disk is None:
        return
    if disk.room is None:
        found = f"the free space of the database's disk isn't known: {disk.fault}"
        yield Risk("database-disk-unknown", found, "watch it where the database is: PostgreSQL stops when it is full", False)
    elif disk.room < ROOM:
        found = f"the disk of the database, with {disk.path}, has room for {disk.room // 2**20} MiB"
        yield Risk("database-room", found, "make room: PostgreSQL stops when its disk is full")


def _check_settings(facts: Facts) -> Iterator[Risk]:
    if facts.settings_fault is not None:
        found = f"the settings of the running server aren't known: {facts.settings_fault}"
        yield Risk("settings-unknown", found, "run this as the server's user or as root, with the server's program", False)
    if facts.differing:
        found = f"the running server has other values of {', '.join(facts.differing)} than those given here"
        action = "start the server again if it is to have these; for authenticators of its file SIGHUP is enough"
        yield Risk("settings-differ", found, action, False)
    if facts.unlisted:
        found = f"policy defines {', '.join(facts.unlisted)}, which the setting authenticators doesn't list"
        action = "list what is to be used, by name or by a pattern such as authn-jwt/*, and switch off the rest"
        yield Risk("authenticators-unlisted", found, action, False)
