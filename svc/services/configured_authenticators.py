"""The use cases of authenticators in the newer interface: made, shown, switched and deleted with all their records.

Note [Values]. ``data`` has values of variables, some of which are secrets. A value is returned to a caller with ``execute``
on its variable, which reading it requires, and each is recorded as read. The value of a variable that the caller sees, and
may not read, is masked; a variable that the caller doesn't see is left out. A caller who inspects sees that there is a
value, and never which (INS-1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from svc.crypto.vault import Vault
from svc.model.authorization import Allowed, decide_privilege, decide_visibility
from svc.model.dialect import Dialect
from svc.model.errors import AuthenticatorNotFound, Conflict, Forbidden, RecordNotFound, Unprocessable
from svc.model.events import Event
from svc.model.names import ResourceName, RoleName
from svc.model.policy_loads import AnnotationRow, Changes, MembershipRow, PermissionRow, ResourceRow, Rows
from svc.model.query_results import AccessFacts, Resource, ResourcesQuery, Sealed
from svc.policy.effective_policy import absolute_reference
from svc.policy.statement_writer import PolicyBody, Tagged, Value
from svc.services.authenticator_types import AuthenticatorType, format_data, types_of
from svc.services.invocation import Invocation
from svc.services.policy_edits import DELETED_MOST, Edit, PolicyEdits, UpdateDenied
from svc.services.reading_counts import ReadingCounter
from svc.services.secret_batches import SHORT
from svc.storage.resources import ResourceStore
from svc.storage.roles import RoleStore
from svc.storage.secrets import SecretStore

#: How many authenticators a list has at most.
LISTED_MOST: Final = 1000

#: The name of the only authenticator of a type that has one.
SINGLE_NAME: Final = "default"


@attrs.frozen
class ConfiguredAuthenticator:
    """An authenticator with its settings; ``data`` is as ``authenticator_types.format_data`` returns it."""

    kind: AuthenticatorType
    name: str
    branch: str
    enabled: bool
    owner: RoleName
    data: Mapping[str, object] = attrs.field(repr=False)
    annotations: Mapping[str, str]


@attrs.frozen
class ConfiguredPage:
    """Some authenticators of a list, in the order of their webservices, and how many the whole list has."""

    authenticators: Sequence[ConfiguredAuthenticator]
    count: int


@attrs.frozen
class NewAuthenticator:
    """An authenticator that is to be made; ``values`` by the names of variables."""

    account: str
    kind: str
    name: str
    enabled: bool
    owner: RoleName | None
    values: Mapping[str, str] = attrs.field(repr=False)
    annotations: Mapping[str, str]


@attrs.frozen
class _AuthenticatorLocation:
    """Where an authenticator is: the policy that it is made in, its own, and the prefix of the ids of all its records."""

    account: str
    kind: AuthenticatorType
    base: RoleName
    name: str

    @property
    def identifier(self) -> str:
        return self.base.identifier if self.kind.single else f"{self.base.identifier}/{self.name}"

    @property
    def policy(self) -> RoleName:
        """Its own policy; of a type with one authenticator, that is the one around it."""
        return RoleName(self.account, "policy", self.identifier)

    @property
    def webservice(self) -> ResourceName:
        return ResourceName(self.account, "webservice", self.identifier)


@attrs.frozen
class ConfiguredAuthenticatorService:
    """The use cases. ``installed`` are the names of the types that the server has, such as ``authn-jwt``."""

    edits: PolicyEdits
    roles: RoleStore
    resources: ResourceStore
    secrets: SecretStore
    vault: Vault
    dialect: Dialect
    installed: Sequence[str]
    counter: ReadingCounter

    async def read_page(
        self, invocation: Invocation, account: str, kind: str | None, limit: int, offset: int
    ) -> ConfiguredPage:
        """Return the authenticators of a type, or of all, whose webservices the caller sees (NEWER-31)."""
        prefix = self.dialect.prefix
        query = ResourcesQuery(invocation.caller.role, account, ("webservice",), limit=2**31, below=prefix)
        found = {
            full: place
            for full in await self.resources.list_visible(query)
            if (place := self._location_of(full)) is not None
        }
        wanted = [full for full, place in found.items() if kind is None or kind in place.kind.names]
        shown = {full: found[full] for full in wanted[offset : offset + limit]}
        return ConfiguredPage(await self._read_visible(invocation, shown), len(wanted))

    async def read_authenticator(
        self, invocation: Invocation, account: str, kind: str, name: str
    ) -> ConfiguredAuthenticator:
        """Return an authenticator whose webservice the caller sees.

        :raises AuthenticatorNotFound: it doesn't, or there is none.
        """
        place, _ = await self._require_visible(invocation, account, kind, name, name)
        return await self._read_existing(invocation, place)

    async def switch_authenticator(
        self, invocation: Invocation, account: str, kind: str, name: str, on: bool
    ) -> ConfiguredAuthenticator:
        """Switch an authenticator on or off; takes ``update`` on its webservice.

        :raises AuthenticatorNotFound: there is none, or the caller doesn't see it.
        :raises Forbidden: it lacks the privilege.
        """
        place, facts = await self._require_visible(invocation, account, kind, name, f"authn-{kind}/{name}")
        caller, webservice = invocation.caller.role, str(place.webservice)
        if decide_privilege(facts, "update") != Allowed():
            message = f"'{caller.login}' does not have 'update' privilege on {webservice}"
            raise Forbidden(f"lacks update on {webservice}", message, "CONJ00006E")

        async def apply_edit(edit: Edit) -> None:
            if not await edit.transaction.filter_existing([webservice]):
                raise AuthenticatorNotFound(account, name)
            await edit.transaction.switch_authenticator(webservice, on)

        invocation.recorder.add_audit_facts(enabled=on)
        await self.edits.make_edit(invocation, apply_edit)
        return await self._read_existing(invocation, place)

    async def create_authenticator(self, invocation: Invocation, new: NewAuthenticator) -> ConfiguredAuthenticator:
        """Make an authenticator, as a load into the policy of its type would; takes ``create_authenticator`` on that
        (NEWER-35).

        :raises Unprocessable: the server doesn't have the type.
        :raises RecordNotFound: the caller doesn't see the policy, or the owner.
        :raises Forbidden: it lacks the privilege.
        :raises AuthenticatorNotFound: a type has one authenticator, of another name.
        :raises Conflict: it exists already.
        """
        place = self.find_location(new.account, new.kind, new.name)
        if place is None or place.kind.authenticator not in self.installed:
            raise unsupported_type(new.kind)
        if place.kind.single and new.name != SINGLE_NAME:
            raise AuthenticatorNotFound(new.account, new.name)
        rows = _make_rows(place, new)
        full = f"{new.account}:variable:{place.identifier}"
        sealed = {
            f"{full}/{name}": self.vault.seal(f"{full}/{name}", value.encode("utf-8")) for name, value in new.values.items()
        }

        async def apply_edit(edit: Edit) -> None:
            facts = await edit.transaction.access_facts(invocation.caller, place.base)
            if decide_visibility(facts) != Allowed():
                raise RecordNotFound.for_name(place.base, hidden=facts.exists)
            if decide_privilege(facts, "create") != Allowed():
                raise Forbidden(f"lacks create on {place.base}")
            if new.owner is not None:
                facts = await edit.transaction.access_facts(invocation.caller, new.owner)
                if decide_visibility(facts) != Allowed():
                    raise RecordNotFound.for_name(new.owner, hidden=facts.exists)
            await edit.transaction.lock_policy(place.base)
            made = [row.resource for row in rows.resources]
            if await edit.transaction.filter_existing(made):
                raise Conflict("authenticator", new.name, "The authenticator already exists.")
            await edit.authorize(place.base, made=made)
            await edit.apply_changes(place.base, _make_statements(place, new), Changes(create=rows), None)
            await edit.transaction.set_values(sealed)
            await edit.transaction.switch_authenticator(str(place.webservice), new.enabled)
            edit.events.extend(_update_event(name) for name in sealed)

        await self.edits.make_edit(invocation, apply_edit)
        # A caller that may make one needn't see it.
        return await self._read_existing(invocation, place)

    async def delete_authenticator(self, invocation: Invocation, account: str, kind: str, name: str) -> None:
        """Delete an authenticator with all that its policy owns; takes ``delete_authenticator`` on that policy (NEWER-37).

        :raises AuthenticatorNotFound: there is none, or the caller doesn't see it.
        :raises Forbidden: it lacks the privilege, or authority over something that would go.
        """
        place, _ = await self._require_visible(invocation, account, kind, name, name)
        unauthorized = Forbidden(f"lacks delete on {place.policy}", "Unauthorized")

        async def apply_edit(edit: Edit) -> None:
            transaction = edit.transaction
            if decide_privilege(await transaction.access_facts(invocation.caller, place.policy), "delete") != Allowed():
                raise unauthorized
            await transaction.lock_policy(place.base)
            named = await transaction.list_beneath(place.policy, DELETED_MOST)
            if named is None:
                raise Unprocessable(f"More than {DELETED_MOST} records would go at once")
            if place.kind.single:
                named = [full for full in named if full != str(place.policy)]
            ownership = await transaction.read_ownership([str(place.policy), *named], ())
            own = {full for full in named if full == str(place.policy) or ownership.owns(str(place.policy), full)}
            tag, ident = ("webservice", None) if place.kind.single else ("policy", name)
            statement = Tagged("delete", {"record": Tagged(tag, {} if ident is None else {"id": ident})})
            try:
                await edit.delete_records(place.base, statement, named, own)
            except UpdateDenied:
                raise unauthorized from None

        await self.edits.make_edit(invocation, apply_edit)

    def find_location(self, account: str, kind: str, name: str) -> _AuthenticatorLocation | None:
        """Return where an authenticator of a type and a name is, or would be; ``None`` if there is no such type."""
        found = next((each for each in types_of(self.dialect) if kind in each.names), None)
        if found is None or "/" in name or not (name or found.single):
            return None
        base = RoleName.from_parts(account, "policy", f"{self.dialect.prefix}/{found.authenticator}")
        return _AuthenticatorLocation(account, found, base, SINGLE_NAME if found.single else name)

    def _location_of(self, full: str) -> _AuthenticatorLocation | None:
        """Return the place of a webservice; ``None`` if it is no authenticator's."""
        account, _, identifier = full.split(":", 2)
        _, authenticator, *rest = identifier.split("/")
        for kind in types_of(self.dialect):
            if kind.authenticator == authenticator and len(rest) == (0 if kind.single else 1):
                return self.find_location(account, kind.name, "".join(rest))
        return None

    async def _require_visible(
        self, invocation: Invocation, account: str, kind: str, name: str, shown: str
    ) -> tuple[_AuthenticatorLocation, AccessFacts]:
        place = self.find_location(account, kind, name)
        if place is None:
            raise AuthenticatorNotFound(account, shown)
        facts = await self.roles.access_facts(invocation.caller, place.webservice)
        if decide_visibility(facts) != Allowed():
            raise AuthenticatorNotFound(account, shown, facts.exists)
        return place, facts

    # -- telling ------------------------------------------------------------------------------------------------------

    async def _read_existing(self, invocation: Invocation, place: _AuthenticatorLocation) -> ConfiguredAuthenticator:
        for found in await self._read_visible(invocation, {str(place.webservice): place}):
            return found
        raise AuthenticatorNotFound(place.account, place.name)

    async def _read_visible(
        self, invocation: Invocation, places: Mapping[str, _AuthenticatorLocation]
    ) -> list[ConfiguredAuthenticator]:
        """Return the authenticators of webservices that the caller sees."""
        whole: dict[str, Resource] = {}
        async for portion in self.resources.stream_described(list(places)):
            for part in portion:
                before = whole.get(part.id)
                annotations = part.annotations if before is None else (*before.annotations, *part.annotations)
                whole[part.id] = attrs.evolve(part, annotations=annotations, permissions=())
        switches = await self.edits.store.read_switches(list(whole))
        values = await self._read_values(invocation, [places[full] for full in whole])
        return [self._make_authenticator(places[full], found, switches.get(full), values) for full, found in whole.items()]

    def _make_authenticator(
        self, place: _AuthenticatorLocation, found: Resource, switch: bool | None, values: Mapping[str, str | None]
    ) -> ConfiguredAuthenticator:
        names = {
            f"{place.account}:variable:{place.identifier}/{key.variable_name}": key.variable_name for key in place.kind.keys
        }
        return ConfiguredAuthenticator(
            place.kind,
            place.name,
            place.base.identifier,
            not self.dialect.switch_enables if switch is None else switch,
            RoleName.parse(found.owner),
            format_data(place.kind, {name: values[full] for full, name in names.items() if full in values}),
            {annotation.name: annotation.value for annotation in found.annotations},
        )

    async def _read_values(self, invocation: Invocation, places: Sequence[_AuthenticatorLocation]) -> dict[str, str | None]:
        """Return the values of variables by full id, ``None`` for those that are masked (Note [Values])."""
        asked = [
            ResourceName(place.account, "variable", f"{place.identifier}/{key.variable_name}")
            for place in places
            for key in place.kind.keys
        ]
        values: dict[str, str | None] = {}
        for start in range(0, len(asked), SHORT.ids):
            batch = asked[start : start + SHORT.ids]
            readings = await self.secrets.read_newest_values(invocation.caller, batch, SHORT.bytes)
            for name, reading in zip(batch, readings, strict=True):
                if reading.version is None or decide_visibility(reading.access_facts) != Allowed():
                    continue
                readable = decide_privilege(reading.access_facts, "execute") == Allowed() and reading.sealed is not None
                values[str(name)] = self._decrypt_value(name, reading.sealed) if readable and reading.sealed else None
        fetched = [full for full, value in values.items() if value is not None]
        invocation.recorder.add_audit_facts(fetched=fetched)
        self.counter.count_reads(invocation.caller, fetched)
        return values

    def _decrypt_value(self, name: ResourceName, sealed: Sealed) -> str:
        return self.vault.open(str(name), sealed).decode("utf-8", "replace")


