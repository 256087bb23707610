"""Endpoints, as operators write them: Twisted's strings, of which those that speak TLS are ours.

Note [Certificates of ports]. Twisted reads the files of an ``ssl:`` endpoint once. Here it reads the same text again when
the files have changed, and each connection takes what was read last; so all of Twisted's options stay as they are. A daemon
changes its directory, so the paths are made absolute at once. A key with a password is read once: OpenSSL asks for that at
the terminal, which a running server can't wait for.

Note [Receivers' certificates]. A ``tls:`` endpoint connects by ``trust``, as all that connects does. An ``ssl:`` one would
connect to anybody.

Note [PROXY headers]. ``haproxy:`` stands before another endpoint's text; Twisted's own isn't used (``proxy_header``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates
from OpenSSL import SSL, crypto
from twisted.internet.endpoints import (
    HostnameEndpoint,
    SSL4ServerEndpoint,
    clientFromString,
    quoteStringArgument,
    serverFromString,
    wrapClientTLS,
)
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from zope.interface import implementer

from svc.net.trust import Trust
from svc.server.accepting import BindingReactor, InheritedEndpoint, InheritingReactor
from svc.server.listening import Endpoint
from svc.server.proxy_header import HeaderReactor
from svc.server.reloading import Reloadable

_PART: Final = re.compile(r"(?:^|:)((?:[^:\\]|\\.)*)", re.DOTALL)
_NAMED: Final = re.compile(r"((?:[^=\\]|\\.)*)=(.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)

#: The arguments of Twisted's ``ssl:`` and ``tls:`` endpoints in the order in which they stand without their names.
_SSL: Final = ("port", "privateKey", "certKey", "sslmethod", "interface", "backlog", "extraCertChain", "dhParameters")
_TLS: Final = ("host", "port", "timeout", "bindAddress", "certificate", "privateKey", "trustRoots", "endpoint")

#: Those that name files, and the file that is read where none is named.
_FILES: Final = ("privateKey", "certKey", "extraCertChain", "dhParameters")
_USUAL_KEY: Final = "server.pem"

#: The kind of endpoints whose sockets systemd has opened, and of those that ask for a PROXY header.
_SYSTEMD: Final = "systemd"
_HAPROXY: Final = "haproxy"

#: Kinds of endpoints with a port, all whose socket is theirs to open, and those that have one of these behind their name.
_WITH_PORT: Final = frozenset({"tcp", "tcp6", "ssl"})
_BINDABLE: Final = _WITH_PORT | {"unix"}
_WRAPPING: Final = frozenset({"haproxy"})

#: A word in the first lines of a key that has a password.
_ENCRYPTED: Final = b"ENCRYPTED"


@attrs.frozen
class _ParsedEndpoint:
    """An endpoint as it is written: the parts between colons, without a name and with one."""

    positional: list[str]
    named: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        written = cls([], {})
        for part in _PART.findall(text):
            named = _NAMED.fullmatch(part)
            if named is None:
                written.positional.append(_unescape(part))
            else:
                written.named[_unescape(named[1])] = _unescape(named[2])
        return written

    @property
    def kind(self) -> str:
        """Return the type of the endpoint; Twisted takes names of clients' in capitals, too."""
        return self.positional[0].lower() if self.positional else ""

    def check_port(self, place: int, lowest: int) -> None:
        """Raise ``ValueError`` unless the port, which stands at ``place`` without its name, is possible, or isn't given."""
        port = self.named.get("port", "".join(self.positional[place : place + 1]))
        if port and not (port.isascii() and port.isdecimal() and lowest <= int(port[:9]) < 1 << 16):
            raise ValueError(f"the port must be a number from {lowest} to 65535")

    def named_arguments(self, names: Sequence[str]) -> dict[str, str]:
        """Return the arguments by their names; ``names`` are all that there may be, in the order of those without a name."""
        given = [*zip(names, self.positional[1:], strict=False), *self.named.items()]
        found = dict(given)
        if len(found) < len(self.positional) - 1 + len(self.named) or not found.keys() <= set(names):
            raise ValueError(f"{self.kind}: takes {', '.join(names)}, each at most once")
        return found


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)


