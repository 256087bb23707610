"""The effective policy: rows back to statements that declare them (POL-75 to POL-81).

Note [What is left out]. Statements can't express everything that rows can. Left out are things that no document can declare
(with a name of blanks alone, or a user with a slash; in ``native`` a host factory without a layer), references and
annotations through which ``..`` would climb elsewhere, configurations, and grants and permissions to another account's
roles. A comment names them, but for configurations. Of a public key only the text is printed, with its user. Kinds that
policies made up are printed after ours.

Note [What is hidden]. The owner of a policy needn't see all that lies beneath it by name: a record there may be somebody
else's. For one that the viewer doesn't see only the kind is printed, with an id that no record can have, so that the
document doesn't load, and nobody replaces a policy by a part of it. For records that are seen, owners, members and grantees
are printed, seen or not, as in the routes of resources and roles (ROLE-11 and RES-16).

Note [Users and namesakes]. A user's id doesn't show its policy: ``bob@a-b`` may be of ``a/b``, of ``a-b``, or of the root.
Neither does the id of a thing that has a policy's id. An owner of a policy other than the root must not learn of things that
only look like the policy's: owner and recorder decide whose they are (POL-75).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from svc.model.dialect import Dialect
from svc.model.names import ACTING_KINDS, RoleName, admin_of, is_other_kind, root_policy
from svc.model.policy_loads import (
    AnnotationRow,
    EffectivePolicyRows,
    EffectiveQuery,
    MembershipRow,
    PermissionRow,
    RestrictionRow,
)
from svc.policy.differences import REDACTED
from svc.policy.ids import identifier_of, is_padded, join_path, resolve_parents
from svc.policy.statement_writer import Comment, PolicyBody, Tagged, Value, quote_scalar

T = TypeVar("T")

#: The kinds that are printed, in the order of a body, and their tags.
TAGS: Final = {
    "user": "user",
    "policy": "policy",
    "variable": "variable",
    "webservice": "webservice",
    "host": "host",
    "layer": "layer",
    "host_factory": "host-factory",
    "group": "group",
}

#: Public keys are printed with their users.
_OMITTED_KINDS: Final = ("public_key", "configuration")

#: How deep policies are nested; those below are printed beside them, with longer ids. Documents may nest 64 levels, of which
#: a policy takes two.
DEEPEST: Final = 16

#: The comment names so many things that are left out, and counts the others.
LEFT_OUT_MOST: Final = 100
_KEY_PARTS: Final = 3  # at least: algorithm, key and name (KEY-3)
_PAUSE: Final = 0x3FF  # there is one after so many rows, and one more


def make_query(policy: RoleName, depth: int | None, limit: int, viewer: RoleName | None = None) -> EffectiveQuery:
    """Return the query for the store; for a ``viewer``, Note [What is hidden] holds."""
    named = [f"{policy.account}:{kind}:{identifier_of(kind, policy.identifier)}" for kind in TAGS if kind != "policy"]
    return EffectiveQuery(policy, _OMITTED_KINDS, depth, limit, "@" + _fold_path(policy.identifier), tuple(named), viewer)


def build_statements(
    policy: RoleName, effective: EffectivePolicyRows, public_keys: Mapping[str, str], dialect: Dialect
) -> Iterator[Tagged | Comment | None]:
    """Return the rows that were read of ``policy`` as statements, with its opened public keys; ``None`` is a pause."""
    printing = _PolicyPrinter(policy, effective, public_keys, dialect.lenient_policy)
    yield from printing.arrange_records()
    yield from printing.list_statements()


def _fold_path(identifier: str) -> str:
    return identifier.replace("/", "-")


def _take_each(things: Iterable[T], take: Callable[[T], None]) -> Iterator[None]:
    """Take things one by one, with pauses."""
    for step, thing in enumerate(things):
        if step & _PAUSE == _PAUSE:
            yield None
        take(thing)


class _PolicyPrinter:
    """Turns rows into statements. A *namespace* is the id of the policy in whose body something is written, empty for the
    root; a *place* is a namespace with the id that is written there.
    """

    def __init__(
        self, policy: RoleName, effective: EffectivePolicyRows, public_keys: Mapping[str, str], lenient: bool
    ) -> None:
        self._policy = policy
        self._public_keys = public_keys
        self._lenient = lenient
        self._account = policy.account
        self._is_root = policy == root_policy(policy.account)
        self._top = "" if self._is_root else policy.identifier
        self._effective = effective
        self._owners = dict(effective.rows.resources)
        #: The nesting depth of each policy that has a body.
        self._levels = {self._top: 0}
        #: The same policies by what follows the ``@`` of their users.
        self._by_fold: dict[str, dict[str, None]] = {}
        self._places: dict[str, tuple[str, str]] = {}
        self._records: dict[str, dict[str, list[str]]] = {}
        self._granted: dict[str, list[str]] = {}
        self._permitted: dict[str, list[str]] = {}
        self._annotations: dict[str, dict[str, str]] = {}
        self._members: dict[str, list[MembershipRow]] = {}
        self._layers: dict[str, list[str]] = {}
        self._restrictions: dict[str, list[str]] = {}
        self._keys: dict[str, list[str]] = {}
        self._privileges: dict[str, dict[str, list[str]]] = {}
        #: Descriptions of what no document can declare (Note [What is left out]).
        self._left_out: list[str] = []

    def arrange_records(self) -> Iterator[None]:
        """Find the place of everything."""
        rows = self._effective.rows
        if not self._is_root:
            self._by_fold[_fold_path(self._top)] = {self._top: None}
        # Layers, restrictions and keys come first, since they decide whether a record can be declared; then policies, since
        # they are places of others.
        yield from _take_each(sorted(rows.memberships), self._add_layer)
        yield from _take_each(sorted(rows.restrictions), self._add_restriction)
        yield from _take_each(sorted(self._public_keys.items()), self._add_public_key)
        names = sorted(self._owners)
        yield from _take_each(names, self._place_policy)
        yield from _take_each(names, self._place_record)
        yield from _take_each(sorted(rows.annotations), self._add_annotation)
        yield from _take_each(sorted(rows.memberships), self._add_member)
        yield from _take_each(sorted(rows.permissions), self._add_permission)
        for things, by_namespace in ((self._members, self._granted), (self._privileges, self._permitted)):
            for full in things:
                by_namespace.setdefault(self._places[full][0], []).append(full)

    def _add_layer(self, membership: MembershipRow) -> None:
        if self._is_layer(membership):
            self._layers.setdefault(membership.member, []).append(membership.role)

    def _add_restriction(self, row: RestrictionRow) -> None:
        self._restrictions.setdefault(row.role, []).append(row.cidr)

    def _add_public_key(self, key: tuple[str, str]) -> None:
        full, line = key
        account, _, identifier = full.split(":", 2)
        user, _, name = identifier.removeprefix("user/").partition("/")
        words = line.split(" ")
        if len(words) >= _KEY_PARTS and words == line.split() and name == " ".join(words[_KEY_PARTS - 1 :]):
            self._keys.setdefault(f"{account}:user:{user}", []).append(line)
        else:
            self._left_out.append(quote_scalar(full))

    def _add_annotation(self, row: AnnotationRow) -> None:
        if row.name.strip() and ".." not in row.value.split("/"):
            self._annotations.setdefault(row.resource, {})[row.name] = row.value
        elif row.resource in self._places:
            self._left_out.append(f"the annotation {quote_scalar(row.name)} of {quote_scalar(row.resource)}")

    def _add_member(self, row: MembershipRow) -> None:
        if row.ownership or self._is_layer(row):
            return
        if row.role not in self._places:
            # It may be a layer elsewhere with which the host factory can't be declared.
            lost = row.role not in self._owners and row.member in self._places and not self._is_nameable(row.role)
        elif not (lost := not self._is_resolvable(row.member)):
            self._members.setdefault(row.role, []).append(row)
        if lost:
            self._left_out.append(f"the member {quote_scalar(row.member)} of {quote_scalar(row.role)}")

    def _add_permission(self, row: PermissionRow) -> None:
        if row.resource not in self._places:
            return
        if self._is_resolvable(row.role) and (self._lenient or not is_padded(row.privilege)):
            self._privileges.setdefault(row.resource, {}).setdefault(row.role, []).append(row.privilege)
        else:
            what = f"the privilege {quote_scalar(row.privilege)} of {quote_scalar(row.role)}"
            self._left_out.append(f"{what} on {quote_scalar(row.resource)}")

    def _is_layer(self, membership: MembershipRow) -> bool:
        """Return whether a membership is of the layers that a host factory is declared with."""
        kinds = [full.split(":", 2)[1] for full in membership[:2]]
        return (
            kinds == ["layer", "host_factory"]
            and membership.member in self._owners
            and not (membership.ownership or membership.admin_option)
            and self._is_nameable(membership.role)
        )

    def list_statements(self) -> Iterator[Tagged | Comment]:
        """Return the statements of the document; called after ``arrange_records``."""
        place = None if self._is_root else self._place_around()
        if place is None and not self._is_root:
            self._left_out.append(quote_scalar(str(self._policy)))
        if self._left_out:
            more = len(self._left_out) - LEFT_OUT_MOST
            lines = [f"- {each}" for each in self._left_out[:LEFT_OUT_MOST]] + [f"- and {more} more"] * (more > 0)
            yield Comment(("Left out, because no document can declare it:", *lines))
        if self._is_root:
            # No document declares the root policy, but it can annotate it.
            root = str(self._policy)
            if self._annotations.get(root):
                yield self._record_statement(root, "", self._policy.identifier)
            yield from self._body_statements("")
        elif place is not None:
            yield self._record_statement(str(self._policy), *place)

    def _body_statements(self, namespace: str) -> Iterator[Tagged]:
        records = self._records.get(namespace, {})
        hidden = Counter(self._effective.hidden if namespace == self._top else ())
        for kind in dict.fromkeys((*TAGS, *sorted({*records, *hidden}))):
            for full in records.get(kind, ()):
                yield self._record_statement(full, *self._places[full])
            # No record may be declared with a leading slash.
            for _ in range(hidden[kind]):
                yield make_tagged(kind, f"/{REDACTED}")
        for role in self._granted.get(namespace, ()):
            yield self._grant_statement(role)
        for resource in self._permitted.get(namespace, ()):
            yield from self._permit_statements(resource)

    def _place_policy(self, full: str) -> None:
        """Find the place of a policy; those around it have come before, by the order of ids."""
        _, kind, identifier = full.split(":", 2)
        if kind != "policy":
            return
        if full == str(self._policy):
            self._places[full] = ("", identifier) if self._is_root else (self._top, "")
            return
        for namespace, written in self._places_around(identifier):
            if self._levels[namespace] < DEEPEST and self._fits_place(full, namespace, written):
                self._assign_place(full, namespace, written)
                self._levels[identifier] = self._levels[namespace] + 1
                self._by_fold.setdefault(_fold_path(identifier), {})[identifier] = None
                return
        self._left_out.append(quote_scalar(full))

    def _place_record(self, full: str) -> None:
        kind = full.split(":", 2)[1]
        if kind == "policy":
            return
        for namespace, written in self._places_of_user(full) if kind == "user" else self._places_of_thing(full):
            if self._fits_place(full, namespace, written):
                self._assign_place(full, namespace, written)
                return
        if kind not in _OMITTED_KINDS:
            self._left_out.append(quote_scalar(full))

    def _assign_place(self, full: str, namespace: str, written: str) -> None:
        self._places[full] = namespace, written
        self._records.setdefault(namespace, {}).setdefault(full.split(":", 2)[1], []).append(full)

    def _places_around(self, identifier: str) -> Iterator[tuple[str, str]]:
        """Return the places of an id in the policies whose ids are proper beginnings of its path, the longest first."""
        end = identifier.rfind("/")
        while end > len(self._top):
            if identifier[:end] in self._levels:
                yield identifier[:end], identifier[end + 1 :]
            end = identifier.rfind("/", 0, end)
        yield self._top, identifier[len(self._top) + 1 :] if self._top else identifier

    def _places_of_thing(self, full: str) -> Iterator[tuple[str, str]]:
        """Return the places of a thing: in the policy of its id, which for what logs in, or makes hosts, must own it."""
        _, kind, identifier = full.split(":", 2)
        if identifier in self._levels and (kind not in ACTING_KINDS or self._is_owned_by(full, identifier)):
            yield identifier, ""
        yield from self._places_around(identifier)

    def _places_of_user(self, full: str) -> Iterator[tuple[str, str]]:
        """Return the places of a user: in its owner if that fits, else in the first policy that fits, else at the top."""
        identifier = full.split(":", 2)[2]
        _, owner_kind, owner = self._owners[full].split(":", 2)
        if owner_kind == "policy" and owner in self._levels:
            yield owner, ""
        fitting: list[tuple[str, str]] = []
        at = identifier.find("@")
        while at >= 0:
            policies = self._by_fold.get(identifier[at + 1 :], {})
            if owner_kind == "policy" and owner in policies:
                yield owner, identifier[:at]
            if policies and not fitting:
                fitting = [(policy, identifier[:at]) for policy in policies]
            at = identifier.find("@", at + 1)
        yield from fitting[:1]
        if self._is_root:
            yield "", identifier
            return
        name, mark, namespace = identifier.partition(f"@{_fold_path(self._top)}-")
        if mark:
            yield self._top, f"{namespace}/{name}"
        yield self._top, ""

    def _place_around(self) -> tuple[str, str] | None:
        """Return the place of the policy itself, in the policy around it."""
        identifier = self._policy.identifier
        ends = [end for end, char in enumerate(identifier) if char == "/" and identifier[:end] in self._effective.around]
        places = [*((identifier[:end], identifier[end + 1 :]) for end in reversed(ends)), ("", identifier)]
        return next((place for place in places if self._fits_place(str(self._policy), *place)), None)

    def _fits_place(self, full: str, namespace: str, written: str) -> bool:
        """Return whether a thing that is declared at this place is this one, with its owner."""
        _, kind, identifier = full.split(":", 2)
        is_blank = not (written.strip() if written else namespace and kind != "policy")
        if not _is_printed(kind) or is_blank or written.startswith("/"):
            return False
        if identifier_of(kind, join_path(namespace, written)) != identifier or (
            kind == "host_factory" and full not in self._layers and not self._lenient
        ):
            return False
        owner = self._owners.get(full)
        return owner is not None and (owner == self._default_owner(namespace) or self._is_nameable(owner))

    def _is_owned_by(self, full: str, policy: str) -> bool:
        return self._owners[full] == f"{self._account}:policy:{policy}"

    def _default_owner(self, namespace: str) -> str:
        return f"{self._account}:policy:{namespace}" if namespace else str(admin_of(self._account))

    def _is_nameable(self, full: str) -> bool:
        """Return whether an absolute reference means this role."""
        account, kind, identifier = full.split(":", 2)
        return (
            account == self._account
            and _is_printed(kind)
            and resolve_parents(identifier) == identifier
            and identifier_of(kind, identifier) == identifier
        )

    def _is_resolvable(self, full: str) -> bool:
        """Return whether an absolute reference means this role, and resolves to it once the document is loaded."""
        return self._is_nameable(full) and (full in self._places or full not in self._owners)

    def _record_statement(self, full: str, namespace: str, written: str) -> Tagged:
        _, kind, identifier = full.split(":", 2)
        declared = make_tagged(kind, written)
        attributes = declared.attributes
        owner = self._owners[full]
        if owner != self._default_owner(namespace):
            attributes["owner"] = absolute_reference(owner)
        if full in self._annotations:
            attributes["annotations"] = self._annotations[full]
        if full in self._restrictions:
            attributes["restricted_to"] = tuple(self._restrictions[full])
        if full in self._keys:
            attributes["public_keys"] = tuple(self._keys[full])
        if kind == "host_factory":
            attributes["layers"] = [absolute_reference(layer) for layer in self._layers.get(full, ())] or ()
        if kind == "policy" and not (self._is_root and full == str(self._policy)):
            bodies = (self._records, self._granted, self._permitted)
            hidden = identifier == self._top and self._effective.hidden
            if hidden or any(identifier in body for body in bodies):
                attributes["body"] = PolicyBody(self._body_statements(identifier))
        return declared

    def _grant_statement(self, role: str) -> Tagged:
        members = [
            Tagged("member", {"role": absolute_reference(member), "admin": True}) if admin else absolute_reference(member)
            for _, member, _, admin in self._members[role]
        ]
        several: Value = members if len(members) > 1 or members[0].tag == "member" else members[0]
        field = "member" if isinstance(several, Tagged) else "members"
        return Tagged("grant", {"role": self._relative_reference(role, is_role=True), field: several})

    def _permit_statements(self, resource: str) -> Iterator[Tagged]:
        """Return a permission for each set of privileges, with all roles that have just these."""
        alike: dict[tuple[str, ...], list[Tagged]] = {}
        for role, held in self._privileges[resource].items():
            alike.setdefault(tuple(held), []).append(absolute_reference(role))
        for privileges, roles in alike.items():
            attributes: dict[str, Value] = {"role": roles[0]} if len(roles) == 1 else {"roles": roles}
            yield Tagged("permit", {**attributes, "privileges": privileges, "resource": self._relative_reference(resource)})

    def _relative_reference(self, full: str, *, is_role: bool = False) -> Tagged:
        _, written = self._places[full]
        return make_tagged(full.split(":", 2)[1], written, is_role=is_role)


def make_tagged(kind: str, written: str, *, is_role: bool = False) -> Tagged:
    """Return a record or a reference, by its kind and id, which is empty for a policy's own. Kinds that policies made up
    have no tags of their own: where a role is referred to, theirs differs from that elsewhere.
    """
    attributes: dict[str, Value] = {"id": written} if written else {}
    if kind in TAGS:
        return Tagged(TAGS[kind], attributes)
    return Tagged("role" if is_role else "resource", {**attributes, "kind": kind})


def absolute_reference(full: str) -> Tagged:
    """Return a reference to a role that means it in every scope."""
    _, kind, identifier = full.split(":", 2)
    return make_tagged(kind, f"/{identifier}", is_role=True)


def _is_printed(kind: str) -> bool:
    return kind in TAGS or is_other_kind(kind)