def unsupported_type(kind: str) -> Unprocessable:
    """Return the refusal of a type that the server doesn't have."""
    return Unprocessable(f"'authn-{kind[:100]}' authenticators are not supported.")


def _update_event(name: str) -> Event:
    return Event("update", "update", (("resource", name),), f"updated {name}", f"update {name}")


def _make_rows(place: _AuthenticatorLocation, new: NewAuthenticator) -> Rows:
    """Return the rows of an authenticator (NEWER-35)."""
    account, identifier = place.account, place.identifier
    own = str(place.policy)
    top = str(new.owner or place.base)
    groups = {name: f"{account}:group:{identifier}/{name}" for name in ("apps", "operators")}
    webservice, status = str(place.webservice), f"{place.webservice}/status"
    things = [webservice, status, *(f"{account}:variable:{identifier}/{name}" for name in new.values)]
    policy = () if place.kind.single else (own,)
    owners = {**dict.fromkeys(policy, top), **dict.fromkeys((*groups.values(), *things), top if place.kind.single else own)}
    return Rows(
        tuple(ResourceRow(full, owner) for full, owner in owners.items()),
        tuple(MembershipRow(full, owners[full], True, True) for full in (*policy, *groups.values())),
        (
            *(PermissionRow(webservice, privilege, groups["apps"]) for privilege in ("read", "authenticate")),
            *(PermissionRow(each, "read", groups["operators"]) for each in (webservice, status)),
        ),
        tuple(AnnotationRow(webservice, name, value) for name, value in new.annotations.items()),
    )