def bound_endpoint(reactor: Any, text: str) -> Endpoint:
    """Make a port's endpoint of its text, which can be bound before it is listened at (``accepting``, Note [Bound first]).

    :raises Exception: as below.
    """
    binding, (first, second, *_) = BindingReactor(reactor), (*_ParsedEndpoint.parse(text).positional, "", "")
    endpoint = listening_endpoint(binding, text)
    kind = second.lower() if first.lower() in _WRAPPING else first.lower()
    return attrs.evolve(endpoint, binding=binding) if kind in _BINDABLE else endpoint


def listening_endpoint(reactor: Any, text: str) -> Endpoint:
    """Make a port's endpoint of its text.

    :raises Exception: it isn't one; the types of endpoints are plugins, and raise what they like.
    """
    written = _ParsedEndpoint.parse(text)
    if written.kind == _HAPROXY:
        return attrs.evolve(listening_endpoint(HeaderReactor(reactor), _inner_text(text)), text=text)
    if written.kind in _WITH_PORT:
        written.check_port(1, lowest=0)
    if written.kind != "ssl":
        return Endpoint(text, serverFromString(reactor, text))
    arguments = {"privateKey": _USUAL_KEY, **written.named_arguments(_SSL)}
    files = {name: os.path.abspath(arguments[name]) for name in _FILES if name in arguments}
    absolute = ":".join(["ssl", *(f"{name}={quoteStringArgument(value)}" for name, value in (arguments | files).items())])
    key = Path(files["privateKey"])
    if _ENCRYPTED in key.read_bytes():
        return Endpoint(text, serverFromString(reactor, absolute))
    chain = None if "extraCertChain" in files else Path(files.get("certKey", key))
    certificate = Reloadable(
        f"the certificate of {text}",
        [Path(path) for path in files.values()],
        lambda: _read_port(absolute, key, chain),
        _certificate_fault,
    )
    port = certificate.current
    place = SSL4ServerEndpoint(reactor, port.port, _CurrentCertificate(certificate), port.backlog, port.interface)
    return Endpoint(text, place, certificate)


def _inner_text(text: str) -> str:
    """Return the text of the endpoint behind a word like ``haproxy``."""
    return text.partition(":")[2]


@attrs.frozen
class PortAddress:
    """Where a port is, as its text says.

    ``host`` is the interface, empty for all of them; ``key`` the file of its key; ``has_proxy_header``: it asks for a PROXY
    header.
    """

    text: str
    tls: bool
    host: str
    port: int
    key: str | None
    has_proxy_header: bool = False


def parse_port(text: str) -> PortAddress | None:
    """Return where a TCP port is; ``None`` for any other kind of endpoint, and for a text that is none."""
    written = _ParsedEndpoint.parse(text)
    if written.kind == _HAPROXY:
        place = parse_port(_inner_text(text))
        return None if place is None else attrs.evolve(place, text=text, has_proxy_header=True)
    names = {"tcp": ("port", "interface", "backlog"), "ssl": _SSL}.get(written.kind)
    try:
        given = {} if names is None else written.named_arguments(names)
        port = int(given["port"])
    except (KeyError, ValueError):
        return None
    key = given.get("privateKey", _USUAL_KEY) if written.kind == "ssl" else None
    return PortAddress(text, written.kind == "ssl", given.get("interface", ""), port, key)


def inherited_endpoint(reactor: Any, text: str, descriptor: int) -> Endpoint:
    """Make the endpoint of a port that another process of the server has opened (``accepting``, Note [Any endpoint]).

    :raises ValueError: it has a key with a password, which only the first process can ask for.
    :raises Exception: as above.
    """
    inheriting: Any = InheritingReactor(reactor, descriptor)
    below, written = text, _ParsedEndpoint.parse(text)
    while written.kind == _HAPROXY:
        inheriting, below = HeaderReactor(inheriting), _inner_text(below)
        written = _ParsedEndpoint.parse(below)
    if written.kind == _SYSTEMD:
        return Endpoint(text, InheritedEndpoint(inheriting))
    endpoint = attrs.evolve(listening_endpoint(inheriting, below), text=text)
    if written.kind == "ssl" and endpoint.certificate is None:
        raise ValueError("its key has a password, which several processes can't ask for")
    return endpoint


