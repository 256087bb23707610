"""A Vault in memory, which answers as a real OpenBao does (MOVE-1 to MOVE-31)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from svc.workload.replies import Reply
from svc.workload.requester import SharedResult

#: The token that may do everything.
TOKEN = "s.everything"

#: What the server's clock shows.
NOW = 1_800_000_000.0

_REFUSED = {"errors": ["1 error occurred:\n\t* permission denied\n\n"]}
_DEAD = {"errors": ["permission denied"]}


def reply(status: int, body: object = None, **headers: str) -> Reply:
    """Return an answer; ``body`` is JSON, or bytes as they are."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return Reply(status, content, {"date": formatdate(NOW, usegmt=True), "content-type": "application/json", **headers})


@attrs.define
class KeptSecret:
    """A secret of KV version 2: versions as texts of JSON, and what is declared of them."""

    values: dict[int, str] = attrs.field(factory=dict)
    deleted: dict[int, str] = attrs.field(factory=dict)
    destroyed: set[int] = attrs.field(factory=set)
    custom: Mapping[str, str] | None = None
    max_versions: int = 0
    cas_required: bool = False
    delete_after: str = "0s"
    oldest: int = 0

    def metadata(self) -> dict[str, Any]:
        """Return the metadata, with versions in the order of text."""
        versions = {
            str(number): {
                "created_time": "2026-11-29T00:54:03.862128244Z",
                "deletion_time": "" if number in self.destroyed else self.deleted.get(number, ""),
                "destroyed": number in self.destroyed,
            }
            for number in sorted(self.values, key=str)
        }
        return {
            "cas_required": self.cas_required,
            "current_version": max(self.values, default=0),
            "custom_metadata": self.custom,
            "delete_version_after": self.delete_after,
            "max_versions": self.max_versions,
            "oldest_version": self.oldest,
            "versions": versions,
        }


