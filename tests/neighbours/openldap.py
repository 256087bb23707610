"""OpenLDAP with a password policy that locks accounts after three failures."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from tests.integration import slapd
from tests.integration.slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd
from tests.neighbours.ldap_logins import OPTIONS, LdapLogins
from tests.neighbours.server import Server, start_program, wait_until
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
    server = Server(stack, directory, "--authenticators=authn,authn-ldap/corp", *OPTIONS)
    loaded = server.load(_POLICY.format(port=there.port, base=BASE, bind=SERVICE))
    key = json.loads(loaded.text)["created_roles"]["acme:user:bob"]["api_key"]
    server.set("svc/authn-ldap/corp/tls-ca-cert", there.authority.pem)
    server.set("svc/authn-ldap/corp/bind-password", SERVICE_PASSWORD)

    def failures(name: str) -> Answer:
        counted, locked = there.failures(f"uid={name},ou=people,{BASE}" if name else SERVICE)
        return Answer(counted, "locked" if locked else "open")

    logins = LdapLogins(server, SERVICE_PASSWORD, failures)
    yield Row("a person's password", Answer(200), partial(logins.login, "alice"))
    yield Row("status", Answer(200, '"outcome":"ok"'), logins.status)
    yield Row("a password that has to be changed", Answer(401), partial(logins.login, "carol"))
    yield Row("its reason", Answer(200, "the password has to be changed first"), partial(logins.explain, "carol"))
    yield Row("a locked account", Answer(200, "the account is locked"), partial(logins.explain, "dave"))
    yield from logins.rows("alice", "ceo", "bob", key)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