@attrs.define
class _PortRecorder:
    """A reactor that keeps the arguments with which an ``ssl:`` endpoint would listen."""

    port: int = 0
    tls: Any = None
    backlog: int = 0
    interface: str = ""

    def listenSSL(self, port: int, factory: object, contextFactory: Any, backlog: int = 50, interface: str = "") -> Any:  # noqa: N802, N803, ARG002 - Twisted's
        self.port, self.tls, self.backlog, self.interface = port, contextFactory, backlog, interface


def _read_port(text: str, key: Path, chain: Path | None) -> _PortRecorder:
    """Read the files of an ``ssl:`` endpoint; ``chain`` names the file of intermediate certificates, if any."""
    if _ENCRYPTED in key.read_bytes():
        raise ValueError("the key is encrypted")
    port = _PortRecorder()
    try:
        serverFromString(port, text).listen(Factory())
        if chain is not None:
            port.tls.extraCertChain = load_pem_x509_certificates(chain.read_bytes())[1:]
        port.tls.getContext()
    except (SSL.Error, crypto.Error) as error:
        reasons = ", ".join(reason for *_, reason in error.args[0])
        raise ValueError(f"key and certificate can't be read: {reasons}") from None
    return port


def _certificate_fault(port: _PortRecorder) -> str | None:
    """Return why the certificate isn't valid at this moment, its authority aside; ``None`` when it is."""
    store = crypto.X509Store()
    store.add_cert(port.tls.certificate)
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    try:
        crypto.X509StoreContext(store, port.tls.certificate).verify_certificate()
    except crypto.X509StoreContextError as error:
        return str(error)
    return None


@implementer(IOpenSSLServerConnectionCreator)
@attrs.frozen
class _CurrentCertificate:
    """Gives each connection the certificate that was read last (Note [Certificates of ports])."""

    certificate: Reloadable[_PortRecorder]

    def serverConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:  # noqa: N802, N803 - Twisted's
        connection: SSL.Connection = self.certificate.current.tls.serverConnectionForTLS(tlsProtocol)
        return connection


def client_endpoint(reactor: Any, text: str) -> IStreamClientEndpoint:
    """Make a client's endpoint of its text (Note [Receivers' certificates]).

    :raises Exception: as above.
    """
    written = _ParsedEndpoint.parse(text)
    if written.kind == "ssl":
        raise ValueError("ssl: connects to anybody, whatever the certificate; write tls:HOST:PORT")
    if written.kind in {"tcp", "tls"}:
        written.check_port(2, lowest=1)
    if written.kind != "tls":
        return IStreamClientEndpoint(clientFromString(reactor, text))
    given = written.named_arguments(_TLS)
    host = given["host"]
    trust = Trust(
        _read_authorities(Path(given["trustRoots"])) if "trustRoots" in given else None, _read_own_certificate(given)
    )
    if "endpoint" in given:
        below = client_endpoint(reactor, given["endpoint"])
    else:
        timeout, source = int(given.get("timeout", 30)), given.get("bindAddress")
        below = HostnameEndpoint(reactor, host, int(given["port"]), timeout, None if source is None else (source, 0))
    return wrapClientTLS(trust.connection_creator(host), below, reactor)


def client_certificate(text: str) -> str | None:
    """Return the file of the certificate that a client's endpoint shows; ``None`` where it shows none."""
    written = _ParsedEndpoint.parse(text)
    return written.named_arguments(_TLS).get("certificate") if written.kind == "tls" else None


def _read_authorities(folder: Path) -> Any:
    """Return the certificates of all files of a folder whose names end with ``.pem``, as Twisted's ``trustRoots`` are."""
    text = "".join(path.read_text(encoding="ascii", errors="replace") for path in sorted(folder.glob("*.pem")))
    return Trust.from_pem(text).authorities


def _read_own_certificate(given: dict[str, str]) -> Any:
    """Return the certificate to show, and its key."""
    if "certificate" not in given:
        return None
    certificate = Path(given["certificate"]).read_bytes()
    key = Path(given.get("privateKey", given["certificate"])).read_bytes()
    return load_pem_x509_certificate(certificate), load_pem_private_key(key, None)
