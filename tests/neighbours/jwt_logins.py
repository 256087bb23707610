"""Logins at one JWT authenticator of a server, and what its operators are answered."""

from __future__ import annotations

import socket
from urllib.parse import urlencode

import attrs

from tests.neighbours.server import Server, ask
from tests.neighbours.table import Answer

#: The variables that say where keys come from, and what they are for.
_VARIABLES = ("jwks-uri", "provider-uri", "public-keys", "jwks-token", "algorithms", "issuer")


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@attrs.frozen
class JwtLogins:
    """The authenticator ``authn-jwt/<service>`` of a server."""

    server: Server
    service: str

    @property
    def _branch(self) -> str:
        return f"svc/authn-jwt/{self.service}"

    def declare(self, **values: str) -> None:
        """Declare and set these variables in the place of all others that say where keys come from."""
        gone = "".join(f"    - !variable {self._branch}/{name}\n" for name in _VARIABLES)
        removal = f"- !delete\n  records:\n{gone}".encode()
        self.server.ask("PATCH", f"/policies/{self.server.account}/policy/root", removal)
        self.set(**values)

    def set(self, **values: str) -> None:
        """Declare variables, and set them; underscores stand for dashes."""
        named = {name.replace("_", "-"): value for name, value in values.items()}
        body = "".join(f"    - !variable {name}\n" for name in named)
        loaded = self.server.load(f"- !policy\n  id: {self._branch}\n  body:\n{body}")
        if loaded.status != 201:
            raise RuntimeError(f"the policy isn't loaded: {loaded}")
        for name, value in named.items():
            self.server.set(f"{self._branch}/{name}", value)

    def login(self, token: str) -> Answer:
        """Log in."""
        path = f"/authn-jwt/{self.service}/{self.server.account}/authenticate"
        return ask("POST", f"{self.server.url}{path}", urlencode({"jwt": token}).encode())

    def status(self) -> Answer:
        """Ask for the status."""
        return self.server.command("authenticator", "status", f"authn-jwt/{self.service}")

    def refresh(self) -> Answer:
        """Have the keys fetched again."""
        return self.server.command("authenticator", "refresh-keys", f"authn-jwt/{self.service}")
