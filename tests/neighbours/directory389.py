"""389 Directory Server with a policy that locks accounts after three failures, and its plugin for ``memberOf``.

All of it is in the folder of the run, as the package's user ``dirsrv``; only root can become that.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from OpenSSL import crypto

from tests.authn.providers.authority import Authority
from tests.neighbours.ldap_logins import OPTIONS, LdapLogins
from tests.neighbours.proxied import free_port
from tests.neighbours.server import Server, start_program, wait_until
from tests.neighbours.table import Answer, Row

NAME: Final = "389"
SUMMARY: Final = "389 Directory Server 2.3.1, from Debian"

_BASE: Final = "dc=example,dc=org"
_GROUPS: Final = f"ou=groups,{_BASE}"
_MANAGER: Final = "cn=Directory Manager"
_PASSWORD: Final = "the manager's password"
_SERVICE: Final = f"cn=svc,{_BASE}"
#: The account that searches for all authenticators but ``corp``: a bind that succeeds ends the count of failures.
_OTHER: Final = f"cn=other,{_BASE}"
_SERVICE_PASSWORD: Final = "service password"
#: The name of an entry in which everything stands that has to be escaped.
_ODD: Final = rf"cn=a\, \"b\" \#c \+ d\;e \<f\> (g) *,ou=A\, B & C,{_BASE}"
_PAST: Final = "20200101000000Z"
_NAMES: Final = ("alice", "bob", "ceo", "guessed", "odd", "inactive", "locked", "expired", "new", "grace")

_INSTANCE: Final = """
[general]
full_machine_name = localhost
start = False
systemd = False
[slapd]
instance_name = svc
port = {port}
secure_port = {tls_port}
root_password = {password}
self_sign_cert = True
[backend-userroot]
suffix = {base}
create_suffix_entry = True
"""

_TREE: Final = f"""
dn: cn=config
changetype: modify
replace: passwordLockout
passwordLockout: on
-
replace: passwordMaxFailure
passwordMaxFailure: 3
-
replace: passwordExp
passwordExp: on
-
replace: passwordMaxAge
passwordMaxAge: 8640000

dn: {_BASE}
changetype: modify
add: aci
aci: (targetattr="*")(version 3.0; acl "svc"; allow (read, search, compare) userdn="ldap:///cn=*,{_BASE}";)

dn: ou=people,{_BASE}
changetype: add
objectClass: organizationalUnit

dn: {_GROUPS}
changetype: add
objectClass: organizationalUnit

dn: ou=A\\, B & C,{_BASE}
changetype: add
objectClass: organizationalUnit

dn: {_SERVICE}
changetype: add
objectClass: organizationalRole
objectClass: simpleSecurityObject
userPassword: {_SERVICE_PASSWORD}

dn: {_OTHER}
changetype: add
objectClass: organizationalRole
objectClass: simpleSecurityObject
userPassword: {_SERVICE_PASSWORD}
"""

_PERSON: Final = """
dn:: {dn}
changetype: add
objectClass: inetOrgPerson
objectClass: inetUser
uid: {uid}
cn: {uid}
sn: {uid}
userPassword: {uid}'s password
"""

_GROUP: Final = """
dn: cn={name},{base}
changetype: add
objectClass: groupOfNames
objectClass: nsMemberOf
member:: {member}
"""

_CHANGE: Final = """
dn: uid={uid},ou=people,{base}
changetype: modify
replace: {attribute}
{attribute}: {value}
"""

_POLICY: Final = """
- !policy
  id: svc/authn-ldap/{service}
  body:
    - !webservice
      annotations:
        ldap-authn/filter_template: (uid=%s)
        {annotations}
    - !webservice status
    - !variable bind-password
    - !variable tls-ca-cert
    - !permit {{ role: !group /people, privileges: [ read, authenticate ], resource: !webservice }}
"""


def missing() -> str | None:
    """Return the command that installs what isn't there."""
    if os.geteuid() != 0:
        return "become root, who can become the user of the directory"
    if all(map(shutil.which, ("dscreate", "dsctl", "ns-slapd", "ldapmodify", "ldapsearch"))):
        return None
    return "apt-get install 389-ds-base"


