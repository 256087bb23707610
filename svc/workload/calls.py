"""The logic of a client, without a framework: it logs in, stays logged in, reads and writes.

All faults are those of ``svc.workload.faults``. Nothing here is logged, and no fault holds a token or a secret.

Note [Fresh tokens]. A token is renewed when somebody needs one and most of its life is over, at a moment that differs from
client to client, so that those started together don't log in together. While the service can't renew it, it serves to its
end. Its life is counted from before it was requested, by this machine's clock alone. If the service refuses it all the same,
a request logs in again and is sent once more.

Note [Tries]. A request that changes nothing may be sent again: when nothing answered, or the answer broke off, or the
service named a time to try again (503 or 429 with ``Retry-After``). One that changes something is sent again only when it
can't have arrived, or was turned away in this manner. All tries are within one deadline.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlencode

from svc.workload.access_tokens import CachedToken
from svc.workload.address import check_address, encode_path, public_origin
from svc.workload.batches import SecretValues, batch_body, full_id, parse_batch, split_batches
from svc.workload.evidence import Evidence
from svc.workload.faults import (
    BadAnswer,
    Fault,
    LoginRefused,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    Unavailable,
    Unexpected,
    Unreachable,
    ValueChanged,
)
from svc.workload.replies import Reply, parse_json
from svc.workload.requester import Requester

#: Seconds for a request, bytes of an answer, and tries of a request (Note [Tries]), at the most.
DEADLINE: Final = 30.0
ANSWER_LIMIT: Final = 64 * 1024 * 1024
TRIES: Final = 4

#: The statuses after which the same request may succeed: unavailable, busy, or too many requests.
_RETRY_STATUSES: Final = {503, 429}

#: Seconds before the second try; each pause is twice the one before, and up to twice as long again by chance.
_BACKOFF: Final = 0.25

#: The most ids that a login may read (SEC-43), and bytes of their list, since a proxy before the service may take no more.
_LOGIN_IDS: Final = 100
_LIST_LIMIT: Final = 7 * 1024

_BASE64: Final = {"Accept-Encoding": "base64"}
_JSON: Final = {"Content-Type": "application/json"}


class Calls:
    """One server, one account and one role, whose proof of identity is ``evidence``.

    ``access_token`` is one that is at hand already, and serves until the service refuses it. ``deadline`` is for each
    request, in seconds. ``chance`` returns random numbers of [0, 1). Methods may be called by many at once.
    """

    def __init__(
        self,
        url: str,
        account: str,
        evidence: Evidence,
        requester: Requester,
        *,
        access_token: str | None = None,
        deadline: float = DEADLINE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        check_address(url, "the address of the service")
        self._url, self._account, self._evidence = url.rstrip("/"), account, evidence
        self._requester, self._deadline, self._chance = requester, deadline, chance
        self._token = None if access_token is None else CachedToken(access_token)
        self._login = requester.shared(self._log_in)

    async def secret(self, variable: str, version: int | None = None) -> bytes:
        """Read the value of a variable, such as ``ci/database/password``: the newest, unless a version is given.

        :raises NotFound: there is no value for this role.
        :raises NotPermitted: the role sees the variable, but may not read it.
        :raises Fault: the role can't log in, or the service can't be reached.
        """
        path = self._variable_path(variable)
        return (await self._send_read("GET", path if version is None else f"{path}?version={version}", variable)).body

    async def secrets(self, variables: Iterable[str]) -> dict[str, bytes]:
        """Read the newest values of several variables, all of them or none, with one request unless there are very many.

        :raises Fault: as ``secret`` does.
        """
        values: dict[str, bytes] = {}
        for piece in split_batches(self._account, list(dict.fromkeys(variables))):
            values |= await self._read_piece(piece)
        return values

    async def batch(self, variables: Iterable[str], *, partial: bool = False, tag: str | None = None) -> SecretValues:
        """Read up to 10,000 variables with one request (SEC-37), whose values fit together if they are up to 1,000.

        :param partial: return what can be read although something can't, which is in ``errors``.
        :param tag: that of the batch that is at hand; while it is still that of the values, the answer is ``unchanged`` and
            has none.
        :raises Fault: as ``secret`` does, if not partial.
        """
        asked = list(dict.fromkeys(variables))
        if not asked:
            return SecretValues()
        condition = {} if tag is None else {"If-None-Match": tag}
        body = batch_body(self._account, asked, partial=partial)
        reply = await self._send_read("POST", "/secrets/batch", ", ".join(asked), body, {**_BASE64, **_JSON, **condition})
        if reply.status == HTTPStatus.NOT_MODIFIED:
            return SecretValues(tag=tag, unchanged=True)
        return self._parse_batch(asked, reply)

    async def log_in_and_read(self, variables: Iterable[str], *, partial: bool = False) -> SecretValues:
        """Log in and read variables with one request (SEC-43); the login serves later requests.

        Beyond 100 variables, and for ids with a comma, a second request reads the rest.

        :raises Fault: as ``secret`` does, if not partial.
        """
        asked = list(dict.fromkeys(variables))
        listed: list[str] = []
        size = 0
        for variable in asked:
            size += len(self._quote_full_id(variable)) + 3
            if "," not in variable and len(listed) < _LOGIN_IDS and size <= _LIST_LIMIT:
                listed.append(variable)
        if not listed:
            return await self.batch(asked, partial=partial)
        query = "secrets=" + "%2C".join(map(self._quote_full_id, listed)) + ("&partial=true" if partial else "")
        reply = await self._present_evidence(query, ", ".join(listed))
        try:
            read = parse_batch(self._account, listed, reply)
        except ValueError:
            raise self._bad_values() from None
        chosen = set(listed)
        rest = await self.batch([each for each in asked if each not in chosen], partial=partial)
        return SecretValues({**read.values, **rest.values}, {**read.errors, **rest.errors})

    async def set_secret(
        self, variable: str, value: bytes, *, if_match: str | None = None, create_only: bool = False
    ) -> str | None:
        """Set the value of a variable, which keeps older ones; return the tag of the new value.

        :param if_match: replace only the value of this tag.
        :param create_only: set only a first value.
        :raises ValueChanged: the value is another one, or there is one.
        :raises Fault: as ``secret`` does. After ``Unreachable`` with ``connected``, and after ``Unexpected`` that is
            ``uncertain``, the value may have been set.
        """
        demands = {"If-None-Match": "*"} if create_only else {} if if_match is None else {"If-Match": if_match}
        headers = {"Content-Type": "application/octet-stream", **demands}
        reply = await self._send_authenticated("POST", self._variable_path(variable), value, headers, changes=True)
        if reply.is_outcome_unknown or not reply.is_from_service:
            raise self._fault_of(reply, changes=True)
        if reply.status == HTTPStatus.PRECONDITION_FAILED:
            raise ValueChanged(variable, reply.headers.get("etag"), reply.request_id)
        return self._check_status(reply, variable, "update", 201).headers.get("etag")

    async def whoami(self) -> dict[str, Any]:
        """Return what the service knows of the caller: ``account``, ``username``, ``client_ip``, ``token_issued_at``.

        :raises Fault: as ``secret`` does.
        """
        caller = self._parse_json(await self._send_read("GET", "/whoami", "the caller"))
        if not isinstance(caller, dict):
            raise BadAnswer(public_origin(self._url), "an object")
        return caller

    async def resources(
        self, kind: str | None = None, *, search: str | None = None, limit: int | None = None, offset: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the resources of the account that the role sees, as the service describes them.

        :param kind: resources of this kind alone, such as ``variable``.
        :raises Fault: as ``secret`` does.
        """
        path = encode_path("resources", self._account, *filter(None, (kind,)))
        given = {"search": search, "limit": limit, "offset": offset}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        resources = self._parse_json(await self._send_read("GET", f"{path}?{query}" if query else path, "the resources"))
        if not isinstance(resources, list):
            raise BadAnswer(public_origin(self._url), "a list of resources")
        return resources

    async def access_token(self) -> str:
        """Return an access token with some life left, in base64 as in the header ``Authorization: Token token="…"``.

        :raises Fault: there is none to be had.
        """
        token = self._token
        if token is not None and self._requester.seconds() < token.renew_at:
            return token.text
        try:
            return (await self._login.result()).text
        except (Unreachable, Unavailable):
            if token is None or self._requester.seconds() >= token.ends_at:
                raise
            return token.text

    def refused(self, token: str) -> None:
        """Forget a token that the service takes no more, so that the next request logs in."""
        if self._token is not None and self._token.text == token:
            self._token = None

    async def _log_in(self) -> CachedToken:
        reply = await self._present_evidence("", "")
        assert self._token is not None, reply
        return self._token

    async def _present_evidence(self, query: str, asked: str) -> Reply:
        """Log in, keep the token, and return the answer; with a query, it has what was ``asked``, too."""
        login = await self._evidence.login(self._account)
        path = encode_path(*login.segments) + (f"?{query}" if query else "")
        began = self._requester.seconds()

        async def fresh_body() -> bytes:
            """Return a proof that can't have been used: some admit once, and the first may have arrived."""
            return (await self._evidence.login(self._account)).body

        reply = await self._send_with_retries(
            "POST", path, login.body, {"Content-Type": login.content_type, **_BASE64}, fresh_body
        )
        if not reply.is_from_service:
            raise self._fault_of(reply)
        if query and reply.status in {403, 404}:
            # The login was good, and what it would read is refused (SEC-45).
            raise NotPermitted(asked, reply.request_id) if reply.status == 403 else self._not_found(asked, reply)
        if reply.status in {401, 403}:
            raise LoginRefused(self._evidence.what, self._account, reply.status, reply.request_id)
        if reply.status != 200:
            raise self._fault_of(reply)
        self._check_base64(reply)
        try:
            text = parse_json(reply.body)["token"] if query else reply.body.decode("ascii")
            self._token = CachedToken.parse(text, began, self._chance())
        except (ValueError, KeyError, TypeError):
            raise BadAnswer(public_origin(self._url), "an access token") from None
        return reply

    async def _read_piece(self, variables: list[str]) -> Mapping[str, bytes]:
        """Read these with one request, or with several when the service finds them too long for one."""
        try:
            return (await self.batch(variables)).values
        except Unexpected as fault:
            if fault.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            if len(variables) == 1:
                return {variables[0]: await self.secret(variables[0])}
            half = len(variables) // 2
            return {**await self._read_piece(variables[:half]), **await self._read_piece(variables[half:])}

    def _parse_batch(self, asked: list[str], reply: Reply) -> SecretValues:
        self._check_base64(reply)
        try:
            return parse_batch(self._account, asked, reply)
        except ValueError:
            raise self._bad_values() from None

    def _bad_values(self) -> Fault:
        return BadAnswer(public_origin(self._url), "what was asked for, in base64")

    def _variable_path(self, variable: str) -> str:
        return encode_path("secrets", self._account, "variable", variable)

    def _quote_full_id(self, variable: str) -> str:
        return quote(full_id(self._account, variable), safe="")

    async def _send_read(
        self, method: str, path: str, asked: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Read what is ``asked`` in the message of a refusal."""
        return self._check_status(await self._send_authenticated(method, path, body, headers), asked, "execute", 200, 304)

    async def _send_authenticated(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        changes: bool = False,
    ) -> Reply:
        """Send a request with a token, and again with a fresh one if it is refused (Note [Fresh tokens])."""
        for last in (False, True):
            token = await self.access_token()
            named = {"Authorization": f'Token token="{token}"', **(headers or {})}
            reply = await self._send_with_retries(method, path, body, named, changes=changes)
            if reply.status != 401 or not reply.is_from_service or last:
                break
            self.refused(token)
        return reply

    def _check_status(self, reply: Reply, asked: str, privilege: str, *statuses: int) -> Reply:
        if not reply.is_from_service:
            raise self._fault_of(reply)
        if reply.status in statuses:
            return reply
        match reply.status:
            case 401:
                raise NotAuthenticated(public_origin(self._url), reply.request_id)
            case 403:
                raise NotPermitted(asked, reply.request_id, privilege)
            case 404:
                raise self._not_found(asked, reply)
        raise self._fault_of(reply)

    async def _send_with_retries(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        renewed: Callable[[], Awaitable[bytes]] | None = None,
        *,
        changes: bool = False,
    ) -> Reply:
        """Send a request (Note [Tries]); further tries have the body that ``renewed`` returns."""
        ends = self._requester.seconds() + self._deadline
        for number in range(TRIES):
            if number and renewed is not None:
                body = await renewed()
            left = ends - self._requester.seconds()
            again = 0.0
            try:
                reply = await self._requester.ask(method, self._url + path, body, headers, within=left)
            except Unreachable as unreachable:
                if changes and unreachable.connected:
                    raise
                fault: Fault = unreachable
            else:
                if (
                    reply.status not in _RETRY_STATUSES
                    or reply.retry_after is None
                    or (changes and reply.is_outcome_unknown)
                ):
                    return reply
                fault, again = self._fault_of(reply), reply.retry_after
            pause = again + _BACKOFF * 2**number * (1 + self._chance())
            if number == TRIES - 1 or self._requester.seconds() + pause >= ends:
                raise fault
            await self._requester.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _check_base64(self, reply: Reply) -> None:
        """Without this header the answer is plain (SEC-15), and many a plain text can be read as base64 too.

        :raises BadAnswer: the answer doesn't say that it is in base64.
        """
        if reply.headers.get("content-encoding", "").strip().lower() != "base64":
            hint = "does a proxy on the way drop the header Accept-Encoding or Content-Encoding, or is this another service?"
            raise BadAnswer(public_origin(self._url), "in base64, as it was asked for", hint)

    def _parse_json(self, reply: Reply) -> Any:
        try:
            return parse_json(reply.body)
        except ValueError:
            raise BadAnswer(public_origin(self._url), "JSON") from None

    @staticmethod
    def _not_found(asked: str, reply: Reply) -> Fault:
        return NotFound(asked, reply.error_message, reply.request_id)

    def _fault_of(self, reply: Reply, *, changes: bool = False) -> Fault:
        place, uncertain = public_origin(self._url), changes and reply.is_outcome_unknown
        if reply.status in _RETRY_STATUSES and not uncertain:
            return Unavailable(place, reply.retry_after, reply.status, reply.request_id, reply.is_from_service)
        return Unexpected(
            place,
            reply.status,
            reply.error_message,
            reply.request_id,
            reply.is_from_service,
            uncertain,
            reply.redirect_target,
        )
