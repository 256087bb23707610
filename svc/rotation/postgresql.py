"""The rotator of passwords of PostgreSQL: ``postgresql/password`` (SEC-32 to SEC-35).

Beside the password stand ``url``, the address of the database, and ``username``. The role logs in as itself, with the
password that is stored, and gives itself another one: so nobody's rights are needed but its own.

Whoever may set ``url`` chooses where this server connects to, from inside the network that it stands in. So the address is
looked up once and checked as those of identity providers are, and nothing in it leads to a file, a socket or a setting of
ours.

Note [How much TLS]. ``sslmode`` is the tenant's word, with libpq's meanings and libpq's default, ``prefer``: he knows the
network to his database. Without a verified certificate somebody who stands between learns no password, since the login is by
SCRAM, but could pass the login on and change the role's password to his own. So where a ``ca-cert`` is at hand it is never
passed over: TLS is demanded and the certificate verified, host and all, whatever ``sslmode`` says beside it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import unquote

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.protocol import Factory
from zope.interface import implementer

from svc.model.errors import AddressRefused, KeysUnavailable
from svc.model.expiration import IRotator, Rotation, RotationFailed
from svc.model.hosts import HOST
from svc.net.addresses import Address
from svc.net.fetch import ClientTLS
from svc.net.lookup import LookUps
from svc.net.trust import EncryptedOnly
from svc.rotation.scram import verifier
from svc.rotation.wire import PasswordRefused, Wire

LENGTH: Final = "rotation/postgresql/password/length"

#: How long passwords are: by default, at least and at most. A character has 5.8 random bits.
LENGTH_USUAL: Final = 32
LENGTH_LEAST: Final = 16
LENGTH_MOST: Final = 128

#: How long it may take until a connection is there, in seconds.
CONNECTING: Final = 5.0

#: Letters and digits without those that are mistaken for each other (base58).
_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

#: The longest password that is looked at, in bytes: what takes time with each character may not hold up the reactor.
_PASSWORD_LIMIT: Final = 4096

_PORT: Final = 5432
_URL_LIMIT: Final = 2048
_NAME_BYTES: Final = 63
_URL: Final = re.compile(
    rf"(?:postgres(?:ql)?://)?(?P<host>{HOST})(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?:/(?P<database>[^/?#@\s]*))?(?:\?sslmode=(?P<sslmode>[a-z-]+))?",
    re.ASCII,
)
_WITHOUT_TLS: Final = "disable"
_PERHAPS_TLS: Final = frozenset({"allow", "prefer"})
_UNVERIFIED_TLS: Final = "require"
_VERIFIED_TLS: Final = frozenset({"verify-ca", "verify-full"})


@attrs.frozen
class DatabaseAddress:
    """Where a database is, as its ``url`` says; ``database`` is empty when that says none."""

    host: str
    port: int
    database: str
    sslmode: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``[postgresql://]host[:port][/database][?sslmode=…]``.

        :raises RotationFailed: it is anything else; the message doesn't repeat it.
        """
        match = _URL.fullmatch(url.strip()) if len(url) <= _URL_LIMIT else None
        if match is None:
            raise RotationFailed(
                "url must have the form postgresql://host[:port][/database][?sslmode=…], without user, password and other"
                " options"
            )
        port, sslmode = int(match["port"] or _PORT), match["sslmode"] or "prefer"
        if port not in range(1, 1 << 16):
            raise RotationFailed("url has an impossible port")
        if sslmode not in {_WITHOUT_TLS, _UNVERIFIED_TLS, *_PERHAPS_TLS, *_VERIFIED_TLS}:
            raise RotationFailed("url has an unknown sslmode: take disable, prefer, require or verify-full")
        return cls(match["host"].strip("[]"), port, _name("url", unquote(match["database"] or "")), sslmode)


