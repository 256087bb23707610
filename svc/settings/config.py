"""The settings that an operator can give, with their defaults.

Note [One table]. Each field of :class:`Settings` is one setting, and all that a user sees of it follows from the field: the
option ``--some-name`` with its help, the environment variable ``SERVICE_SOME_NAME``, and the key ``some_name`` of the TOML
file that ``--config`` names. The first of these that gives a value counts (CFG-1).
"""

# ruff: noqa: RUF009 - what stands to the right of a field's = describes the field; it isn't a default that fields share

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import platformdirs

from svc.model.databases import ClusterMember
from svc.model.deleted_records import DEFAULT_RETENTION, RecordRetention
from svc.model.dialect import NATIVE, REPORTED_CONJUR_VERSION, Dialect
from svc.model.limits import MANY_CONNECTIONS, RECORD_LIMITS, Limits, RecordLimits, default_connections
from svc.model.names import IDENTIFIER_LIMIT
from svc.model.query_results import Network
from svc.settings import parsers
from svc.settings.options import Option, declare_setting
from svc.settings.parsers import decimal_number, whole_number
from svc.settings.systemd import SystemdUnit

_LIMITS: Final = Limits()
_MIB: Final = 1024 * 1024
_GIB: Final = 1024 * _MIB

#: Functions that declare a setting, by the headings of help.
_server = partial(declare_setting, "server")
_web = partial(declare_setting, "web")
_storage = partial(declare_setting, "storage")
_policy = partial(declare_setting, "policy")
_authenticators = partial(declare_setting, "authenticators")
_providers = partial(declare_setting, "providers")
_tokens = partial(declare_setting, "tokens")
_health = partial(declare_setting, "health")
_audit = partial(declare_setting, "audit")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _data_dir() -> Path:
    return Path("/var/lib/svc") if os.geteuid() == 0 else platformdirs.user_data_path("svc", appauthor=False)


