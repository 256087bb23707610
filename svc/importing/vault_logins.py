"""Logins of a Vault as hosts and users: roles of JWTs and AppRole, and users with passwords.

Note [No wider login]. A host whose role has a condition that annotations can't state has no annotation at all: nobody can
log in as it until somebody writes one. With a part of the conditions others could, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from ipaddress import ip_network
from typing import Any, Final

import attrs

from svc.importing.inventory import Authenticator, Grant, NoteKind, Permission, RecordId
from svc.importing.vault_access import PolicyKey, iterate_keys
from svc.importing.vault_http import Found, VaultConnection
from svc.importing.vault_json import Json, object_of, texts_of
from svc.importing.vault_kv import Mount
from svc.importing.vault_names import Records

#: Claims that no annotation can name, since they are checked anyway.
_REGISTERED: Final = frozenset({"iss", "exp", "nbf", "iat", "aud", "jti"})
_CLAIM: Final = re.compile(r"[A-Za-z$_|][A-Za-z0-9$_|.-]*")

#: Methods that every server has for itself.
_OWN: Final = frozenset({"token", "ns_token"})


@attrs.frozen
class LoginRole:
    """A role or user that logs in, as the record that it becomes; ``alias`` is its name among an identity's aliases."""

    record: RecordId
    origin: str
    mount: Mount
    alias: str
    policies: frozenset[PolicyKey]


@attrs.frozen
class JwtConditions:
    """The conditions of a role: what annotations and audiences can state, and reasons why the rest can't."""

    claims: Mapping[str, str]
    audiences: tuple[str, ...]
    reasons: tuple[str, ...]


def read_conditions(role: Mapping[str, Json]) -> JwtConditions:
    """Return the conditions of a role of JWTs.

    :raises ValueError: it has another shape.
    """
    claims: dict[str, str] = {}
    reasons: list[str] = []
    if role.get("role_type") != "jwt":
        reasons.append("people log in by it with a browser")
    audiences = texts_of(role.get("bound_audiences"))
    if not audiences:
        reasons.append("it has no audience, and so takes only tokens without one")
    bound = [*_bound_claims(role)]
    for name, values, is_glob in bound:
        why = _refuse_claim(name, values, is_glob)
        if why:
            reasons.append(f"claim {name}: {why}")
        elif claims.setdefault(name, values[0]) != values[0]:
            reasons.append(f"claim {name}: it has two values, and no token has both")
    if not bound:
        reasons.append("it takes any token of the audience")
    return JwtConditions(claims, tuple(sorted(set(audiences))), tuple(reasons))


def _bound_claims(role: Mapping[str, Json]) -> Iterator[tuple[str, list[Any], bool]]:
    subject = role.get("bound_subject")
    if subject is not None and not isinstance(subject, str):
        raise ValueError("a subject of another shape")
    if subject:
        yield "sub", [subject], False
    is_glob = role.get("bound_claims_type") == "glob"
    for name, value in sorted(object_of(role.get("bound_claims")).items()):
        yield name, value if isinstance(value, list) else [value], is_glob


def _refuse_claim(name: str, values: list[Any], is_glob: bool) -> str:
    """Return why an annotation can't state what a claim is bound to; empty where it can."""
    if name in _REGISTERED or _CLAIM.fullmatch(name) is None:
        return (
            "no annotation can have this name"
            if "/" not in name
            else "it points into claims, which annotations don't do alike"
        )
    if len(values) != 1:
        return f"it is any of {len(values)} values, and an annotation has one: make a host for each"
    if not isinstance(values[0], str):
        return "it is no text, and claims that aren't text match nothing here"
    if is_glob and "*" in values[0]:
        return "it is a pattern, and annotations are compared as they are: make a host for each value"
    return "" if values[0].strip() else "it is blank, and a blank annotation matches nothing here"


