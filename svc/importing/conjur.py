"""Conjur as a source: what it holds, but for values, read by its interface as one role.

The same is read of a target, which speaks this interface too, to see what is there already.

Note [Lists]. A list without ``limit`` ends after 1,000 without a word, and pages go by an order that isn't always that of
bytes (MOVE-41). So pages are read to a short one, and their sum is compared with the count, before and after.

Note [Rebuilt]. Neither texts of loads nor the effective policy are read: the texts are history (MOVE-46), and the policy
loses public keys and admin options (MOVE-47). All comes from resources and roles.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import attrs

from svc.importing.conjur_session import AGAIN, Server, bad_answer, read_json
from svc.importing.inventory import (
    Authenticator,
    Grant,
    Inventory,
    Note,
    NoteKind,
    Permission,
    Progress,
    Record,
    RecordId,
    SourceStopped,
)
from svc.importing.windows import run_window
from svc.model.clocks import WallClock, parse_rfc3339
from svc.model.names import THING_KINDS
from svc.workload.address import encode_path
from svc.workload.replies import Reply, parse_json

#: Questions that are asked at once, and rows of a page. A policy comes with the texts of 20 loads (MOVE-46).
WIDTH: Final = 8
PAGE: Final = 1000
POLICY_PAGE: Final = 50

#: The most rows of one list: one without an end is no Conjur's.
ROWS_MOST: Final = 5_000_000

#: How often a list is read that changes meanwhile.
WALKS: Final = 3

#: The kinds that are listed by name; others, which policies make up, are found by the count of all.
KINDS: Final = (
    *("policy", "user", "host", "group", "layer", "host_factory", "variable", "webservice", "public_key", "configuration"),
)

#: The oldest Conjur that is read, and where an answer says the version.
OLDEST: Final = (1, 19)
_VERSION: Final = re.compile(r"([0-9]+)\.([0-9]+)\.[0-9]+[0-9A-Za-z.+-]*")

_AUTHENTICATOR: Final = re.compile(r"(?P<prefix>[^/]+)/(?P<type>authn-[a-z0-9]+)(?:/(?P<service>[^/]+))?")

#: The types of which there is one, without a service id.
_SINGLE: Final = {"authn-gcp"}

#: The records of every account, which no policy declares.
_ALWAYS: Final = {RecordId("user", "admin"), RecordId("policy", "root")}

_AS_ADMIN: Final = "run it as the account's admin, or as a role that owns this too"


@attrs.define
class ConjurReader:
    """Reads what a server holds. ``role`` is the full id of the caller, who doesn't see itself (MOVE-73), if it is known.

    ``is_source``: a Conjur that is old is refused, and its version is in the inventory.
    """

    server: Server
    wall: WallClock
    role: str | None = None
    is_source: bool = True
    #: The prefix of the policies of authenticators: ``conjur``, and ``svc`` in a target of ``native``.
    prefix: str = "conjur"
    _notes: list[Note] = attrs.field(factory=list, init=False)

    async def read_inventory(self, progress: Progress) -> Inventory:
        """Return everything that the caller sees; see ``svc.importing.inventory``."""
        self._notes = []
        version = await self._read_version() if self.is_source else "interface"
        listed: dict[RecordId, Mapping[str, Any]] = {}
        for kind in KINDS:
            listed |= await self._list(kind, progress)
        listed |= await self._list_other_kinds(listed, progress)
        details = await self._read_details(listed, progress)
        keys = await self._read_public_keys(listed, progress)
        records = [self._parse_record(name, {**item, **details.get(name, {})}, keys) for name, item in listed.items()]
        records = sorted((each for each in records if each.id.kind != "public_key"), key=lambda each: each.id)
        grants = await self._read_grants(records, progress)
        permissions = self._parse_permissions(listed)
        self._note_unseen(records, grants, permissions)
        return Inventory(
            source=f"conjur {version}",
            records=tuple(records),
            grants=tuple(sorted(grants)),
            permissions=tuple(sorted(permissions)),
            authenticators=await self._read_authenticators(records),
            notes=tuple(sorted(set(self._notes))),
        )

    async def _read_version(self) -> str:
        reply = await self.server.ask("/info")
        value: Any = None
        if reply.status == 200:
            try:
                value = parse_json(reply.body)["services"]["possum"]["version"]
            except (ValueError, KeyError, TypeError):
                value = None
        if not isinstance(value, str):
            reply = await self.server.ask("/", Accept="application/json")
            found = _VERSION.search(reply.body[:65536].decode("utf-8", "replace")) if reply.status == 200 else None
            value = found[0] if found else None
        matched = None if value is None else _VERSION.match(value)
        if matched is None:
            self._note(NoteKind.TO_KNOW, "the version of the source", "it says none", "it should be Conjur 1.19 or later")
            return "of an unknown version"
        if (int(matched[1]), int(matched[2])) < OLDEST:
            raise SourceStopped(
                f"{self.server.place} is Conjur {matched[0]}, and 1.19 or later is read",
                "update it there first: older ones lack what is asked for",
            )
        return matched[0]

    # Lists (Note [Lists])

    async def _list(self, kind: str, progress: Progress) -> dict[RecordId, Mapping[str, Any]]:
        """Return the resources of a kind by their ids, all that the caller sees."""
        found: dict[RecordId, Mapping[str, Any]] = {}
        page = POLICY_PAGE if kind == "policy" else PAGE
        for walk in range(WALKS):
            before = await self._count(kind)
            seen: set[RecordId] = set()
            async for item in self._walk(f"&kind={kind}", page):
                name = self._parse_id(item.get("id"), "a list of resources")
                if name.kind != kind:
                    raise bad_answer(self.server.place, "a list of resources", 200)
                seen.add(name)
                # Of a page only this is kept: texts of policies go at once.
                found[name] = {key: value for key, value in item.items() if key != "policy_versions"}
                progress(f"{kind} list", len(seen), before)
            if len(seen) == before == await self._count(kind):
                return {name: item for name, item in found.items() if name in seen}
            progress(f"{kind} list changed while it was read: reading it again", walk + 1, WALKS)
        self._note(
            NoteKind.UNSEEN,
            f"resources of kind {kind}",
            f"their list was another each of the {WALKS} times that it was read",
            "have nobody change them meanwhile, and " + AGAIN,
        )
        return found

    async def _list_other_kinds(
        self, listed: Mapping[RecordId, object], progress: Progress
    ) -> dict[RecordId, Mapping[str, Any]]:
        """Return what has a kind that policies made up, if there is more than the kinds that are known."""
        if await self._count(None) <= len(listed):
            return {}
        kinds: set[str] = set()
        seen = 0
        async for item in self._walk("", POLICY_PAGE):
            seen += 1
            progress("other kinds", seen, None)
            kinds.add(self._parse_id(item.get("id"), "a list of resources").kind)
        others: dict[RecordId, Mapping[str, Any]] = {}
        for kind in sorted(kinds.difference(KINDS)):
            others |= await self._list(kind, progress)
        return others

    async def _count(self, kind: str | None) -> int:
        query = "count=true" if kind is None else f"kind={quote(kind, safe='')}&count=true"
        path = f"{encode_path('resources', self.server.account)}?{query}"
        number = read_json(self.server, "a count of resources", await self.server.ask(path), dict).get("count")
        if not isinstance(number, int):
            raise bad_answer(self.server.place, "a count of resources", 200)
        return number

    async def _walk(self, query: str, page: int) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows of a list, up to a bound at which it counts as one that isn't seen whole."""
        offset = 0
        while True:
            if offset >= ROWS_MOST:
                self._note(
                    NoteKind.UNSEEN,
                    "a list of resources",
                    f"{offset:,} of it were read, and it goes on",
                    "see whether this is the address of Conjur",
                )
                return
            path = f"{encode_path('resources', self.server.account)}?limit={page}&offset={offset}{query}"
            items = read_json(self.server, "a list of resources", await self.server.ask(path), list)
            for item in items:
                if not isinstance(item, dict):
                    raise bad_answer(self.server.place, "a list of resources", 200)
                yield item
            if len(items) < page:
                return
            offset += len(items)

    # One resource

    async def _read_details(
        self, listed: Mapping[RecordId, Mapping[str, Any]], progress: Progress
    ) -> dict[RecordId, Mapping[str, Any]]:
        """Return what lists may lack: networks of users and hosts (MOVE-50), layers of host factories."""
        wanted = {"user": "restricted_to", "host": "restricted_to", "host_factory": "layers"}
        names = [name for name, item in listed.items() if name.kind in wanted and wanted[name.kind] not in item]
        found: dict[RecordId, Mapping[str, Any]] = {}

        async def read_one(name: RecordId) -> tuple[RecordId, Reply]:
            return name, await self.server.ask(self._path("resources", name))

        async for name, reply in run_window(names, read_one, WIDTH):
            if reply.status in {403, 404}:
                self._note(NoteKind.UNSEEN, str(name), f"the source refuses it (status {reply.status})", _AS_ADMIN)
                continue
            found[name] = read_json(self.server, str(name), reply, dict)
            progress("details", len(found), len(names))
        return found

    async def _read_public_keys(self, listed: Iterable[RecordId], progress: Progress) -> dict[RecordId, dict[str, str]]:
        """Return users' public keys, text by name: names are known from resources, texts from another route (MOVE-51)."""
        names: dict[RecordId, set[str]] = {}
        users = {name.identifier for name in listed if name.kind == "user"}
        for name in listed:
            if name.kind == "public_key":
                owner, key = _split_public_key(name.identifier, users)
                names.setdefault(RecordId("user", owner), set()).add(key)
        found: dict[RecordId, dict[str, str]] = {}

        async def read_one(user: RecordId) -> tuple[RecordId, Reply]:
            return user, await self.server.ask(self._path("public_keys", user))

        async for user, reply in run_window(sorted(names), read_one, WIDTH):
            if reply.status != 200:
                raise bad_answer(self.server.place, "public keys", reply.status)
            lines = [line for line in reply.body.decode("utf-8", "replace").splitlines() if line.strip()]
            texts = {words[2].strip(): line for line in lines if len(words := line.split(None, 2)) == 3}
            found[user] = {name: text for name, text in texts.items() if name in names[user]}
            for missing in sorted(names[user] - found[user].keys()):
                why = "its text isn't among those that the source gives"
                self._note(NoteKind.UNSEEN, f"public key {missing} of {user}", why, "load it here by hand")
            progress("public keys", len(found), len(names))
        return found

    def _parse_record(self, name: RecordId, item: Mapping[str, Any], keys: Mapping[RecordId, dict[str, str]]) -> Record:
        try:
            annotations = {each["name"]: each["value"] for each in item.get("annotations", [])}
            networks = tuple(item.get("restricted_to") or ())
            versions = tuple(sorted(each["version"] for each in item.get("secrets", [])))
            layers = tuple(sorted(self._parse_id(each, str(name)) for each in item.get("layers", [])))
            tokens = [each["expiration"] for each in item.get("tokens", [])] if name.kind == "host_factory" else []
        except (KeyError, TypeError, AttributeError):
            raise bad_answer(self.server.place, str(name), 200) from None
        texts = (*annotations, *annotations.values(), *networks)
        if not all(isinstance(each, str) for each in texts) or not all(isinstance(each, int) for each in versions):
            raise bad_answer(self.server.place, str(name), 200)
        policy = item.get("policy")
        if policy is None and name.kind != "public_key" and name not in _ALWAYS:
            self._note_origin(name)
        live = sum(map(self._is_future, tokens))
        if live:
            self._note(
                NoteKind.LEFT_OUT,
                f"{live} live tokens of {name}",
                "a token can't be moved",
                f"make new ones with `svc hostfactory tokens create {name.identifier}`",
            )
        return Record(
            name,
            owner=None if item.get("owner") is None else self._parse_id(item["owner"], str(name)),
            policy=None if policy is None else self._parse_id(policy, str(name)).identifier,
            annotations=annotations,
            restricted_to=tuple(sorted(networks)),
            public_keys=tuple(sorted(keys.get(name, {}).items())),
            had_api_key=name.kind in {"user", "host"} and annotations.get("authn/api-key", "true").lower() != "false",
            layers=layers,
            versions=versions,
        )

    def _note_origin(self, name: RecordId) -> None:
        why = "no policy declared it there, such as a host of a host factory"
        self._note(NoteKind.TO_KNOW, str(name), why, "the root policy declares it here")

    def _is_future(self, moment: object) -> bool:
        try:
            return parse_rfc3339(str(moment)) > self.wall.seconds()
        except ValueError:
            return True

    # Memberships and permissions

    async def _read_grants(self, records: Iterable[Record], progress: Progress) -> list[Grant]:
        """Return all memberships but for those that come by themselves: owners, layers of factories, admin's (MOVE-49)."""
        roles = [each.id for each in records if each.id.kind not in THING_KINDS]
        by_itself = {(layer, each.id) for each in records for layer in each.layers}
        grants: list[Grant] = []
        done = 0

        async def read_one(name: RecordId) -> tuple[RecordId, Reply]:
            return name, await self.server.ask(self._path("roles", name))

        async for name, reply in run_window(roles, read_one, WIDTH):
            done += 1
            progress("memberships", done, len(roles))
            if reply.status in {403, 404}:
                own = f"{self.server.account}:{name}" == self.role
                why = "a role doesn't see its own members there" if own else f"the source refuses them ({reply.status})"
                self._note(NoteKind.UNSEEN, f"members of {name}", why, _AS_ADMIN)
                continue
            try:
                for member in read_json(self.server, f"members of {name}", reply, dict)["members"]:
                    grant = Grant(
                        self._parse_id(member["role"], str(name)),
                        self._parse_id(member["member"], str(name)),
                        member["admin_option"] is True,
                        self._parse_policy(member.get("policy")),
                    )
                    itself = grant.role == grant.member == RecordId("user", "admin")
                    if not (member["ownership"] or itself or (grant.role, grant.member) in by_itself):
                        grants.append(grant)
            except (KeyError, TypeError):
                raise bad_answer(self.server.place, f"members of {name}", reply.status) from None
        return grants

    def _parse_permissions(self, listed: Mapping[RecordId, Mapping[str, Any]]) -> list[Permission]:
        found: list[Permission] = []
        for name, item in listed.items():
            try:
                for each in item.get("permissions", []):
                    privilege = each["privilege"]
                    if not isinstance(privilege, str):
                        raise TypeError
                    policy = self._parse_policy(each.get("policy"))
                    found.append(Permission(self._parse_id(each["role"], str(name)), privilege, name, policy))
            except (KeyError, TypeError):
                raise bad_answer(self.server.place, str(name), 200) from None
        return found

    def _parse_policy(self, policy: object) -> str | None:
        return None if policy is None else self._parse_id(policy, "the policy of a membership").identifier

    def _note_unseen(self, records: Iterable[Record], grants: Iterable[Grant], permissions: Iterable[Permission]) -> None:
        """Note what is named and not listed: the caller can't see it, so that it is neither moved nor compared."""
        seen = {each.id for each in records}
        named = {owner for each in records if (owner := each.owner) is not None}
        named |= {each for grant in grants for each in (grant.role, grant.member)}
        named |= {each.role for each in permissions}
        named |= {RecordId("policy", each.policy) for each in records if each.policy is not None}
        for name in sorted(named - seen - _ALWAYS):
            self._note(NoteKind.UNSEEN, str(name), "others name it, and the list hasn't got it", _AS_ADMIN)

    # Authenticators

    async def _read_authenticators(self, records: Iterable[Record]) -> tuple[Authenticator, ...]:
        """Return the authenticators that policy defines; whether one is enabled says a route without a token (MOVE-56)."""
        reply = await self.server.ask("/authenticators")
        enabled: set[str] | None = None
        if reply.status == 200:
            names = read_json(self.server, "the authenticators", reply, dict).get("enabled")
            if not isinstance(names, list):
                raise bad_answer(self.server.place, "the authenticators", 200)
            enabled = set(map(str, names))
        found = []
        for record in records:
            matched = _AUTHENTICATOR.fullmatch(record.id.identifier) if record.id.kind == "webservice" else None
            if matched is None or matched["prefix"] != self.prefix:
                continue
            if (matched["service"] is None) != (matched["type"] in _SINGLE):
                continue
            made = Authenticator(matched["type"], matched["service"], None, record.id)
            found.append(made if enabled is None else attrs.evolve(made, enabled=made.name in enabled))
        if enabled is None and found:
            why = f"the source doesn't say which are enabled (status {reply.status})"
            self._note(NoteKind.UNSEEN, "the state of authenticators", why, "enable them here by hand")
        return tuple(sorted(found))

    # Parts

    def _path(self, route: str, name: RecordId) -> str:
        return encode_path(route, self.server.account, name.kind, name.identifier)

    def _parse_id(self, text: object, asked: str) -> RecordId:
        """Return the id in a full id of the account (MOVE-53: always text, with anything behind the second colon)."""
        parts = text.split(":", 2) if isinstance(text, str) else []
        if len(parts) != 3 or parts[0] != self.server.account or not parts[1] or not parts[2]:
            raise bad_answer(self.server.place, asked, 200)
        return RecordId(parts[1], parts[2])

    def _note(self, kind: NoteKind, what: str, why: str, remedy: str = "") -> None:
        self._notes.append(Note(kind, what, why, remedy))


def _split_public_key(identifier: str, users: set[str]) -> tuple[str, str]:
    """Return user and name of a key's ``user/<user>/<name>``: of the slashes, one behind a user that exists counts."""
    rest = identifier.removeprefix("user/")
    places = [number for number, char in enumerate(rest) if char == "/"]
    for place in reversed(places):
        if rest[:place] in users:
            return rest[:place], rest[place + 1 :]
    user, _, key = rest.partition("/")
    return user, key
