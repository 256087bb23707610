"""OpenLDAP with a password policy that locks accounts after three failures."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.integration import slapd
from tests.integration.slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd
from tests.neighbours.server import Server, ask, start_program, wait_until
from tests.neighbours.table import Answer, Row

SUMMARY: Final = "OpenLDAP's slapd with the overlay ppolicy, 2.5, from Debian"

_PEOPLE: Final = {"alice": "alice's password", "bob": "bob's password"}
_PERSON: Final = """
dn: uid={uid},ou=people,{base}
objectClass: inetOrgPerson
uid: {uid}
cn: {uid}
sn: {uid}
userPassword: {uid}'s password
{more}
"""
_POLICY: Final = """
- !user alice
- !user bob
- !user carol
- !user dave
- !policy
  id: svc/authn-ldap/corp
  body:
    - !webservice
      annotations:
        ldap-authn/uri: "ldap://127.0.0.1:{port}"
        ldap-authn/base_dn: {base}
        ldap-authn/bind_dn: {bind}
        ldap-authn/filter_template: (uid=%s)
    - !webservice status
    - !variable bind-password
    - !variable tls-ca-cert
    - !group users
    - !permit {{ role: !group users, privileges: [ read, authenticate ], resource: !webservice }}
- !grant {{ role: !group svc/authn-ldap/corp/users, members: [ !user alice, !user bob, !user carol, !user dave ] }}
"""


def missing() -> str | None:
    """Return the command that installs what isn't there."""
    return "apt-get install slapd" if slapd.unavailable() else None


def rows(stack: ExitStack, directory: Path) -> Iterator[Row]:
    """Start both, and yield the cases."""
    more = _PERSON.format(uid="carol", base=BASE, more="pwdReset: TRUE")
    more += _PERSON.format(uid="dave", base=BASE, more="pwdAccountLockedTime: 000001010000Z")
    there = Slapd(directory / "slapd", {**_PEOPLE, "ceo": "ceo's password"}, "twice", more, locks=True)
    start_program(stack, there.command, directory / "slapd.log")
    wait_until(lambda: _listens(there.tls_port), "slapd doesn't listen")
    server = Server(
        stack,
        directory,
        "--authenticators=authn,authn-ldap/corp",
        "--allow-private-providers=127.0.0.0/8",
        "--health-interval=0.5",
        "--ldap-failures=2",
    )
    loaded = server.load(_POLICY.format(port=there.port, base=BASE, bind=SERVICE))
    key = json.loads(loaded.text)["created_roles"]["acme:user:bob"]["api_key"]
    server.set("svc/authn-ldap/corp/tls-ca-cert", there.authority.pem)
    server.set("svc/authn-ldap/corp/bind-password", SERVICE_PASSWORD)
    path = "/authn-ldap/corp/acme"

    def login(name: str, password: str) -> Answer:
        return ask("POST", f"{server.url}{path}/{name}/authenticate", password.encode())

    def explain(name: str) -> Answer:
        return server.ask("POST", f"{path}/{name}/explain", f"evidence={name}'s password".replace(" ", "+").encode())

    def failures(dn: str) -> Answer:
        counted, locked = there.failures(dn)
        return Answer(counted, "locked" if locked else "open")

    def guess(name: str) -> Answer:
        for _ in range(5):
            login(name, "wrong")
        return failures(f"uid={name},ou=people,{BASE}")

    def old_key() -> Answer:
        server.ask("PUT", "/authn/acme/api_key?role=user:bob", b"")
        login("bob", key)
        return failures(f"uid=bob,ou=people,{BASE}")

    def mistyped() -> Answer:
        server.set("svc/authn-ldap/corp/bind-password", f"{SERVICE_PASSWORD}\n")
        answer = login("bob", _PEOPLE["bob"])
        time.sleep(5)
        return answer

    yield Row("a person's password", Answer(200), lambda: login("alice", _PEOPLE["alice"]))
    yield Row("status", Answer(200, '"outcome":"ok"'), lambda: server.ask("GET", f"{path}/status"))
    yield Row("a password that has to be changed", Answer(401), lambda: login("carol", "carol's password"))
    yield Row("its reason", Answer(200, "the password has to be changed first"), lambda: explain("carol"))
    yield Row("a locked account", Answer(200, "the account is locked"), lambda: explain("dave"))
    yield Row("guesses at a user", Answer(2, "open"), lambda: guess("alice"))
    yield Row("guesses at a stranger", Answer(2, "open"), lambda: guess("ceo"))
    yield Row("the right password after them", Answer(401), lambda: login("alice", _PEOPLE["alice"]))
    yield Row("a key that was replaced", Answer(0, "open"), old_key)
    yield Row("a mistyped password of the service", Answer(503), mistyped)
    yield Row("its failures", Answer(1, "open"), lambda: failures(SERVICE))
    yield Row("its status", Answer(500, '"outcome":"refused"'), lambda: server.ask("GET", f"{path}/status"))
    yield Row("its failures after that", Answer(1, "open"), lambda: failures(SERVICE))
    yield Row("an operator asks", Answer(200, "ldap-bind-refused"), lambda: explain("bob"))
    yield Row("its failures after that, too", Answer(2, "open"), lambda: failures(SERVICE))
    yield Row("set right", Answer(201), lambda: server.set("svc/authn-ldap/corp/bind-password", SERVICE_PASSWORD))
    yield Row("a person's password again", Answer(200), lambda: login("bob", _PEOPLE["bob"]))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
