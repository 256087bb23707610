"""OpenLDAP's server as a process of its own, with a few people in it, over LDAP, StartTLS and LDAPS on loopback ports.

Where Debian's package ``slapd`` isn't installed, the tests that need it are skipped.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

from OpenSSL import crypto
from twisted.internet import reactor as installed_reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.error import ConnectError
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater

from tests.authn.providers.authority import Authority
from tests.programs import explain_missing, find_program

reactor: Any = installed_reactor

_SCHEMA: Final = Path("/etc/ldap/schema")
_MODULES: Final = Path("/usr/lib/ldap")

#: How often a server that starts is asked whether it is there, a tenth of a second apart.
_TRIES: Final = 300

BASE: Final = "dc=example,dc=org"
SERVICE: Final = f"cn=svc,{BASE}"
SERVICE_PASSWORD: Final = "service password"

_CONFIGURATION: Final = """
include {schema}/core.schema
include {schema}/cosine.schema
include {schema}/nis.schema
include {schema}/inetorgperson.schema
pidfile {directory}/pid
argsfile {directory}/args
modulepath {modules}
moduleload back_mdb.la
moduleload memberof.la
moduleload ppolicy.la
TLSCACertificateFile {directory}/ca.pem
TLSCertificateFile {directory}/certificate.pem
TLSCertificateKeyFile {directory}/certificate.pem
database mdb
maxsize 16777216
suffix "{base}"
directory {directory}/data
overlay memberof
{overlays}
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{service}" read by * none
"""

#: A policy by which an account is locked after three failures, and its entry.
_LOCKING: Final = f"""
overlay ppolicy
ppolicy_default cn=locking,{BASE}
ppolicy_use_lockout
"""
_POLICY: Final = f"""
dn: cn=locking,{BASE}
objectClass: organizationalRole
objectClass: pwdPolicy
cn: locking
pwdAttribute: userPassword
pwdLockout: TRUE
pwdMaxFailure: 3
pwdMustChange: TRUE
"""

_TREE: Final = f"""
dn: {BASE}
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: {SERVICE}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: svc
userPassword: {SERVICE_PASSWORD}

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people
"""

_PERSON: Final = f"""
dn: {{attribute}}={{escaped}},ou=people,{BASE}
objectClass: inetOrgPerson
objectClass: posixAccount
uid: {{uid}}
cn: {{name}}
sn: {{uid}}
uidNumber: {{number}}
gidNumber: 1000
homeDirectory: /home
userPassword:: {{password}}
"""


def unavailable() -> str | None:
    """Return the reason to skip the tests that need it, ``None`` where it is installed."""
    missing = [str(path) for path in (_SCHEMA, _MODULES) if not path.exists()]
    lacking = f"slapd isn't installed: there is no {', '.join(missing)}" if missing else None
    return explain_missing("slapd", "slapadd", "slapcat", "slapmodify") or lacking


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Slapd:
    """One server. ``people`` are logins and passwords; ``twice`` is a login that two entries have.

    ``more`` are further entries, in LDIF. ``locks``: accounts are locked after three failures. ``authority`` is that of its
    certificate, which is for 127.0.0.1.
    """

    def __init__(self, directory: Path, people: dict[str, str], twice: str, more: str = "", *, locks: bool = False) -> None:
        self.authority = Authority()
        self.port, self.tls_port = _free_port(), _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._configuration = directory / "slapd.conf"
        (directory / "data").mkdir(parents=True)
        (directory / "ca.pem").write_text(self.authority.pem)
        issued = self.authority.issue("127.0.0.1")
        (directory / "certificate.pem").write_bytes(issued.dumpPEM() + issued.privateKey.dump(crypto.FILETYPE_PEM))
        self._configuration.write_text(
            _CONFIGURATION.format(
                schema=_SCHEMA,
                modules=_MODULES,
                directory=directory,
                base=BASE,
                service=SERVICE,
                overlays=_LOCKING if locks else "",
            )
        )
        entries = [("uid", uid, uid, password) for uid, password in people.items()]
        entries += [("uid", twice, twice, "twice"), ("cn", "another", twice, "twice")]
        tree = _TREE + "".join(
            _PERSON.format(
                attribute=attribute,
                escaped="".join(f"\\{octet:02x}" for octet in name.encode()),
                name=name,
                uid=uid,
                password=base64.b64encode(password.encode()).decode(),
                number=number,
            )
            for number, (attribute, name, uid, password) in enumerate(entries, 2000)
        )
        self._run("slapadd", tree + (_POLICY if locks else "") + more)

    def _run(self, name: str, ldif: str, *options: str) -> str:
        command = [find_program(name) or name, "-f", str(self._configuration), *options]
        ran = subprocess.run(command, input=ldif.encode(), capture_output=True, check=False)
        assert ran.returncode == 0, ran.stderr.decode()
        return ran.stdout.decode()

    def failures(self, dn: str) -> tuple[int, bool]:
        """Return how many failures the directory counts of an entry, and whether it has locked it."""
        entries = self._run("slapcat", "", "-o", "ldif-wrap=no").split("\n\n")
        (entry,) = (each for each in entries if f"dn: {dn}" in each.splitlines())
        return entry.count("pwdFailureTime:"), "pwdAccountLockedTime:" in entry

    async def change(self, ldif: str) -> None:
        """Stop it, change entries as LDIF says, and start it again."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        self._process = None
        self._run("slapmodify", ldif)
        await self.start()

    @property
    def command(self) -> list[str]:
        """The command that starts it in the foreground."""
        urls = f"ldap://127.0.0.1:{self.port} ldaps://127.0.0.1:{self.tls_port}"
        return [find_program("slapd") or "slapd", "-d", "0", "-h", urls, "-f", str(self._configuration)]

    async def start(self) -> None:
        """Start it, and wait until it can be connected to."""
        command = self.command
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(_TRIES):
            assert self._process.poll() is None, "slapd ended at its start"
            try:
                probe = await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", self.tls_port), Protocol())
            except ConnectError:
                await deferLater(reactor, 0.1)
            else:
                probe.transport.abortConnection()
                return
        raise AssertionError("slapd doesn't listen")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it, however it is."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
