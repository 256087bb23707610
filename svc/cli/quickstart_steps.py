"""One step of the quickstart after another: each request is shown as the ``curl`` line that does the same, and its answer
checked.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import click

from svc.cli.connection import ApiAnswer, ApiConnection


@attrs.frozen
class Token:
    """An access token, and the name of the shell variable that the shown lines keep it in."""

    name: str
    text: str = attrs.field(repr=False)


@attrs.define
class Steps:
    """Steps at one server. ``refusals`` returns the refused logins in its log; ``mismatches`` counts unexpected answers."""

    connection: ApiConnection
    refusals: Callable[[], list[str]]
    mismatches: int = attrs.field(default=0, init=False)
    _step: int = attrs.field(default=0, init=False)

    def begin_step(self, text: str) -> None:
        """Begin a step."""
        self._step += 1
        click.echo(f"\n{click.style(f'{self._step}. {text}.', bold=True)}")

    def variable_path(self, identifier: str) -> str:
        """Return the path of a variable's value."""
        return self.connection.encode_path("secrets", self.connection.account, "variable", identifier)

    async def send_request(
        self, method: str, path: str, body: bytes | None, token: Token | None = None, *, body_as: str = "", kept_as: str = ""
    ) -> ApiAnswer:
        """Send a request. ``body_as`` is its body as a shell writes it, ``kept_as`` the variable for the token it gets."""
        parts = ["curl", "-sS"]
        headers: dict[str, Any] = {}
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
        click.echo(f"  {answer.status} {_format_body(answer)}".rstrip())
        return answer

    def expect_answer(self, answer: ApiAnswer, status: int, part: str = "") -> None:
        """Check an answer by its status, and by a part of its body."""
        if answer.status != status:
            self.record_mismatch(f"expected the status {status}")
        elif part not in answer.body.decode("utf-8", "replace"):
            self.record_mismatch(f"expected an answer that holds {part}")

    def record_mismatch(self, what: str) -> None:
        """Say what is not as it should be, and count it."""
        self.mismatches += 1
        click.secho(f"  This is not as it should be: {what}.", fg="red")

    async def set_variables(self, values: Mapping[str, str], token: Token) -> None:
        """Set variables, one after the other."""
        for name, value in values.items():
            answer = await self.send_request(
                "POST", self.variable_path(name), value.encode(), token, body_as=shlex.quote(value)
            )
            self.expect_answer(answer, 201)

    async def load_policy(self, policy: bytes, path: str, token: Token) -> None:
        """Load a policy, kept in the file ``path``, into the root policy."""
        where = f"/policies/{self.connection.account}/policy/root"
        answer = await self.send_request("POST", where, policy, token, body_as=f"@{shlex.quote(path)}")
        self.expect_answer(answer, 201, '"version"')

    async def expect_refusal(self, presenting: Awaitable[ApiAnswer]) -> None:
        """Have a login refused, and show the reason in the log: that the token differs from the policy."""
        before = len(self.refusals())
        self.expect_answer(await presenting, 401)
        reasons = self.refusals()[before:]
        for reason in reasons:
            click.echo(f"  the server's log tells the operator why:\n  {click.style(reason, fg='yellow')}")
        if not any("claim-mismatch" in reason for reason in reasons):
            self.record_mismatch("the log should have said why")


def _format_body(answer: ApiAnswer) -> str:
    """Return the body as a person reads it: JSON indented, a token shortened."""
    text = answer.body.decode("utf-8", "replace")
    if answer.headers.get("content-encoding") == "base64":
        token = json.loads(base64.b64decode(text))
        claims = json.loads(base64.b64decode(token["payload"]))
        return f"{text[:24]}…{text[-8:]}  (an access token that says {json.dumps(claims)})"
    if answer.headers.get("content-type", "").startswith("application/json"):
        return json.dumps(json.loads(text), indent=2).replace("\n", "\n  ")
    return text