def _person(uid: str) -> str:
    return _ODD if uid == "odd" else f"uid={uid},ou=people,{_BASE}"


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()


class _Directory:
    """An instance in a folder of its own."""

    def __init__(self, directory: Path) -> None:
        """Make it, with its certificate."""
        self.authority = Authority()
        self.port, self.tls_port = free_port(), free_port()
        self._directory = directory
        directory.mkdir()
        issued = self.authority.issue("127.0.0.1")
        (directory / "ca.pem").write_text(self.authority.pem)
        (directory / "svc.pem").write_bytes(issued.dumpPEM())
        (directory / "svc-key.pem").write_bytes(issued.privateKey.dump(crypto.FILETYPE_PEM))
        given = {"port": self.port, "tls_port": self.tls_port, "password": _PASSWORD, "base": _BASE}
        (directory / "svc.inf").write_text(_INSTANCE.format(**given))
        for path in (directory, *directory.iterdir()):
            shutil.chown(path, "dirsrv", "dirsrv")
        self._run("dscreate", "ds-root", f"{directory}/root", f"{directory}/bin")
        self._run("dscreate", "from-file", f"{directory}/svc.inf")
        self._run("dsctl", "svc", "tls", "import-server-key-cert", f"{directory}/svc.pem", f"{directory}/svc-key.pem")
        self._run("dsctl", "svc", "tls", "import-ca", f"{directory}/ca.pem", "tests")
        settings = directory / "root/etc/dirsrv/slapd-svc/dse.ldif"
        plugin, found, rest = settings.read_text().partition("dn: cn=MemberOf Plugin,")
        assert found
        settings.write_text(plugin + found + rest.replace("nsslapd-pluginEnabled: off", "nsslapd-pluginEnabled: on", 1))

    def _as_user(self, *command: str) -> list[str]:
        path = f"{self._directory}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        user = ["setpriv", "--reuid=dirsrv", "--regid=dirsrv", "--clear-groups"]
        return [*user, "env", "-i", f"HOME={self._directory}", f"PATH={path}", *command]

    def _run(self, *command: str) -> None:
        ended = subprocess.run(self._as_user(*command), capture_output=True, text=True, check=False, cwd=self._directory)
        if ended.returncode != 0:
            raise RuntimeError(f"{command[:2]} ended with {ended.returncode}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")

    def start(self, stack: ExitStack) -> None:
        """Start it, and wait until it listens."""
        root = self._directory / "root"
        command = self._as_user("/usr/sbin/ns-slapd", "-D", f"{root}/etc/dirsrv/slapd-svc", "-d", "0")
        start_program(stack, command, self._directory / "ns-slapd.log")
        wait_until(lambda: _listens(self.port) and _listens(self.tls_port), "389 doesn't listen")

    def _ask(self, program: str, *words: str, stdin: str = "") -> str:
        bind = [program, "-x", "-H", f"ldap://127.0.0.1:{self.port}", "-D", _MANAGER, "-w", _PASSWORD]
        ended = subprocess.run([*bind, *words], input=stdin, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise RuntimeError(f"{program} ended with {ended.returncode}: {ended.stdout[-1000:]}{ended.stderr[-1000:]}")
        return ended.stdout

    def change(self, ldif: str) -> None:
        """Change entries as their manager."""
        self._ask("ldapmodify", stdin=ldif)

    def lock(self, name: str) -> None:
        """Guess at a password as often as the directory allows."""
        bind = ["ldapwhoami", "-x", "-H", f"ldap://127.0.0.1:{self.port}", "-D", _person(name), "-w", "wrong"]
        for _ in range(3):
            subprocess.run(bind, capture_output=True, check=False)

    def failures(self, name: str) -> Answer:
        """Return how many failures it counts of an entry, and whether it has locked it."""
        wanted = ("-b", _person(name) if name else _SERVICE, "-s", "base", "passwordRetryCount", "accountUnlockTime")
        found = dict(line.split(": ", 1) for line in self._ask("ldapsearch", "-LLL", *wanted).splitlines() if ": " in line)
        return Answer(int(found.get("passwordRetryCount", "0")), "locked" if "accountUnlockTime" in found else "open")

    def spoil(self, *, reset: bool) -> None:
        """Make the password of the account that searches one that has to be changed, or one with last logins."""
        change = f"dn: {_SERVICE}\nchangetype: modify\nreplace: {{0}}\n{{0}}: {{1}}\n"
        if not reset:
            self.change("dn: cn=config\nchangetype: modify\nreplace: passwordMustChange\npasswordMustChange: off\n")
        self.change(change.format("userPassword", _SERVICE_PASSWORD))
        if not reset:
            self.change(change.format("passwordExpirationTime", _PAST))

    def last_logins(self) -> Answer:
        """Wait for some health checks, and return how many last logins the account that searches has used up."""
        time.sleep(3)
        found = self._ask("ldapsearch", "-LLL", "-b", _SERVICE, "-s", "base", "passwordGraceUserTime")
        return Answer(int(found.partition("passwordGraceUserTime: ")[2].split()[0]))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _fill(there: _Directory) -> None:
    """Add people and groups, and bring those into their states whose passwords aren't good."""
    people = "".join(_PERSON.format(dn=_encode(_person(uid)), uid=uid) for uid in _NAMES)
    groups = "".join(
        _GROUP.format(name=name, base=_GROUPS, member=_encode(member))
        for name, member in (
            ("inner", _person("alice")),
            ("outer", f"cn=inner,{_GROUPS}"),
            ("odd", _person("odd")),
        )
    )
    there.change(_TREE + people + groups)
    known = {"base": _BASE}
    there.change(_CHANGE.format(uid="inactive", attribute="nsAccountLock", value="true", **known))
    there.change(_CHANGE.format(uid="expired", attribute="passwordExpirationTime", value=_PAST, **known))
    there.change(_CHANGE.format(uid="grace", attribute="passwordExpirationTime", value=_PAST, **known))
    there.change("dn: cn=config\nchangetype: modify\nreplace: passwordMustChange\npasswordMustChange: on\n")
    there.change(_CHANGE.format(uid="new", attribute="userPassword", value="new's password", **known))
    there.lock("locked")


def _services(there: _Directory) -> dict[str, dict[str, str]]:
    """Return the authenticators with their annotations."""
    plain, tls = f"127.0.0.1:{there.port}", f"127.0.0.1:{there.tls_port}"
    first = {"uri": f"ldap://{plain}", "base_dn": _BASE, "bind_dn": _OTHER}
    differing: dict[str, dict[str, str]] = {
        "corp": {"bind_dn": _SERVICE, "group_base_dn": _GROUPS},
        "ldaps": {"uri": f"ldaps://{tls}"},
        "ldaps-to-plain": {"uri": f"ldaps://{plain}"},
        "starttls-to-ldaps": {"uri": f"ldap://{tls}"},
        "stranger": {},
        "nowhere": {"base_dn": f"ou=nowhere,{_BASE}"},
        "chain": {"group_base_dn": _BASE, "group_filter_template": "(member:1.2.840.113556.1.4.1941:=%d)"},
    }
    return {service: first | differs for service, differs in differing.items()}


def _set_up(server: Server, there: _Directory) -> str:
    """Load the authenticators, and return the API key of ``bob``."""
    people = [uid for uid in _NAMES if uid != "ceo"]
    policy = "".join(f"- !user {uid}\n" for uid in people)
    policy += "".join(f"- !group {name}\n" for name in ("people", "nested", "direct", "odd-group"))
    policy += f"- !grant {{ role: !group people, members: [ {', '.join(f'!user {uid}' for uid in people)} ] }}\n"
    for service, settings in _services(there).items():
        lines = (f"ldap-authn/{word}: {json.dumps(text)}" for word, text in settings.items())
        policy += _POLICY.format(service=service, annotations="\n        ".join(lines))
    loaded = server.load(policy)
    assert loaded.status == 201, loaded
    for service in _services(there):
        pem = Authority().pem if service == "stranger" else there.authority.pem
        server.set(f"svc/authn-ldap/{service}/bind-password", _SERVICE_PASSWORD)
        server.set(f"svc/authn-ldap/{service}/tls-ca-cert", pem)
    return str(json.loads(loaded.text)["created_roles"]["acme:user:bob"]["api_key"])


def _map(server: Server, service: str, group: str, role: str) -> Answer:
    path = f"/authn-ldap/{service}/acme/groups/{quote(group, safe='')}"
    return server.ask("POST", path, json.dumps({"roles": [f"group:{role}"]}).encode())


def _groups(logins: LdapLogins, name: str, service: str) -> Answer:
    """Log in, and return the groups that the user has."""
    answer = logins.login(name, service=service)
    roles = json.loads(logins.server.ask("GET", f"/roles/acme/user/{name}?all").text)
    return Answer(answer.status, " ".join(sorted(role.rpartition(":")[2] for role in roles if ":group:" in role)))


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Start both, and yield the cases."""
    there = _Directory(directory / "389")
    there.start(stack)
    _fill(there)
    listed = ",".join(f"authn-ldap/{service}" for service in _services(there))
    server = Server(stack, directory, f"--authenticators=authn,{listed}", *OPTIONS)
    key = _set_up(server, there)
    logins = LdapLogins(server, _SERVICE_PASSWORD, there.failures)

    for name in ("alice", "odd"):
        yield Row(f"the password of {name}", Answer(200), partial(logins.login, name))
    yield Row("a wrong password", Answer(401), partial(logins.login, "alice", "wrong"))
    yield Row("LDAPS", Answer(200), partial(logins.login, "alice", service="ldaps"))
    yield Row("status", Answer(200, '"outcome":"ok"'), logins.status)
    for service, said in (
        ("ldaps-to-plain", '"reason":"ldap-tls-failed"'),
        ("starttls-to-ldaps", "the directory took too long before TLS was up"),
        # It sends its authority, too.
        ("stranger", "certificate verify failed: self-signed certificate in certificate chain"),
    ):
        yield Row(service, Answer(503), partial(logins.login, "alice", service=service))
        yield Row(f"{service}, explained", Answer(200, said), partial(logins.explain, "alice", service))
    absent = "the search for it ended with 32 (no such object)"
    yield Row("status of a base that isn't there", Answer(500, absent), partial(logins.status, "nowhere"))
    for name, said in (
        ("inactive", "Account inactivated"),
        ("locked", "the account is locked"),
        ("expired", "the password has expired"),
        ("new", "the password has to be changed first"),
        ("grace", "the password has expired, and only some last logins are left"),
    ):
        if name == "grace":
            there.change("dn: cn=config\nchangetype: modify\nreplace: passwordGraceLimit\npasswordGraceLimit: 3\n")
        yield Row(name, Answer(401), partial(logins.login, name))
        yield Row(f"{name}, explained", Answer(200, said), partial(logins.explain, name))
    for service, group, role in (
        ("corp", "inner", "direct"),
        ("corp", "odd", "odd-group"),
        ("ldaps", f"cn=outer,{_GROUPS}", "nested"),
        ("chain", "inner", "direct"),
    ):
        yield Row(f"map {group}", Answer(201), partial(_map, server, service, group, role))
    yield Row("a group", Answer(200, "direct people"), partial(_groups, logins, "alice", "corp"))
    yield Row("an odd person's", Answer(200, "odd-group people"), partial(_groups, logins, "odd", "corp"))
    yield Row("nested groups by memberOf", Answer(200, "direct nested people"), partial(_groups, logins, "alice", "ldaps"))
    yield Row("the rule of Active Directory", Answer(503), partial(logins.login, "alice", service="chain"))
    yield from logins.rows("guessed", "ceo", "bob", key)
    for reset, said in ((True, "the password has to be changed first"), (False, "only some last logins are left")):
        there.spoil(reset=reset)
        yield Row(f"the service's account: {said}", Answer(503), partial(logins.login, "bob"))
        yield Row("its status then", Answer(500, '"outcome":"refused"'), logins.status)
        yield Row("its reason", Answer(200, said), partial(logins.explain, "bob"))
    yield Row("last logins that were used up, by the operator alone", Answer(1), there.last_logins)