def _make_statements(place: _AuthenticatorLocation, new: NewAuthenticator) -> list[Tagged]:
    """Return the statements that mean these rows."""
    body = list(_make_body(place, new))
    if place.kind.single:
        return body
    attributes: dict[str, Value] = {"id": new.name}
    if new.owner is not None:
        attributes["owner"] = absolute_reference(str(new.owner))
    return [Tagged("policy", {**attributes, "body": PolicyBody(iter(body))})]


def _make_body(place: _AuthenticatorLocation, new: NewAuthenticator) -> Iterator[Tagged]:
    owner: dict[str, Value] = (
        {"owner": absolute_reference(str(new.owner))} if place.kind.single and new.owner is not None else {}
    )
    annotations: dict[str, Value] = {"annotations": dict(new.annotations)} if new.annotations else {}
    for tag, ident in (("group", "apps"), ("group", "operators"), *(("variable", name) for name in new.values)):
        yield Tagged(tag, {"id": ident, **owner})
    yield Tagged("webservice", {**owner, **annotations})
    yield Tagged("webservice", {"id": "status", **owner})
    apps, operators = Tagged("group", {"id": "apps"}), Tagged("group", {"id": "operators"})
    webservice, status = Tagged("webservice", {}), Tagged("webservice", {"id": "status"})
    yield Tagged("permit", {"role": apps, "privileges": ("read", "authenticate"), "resource": webservice})
    for resource in (webservice, status):
        yield Tagged("permit", {"role": operators, "privileges": ("read",), "resource": resource})
