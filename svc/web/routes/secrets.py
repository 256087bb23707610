"""Secrets: the values of variables, set and read."""

from __future__ import annotations

import binascii
import contextlib
import functools
import re
from typing import Final

import attrs

from svc.crypto.vault import Vault
from svc.model.authorization import Allowed, demand, demand_value, use
from svc.model.credentials import same_key
from svc.model.errors import (
    InvalidName,
    InvalidParameter,
    NotFound,
    NotText,
    NoValue,
    RouteNotFound,
    TooLarge,
    WrongDataKey,
)
from svc.model.expiration import IExpirations
from svc.model.names import ResourceName
from svc.model.ports import ISecrets
from svc.model.query_results import Sealed, SecretReading
from svc.web.http.preconditions import Preconditions, tagged
from svc.web.http.response import Response
from svc.web.http.routing import REQUIRED, Call, Routes
from svc.web.routes import auditing

#: The content type of a secret whose variable doesn't say another.
_ANY: Final = "application/octet-stream"

#: What a content type may be (RFC 9110 8.3.1): policy may say anything, and browsers make something of anything.
_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_TYPE: Final = re.compile(rf'{_TOKEN}/{_TOKEN}(?:[ \t]*;[ \t]*{_TOKEN}=(?:{_TOKEN}|"[ !\x23-\x5b\x5d-\x7e]*"))*')
_TYPE_LIMIT: Final = 255

#: How much one request reads of several secrets: how many, and of how many bytes, sealed. All of it is opened and written at
#: once, while others wait.
BATCH_MOST: Final = 1000
BATCH_BYTES: Final = 1024 * 1024

#: How many ids are remembered with the names that they are.
_REMEMBERED: Final = 1024

#: How many bytes stand in a line of base64: 60 characters (wire facts, core 4).
_LINE: Final = 45


