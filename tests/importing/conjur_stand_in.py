"""A small stand-in for Conjur 1.24, which answers as a real one did where a guess would be wrong.

It has an account ``myorg`` in memory, behind a transport of ``httpx``. A request that changes something there is a fault
of a test.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import attrs
import httpx

ACCOUNT: Final = "myorg"
URL: Final = "https://conjur.example"
KEY: Final = "the-api-key-of-admin"

#: How long a token lasts there, in seconds.
TOKEN_LIFE: Final = 480.0

#: Answers a request in place of the stand-in, or lets it answer.
Intruder = Callable[[httpx.Request], httpx.Response | None]

_EMPTY: Final = httpx.Response(404, json={"error": {"code": "not_found"}})


def full_id(text: str) -> str:
    """The full id of ``kind:id``."""
    return f"{ACCOUNT}:{text}"


@attrs.define
class Resource:
    """A resource, and its role if it has one. ``members``: each with its admin option."""

    owner: str = "user:admin"
    policy: str | None = "policy:root"
    annotations: dict[str, str] = attrs.field(factory=dict)
    permissions: list[tuple[str, str]] = attrs.field(factory=list)
    members: list[tuple[str, bool]] = attrs.field(factory=list)
    restricted_to: list[str] = attrs.field(factory=list)
    layers: list[str] = attrs.field(factory=list)
    tokens: list[dict[str, Any]] = attrs.field(factory=list)
    #: The values by the numbers of their versions.
    values: dict[int, bytes] = attrs.field(factory=dict)


@attrs.define
class StandIn:
    """The server. ``clock`` says how many seconds have gone by; ``requests`` has what it was asked."""

    clock: Callable[[], float] = lambda: 0.0
    resources: dict[str, Resource] = attrs.field(factory=dict)
    enabled: list[str] = attrs.field(factory=lambda: ["authn"])
    version: str | None = "1.24.0"
    #: What the caller doesn't see, and what it may not read.
    hidden: set[str] = attrs.field(factory=set)
    unreadable: set[str] = attrs.field(factory=set)
    intruders: list[Intruder] = attrs.field(factory=list)
    requests: list[httpx.Request] = attrs.field(factory=list)
    logins: int = 0
    _tokens: dict[str, float] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        """Make what every account has."""
        self.resources["policy:root"] = Resource(policy=None)
        self.resources["user:admin"] = Resource(policy=None, members=[("user:admin", True)])

    def add(self, *names: str, **attributes: Any) -> None:
        """Make resources."""
        for name in names:
            self.resources[name] = Resource(**attributes)

    def set_values(self, name: str, *values: bytes, first: int = 1, **attributes: Any) -> None:
        """Make a variable with these values."""
        self.add(f"variable:{name}", values=dict(enumerate(values, first)), **attributes)

    def asked(self, route: str = "") -> list[str]:
        """What it was asked for, below a route."""
        return [path for each in self.requests if (path := each.url.raw_path.decode()).startswith(route)]

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        self.requests.append(request)
        for intruder in list(self.intruders):
            if (answered := intruder(request)) is not None:
                return answered
        path, _, query = request.url.raw_path.decode().partition("?")
        segments = [unquote(each) for each in path.split("/")[1:]]
        asked = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
        if segments == ["authenticators"]:
            return httpx.Response(200, json={"installed": ["authn"], "configured": ["authn"], "enabled": self.enabled})
        if segments == [""]:
            text = f"<p>Version {self.version}</p>" if self.version else "<p>hello</p>"
            return httpx.Response(200, text=text, headers={"content-type": "text/html"})
        if segments[0] == "authn" and segments[-1] == "authenticate":
            return self._log_in(request)
        assert request.method == "GET", f"{request.method} {path} changes the source"
        if segments[0] == "public_keys":
            return self._public_keys(segments)
        made = self._tokens.get(_token_of(request))
        if made is None or self.clock() - made > TOKEN_LIFE:
            return httpx.Response(401, text="Unauthorized", headers={"content-type": "text/plain"})
        if segments == ["info"]:
            return httpx.Response(404)
        if segments == ["secrets"]:
            return self._batch(request, asked)
        # A raw slash at the end, or two in a row, lead to no route.
        assert segments[1] == ACCOUNT, path
        if len(segments) == 2:
            return self._list(asked)
        if len(segments) != 4:
            return httpx.Response(404)
        name = f"{segments[2]}:{segments[3]}"
        if name not in self.resources or name in self.hidden:
            return _EMPTY
        shown = {"resources": self._resource, "roles": self._role, "secrets": self._secret}
        return shown[segments[0]](name, asked)

    def _log_in(self, request: httpx.Request) -> httpx.Response:
        if request.content != KEY.encode():
            return httpx.Response(401, headers={"content-type": "text/plain"})
        self.logins += 1
        token = json.dumps({"protected": "p", "payload": str(self.logins), "signature": "s"})
        self._tokens[base64.b64encode(token.encode()).decode()] = self.clock()
        return httpx.Response(200, text=token)

    def _list(self, asked: Mapping[str, str]) -> httpx.Response:
        """List resources in the order of a collation: at most 1,000 without ``limit`` (MOVE-41)."""
        seen = [name for name in self.resources if name not in self.hidden]
        names = [name for name in sorted(seen, key=str.casefold) if asked.get("kind") in {None, name.partition(":")[0]}]
        if "limit" in asked:
            limit = int(asked["limit"])
            if limit > 1000 and limit != 10_000:
                return httpx.Response(422)
        else:
            limit = 10 if "offset" in asked else len(names) if "count" in asked else 1000
        page = names[int(asked.get("offset", 0)) :][:limit]
        if asked.get("count") == "true":
            return httpx.Response(200, json={"count": len(page)})
        return httpx.Response(200, json=[self._show(name) for name in page])

    def _show(self, name: str) -> dict[str, Any]:
        found, kind = self.resources[name], name.partition(":")[0]
        shown: dict[str, Any] = {
            "created_at": "2026-01-01T00:00:00.000+00:00",
            "id": full_id(name),
            "owner": full_id(found.owner),
            "permissions": [
                {"privilege": privilege, "role": full_id(role), "policy": full_id("policy:root")}
                for role, privilege in found.permissions
            ],
            "annotations": [
                {"name": key, "value": value, "policy": full_id("policy:root")} for key, value in found.annotations.items()
            ],
        }
        if found.policy is not None:
            shown["policy"] = full_id(found.policy)
        if kind == "variable":
            shown["secrets"] = [{"version": number, "expires_at": None} for number in found.values]
        if kind == "policy":
            shown["policy_versions"] = [
                {"version": 1, "policy_text": "- !user somebody-who-is-gone", "client_ip": "10.0.0.1"}
            ]
        if kind == "host_factory":
            shown |= {"layers": [full_id(each) for each in found.layers], "tokens": found.tokens}
        return shown

    def _resource(self, name: str, asked: Mapping[str, str]) -> httpx.Response:
        found = self.resources[name]
        if asked.get("permitted_roles"):
            holders = {found.owner, *(role for role, privilege in found.permissions if privilege == asked["privilege"])}
            roles = [each for each in self.resources if holders & self._closure(each)]
            return httpx.Response(200, json=[full_id(each) for each in reversed(roles)])
        shown = self._show(name)
        if name.partition(":")[0] in {"user", "host"}:
            shown["restricted_to"] = found.restricted_to
        return httpx.Response(200, json=shown)

    def _closure(self, name: str) -> set[str]:
        held, waiting = set[str](), {name}
        while waiting:
            held |= waiting
            waiting = {
                role
                for role, found in self.resources.items()
                if waiting & {member for member, _ in self._members(role, found)} and role not in held
            }
        return held

    def _members(self, name: str, found: Resource) -> Iterator[tuple[str, bool]]:
        if name.partition(":")[0] not in {"variable", "webservice", "public_key"}:
            yield from {(found.owner, True), *found.members}
        yield from ((each, True) for each, factory in self.resources.items() if name in factory.layers)

    def _role(self, name: str, asked: Mapping[str, str]) -> httpx.Response:
        if "all" in asked:
            return httpx.Response(200, json=[full_id(each) for each in self._closure(name)])
        found = self.resources[name]
        members = [{"admin_option": True, "ownership": True, "role": full_id(name), "member": full_id(found.owner)}]
        members += [
            {"admin_option": admin, "ownership": False, "role": full_id(name), "member": full_id(member)}
            for member, admin in self._members(name, found)
            if (member, admin) != (found.owner, True) or (member, admin) in found.members
        ]
        return httpx.Response(200, json={"created_at": "x", "id": full_id(name), "members": members})

    def _secret(self, name: str, asked: Mapping[str, str]) -> httpx.Response:
        values = self.resources[name].values
        if name in self.unreadable:
            return httpx.Response(403)
        number = asked.get("version", str(max(values, default=0)))
        if not re.fullmatch("[0-9]+", number):
            return httpx.Response(422)
        if int(number) not in values:
            return _EMPTY
        return httpx.Response(200, content=values[int(number)], headers={"content-type": "text/plain"})

    def _batch(self, request: httpx.Request, asked: Mapping[str, str]) -> httpx.Response:
        """Answer the newest of several, or nothing (MOVE-45)."""
        if len(request.url.query) > 10_240:
            return httpx.Response(400)
        names = [each.partition(":")[2] for each in asked["variable_ids"].split(",")]
        if any(name not in self.resources or not self.resources[name].values for name in names):
            return _EMPTY
        if any(name in self.unreadable for name in names):
            return httpx.Response(403)
        values = {name: self.resources[name].values[max(self.resources[name].values)] for name in names}
        if request.headers.get("accept-encoding") == "base64":
            encoded = {full_id(name): _in_lines(value) for name, value in values.items()}
            return httpx.Response(200, json=encoded, headers={"content-encoding": "base64"})
        try:
            return httpx.Response(200, json={full_id(name): value.decode() for name, value in values.items()})
        except UnicodeDecodeError:
            return httpx.Response(406, json={"error": {"code": "not_acceptable"}})

    def _public_keys(self, segments: list[str]) -> httpx.Response:
        prefix = f"public_key:user/{segments[3]}/"
        texts = [
            found.values[max(found.values)].decode() for name, found in self.resources.items() if name.startswith(prefix)
        ]
        return httpx.Response(200, text="\n".join(texts) + "\n", headers={"content-type": "text/plain"})


def _token_of(request: httpx.Request) -> str:
    matched = re.fullmatch('Token token="([^"]+)"', request.headers.get("authorization", ""))
    return "" if matched is None else matched[1]


def _in_lines(value: bytes) -> str:
    """Return base64 with a line break after 60 characters."""
    text = base64.b64encode(value).decode()
    return "".join(f"{text[start : start + 60]}\n" for start in range(0, len(text), 60))