@attrs.define
class VaultStandIn:
    """The requester of a server, and the server. Paths have their namespaces in front of them."""

    #: Engines: paths with their types and options.
    mounts: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    #: Secrets of version 1, and of version 2, by mount and key.
    first: dict[tuple[str, str], str] = attrs.field(factory=dict)
    second: dict[tuple[str, str], KeptSecret] = attrs.field(factory=dict)
    #: Everything else, by path: the data of an answer to GET, or a list of keys to LIST.
    data: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    lists: dict[str, list[str]] = attrs.field(factory=dict)
    #: Paths that are refused, by method and the whole path as a regular expression.
    refused: list[tuple[str, str]] = attrs.field(factory=list)
    #: Answers that come first, in their order, by method and path; the last one stays if it is ``...``.
    odd: dict[tuple[str, str], list[Reply | Exception]] = attrs.field(factory=dict)
    namespaces: dict[str, list[str]] = attrs.field(factory=dict)
    token: str = TOKEN
    asked: list[tuple[str, str]] = attrs.field(factory=list)
    slept: list[float] = attrs.field(factory=list)
    #: Called before each request, with its method and path.
    before: Callable[[str, str], None] = attrs.field(default=lambda method, path: None)

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, *, within: float
    ) -> Reply:
        """See ``Requester``."""
        address = urlsplit(url)
        assert address.path.startswith("/v1/") and within > 0
        path = unquote(address.path.removeprefix("/v1/"))
        self.before(method, path)
        self.asked.append((method, path + (f"?{address.query}" if address.query else "")))
        if waiting := self.odd.get((method, path)):
            first = waiting.pop(0)
            if isinstance(first, Exception):
                raise first
            return first
        if path.endswith("approle/login") and method == "POST":
            return self._login(body)
        if (headers or {}).get("X-Vault-Token") != self.token:
            return reply(403, _DEAD)
        if any(method == wanted and re.fullmatch(pattern, path) for wanted, pattern in self.refused):
            return reply(403, _REFUSED)
        return self._answer(method, path, address.query)

    def seconds(self) -> float:
        """See ``Requester``."""
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        """See ``Requester``."""
        self.slept.append(seconds)

    def shared(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> SharedResult[Any]:
        """See ``Requester``."""
        raise NotImplementedError

    def _login(self, body: bytes | None) -> Reply:
        asked = json.loads(body or b"{}")
        if asked != {"role_id": "rid", "secret_id": "sid"}:
            return reply(400, {"errors": ["invalid role or secret ID"]})
        return reply(200, {"auth": {"client_token": self.token}, "data": None})

    def _answer(self, method: str, path: str, query: str) -> Reply:
        for mount in sorted(self.mounts, key=len, reverse=True):
            if path.startswith(mount):
                return self._answer_of_engine(method, mount, path.removeprefix(mount), query)
        if method == "LIST":
            found = self.namespaces if path.endswith("sys/namespaces") else self.lists
            names = found.get(path, [])
            return reply(200, {"data": {"keys": names}}) if names else reply(404, {"errors": []})
        if method == "GET" and path.endswith("sys/mounts"):
            return self._mounts(path.removesuffix("sys/mounts"))
        if method == "GET" and "sys/internal/ui/mounts/" in path:
            return self._find_mount(*path.split("sys/internal/ui/mounts/"))
        if method == "GET" and path in self.data:
            return reply(200, {"data": self.data[path]})
        return reply(404, {"errors": [f'no handler for route "{path}". route entry not found.']})

    def _mounts(self, namespace: str) -> Reply:
        deeper = [name for name in self._namespaces() if name != namespace and name.startswith(namespace)]
        mounts: dict[str, Any] = {
            path.removeprefix(namespace): {"type": "kv", "options": {}, **described}
            for path, described in self.mounts.items()
            if path.startswith(namespace) and not any(path.startswith(each) for each in deeper)
        }
        mounts |= {"sys/": {"type": "system", "options": None}, "identity/": {"type": "identity", "options": None}}
        return reply(200, {"request_id": "x", **mounts, "data": mounts})

    def _namespaces(self) -> Iterable[str]:
        for path, names in self.namespaces.items():
            yield from (path.removesuffix("sys/namespaces") + name for name in names)

    def _find_mount(self, namespace: str, path: str) -> Reply:
        for mount, described in self.mounts.items():
            if f"{namespace}{path}/".startswith(mount):
                data = {"type": "kv", "options": {}, **described, "path": mount.removeprefix(namespace)}
                return reply(200, {"data": data})
        return reply(403, _REFUSED)

    def _answer_of_engine(self, method: str, mount: str, rest: str, query: str) -> Reply:
        if (self.mounts[mount].get("options") or {}).get("version") != "2":
            if method in {"LIST", "SCAN"}:
                return self._list(method, [key for at, key in self.first if at == mount], rest)
            value = self.first.get((mount, rest))
            return reply(404, {"errors": []}) if value is None else reply(200, f'{{"data":{value}}}'.encode())
        part, _, key = rest.partition("/")
        if part == "config":
            return reply(200, {"data": self.mounts[mount].get("config", {"max_versions": 0})})
        if method in {"LIST", "SCAN"}:
            return self._list(method, [key for at, key in self.second if at == mount], key)
        secret = self.second.get((mount, key))
        if secret is None:
            return reply(404, {"errors": []})
        return reply(200, {"data": secret.metadata()}) if part == "metadata" else self._version(secret, query)

    def _list(self, method: str, keys: Iterable[str], folder: str) -> Reply:
        folder = folder if folder.endswith("/") or not folder else f"{folder}/"
        inside = [key.removeprefix(folder) for key in keys if key.startswith(folder)]
        if method == "SCAN":
            # Leaves of a level come before its folders, in no order.
            return reply(
                200, {"data": {"keys": sorted(inside, key=lambda key: (key.count("/"), key[::-1]))} if inside else {}}
            )
        names = sorted({re.match("[^/]*/?", key)[0] for key in inside}, key=str)  # type: ignore[index]
        return reply(200, {"data": {"keys": names}}) if names else reply(404, {"errors": []})

    def _version(self, secret: KeptSecret, query: str) -> Reply:
        number = int(query.removeprefix("version=") or "0")
        number = number if number > 0 else max(secret.values, default=0)
        if number not in secret.values:
            return reply(404, {"errors": []})
        described = secret.metadata()["versions"][str(number)] | {"version": number, "custom_metadata": secret.custom}
        gone = number in secret.destroyed or (number in secret.deleted and secret.deleted[number] < "2027-01-15")
        value = "null" if gone else secret.values[number]
        return reply(404 if gone else 200, f'{{"data":{{"data":{value},"metadata":{json.dumps(described)}}}}}'.encode())