@attrs.define
class LoginReader:
    """Reads methods of login."""

    connection: VaultConnection
    records: Records
    roles: list[LoginRole] = attrs.field(factory=list, init=False)
    authenticators: list[Authenticator] = attrs.field(factory=list, init=False)
    grants: list[Grant] = attrs.field(factory=list, init=False)
    permissions: list[Permission] = attrs.field(factory=list, init=False)
    #: The values of authenticators' settings.
    settings: dict[RecordId, bytes] = attrs.field(factory=dict, init=False)

    async def read_method(self, mount: Mount) -> None:
        """Add what logs in by a method."""
        if mount.type in {"jwt", "oidc"}:
            await self._read_jwt(mount)
        elif mount.type == "approle":
            await self._read_approle(mount)
        elif mount.type == "userpass":
            await self._read_userpass(mount)
        elif mount.type not in _OWN:
            what = f"logins by {mount.type} at {mount.namespace}auth/{mount.path}"
            self.records.note(
                NoteKind.LEFT_OUT, what, "they aren't moved", "make users or hosts, and see the authenticators"
            )

    async def _list(self, mount: Mount, path: str) -> tuple[str, ...]:
        whole = f"auth/{mount.path}{path}"
        names = await self.connection.list_names(whole, mount.namespace)
        if isinstance(names, tuple):
            return names
        self.records.note(NoteKind.UNSEEN, f"{mount.namespace}{whole}", "it may not be listed", "give the token list there")
        return ()

    async def _read(self, mount: Mount, path: str) -> dict[str, Json] | None:
        whole = f"auth/{mount.path}{path}"
        found = await self.connection.read(whole, mount.namespace)
        if isinstance(found, Found):
            return found.data
        self.records.note(NoteKind.UNSEEN, f"{mount.namespace}{whole}", "it may not be read", "give the token read there")
        return None

    async def _read_jwt(self, mount: Mount) -> None:
        where = f"{mount.namespace}auth/{mount.path}"
        config = await self._read(mount, "config")
        found: dict[RecordId, tuple[str, JwtConditions]] = {}
        for name in await self._list(mount, "role"):
            role = await self._read(mount, f"role/{name}")
            if role is None:
                continue
            conditions = self._checked(where, partial(read_conditions, role))
            record = self._add_role("host", mount, name, role, had_api_key=False)
            if record is None:
                continue
            if conditions.reasons:
                self.records.note(
                    NoteKind.LEFT_OUT,
                    f"logins by role {name} of {where}",
                    "; ".join(conditions.reasons),
                    f"write annotations of {record} that mean it",
                )
            else:
                found[record] = name, conditions
            self._note_extras(name, where, role)
        for name in await self._list_if_there(mount, "cel/role"):
            self.records.note(
                NoteKind.LEFT_OUT, f"role {name} of {where}cel", "it is a program in CEL", "write a host for it"
            )
        if config is not None and found:
            self._add_authenticators(mount, config, found)

    async def _list_if_there(self, mount: Mount, path: str) -> tuple[str, ...]:
        names = await self.connection.list_names(f"auth/{mount.path}{path}", mount.namespace)
        return names if isinstance(names, tuple) else ()

    def _note_extras(self, name: str, where: str, role: Mapping[str, Json]) -> None:
        extras = [key for key in ("claim_mappings", "groups_claim") if role.get(key)]
        if extras:
            what = f"{' and '.join(extras)} of role {name} of {where}"
            self.records.note(
                NoteKind.LEFT_OUT, what, "a login gives no metadata or groups here", "grant groups to the host"
            )

    def _add_authenticators(
        self, mount: Mount, config: Mapping[str, Json], found: Mapping[RecordId, tuple[str, JwtConditions]]
    ) -> None:
        """Add an authenticator for each audience: here it is a setting, and there a role may have several."""
        slug = re.sub("[^A-Za-z0-9._-]+", "-", f"{mount.namespace}{mount.path}".strip("/"))
        audiences = sorted({audience for _, conditions in found.values() for audience in conditions.audiences})
        services = {each: slug if len(audiences) == 1 else f"{slug}-{place}" for place, each in enumerate(audiences, 1)}
        for audience, service in services.items():
            members = [record for record, (_, conditions) in found.items() if audience in conditions.audiences]
            if not self._add_authenticator(mount, service, audience, config, members):
                continue
            for record in members:
                annotations = dict(self.records[record].annotations)
                annotations |= {f"authn-jwt/{service}/{claim}": value for claim, value in found[record][1].claims.items()}
                self.records.change(record, annotations=annotations)

    def _add_authenticator(
        self, mount: Mount, service: str, audience: str, config: Mapping[str, Json], members: Iterable[RecordId]
    ) -> bool:
        where = f"{mount.namespace}auth/{mount.path}"
        folder = "conjur/authn-jwt/"
        inside = f"{folder}{service}/"
        webservice = self.records.add_on_top("webservice", folder, service, where)
        if webservice is None:
            return False
        # Nothing but this has ids below a webservice that was free (Note [Reserved] of the module of names).
        apps = self.records.add_on_top("group", inside, "apps", where)
        variables: dict[RecordId | None, str] = {
            self.records.add_on_top("variable", inside, name, where, versions=(1,) if value else ()): value
            for name, value in self._settings_of(where, config, audience)
        }
        if apps is None or None in variables:
            raise self.connection.strange(where, f"the ids below {inside} are taken")
        branch = f"{folder}{service}"
        self.permissions += [Permission(apps, each, webservice, policy=branch) for each in ("authenticate", "read")]
        self.grants += [Grant(apps, member, policy=branch) for member in members]
        self.settings |= {name: value.encode() for name, value in variables.items() if name is not None and value}
        self.authenticators.append(Authenticator("authn-jwt", service, True, webservice))
        return True

    def _settings_of(self, where: str, config: Mapping[str, Json], audience: str) -> Iterator[tuple[str, str]]:
        """Return the settings of an authenticator; one without a value keeps everybody out until somebody sets it."""

        def text_of(name: str) -> str:
            value = config.get(name)
            return value.strip() if isinstance(value, str) else ""

        yield "audience", audience
        if text_of("bound_issuer"):
            yield "issuer", text_of("bound_issuer")
        if text_of("jwks_url"):
            yield "jwks-uri", text_of("jwks_url")
        elif text_of("oidc_discovery_url"):
            yield "provider-uri", text_of("oidc_discovery_url")
        else:
            yield "public-keys", ""
            self.records.note(
                NoteKind.LEFT_OUT,
                f"keys of {where}",
                "they are there in PEM, or there are none",
                'set the variable public-keys: {"type": "jwks", "value": {"keys": […]}}, and issuer',
            )
        if ca := text_of("jwks_ca_pem") or text_of("oidc_discovery_ca_pem"):
            yield "ca-cert", ca
        algorithms = self._checked(where, lambda: texts_of(config.get("jwt_supported_algs")))
        if algorithms:
            yield "algorithms", " ".join(algorithms)

    async def _read_approle(self, mount: Mount) -> None:
        where = f"{mount.namespace}auth/{mount.path}"
        count = 0
        for name in await self._list(mount, "role"):
            role = await self._read(mount, f"role/{name}")
            if role is None:
                continue
            has_secret = role.get("bind_secret_id") is not False
            if not has_secret:
                why = "whoever knows its role id logs in there, without a secret"
                self.records.note(NoteKind.CHANGED, f"role {name} of {where}", why, "it needs an API key here")
            found = await self._read(mount, f"role/{name}/role-id") or {}
            role_id = found.get("role_id")
            self._add_role("host", mount, name, role, had_api_key=True, alias=str(role_id or name))
            count += 1
        if count:
            why = "a secret-id can't be read"
            self.records.note(NoteKind.LEFT_OUT, f"secret-ids of {count} roles of {where}", why, "--new-keys makes API keys")

    async def _read_userpass(self, mount: Mount) -> None:
        where = f"{mount.namespace}auth/{mount.path}"
        count = 0
        for name in await self._list(mount, "users"):
            user = await self._read(mount, f"users/{name}")
            if user is not None:
                self._add_role("user", mount, name, user, had_api_key=True)
                count += 1
        if count:
            why = "a password can't be read"
            self.records.note(NoteKind.LEFT_OUT, f"passwords of {count} users of {where}", why, "--new-keys makes API keys")

    def _add_role(
        self, kind: str, mount: Mount, name: str, role: Mapping[str, Json], *, had_api_key: bool, alias: str = ""
    ) -> RecordId | None:
        where = f"{mount.namespace}auth/{mount.path}"
        origin = f"{'user' if kind == 'user' else 'role'} {name} of {where}"
        policies = self._checked(where, lambda: _policies_of(role))
        networks = self._checked(where, lambda: _networks_of(role))
        for written, network in networks.items():
            if "/" in written and written != network:
                self.records.note(NoteKind.CHANGED, origin, f"{written} means {network} there", "it is so here")
        restricted = self._meeting(networks, role)
        if restricted is None:
            why = "its secret-ids and its tokens are bound to networks that don't meet: nobody can log in there"
            self.records.note(NoteKind.LEFT_OUT, f"the login of {origin}", why, "give it an API key here if it is to log in")
            restricted, had_api_key = (), False
        record = self.records.add(kind, where, name, origin, restricted_to=restricted, had_api_key=had_api_key)
        if record is not None:
            keys = frozenset(iterate_keys(mount.namespace, policies))
            self.roles.append(LoginRole(record, origin, mount, alias or name, keys))
        return record

    @staticmethod
    def _meeting(networks: Mapping[str, str], role: Mapping[str, Json]) -> tuple[str, ...] | None:
        """Return the networks from which both a login and its token are taken; ``None`` where there are none."""
        token, secret = (
            [ip_network(networks[each]) for each in _written(role, names)] for names in (_OF_TOKENS, _OF_SECRETS)
        )
        if not token or not secret:
            return tuple(str(each) for each in token or secret)
        both = [
            small
            for one in token
            for other in secret
            if one.version == other.version
            for small in [one if one.prefixlen >= other.prefixlen else other]
            if one.overlaps(other)
        ]
        return tuple(dict.fromkeys(str(each) for each in both)) or None

    def _checked(self, where: str, read: Any) -> Any:
        try:
            return read()
        except ValueError as fault:
            raise self.connection.strange(where, str(fault)) from None


_OF_TOKENS: Final = ("token_bound_cidrs", "bound_cidrs")
_OF_SECRETS: Final = ("secret_id_bound_cidrs",)


def _written(role: Mapping[str, Json], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for name in names for each in texts_of(role.get(name))))


def _networks_of(role: Mapping[str, Json]) -> dict[str, str]:
    """Return the networks of a role, each as it is written and as it is meant."""
    return {each: str(ip_network(each, strict=False)) for each in _written(role, (*_OF_TOKENS, *_OF_SECRETS))}


def _policies_of(role: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the names of the policies that a login gets; one name has an older spelling."""
    names = dict.fromkeys((*texts_of(role.get("token_policies")), *texts_of(role.get("policies"))))
    return (*names, *(() if role.get("token_no_default_policy") is True else ("default",)))
