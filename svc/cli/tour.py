"""The quickstart's steps: the service's main job, over HTTP alone, each with the ``curl`` line that does the same."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlencode

import attrs
import click

from svc.cli.connection import Answer, Connection
from svc.cli.provider import Provider

#: The ``<service-id>`` of the sample policy's authenticator.
SERVICE_ID: Final = "quickstart"

#: The ``aud`` that its tokens must carry.
AUDIENCE: Final = "svc-quickstart"

_AUTHENTICATOR: Final = f"svc/authn-jwt/{SERVICE_ID}"
_SECRET: Final = "workloads/database/password"


@attrs.frozen
class Token:
    """An access token, and the name of the shell variable that the shown lines keep it in."""

    name: str
    text: str = attrs.field(repr=False)


@attrs.define
class Tour:
    """The steps, in order. ``refusals`` returns what the server's log has said of refused logins so far.

    ``wrong`` counts the answers that were not the expected ones.
    """

    connection: Connection
    provider: Provider
    keys_uri: str
    admin_key: str = attrs.field(repr=False)
    policy: bytes
    policy_path: str
    refusals: Callable[[], list[str]]
    wrong: int = attrs.field(default=0, init=False)
    _step: int = attrs.field(default=0, init=False)

    async def walk(self) -> None:
        """Take all steps."""
        admin = await self._admin_logs_in()
        await self._policy_is_loaded(admin)
        await self._variables_are_set(admin)
        token = await self._workload_logs_in()
        await self._workload_reads_the_secret(token)
        await self._another_is_refused()
        await self._health_is_asked()
        await self._members_are_listed(admin)

    async def _admin_logs_in(self) -> Token:
        self._say("The account's admin exchanges his API key for an access token, which lives for some minutes")
        path = f"/authn/{self.connection.account}/admin/authenticate"
        answer = await self._send("POST", path, self.admin_key.encode(), body_as='"$ADMIN_KEY"', kept_as="ADMIN_TOKEN")
        self._expect(answer, 200, "")
        return Token("ADMIN_TOKEN", answer.body.decode("ascii", "replace"))

    async def _policy_is_loaded(self, token: Token) -> None:
        self._say("The admin loads a policy: an authenticator, two workloads, a secret, and who may do what")
        path = f"/policies/{self.connection.account}/policy/root"
        answer = await self._send("POST", path, self.policy, token, body_as=f"@{shlex.quote(self.policy_path)}")
        self._expect(answer, 201, '"version"')

    async def _variables_are_set(self, token: Token) -> None:
        self._say("The admin says where the JWT provider's keys are and what its tokens must say, and sets the secret")
        values = {
            f"{_AUTHENTICATOR}/jwks-uri": self.keys_uri,
            f"{_AUTHENTICATOR}/issuer": self.provider.issuer,
            f"{_AUTHENTICATOR}/audience": AUDIENCE,
            f"{_AUTHENTICATOR}/token-app-property": "workload",
            f"{_AUTHENTICATOR}/identity-path": "workloads",
            _SECRET: "correct horse battery staple",
        }
        for name, value in values.items():
            self._expect(
                await self._send("POST", self._variable(name), value.encode(), token, body_as=shlex.quote(value)), 201, ""
            )

    async def _workload_logs_in(self) -> Token:
        self._say("The workload `billing` got a JWT from the provider, and exchanges it for an access token")
        answer = await self._present(
            {"workload": "billing", "repository": "acme/billing", "environment": "production"}, "JWT", "TOKEN"
        )
        self._expect(answer, 200, "")
        return Token("TOKEN", answer.body.decode("ascii", "replace"))

    async def _workload_reads_the_secret(self, token: Token) -> None:
        self._say("With the access token, the workload reads the secret")
        self._expect(await self._send("GET", self._variable(_SECRET), None, token), 200, "correct horse battery staple")

    async def _another_is_refused(self) -> None:
        self._say(
            "The workload `reporting` comes from `staging`, where its policy says `production`: it learns nothing but 401"
        )
        before = len(self.refusals())
        answer = await self._present(
            {"workload": "reporting", "repository": "acme/reporting", "environment": "staging"}, "OTHER_JWT", ""
        )
        self._expect(answer, 401, "")
        reasons = self.refusals()[before:]
        for reason in reasons:
            click.echo(f"  the server's log tells the operator why:\n  {click.style(reason, fg='yellow')}")
        if not any("claim-mismatch" in reason for reason in reasons):
            self._missed("the log should have said why")

    async def _health_is_asked(self) -> None:
        self._say("Monitoring asks for the server's health, without a login")
        self._expect(await self._send("GET", "/health", None), 200, '"ok"')

    async def _members_are_listed(self, token: Token) -> None:
        self._say("An operator asks who may use the authenticator: the members of its group `apps`")
        group = self.connection.segment(f"{_AUTHENTICATOR}/apps")
        path = f"/roles/{self.connection.account}/group/{group}?members"
        self._expect(await self._send("GET", path, None, token), 200, "workloads/jwt-apps")

    async def _present(self, claims: Mapping[str, str], jwt_name: str, token_name: str) -> Answer:
        path = f"/authn-jwt/{SERVICE_ID}/{self.connection.account}/authenticate"
        jwt = self.provider.token(claims, AUDIENCE, self.connection.reactor.seconds())
        click.echo(f"  The JWT says {json.dumps(claims)}.")
        click.echo("  " + click.style(f"{jwt_name}={jwt}", fg="cyan"))
        body = urlencode({"jwt": jwt}).encode()
        return await self._send("POST", path, body, body_as=f'"jwt=${jwt_name}"', kept_as=token_name)

    def _variable(self, identifier: str) -> str:
        return f"/secrets/{self.connection.account}/variable/{self.connection.segment(identifier)}"

    # -- one request, shown and judged --------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._step += 1
        click.echo(f"\n{click.style(f'{self._step}. {text}.', bold=True)}")

    async def _send(
        self, method: str, path: str, body: bytes | None, token: Token | None = None, *, body_as: str = "", kept_as: str = ""
    ) -> Answer:
        """Send a request. ``body_as`` is its body as a shell writes it, ``kept_as`` the variable for the token it gets."""
        parts, headers = ["curl", "-sS"], {}
        if method != "GET":
            parts += ["-X", method]
        if kept_as:
            headers["accept_encoding"] = "base64"
            parts += ["-H", "'Accept-Encoding: base64'"]
        if token:
            headers["authorization"] = f'Token token="{token.text}"'
            parts += ["-H", f'"Authorization: Token token=\\"${token.name}\\""']
        if body_as:
            parts += ["--data-binary", body_as]
        line = " ".join([*parts, shlex.quote(f"{self.connection.url}{path}")])
        click.echo("  " + click.style(f"{kept_as}=$({line})" if kept_as else line, fg="cyan"))
        answer = await self.connection.request(method, path, body, **headers)
        click.echo(f"  {answer.status} {_shown(answer)}".rstrip())
        return answer

    def _expect(self, answer: Answer, status: int, part: str) -> None:
        if answer.status != status:
            self._missed(f"expected the status {status}")
        elif part not in answer.body.decode("utf-8", "replace"):
            self._missed(f"expected an answer that holds {part}")

    def _missed(self, what: str) -> None:
        self.wrong += 1
        click.secho(f"  This is not as it should be: {what}.", fg="red")


def _shown(answer: Answer) -> str:
    """The body as a person reads it: JSON indented, a token shortened."""
    text = answer.body.decode("utf-8", "replace")
    if answer.headers.get("content-encoding") == "base64":
        token = json.loads(base64.b64decode(text))
        claims = json.loads(base64.b64decode(token["payload"]))
        return f"{text[:24]}…{text[-8:]}  (an access token that says {json.dumps(claims)})"
    if answer.headers.get("content-type", "").startswith("application/json"):
        return json.dumps(json.loads(text), indent=2).replace("\n", "\n  ")
    return text