@implementer(IRotator)
class PostgresPassword:
    """Rotates the password of a role. ``look_ups`` finds addresses and checks them; ``tls`` verifies certificates."""

    name = "postgresql/password"
    siblings = ("url", "username")
    optional = ("ca-cert",)

    def __init__(self, reactor: Any, look_ups: LookUps, tls: ClientTLS) -> None:
        self._reactor = reactor
        self._look_ups = look_ups
        self._tls = tls

    def objection(self, annotations: Mapping[str, str]) -> str | None:
        """Return what is wrong with the length that annotations give; ``None`` for nothing."""
        if LENGTH_LEAST <= _length(annotations) <= LENGTH_MOST:
            return None
        return f"{LENGTH} must be a number from {LENGTH_LEAST} to {LENGTH_MOST}"

    def new_value(self, annotations: Mapping[str, str]) -> bytes:
        """Make a password."""
        return "".join(secrets.choice(_ALPHABET) for _ in range(_length(annotations))).encode("ascii")

    async def rotate(self, rotation: Rotation) -> None:
        """Put the candidate in force, or find that it is already.

        :raises RotationFailed: it isn't, or nobody knows.
        """
        place, role = DatabaseAddress.parse(rotation.siblings["url"]), _name("username", rotation.siblings["username"])
        if not role:
            raise RotationFailed("username is empty")
        if len(rotation.current) > _PASSWORD_LIMIT:
            raise RotationFailed(f"the password that is stored is longer than {_PASSWORD_LIMIT} bytes")
        ca_cert = rotation.siblings.get("ca-cert")
        try:
            wire = await self._logged_in(place, role, rotation.current, ca_cert)
        except PasswordRefused:
            # Perhaps an attempt before this one was broken off when it had done its work.
            (await self._logged_in(place, role, rotation.candidate, ca_cert)).close()
            return
        try:
            # The text has what the server keeps of a password, and not the password: it may be logged there.
            await wire.run(f"ALTER ROLE CURRENT_USER PASSWORD '{verifier(rotation.candidate)}'")
        finally:
            wire.close()

    async def _logged_in(self, place: DatabaseAddress, role: str, password: bytes, ca_cert: str | None) -> Wire:
        tls = self._creator(place, ca_cert)
        wire = await self._connected(place)
        try:
            if tls is not None and not await wire.secure(tls) and (ca_cert is not None or place.sslmode not in _PERHAPS_TLS):
                raise RotationFailed("the server has no TLS, which the sslmode of url or a ca-cert asks for")
            await wire.log_in(role, place.database or role, password)
        except BaseException:
            wire.close()
            raise
        return wire

    async def _connected(self, place: DatabaseAddress) -> Wire:
        """Connect to the first of the addresses that answers."""
        deadline = self._reactor.seconds() + CONNECTING
        try:
            addresses = await self._look_ups.addresses(place.host, place.port, CONNECTING)
        except AddressRefused as refused:
            raise RotationFailed(f"url can't be connected to: {refused.why}") from None
        except TimeoutError:
            raise RotationFailed("url can't be connected to: no name service answered in time") from None
        for number, address in enumerate(addresses):
            patience = max(0.0, deadline - self._reactor.seconds()) / (len(addresses) - number)
            try:
                return await self._dialled(address, place.port, patience)
            except ConnectError:
                continue
        raise RotationFailed("nothing answers at the address of url")

    def _dialled(self, address: Address, port: int, patience: float) -> Deferred[Wire]:
        kind = TCP4ClientEndpoint if address.version == 4 else TCP6ClientEndpoint
        endpoint = kind(self._reactor, str(address), port, timeout=patience)
        factory = Factory.forProtocol(Wire)
        factory.noisy = False
        return endpoint.connect(factory)  # type: ignore[return-value] # the factory makes nothing else

    def _creator(self, place: DatabaseAddress, ca_cert: str | None) -> IOpenSSLClientConnectionCreator | None:
        """Return the TLS of a connection, if it is to have any (Note [How much TLS])."""
        if place.sslmode == _WITHOUT_TLS:
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


def _length(annotations: Mapping[str, str]) -> int:
    """Return how long a password is to be; 0 when that is no number."""
    text = annotations.get(LENGTH, str(LENGTH_USUAL))
    return int(text) if re.fullmatch(r"[0-9]{1,3}", text, re.ASCII) else 0


def _name(sibling: str, text: str) -> str:
    """Return a name in a database, at most as long as PostgreSQL's are."""
    text = text.strip("\r\n")
    if "\0" in text or len(text.encode("utf-8")) > _NAME_BYTES:
        raise RotationFailed(f"{sibling} has a name that PostgreSQL can't have")
    return text
