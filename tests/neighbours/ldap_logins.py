"""Logins at an LDAP authenticator of a server, and the cases by which it keeps a directory from locking accounts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import quote

import attrs

from tests.neighbours.server import Server, ask
from tests.neighbours.table import Answer, Row

#: The options of a server whose health checks come often, and which sends two failures of an entry to a directory.
OPTIONS = ("--allow-private-providers=127.0.0.0/8", "--health-interval=0.5", "--ldap-failures=2")


@attrs.frozen
class LdapLogins:
    """The authenticator ``authn-ldap/corp`` of a server, whose people have the passwords ``<login>'s password``.

    ``failures`` returns how many failures the directory counts of a login, or of ``""``, the account that searches; and
    ``open`` or ``locked``.
    """

    server: Server
    service_password: str
    failures: Callable[[str], Answer]

    def login(self, name: str, password: str | None = None, service: str = "corp") -> Answer:
        """Ask for an access token, with the right password unless another is given; a token itself isn't returned."""
        evidence = f"{name}'s password" if password is None else password
        path = f"/authn-ldap/{service}/acme/{quote(name, safe='')}/authenticate"
        answer = ask("POST", f"{self.server.url}{path}", evidence.encode())
        return Answer(answer.status, "" if answer.status == 200 else answer.text)

    def explain(self, name: str, service: str = "corp") -> Answer:
        """Have a login with the right password explained."""
        evidence = f"evidence={quote(name)}%27s+password".encode()
        return self.server.ask("POST", f"/authn-ldap/{service}/acme/{quote(name, safe='')}/explain", evidence)

    def status(self, service: str = "corp") -> Answer:
        """Ask for the status."""
        return self.server.ask("GET", f"/authn-ldap/{service}/acme/status")

    def _guess(self, name: str) -> Answer:
        for _ in range(5):
            self.login(name, "wrong")
        return self.failures(name)

    def _use_old_key(self, name: str, key: str) -> Answer:
        self.server.ask("PUT", f"/authn/acme/api_key?role=user:{name}", b"")
        self.login(name, key)
        return self.failures(name)

    def _mistype(self, name: str) -> Answer:
        """Set the password of the account that searches with a line break, and let some health checks pass."""
        self.server.set("svc/authn-ldap/corp/bind-password", f"{self.service_password}\n")
        answer = self.login(name)
        time.sleep(5)
        return answer

    def rows(self, guessed: str, stranger: str, other: str, key: str) -> Iterator[Row]:
        """Return the cases: guesses at a user and a stranger, another user's old key, the service's password."""
        right = partial(self.server.set, "svc/authn-ldap/corp/bind-password", self.service_password)
        yield Row("guesses at a user", Answer(2, "open"), partial(self._guess, guessed))
        yield Row("guesses at a stranger", Answer(2, "open"), partial(self._guess, stranger))
        yield Row("the right password after them", Answer(401), partial(self.login, guessed))
        yield Row("a key that was replaced", Answer(0, "open"), partial(self._use_old_key, other, key))
        yield Row("a mistyped password of the service", Answer(503), partial(self._mistype, other))
        yield Row("its failures", Answer(1, "open"), partial(self.failures, ""))
        yield Row("its status", Answer(500, '"outcome":"refused"'), self.status)
        yield Row("its failures after that", Answer(1, "open"), partial(self.failures, ""))
        yield Row("an operator asks", Answer(200, "ldap-bind-refused"), partial(self.explain, other))
        yield Row("its failures after that, too", Answer(2, "open"), partial(self.failures, ""))
        yield Row("set right", Answer(201), right)
        yield Row("a person's password again", Answer(200), partial(self.login, other))
