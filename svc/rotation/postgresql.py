"""The rotator of passwords of PostgreSQL: ``postgresql/password`` (SEC-32 to SEC-35).

Beside the password stand ``url``, the address of the database, and ``username``. The role logs in with the stored password
and gives itself another one, so that no other role's rights are needed. ``url`` chooses where this server connects to, from
inside its network: its host is looked up once and checked as those of identity providers are, and nothing in it leads to a
file, a socket or a setting of this server.

Note [How much TLS]. ``sslmode`` has libpq's meanings and libpq's default, ``prefer``: the tenant knows the network. Without
a verified certificate somebody in between gets no password, since the login is by SCRAM, but could pass the login on and
change the role's password. So a ``ca-cert`` is never passed over: TLS is demanded and the certificate verified, with its
host, whatever ``sslmode`` says.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import unquote

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.protocol import Factory
from zope.interface import implementer

from svc.model.errors import AddressRefused, KeysUnavailable
from svc.model.expiration import IRotator, Rotation, RotationFailed
from svc.model.web_address import HOST
from svc.net.fetch import ClientTLS
from svc.net.lookup import HostResolver, client_endpoints
from svc.net.trust import EncryptedOnly
from svc.rotation.postgres_connection import PasswordRefused, PostgresConnection
from svc.rotation.scram import make_verifier

LENGTH_ANNOTATION: Final = "rotation/postgresql/password/length"

#: The lengths of passwords. A character has 5.8 random bits.
DEFAULT_LENGTH: Final = 32
MIN_LENGTH: Final = 16
MAX_LENGTH: Final = 128

#: The seconds in which a connection must be made.
CONNECT_SECONDS: Final = 5.0

#: Letters and digits without those that are mistaken for each other (base58).
_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

#: The longest stored password, in bytes: SASLprep takes time with each character, and may not hold up the reactor.
_PASSWORD_LIMIT: Final = 4096

_URL: Final = re.compile(
    rf"(?:postgres(?:ql)?://)?(?P<host>{HOST})(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?:/(?P<database>[^/?#@\s]*))?(?:\?sslmode=(?P<sslmode>[a-z-]+))?",
    re.ASCII,
)
_OPTIONAL_TLS: Final = frozenset({"allow", "prefer"})
_VERIFIED_TLS: Final = frozenset({"verify-ca", "verify-full"})


@attrs.frozen
class DatabaseAddress:
    """The address of a database; ``database`` is empty when the ``url`` names none."""

    host: str
    port: int
    database: str
    sslmode: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``[postgresql://]host[:port][/database][?sslmode=…]``.

        :raises RotationFailed: it is anything else; the message doesn't repeat it.
        """
        match = _URL.fullmatch(url.strip()) if len(url) <= 2048 else None
        if match is None:
            form = "postgresql://host[:port][/database][?sslmode=…]"
            raise RotationFailed(f"url must have the form {form}, without user, password and other options")
        port, sslmode = int(match["port"] or 5432), match["sslmode"] or "prefer"
        if port not in range(1, 1 << 16):
            raise RotationFailed("url has an impossible port")
        if sslmode not in {"disable", "require", *_OPTIONAL_TLS, *_VERIFIED_TLS}:
            raise RotationFailed("url has an unknown sslmode: take disable, prefer, require or verify-full")
        return cls(match["host"].strip("[]"), port, _parse_name("url", unquote(match["database"] or "")), sslmode)