@attrs.frozen
class Secrets:
    """The routes of secrets (wire facts, core 4)."""

    routes = Routes()

    store: ISecrets
    expirations: IExpirations
    vault: Vault

    @routes.add("GET", "/secrets/<flat:account>/variable/<tail:identifier>", caller=REQUIRED, audit=auditing.fetched)
    async def read(self, call: Call, account: str, identifier: str) -> Response:
        """Read a value: the newest, or the one of ``version``; the caller needs ``execute``.

        Who knows it already, by its tag, is told so, and nobody else (RFC 9110 13.2.1: conditions come last).
        """
        variable = ResourceName.of(account, "variable", identifier)
        version, preconditions = call.query.integer("version"), Preconditions.of(call)
        reading = await self.store.read(call.caller, variable, version)
        demand_value(reading.standing, "execute", variable)
        tag = self._tag(reading.version, reading.sealed)
        if tag is not None and preconditions.fresh(tag):
            return Response.empty(304, tagged(tag))
        value = self._value(variable, reading)
        headers = (("Content-Disposition", "attachment"), *(tagged(tag) if tag else ()))
        return Response.content(value, _content_type(reading.mime_type), headers=headers)

    @routes.add("GET", "/secrets", caller=REQUIRED, audit=auditing.fetched_several)
    async def read_several(self, call: Call) -> Response:
        """Read the newest values of several resources, as an object by their full ids; the caller needs ``execute`` on each.

        One that is seen without ``execute`` is told first, then one that isn't seen, then one without a value. An id that is
        repeated counts once (wire facts, core 4 and 10; rulings 2.18). Values that are too long together come last: 413.
        """
        asked = _ids(call.query.text("variable_ids"))
        if len(asked) > BATCH_MOST:
            raise InvalidParameter("variable_ids", f"'variable_ids' may name at most {BATCH_MOST} secrets at once")
        call.tell(resources=asked)
        names = {text: name for text in asked if (name := _name(text)) is not None}
        readings = await self.store.read_all(call.caller, tuple(names.values()), BATCH_BYTES)
        seen: dict[str, SecretReading] = {}
        for (text, name), reading in zip(names.items(), readings, strict=True):
            with contextlib.suppress(NotFound):
                demand(reading.standing, "execute", name)
                seen[text] = reading
        for text in asked:
            if text not in seen:
                raise NoValue(text)
        for text, reading in seen.items():
            if reading.version is None or reading.ended_at is not None:
                raise NoValue(str(names[text]), reading.ended_at)
        if any(reading.sealed is None for reading in seen.values()):
            raise TooLarge("all secrets that are read at once, sealed and together,", BATCH_BYTES)
        values = {text: self._value(names[text], reading) for text, reading in seen.items()}
        if (call.header("Accept-Encoding") or "").strip().lower() == "base64":
            encoded = {text: _in_lines(value) for text, value in values.items()}
            return Response.json(encoded, headers=(("Content-Encoding", "base64"),))
        return Response.json({text: _text(text, value) for text, value in values.items()})

    @routes.add("POST", "/secrets/<flat:account>/variable/<tail:identifier>", caller=REQUIRED, audit=auditing.updated)
    async def write(self, call: Call, account: str, identifier: str) -> Response:
        """Set the value, which is the raw body; the caller needs ``update``. An unchanged value makes no new version.

        That tells whether the body is the value, by the tag of the answer and by the variable's versions. So it holds for
        those who may read the value alone: what others write is a new version, whatever it is.

        What the request demands of the value that it replaces is decided while other writers wait. With ``expirations`` no
        value is set, and those that there are don't end any more; what is rotated is rotated soon.
        """
        if call.query.flag("expirations"):
            return await self.clear_expirations(call, account, "variable", identifier)
        variable = ResourceName.of(account, "variable", identifier)
        value, preconditions = call.body, Preconditions.of(call)
        kept: SecretReading | None = None
        sealed: Sealed | None = None

        def decide(reading: SecretReading) -> Sealed | None:
            nonlocal kept, sealed
            demand(reading.standing, "update", variable)
            if not value.strip():
                raise InvalidParameter("value", "'value' may not be empty")
            preconditions.demand(self._tag(reading.version, reading.sealed))
            kept = reading
            readable = use(reading.standing, "execute") == Allowed()
            if readable and reading.sealed is not None and self._is(value, variable, reading.sealed):
                sealed = None
            else:
                sealed = self.vault.seal(str(variable), value)
            return sealed

        version = await self.store.write(call.caller, variable, decide, call.trail)
        assert kept is not None
        tag = self._tag(kept.version, kept.sealed) if sealed is None else self._tag(version, sealed)
        return Response.empty(201, tagged(tag) if tag else ())

    @routes.add(
        "POST", "/secrets/<flat:account>/<kind>/<tail:identifier>", caller=REQUIRED, audit=auditing.expirations_cleared
    )
    async def clear_expirations(self, call: Call, account: str, kind: str, identifier: str) -> Response:
        """Have no value end, and what is rotated be rotated soon; only variables have such values (core 4)."""
        if not call.query.flag("expirations"):
            raise RouteNotFound("POST", f"/secrets/{account}/{kind}/{identifier}")
        if kind != "variable":
            raise InvalidParameter("kind", f"Invalid secret kind: {kind[:40]}")
        variable = ResourceName.of(account, kind, identifier)
        await self.expirations.clear(
            call.caller, variable, lambda standing: demand(standing, "update", variable), call.trail
        )
        return Response.empty(201)

    def _tag(self, version: int | None, sealed: Sealed | None) -> str | None:
        """The entity tag of a value: its version, and what tells it from one of the same number in another life.

        It is strong, the same on every server, and lasts as long as the value is kept as it is.
        """
        return None if sealed is None else f'"{version}-{self.vault.fingerprint(sealed)}"'

    def _value(self, name: ResourceName, reading: SecretReading) -> bytes:
        if reading.sealed is None:
            raise NoValue(str(name), reading.ended_at)
        return self.vault.open(str(name), reading.sealed)

    def _is(self, value: bytes, variable: ResourceName, sealed: Sealed) -> bool:
        try:
            return same_key(self.vault.open(str(variable), sealed), value)
        except WrongDataKey:
            # A value that can't be read any more can still be replaced.
            return False


def _content_type(annotated: str | None) -> str:
    """The content type that policy gives, if it is one; no header can be forged with what isn't."""
    fits = annotated is not None and len(annotated) <= _TYPE_LIMIT and _TYPE.fullmatch(annotated)
    return annotated if annotated is not None and fits else _ANY


def _ids(listed: str | None) -> list[str]:
    """The full ids of a list that commas separate, each once; commas at the end don't count."""
    ids = (listed or "").rstrip(",").split(",")
    if not all(text.strip() for text in ids):
        raise InvalidParameter("variable_ids", "variable_ids")
    return list(dict.fromkeys(ids))


@functools.lru_cache(_REMEMBERED)
def _name(text: str) -> ResourceName | None:
    """The resource of a full id; ``None`` when none can have that id. The same are asked for again and again."""
    try:
        return ResourceName.parse(text)
    except InvalidName:
        return None


def _in_lines(value: bytes) -> str:
    pieces = (value[start : start + _LINE] for start in range(0, len(value), _LINE))
    return b"".join(map(binascii.b2a_base64, pieces)).decode("ascii")


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise NotText(name) from None
