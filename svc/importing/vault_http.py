"""Requests to a server of Vault or OpenBao: what its answers mean, and when they end the reading.

Note [Read only]. Nothing here changes anything there, but for a login by AppRole, which makes a token, and the end of that
token. One that may be used a limited number of times loses a use with each request; so a token is looked up first.
Namespaces stand in paths, since a header can't have all of their names.

Note [Two refusals]. A token that has ended gets 403 with ``permission denied`` and nothing else, for every path, and ends
the reading. One that lacks a right gets these words as one of several errors: that path is not seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final

import attrs

from svc.importing.inventory import SourceStopped, refuse_certificate
from svc.importing.vault_json import Json, integer_of, object_of, read_json
from svc.model.text import blank_unprintable
from svc.workload.address import encode_path, public_origin
from svc.workload.faults import Fault, Unreachable, Untrusted
from svc.workload.replies import Reply
from svc.workload.requester import Requester

#: How long an answer may take, in seconds: lists can have tens of thousands of names.
DEADLINE: Final = 60.0

#: How often a request is sent that isn't served for the moment, and the pauses between, in seconds, which double.
TRIES: Final = 8
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 20.0

#: A token needs so many uses and seconds at least.
USES_LEAST: Final = 1000
SECONDS_LEAST: Final = 300

_DEAD: Final = ["permission denied"]
_AGAIN: Final = "run the same command again: it goes on where it stopped"
_NEW_TOKEN: Final = "go on with a new token: run the same command again with it"


@attrs.frozen
class Refused:
    """The token has no right to this."""


@attrs.frozen
class Absent:
    """There is nothing there, or no such route."""

    errors: tuple[str, ...] = ()
    data: Json = None


@attrs.frozen
class Locked:
    """The namespace is locked."""


@attrs.frozen
class Found:
    """An answer with data, and the second since 1970 by the server's clock, if it sends one."""

    data: dict[str, Json] = attrs.field(repr=False)
    at: float | None


Outcome = Refused | Absent | Locked | Found


def encode_segments(path: str) -> str:
    """Return a path as it is written in a URL, each of its segments encoded by itself and nothing normalised."""
    return encode_path(*path.split("/"))[1:]