@implementer(IRotator)
@attrs.frozen(eq=False)
class PostgresPasswordRotator:
    """Rotates the password of a role. ``host_resolver`` finds addresses and checks them; ``tls`` verifies certificates."""

    _reactor: Any
    _host_resolver: HostResolver
    _tls: ClientTLS

    name = "postgresql/password"
    siblings = ("url", "username")
    optional = ("ca-cert",)

    def find_annotation_fault(self, annotations: Mapping[str, str]) -> str | None:
        """See ``IRotator``."""
        if MIN_LENGTH <= _password_length(annotations) <= MAX_LENGTH:
            return None
        return f"{LENGTH_ANNOTATION} must be a number from {MIN_LENGTH} to {MAX_LENGTH}"

    def new_value(self, annotations: Mapping[str, str]) -> bytes:
        """See ``IRotator``."""
        return "".join(secrets.choice(_ALPHABET) for _ in range(_password_length(annotations))).encode("ascii")

    async def rotate(self, rotation: Rotation) -> None:
        """See ``IRotator``."""
        place, role = DatabaseAddress.parse(rotation.siblings["url"]), _parse_name("username", rotation.siblings["username"])
        if not role:
            raise RotationFailed("username is empty")
        if len(rotation.current) > _PASSWORD_LIMIT:
            raise RotationFailed(f"the password that is stored is longer than {_PASSWORD_LIMIT} bytes")
        ca_cert = rotation.siblings.get("ca-cert")
        try:
            wire = await self._log_in(place, role, rotation.current, ca_cert)
        except PasswordRefused:
            # An earlier attempt may have been broken off after it had put the candidate in force.
            (await self._log_in(place, role, rotation.candidate, ca_cert)).close()
            return
        try:
            # The statement may be logged there, so it has the verifier and not the password.
            await wire.run_command(f"ALTER ROLE CURRENT_USER PASSWORD '{make_verifier(rotation.candidate)}'")
        finally:
            wire.close()

    async def _log_in(self, place: DatabaseAddress, role: str, password: bytes, ca_cert: str | None) -> PostgresConnection:
        tls = self._choose_tls(place, ca_cert)
        wire = await self._open_connection(place)
        try:
            if (
                tls is not None
                and not await wire.start_tls(tls)
                and (ca_cert is not None or place.sslmode not in _OPTIONAL_TLS)
            ):
                raise RotationFailed("the server has no TLS, which the sslmode of url or a ca-cert asks for")
            await wire.log_in(role, place.database or role, password)
        except BaseException:
            wire.close()
            raise
        return wire

    async def _open_connection(self, place: DatabaseAddress) -> PostgresConnection:
        """Connect to the first of the addresses that answers."""
        deadline = self._reactor.seconds() + CONNECT_SECONDS
        try:
            addresses = await self._host_resolver.resolve_host(place.host, place.port, CONNECT_SECONDS)
        except AddressRefused as refused:
            raise RotationFailed(f"url can't be connected to: {refused.why}") from None
        except TimeoutError:
            raise RotationFailed("url can't be connected to: no name service answered in time") from None
        factory = Factory.forProtocol(PostgresConnection)
        factory.noisy = False

        def seconds_left() -> float:
            return float(max(0.0, deadline - self._reactor.seconds()))

        for _, endpoint in client_endpoints(self._reactor, addresses, place.port, seconds_left):
            connecting: Deferred[PostgresConnection] = endpoint.connect(factory)  # type: ignore[assignment] # the factory makes nothing else
            try:
                return await connecting
            except ConnectError:
                continue
        raise RotationFailed("nothing answers at the address of url")

    def _choose_tls(self, place: DatabaseAddress, ca_cert: str | None) -> IOpenSSLClientConnectionCreator | None:
        """Return the TLS of a connection, if it is to have any (Note [How much TLS])."""
        if place.sslmode == "disable":
            if ca_cert is not None:
                raise RotationFailed("url asks for no TLS, and ca-cert for a certificate: take one of them away")
            return None
        if ca_cert is None and place.sslmode not in _VERIFIED_TLS:
            return EncryptedOnly()
        try:
            return self._tls(place.host, ca_cert)
        except KeysUnavailable as unavailable:
            raise RotationFailed(unavailable.why) from None
        except UnicodeError:
            raise RotationFailed("no certificate can be for the host of url") from None


def _password_length(annotations: Mapping[str, str]) -> int:
    """Return how long a password is to be; 0 when that is no number."""
    text = annotations.get(LENGTH_ANNOTATION, str(DEFAULT_LENGTH))
    return int(text) if re.fullmatch(r"[0-9]{1,3}", text, re.ASCII) else 0


def _parse_name(sibling: str, text: str) -> str:
    """Return a name in a database, at most as long as PostgreSQL's are."""
    text = text.strip("\r\n")
    if "\0" in text or len(text.encode("utf-8")) > 63:
        raise RotationFailed(f"{sibling} has a name that PostgreSQL can't have")
    return text