@attrs.frozen(kw_only=True)
class Settings:
    """The value of every setting (Note [One table]). Durations are in seconds, sizes in bytes.

    ``written`` maps each setting that was given to its name as the user wrote it. ``unit`` is the unit of systemd.
    """

    config: Path | None = _server(
        parsers.PATH, "A TOML file of settings; its keys are these names with underscores.", in_file=False
    )
    dialect: Dialect = _server(
        parsers.DIALECT, "The vocabulary to speak: native, or conjur for its clients and policies.", NATIVE
    )
    conjur_version: str = _server(
        parsers.VERSION,
        "The version that clients are told in the dialect conjur; they decide by it.",
        REPORTED_CONJUR_VERSION,
    )
    account: str | None = _server(
        parsers.ACCOUNT, "An account to create at the start unless it is there; a follower creates none."
    )
    processes: int | None = _server(
        parsers.whole_or_auto(1, 64, "NUMBER"),
        "How many processes serve requests; auto is one for each core. With more than one, another one supervises them.",
        1,
    )

    listen: tuple[str, ...] = _web(
        parsers.ENDPOINTS,
        "Where to serve: a Twisted endpoint such as tcp:8080, ssl:8443:privateKey=key.pem:certKey=cert.pem or"
        " systemd:domain=INET:index=0. Repeat it for more than one, or separate them by blanks.",
        ("tcp:8080:interface=127.0.0.1",),
    )
    trusted_proxies: tuple[Network, ...] | None = _web(
        parsers.PROXIES,
        "Networks of proxies whose X-Forwarded-For names the client, separated by commas, in place of the default; none"
        " trusts nobody. A proxy must set that header itself, and what passes bytes on must not be among them.",
        shown="127.0.0.1,::1",
    )
    public_url: str | None = _web(
        parsers.ORIGIN,
        "The address at which browsers reach the server, such as https://svc.example, where a proxy doesn't pass on Host.",
        shown="what the header Host says",
    )

    request_body_limit: int = _web(
        whole_number(1, _GIB, "BYTES"), "The longest body of a request that loads no policy.", _LIMITS.body
    )
    policy_body_limit: int = _web(
        whole_number(1, _GIB, "BYTES"), "The longest body of a request that loads policy.", _LIMITS.policy_body
    )
    request_line_limit: int = _web(
        whole_number(256, _MIB, "BYTES"), "The longest first line of a request.", _LIMITS.request_line
    )
    header_limit: int = _web(
        whole_number(256, _MIB, "BYTES"), "The longest block of header lines of a request.", _LIMITS.header_limit
    )
    identifier_limit: int = _web(
        whole_number(1, IDENTIFIER_LIMIT, "BYTES"), "The longest identifier in a path.", _LIMITS.identifier
    )
    request_timeout: float = _web(
        decimal_number(0.1, 3600, "SECONDS"), "How long a request may take to arrive.", _LIMITS.request_seconds
    )

    connection_limit: int = _web(
        whole_number(1, MANY_CONNECTIONS, "NUMBER"),
        "How many clients may be connected. Beyond that the connection that has been idle for longest is closed, or when"
        " none is idle, only health is answered on new ones.",
        attrs.Factory(default_connections),
        shown=f"what open files allow, at most {_LIMITS.connections}",
    )
    connection_limit_per_address: int = _web(
        whole_number(1, MANY_CONNECTIONS, "NUMBER"),
        "The same for the connections from one address, or one /64 of IPv6; trusted proxies have no such limit.",
        attrs.Factory(lambda self: max(1, self.connection_limit // 4), takes_self=True),
        shown="a quarter of --connection-limit",
    )

    console: bool = _web(
        parsers.FLAG,
        "Serve the console at /ui/, where people sign in with a browser. Browsers need TLS for that, but for this machine.",
        False,
    )
    console_session: int = _web(
        whole_number(60, 43_200, "SECONDS"),
        "How long a session of the console lasts that isn't used. However much it is used, it ends after 12 hours.",
        1800,
    )

    database_url: str | None = _storage(
        parsers.TEXT,
        "The PostgreSQL database, as a libpq URL or DSN. Where it is a hot standby, this server is a follower.",
        shown="an embedded PostgreSQL in the data directory",
        secret=True,
    )
    read_from: str = _storage(
        parsers.READ_FROM,
        "Where readings go: primary is the PostgreSQL that takes the writes; standby is the first host in --database-url"
        " that is a standby and has what this server wrote, until then the primary. The hosts are those of one cluster.",
        parsers.PRIMARY,
    )
    data_dir: Path = _storage(
        parsers.PATH,
        "The folder of all that the server keeps on disk.",
        attrs.Factory(_data_dir),
        shown="the platform's folder for user data; for root /var/lib/svc",
    )
    data_key: str | None = _storage(
        parsers.TEXT,
        "The base64 text of the 32 bytes that seal everything of value in the database; during a rotation the new one, a"
        " blank, and the old one.",
        shown="with the embedded database, the content of <data dir>/data-key",
        on_command_line=False,
        in_file=False,
        secret=True,
    )
    data_key_file: Path | None = _storage(
        parsers.PATH,
        "A file that holds the data key, which only root, the server's user and a group may read; during a rotation the new"
        " one in its first line and the old one below.",
        shown="the credential data-key of a unit of systemd, if it has one",
    )
    data_key_command: str | None = _storage(
        parsers.TEXT,
        "A command that prints the data key, as that file has it, within 30 seconds: any key service with a command line. It"
        " is run without a shell, at the start and at SIGHUP.",
    )
    data_key_pace: int = _storage(
        whole_number(1, 100_000, "NUMBER"),
        "How many values are sealed again in a second after the data key was rotated, by all servers together.",
        500,
    )
    statement_timeout: float = _storage(
        decimal_number(0.1, 3600, "SECONDS"), "How long one statement may take in the database.", 5.0
    )
    database_wait: float = _storage(
        decimal_number(1, 86400, "SECONDS"),
        "How long to wait at the start for a database that isn't there, on a follower for its primary too.",
        10.0,
    )
    memory_lag: float = _storage(
        decimal_number(0, 10, "SECONDS"),
        "How long it may take until a request sees what other servers wrote; what this one wrote is seen at once. Meanwhile"
        " the server answers from memory. With 0 each request asks the database.",
        0.2,
    )
    memory_limit: int = _storage(
        whole_number(_MIB, 64 * _GIB, "BYTES"), "How much of the database each process may remember.", 64 * _MIB
    )
    serve_stale: float = _storage(
        decimal_number(0, 86400, "SECONDS"),
        "For how long logins and secrets may be answered from memory while the database can't be asked; answers and audit"
        " records say so. Revocations made elsewhere meanwhile are not seen.",
        0.0,
    )

    deleted_retention: float = _storage(
        decimal_number(0, 31_536_000, "SECONDS"),
        "How long what policy deletes, and values that newer ones push out, can be had back by `svc deleted`. With 0 nothing"
        " is kept, and what was is purged.",
        DEFAULT_RETENTION.seconds,
    )
    deleted_limit: int = _storage(
        whole_number(0, 1024 * _GIB, "BYTES"),
        "How much of it is kept of one account, about; beyond that the oldest is purged.",
        DEFAULT_RETENTION.bytes,
    )

    readings_retention: float = _storage(
        decimal_number(0, 315_360_000, "SECONDS"),
        "How long it is kept who read a secret, and on which days, after the last read; the audit is kept elsewhere.",
        34_560_000.0,
    )

    nesting_limit: int = _policy(
        whole_number(1, 256, "LEVELS"), "How deep the parts of a policy document may be nested.", 64
    )
    alias_limit: int = _policy(whole_number(0, 1_000_000, "NUMBER"), "How many aliases a policy document may have.", 10_000)
    annotations_limit: int = _policy(
        whole_number(1, 100_000, "NUMBER"), "How many annotations a record may have.", RECORD_LIMITS.annotations
    )
    annotation_bytes_limit: int = _policy(
        whole_number(1, _GIB, "BYTES"),
        "How long the annotations of a record may be together, names and values.",
        RECORD_LIMITS.annotation_bytes,
    )
    permissions_limit: int = _policy(
        whole_number(1, 1_000_000, "NUMBER"),
        "How many permissions there may be on a resource, each privilege counted for each role.",
        RECORD_LIMITS.permissions,
    )

    authenticators: tuple[str, ...] = _authenticators(
        parsers.AUTHENTICATORS,
        "The authenticators that may be used, separated by commas: authn (always enabled), authn-jwt/<service id>,"
        " authn-cloud/<service id> (authn-azure/<service id> in the dialect conjur), authn-gcp, authn-iam/<service id>,"
        " authn-oidc/<service id>, authn-ldap/<service id>. In place of a service id a pattern permits all that policy"
        " defines: authn-jwt/*, authn-jwt/team-*. In the file the list is read again at SIGHUP.",
        ("authn",),
    )
    ignore_missing_issuer: bool = _authenticators(
        parsers.FLAG,
        "Admit JWTs without iss even where an issuer is known. For the conjur dialect; in native iss is optional anyway.",
        False,
    )
    clock_skew: float = _authenticators(
        decimal_number(0, 3600, "SECONDS"), "Leeway for the times in JWTs: exp, nbf and iat.", 0.0
    )
    jwt_limit: int = _authenticators(whole_number(256, 60 * 1024, "BYTES"), "The longest JWT.", 16 * 1024)

    allow_private_providers: tuple[Network, ...] = _providers(
        parsers.NETWORKS,
        "Private networks in which identity providers and LDAP directories may be asked, and passwords rotated; separated by"
        " commas.",
        (),
    )
    allow_http_providers: bool = _providers(parsers.FLAG, "Fetch the keys of identity providers over plain HTTP too.", False)
    allow_plain_ldap: bool = _providers(
        parsers.FLAG, "Send passwords to LDAP directories in plain where policy says connect_type: plain.", False
    )
    ldap_failures: int = _providers(
        whole_number(0, 1000, "NUMBER"),
        "How many refused logins of one entry are sent to an LDAP directory within --ldap-failures-window, so that it locks"
        " nobody: fewer than it takes there. With 0 there is no limit.",
        3,
    )
    ldap_failures_window: float = _providers(
        decimal_number(1, 86_400, "SECONDS"), "How long a refused login of an LDAP directory counts.", 900.0
    )
    ldap_sync_interval: float | None = _providers(
        parsers.decimal_or_off(1, 604_800, "SECONDS"),
        "How often a primary looks whether users who logged in last by an LDAP directory have a usable entry there: a"
        " user without one in two rounds, ten minutes apart, loses tokens and sessions, and the API key is refused until it"
        " is back.",
        shown="off",
    )
    jwks_max_age: float | None = _providers(
        parsers.decimal_or_off(0.1, 31_536_000, "SECONDS"),
        "How old a provider's keys may become: they are fetched again in the background before. When off, they are kept"
        " until a login needs newer ones.",
        shown="off",
    )
    jwks_stale_if_error: float = _providers(
        decimal_number(0, 31_536_000, "SECONDS"),
        "How much longer than --jwks-max-age keys are used while the provider can't be asked for newer ones.",
        0.0,
    )
    jwks_refetch_interval: float = _providers(
        decimal_number(0, 86400, "SECONDS"),
        "The least time between two fetches of one provider's keys that logins ask for.",
        10.0,
    )
    jwks_token_files: tuple[tuple[str, Path], ...] = _providers(
        parsers.TOKEN_FILES,
        "Files of bearer tokens to show where keys are fetched, as https://host[:port]=PATH; separated by commas.",
        (),
    )
    google_issuer: str = _providers(parsers.ADDRESS, "Who issues the tokens of authn-gcp.", "https://accounts.google.com")
    aws_sts_regions: tuple[str, ...] = _providers(parsers.REGIONS, "New regions of AWS that authn-iam may ask, too.", ())
    aws_sts_url: str | None = _providers(
        parsers.ADDRESS, "Where authn-iam asks AWS, whatever the region; it decides who logs in.", shown="each region's own"
    )

    login_throttle: bool = declare_setting(
        "credentials",
        parsers.SWITCH,
        "Slow down guessing of passwords and API keys: after 10 failures in a minute to prove a role, further ones are"
        " answered late, by 1 second to 60; after 300 from one address, its attempts are refused until the minute is over.",
        True,
    )

    user_token_ttl: int = _tokens(whole_number(1, 18000, "SECONDS"), "How long a user's access token lives.", 480)
    host_token_ttl: int = _tokens(whole_number(1, 18000, "SECONDS"), "How long a host's access token lives.", 480)

    user_session_max: int = _tokens(
        whole_number(0, 604_800, "SECONDS"),
        "How long a user may stay logged in by `svc login --for`, by access tokens that are renewed. With 0 there"
        " are no sessions.",
        43_200,
    )

    health_interval: float = _health(
        decimal_number(0.1, 3600, "SECONDS"), "The time from one round of health checks to the next.", 5.0
    )
    cluster: tuple[ClusterMember, ...] = _health(
        parsers.CLUSTER,
        "The other servers of the cluster, whose health this one tells too: their names and addresses, such as"
        " b.example=https://b.example:8443; separated by commas.",
        (),
    )
    cluster_ca: Path | None = _health(
        parsers.PATH,
        "A PEM file of the only authorities that the certificates of these may come from.",
        shown="the platform's authorities",
    )

    expiration_interval: float = declare_setting(
        "expiration",
        decimal_number(0.1, 3600, "SECONDS"),
        "The time from one look at what is due to be rotated, or has expired, to the next, on one server of the cluster.",
        10.0,
    )

    metrics_listen: str | None = declare_setting(
        "metrics",
        parsers.ENDPOINT,
        "Where to serve counters to Prometheus, as --listen says it; keep it from strangers, whom they would tell too much.",
        shown="off",
    )

    audit_file: Path | None = _audit(
        parsers.AUDIT_FILE,
        "The file that audit records are appended to, or - for standard output; SIGHUP has it opened again.",
        shown="standard output; of a daemon, in a systemd unit and on a terminal, audit.log in its folder for logs or data",
    )
    audit_syslog: str | None = _audit(
        parsers.TEXT,
        "A receiver of syslog for audit records, besides, as a Twisted endpoint such as tcp:logs.example:601,"
        " tls:logs.example:6514 or unix:/run/syslog.",
    )
    audit_failure: str = _audit(
        parsers.AUDIT_FAILURE,
        "What happens to requests while audit records can't be written: refuse (503), or continue without.",
        "refuse",
    )

    log_format: str = declare_setting(
        "log", parsers.LOG_FORMAT, "How the log is written: lines of text, or each as a JSON object.", "text"
    )
    log_level: str = declare_setting(
        "log", parsers.LOG_LEVEL, "From which level on lines are written to the log; nothing else depends on it.", "info"
    )

    written: Mapping[str, str] = attrs.field(factory=dict)
    unit: SystemdUnit = attrs.field(factory=SystemdUnit)

    @property
    def http_limits(self) -> Limits:
        """Return the limits of HTTP requests and connections."""
        return Limits(
            body=self.request_body_limit,
            policy_body=self.policy_body_limit,
            request_line=self.request_line_limit,
            header_limit=self.header_limit,
            identifier=self.identifier_limit,
            request_seconds=self.request_timeout,
            connections=self.connection_limit,
            connections_per_address=self.connection_limit_per_address,
        )

    @property
    def record_limits(self) -> RecordLimits:
        """Return the limits of annotations and permissions of a record."""
        return RecordLimits(
            annotations=self.annotations_limit,
            annotation_bytes=self.annotation_bytes_limit,
            permissions=self.permissions_limit,
        )

    @property
    def reads_from_standby(self) -> bool:
        """Return whether reads may go to standbys, while writes follow the primary."""
        return self.read_from == parsers.STANDBY

    @property
    def retention(self) -> RecordRetention:
        """Return what is kept of what is deleted."""
        return RecordRetention(self.deleted_retention, self.deleted_limit)

    @property
    def serving_processes(self) -> int:
        """Return how many processes serve requests."""
        return usable_cores() if self.processes is None else self.processes

    def name_of(self, field: str) -> str:
        """Return the name of a setting as the user wrote it; the option's when it wasn't given."""
        return self.written.get(field) or f"--{field.replace('_', '-')}"


#: Every option, in the order in which help lists them.
OPTIONS: Final[Sequence[Option]] = tuple(
    attrs.evolve(field.metadata["option"], field=field.name) for field in attrs.fields(Settings) if field.metadata
)