class VaultConnection:
    """One server, and the token to read with. ``uses`` counts requests, for tokens whose uses are counted there."""

    def __init__(self, url: str, requester: Requester, token: str = "") -> None:
        self.url, self._requester, self._token = url.rstrip("/"), requester, token
        self.uses = 0

    def __repr__(self) -> str:
        return f"VaultConnection({self.place!r})"

    @property
    def place(self) -> str:
        """Return the address, without what may be a secret in it."""
        return public_origin(self.url)

    async def read(self, path: str, namespace: str = "", *, method: str = "GET", query: str = "") -> Outcome:
        """Ask for a path, whose segments are as they are named, and return what came.

        :raises SourceStopped: nothing can be read any more, or the answer is none of Vault's.
        """
        reply = await self._send(method, f"{encode_segments(namespace + path)}{query}", None)
        return self._outcome_of(reply, path)

    async def list_names(self, path: str, namespace: str = "") -> tuple[str, ...] | Refused | Locked:
        """Return the names that a list of a path has, sorted; an absent list is an empty one."""
        outcome = await self.read(path, namespace, method="LIST")
        if isinstance(outcome, Absent):
            return ()
        return self.names_in(outcome, path) if isinstance(outcome, Found) else outcome

    def names_in(self, found: Found, path: str) -> tuple[str, ...]:
        """Return the names of a list."""
        names = found.data.get("keys") or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.strange(path, "its list has no names")
        return tuple(sorted(set(map(str, names))))

    async def login_by_approle(self, mount: str, role_id: str, secret_id: str, namespace: str = "") -> None:
        """Get a token for a role of AppRole.

        :raises SourceStopped: there is none.
        """
        body = json.dumps({"role_id": role_id, **({"secret_id": secret_id} if secret_id else {})}).encode()
        path = f"{namespace}auth/{mount.strip('/')}/login"
        reply = await self._send("POST", encode_segments(path), body)
        if reply.status in {400, 403, 404}:
            raise SourceStopped(
                f"{self.place} refused the role id or secret id at {path} (status {reply.status})",
                "see whether they are right, and the mount and namespace of AppRole",
            )
        try:
            token = object_of(object_of(read_json(reply.body)).get("auth")).get("client_token")
        except ValueError:
            token = None
        if reply.status != 200 or not isinstance(token, str) or not token:
            raise self.strange(path, f"a login without a token (status {reply.status})")
        self._token = token

    async def end_login(self, namespace: str = "") -> None:
        """Revoke the token that a login of this connection made, as well as it goes."""
        with suppress(Fault):  # it ends by itself
            await self._ask("POST", encode_segments(f"{namespace}auth/token/revoke-self"), None)

    async def check_token(self, namespace: str = "") -> tuple[str, ...]:
        """Look up what the token can still do, and return sentences about it.

        :raises SourceStopped: it has ended, or would too soon; nothing has been read then.
        """
        found = await self.read("auth/token/lookup-self", namespace)
        if not isinstance(found, Found):
            return ("how long the token lasts isn't known: it may not look itself up",)
        try:
            uses, seconds = integer_of(found.data.get("num_uses")), integer_of(found.data.get("ttl"))
        except ValueError:
            raise self.strange("auth/token/lookup-self", "the token has another shape") from None
        if 0 < uses < USES_LEAST or uses < 0:
            raise SourceStopped(
                f"the token has {max(uses, 0)} uses left, each request takes one, and an import takes {USES_LEAST} or more",
                "use a token without num_uses",
            )
        if 0 < seconds < SECONDS_LEAST:
            raise SourceStopped(f"the token ends in {seconds} s", f"use one that lasts at least {SECONDS_LEAST} s")
        sentences = [f"the token ends in {seconds} s"] if seconds else []
        return (*sentences, f"the token has {uses} uses left") if uses else tuple(sentences)

    def strange(self, path: str, why: str) -> SourceStopped:
        """Return the fault of an answer that has another shape; no part of the answer stands in it."""
        shown = blank_unprintable(path[:200])
        return SourceStopped(
            f"the answer of {self.place} about {shown} is strange: {why}", f"see what is there, then {_AGAIN}"
        )

    def _outcome_of(self, reply: Reply, path: str) -> Outcome:
        try:
            body = object_of(read_json(reply.body)) if reply.body else {}
            errors = body.get("errors") or []
            if not isinstance(errors, list):
                raise ValueError
        except ValueError:
            raise self.strange(path, f"no JSON of Vault's (status {reply.status}); is this its address?") from None
        if reply.status == 403:
            if errors == _DEAD:
                raise SourceStopped(f"{self.place} takes the token no more", _NEW_TOKEN)
            return Refused()
        if reply.status == 404:
            return Absent(tuple(str(each)[:200] for each in errors), body.get("data"))
        if reply.status == 405:
            return Refused()  # an operation that this version hasn't, such as SCAN
        if reply.status == 503:
            return Locked()
        if reply.status != 200:
            raise self.strange(path, f"status {reply.status}{self._shown_errors(errors)}{_target_of(reply)}")
        try:
            # A few routes of the system have no envelope.
            data = object_of(body.get("data", body))
        except ValueError:
            raise self.strange(path, "its data is no object") from None
        return Found(data, _seconds_of(reply.headers))

    def _shown_errors(self, errors: list[Any]) -> str:
        text = " ".join(str(each) for each in errors)
        text = text.replace(self._token, "…") if self._token else text
        text = blank_unprintable(text[:200]).strip()
        return f", {text}" if text else ""

    async def _send(self, method: str, path: str, body: bytes | None) -> Reply:
        """Send a request, again after pauses where the server can't serve it for the moment."""
        pause, why = FIRST_PAUSE, ""
        for attempt in range(TRIES):
            if attempt:
                await self._requester.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            try:
                reply = await self._ask(method, path, body)
            except Unreachable as fault:
                why = str(fault)
                continue
            except Untrusted as fault:
                raise refuse_certificate(fault) from None
            except Fault as fault:
                raise SourceStopped(str(fault), _AGAIN) from None
            if not _is_momentary(reply):
                return reply
            why = f"{self.place} can't serve now (status {reply.status}{self._shown_errors(_errors_of(reply))})"
            if (wanted := reply.retry_after) is not None:
                pause = min(max(pause, wanted), LONGEST_PAUSE)
        raise SourceStopped(f"{why}, after {TRIES} tries", f"when it serves again, {_AGAIN}")

    async def _ask(self, method: str, path: str, body: bytes | None) -> Reply:
        headers = {"X-Vault-Request": "true"}
        if self._token:
            headers["X-Vault-Token"] = self._token
        self.uses += 1
        return await self._requester.ask(method, f"{self.url}/v1/{path}", body, headers, within=DEADLINE)


def _is_momentary(reply: Reply) -> bool:
    """Return whether the same request may be answered later; a locked namespace stays locked."""
    if reply.status == 503:
        return b'"locked":true' not in reply.body.replace(b" ", b"")
    return reply.status in {412, 429, 472, 473, 502, 504} or (reply.status == 500 and b"node not" in reply.body)


def _errors_of(reply: Reply) -> list[Any]:
    try:
        errors = object_of(read_json(reply.body)).get("errors")
    except ValueError:
        return []
    return errors if isinstance(errors, list) else []


def _target_of(reply: Reply) -> str:
    return f", which leads to {reply.redirect_target}: name that address" if reply.redirect_target else ""


def _seconds_of(headers: Mapping[str, str]) -> float | None:
    try:
        return parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, TypeError):
        return None
