"""What each route's request is in the audit: its events, from the path, the query and what the route has found out.

A route names its function here (``routes.add(…, audit=…)``); the router gives the events to the journal with the outcome,
before anything is answered (``router``, Note [Recorded before it is answered]). The words are those of the installed base
where it has them (AUD-3). What a body said is told by the route (``Call.tell``), never its secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from svc.model.events import AUTH, NOTICE, Event, Subject
from svc.model.names import RoleName
from svc.web.http.routing import Call

#: Who logs in where no login was given, and where there is no such role (AUD-11).
_MISSING: Final = "USERNAME_MISSING"
_NOT_FOUND: Final = "not-found"

#: The authenticator whose status isn't audited (AUD-3).
_UNAUDITED_STATUS: Final = "authn-jwt"


def logged_in(call: Call) -> list[Event]:
    """A role was told its API key."""
    return [_authentication(call, "login", "successfully logged in", "log in")]


def authenticated(call: Call) -> list[Event]:
    """A role was given an access token."""
    return [_authentication(call, "authenticate", "successfully authenticated", "authenticate")]


def _authentication(call: Call, operation: str, did: str, does: str) -> Event:
    facts, account = call.facts, call.values["account"]
    name = facts.get("authenticator", "authn")
    login = facts.get("login") or call.values.get("login")
    role = facts.get("role") or _would_be(account, login)
    service_id = call.values.get("service_id")
    service = None if service_id is None else f"{name}/{service_id}"
    where = f" with authenticator {name}" + ("" if service is None else f" service {service}")
    return Event(
        "authn",
        operation,
        (("role", role),),
        did + where,
        f"be {role}, to {does}{where}" if facts.get("unknown") else does + where,
        user=_NOT_FOUND if facts.get("unknown") else role,
        authenticator=name,
        service=service,
    )


def _would_be(account: str, login: str | None) -> str:
    """The full id of the role that a login means, whether there is one or not."""
    kind, slash, rest = (login or _MISSING).partition("/")
    return f"{account}:{kind}:{rest}" if slash and kind in {"user", "host"} else f"{account}:user:{login or _MISSING}"


def password_changed(call: Call) -> list[Event]:
    """A user chose another password."""
    user, role = _proven(call)
    return [Event("password", "change", (("role", role),), "changed its password", "change its password", user=user)]


def api_key_rotated(call: Call) -> list[Event]:
    """A role was given another API key."""
    user, role = _proven(call)
    target = call.facts.get("target", role)
    words = "its API key" if target == role else f"the API key of {target}"
    return [Event("api-key", "rotate", (("role", target),), f"rotated {words}", f"rotate {words}", user=user)]


def rotation_asked(call: Call) -> list[Event]:
    """It was asked when an API key was rotated."""
    user, role = _proven(call)
    target = call.facts.get("target", role)
    words = f"when the API key of {target} was rotated"
    return [Event("api-key", "show", (("role", target),), f"read {words}", f"read {words}", user=user)]


def _proven(call: Call) -> tuple[str, str]:
    """Who acts by an access token or by HTTP Basic, and the role that he says he is."""
    if call.caller_if_any is not None:
        return str(call.caller.role), str(call.caller.role)
    role = call.facts.get("role") or _would_be(call.values["account"], call.facts.get("login"))
    return _NOT_FOUND if call.facts.get("unknown") else role, role


def identity_checked(call: Call) -> list[Event]:
    """A role asked who it is."""
    return [
        Event(
            "identity-check", "check", _role(call.caller.role), "checked its identity", "check its identity", facility=AUTH
        )
    ]


def status_validated(call: Call) -> list[Event]:
    """The status of an authenticator was asked for."""
    name = call.facts.get("authenticator")
    if name == _UNAUDITED_STATUS:
        return []
    service = f"{name}/{call.values['service_id']}"
    words = f"status of authenticator {service}"
    return [_on_authenticator(call, "validate-status", service, f"validated the {words}", f"validate the {words}")]


def switched(call: Call) -> list[Event]:
    """An authenticator was switched on or off."""
    kind, service_id = call.values.get("kind"), call.values.get("service_id")
    service = "authn" if kind is None else f"authn-{kind}" + ("" if service_id is None else f"/{service_id}")
    state = {None: "", True: " on", False: " off"}[call.facts.get("enabled")]
    return [
        _on_authenticator(
            call,
            "update-authenticator-configuration",
            service,
            f"switched the authenticator {service}{state}",
            f"switch the authenticator {service}{state}",
        )
    ]


def explained(call: Call) -> list[Event]:
    """An operator had a token explained."""
    return [_operated(call, "explain", "had a login explained of", "have a login explained of")]


def keys_refreshed(call: Call) -> list[Event]:
    """An operator had a provider's keys fetched anew."""
    return [_operated(call, "refresh-keys", "had the keys fetched anew of", "have the keys fetched anew of")]


def key_distrusted(call: Call) -> list[Event]:
    """An operator distrusts a key."""
    key = call.values["key"]
    return [_operated(call, "distrust-key", f"distrusts the key {key} for", f"distrust the key {key} for", ("key", key))]


def key_trusted(call: Call) -> list[Event]:
    """An operator trusts a key again."""
    key = call.values["key"]
    return [_operated(call, "trust-key", f"trusts again the key {key} for", f"trust again the key {key} for", ("key", key))]


def _operated(call: Call, operation: str, did: str, does: str, *more: tuple[str, str]) -> Event:
    service = f"{call.facts.get('authenticator')}/{call.values['service_id']}"
    return _on_authenticator(
        call, operation, service, f"{did} the authenticator {service}", f"{does} the authenticator {service}", *more
    )


def _on_authenticator(call: Call, operation: str, service: str, did: str, does: str, *more: tuple[str, str]) -> Event:
    # The webservice is that of the path's account, or would be.
    resource = f"{call.values['account']}:webservice:{call.origin.server.appname}/{service}"
    subject = (("resource", resource), *_role(call.caller.role), *more)
    return Event("authn", operation, subject, did, does, authenticator=service.partition("/")[0], service=service)


def fetched(call: Call) -> list[Event]:
    """The value of a variable was read."""
    version = _said(call, "version")
    return [_fetched(_variable(call), version)]


def fetched_several(call: Call) -> list[Event]:
    """Values of several resources were read: an event for each."""
    return [_fetched(name, None) for name in call.facts.get("resources", ())] or [_fetched("-", None)]


def _fetched(name: str, version: str | None) -> Event:
    if version is None:
        return Event("fetch", "fetch", (("resource", name),), f"fetched {name}", f"fetch {name}")
    words = f"version {version} of {name}"
    return Event("fetch", "fetch", (("resource", name), ("version", version)), f"fetched {words}", f"fetch {words}")


def updated(call: Call) -> list[Event]:
    """A variable was given a value."""
    name = _variable(call)
    return [Event("update", "update", (("resource", name),), f"updated {name}", f"update {name}")]


def public_key_updated(call: Call) -> list[Event]:
    """A public key was given another text."""
    name = f"{call.values['account']}:public_key:{call.values['identifier']}"
    return [Event("update", "update", (("resource", name),), f"updated {name}", f"update {name}")]


def expirations_cleared(call: Call) -> list[Event]:
    """The values of a variable were to end no more; without its flag there is no such route."""
    if not call.query.flag("expirations"):
        return []
    name = f"{call.values['account']}:{call.values.get('kind', 'variable')}:{call.values['identifier']}"
    words = f"the expiration of {name}"
    return [Event("expiration", "clear", (("resource", name),), f"cleared {words}", f"clear {words}")]


def _variable(call: Call) -> str:
    return f"{call.values['account']}:variable:{call.values['identifier']}"


def resources_listed(call: Call) -> list[Event]:
    """Resources were listed or counted."""
    asked = ("account", "kind", "owner", "search", "limit", "offset", "count", "role", "acting_as")
    return [Event("list", "list", _asked(call, asked), "listed resources", "list resources")]


def resource_asked(call: Call) -> list[Event]:
    """A resource was shown, or who has a privilege on it."""
    name = f"{call.values['account']}:{call.values['kind']}:{call.values['identifier']}"
    subject: Subject = (("resource", name),)
    privilege = _said(call, "privilege") or _said(call, "permission") or "-"
    if call.query.flag("check"):
        role = _said(call, "role") or str(call.caller.role)
        words = f"if {role} can {privilege} {name}"
        subject = (*subject, ("role", role), ("privilege", privilege))
        return [Event("check", "check", subject, f"checked {words}", f"check {words}")]
    if call.query.flag("permitted_roles"):
        words = f"the roles that can {privilege} {name}"
        subject = (*subject, ("privilege", privilege))
        return [Event("resource", "permitted-roles", subject, f"listed {words}", f"list {words}")]
    return [Event("resource", "show", subject, f"read {name}", f"read {name}")]


def role_asked(call: Call) -> list[Event]:
    """A role was shown, or whom it has for members, or what it holds."""
    name = _named_role(call)
    operation = next((flag for flag in ("graph", "all", "memberships", "members") if call.query.flag(flag)), "show")
    if operation != "members":
        words = {"graph": "the graph of ", "all": "all roles of ", "memberships": "the memberships of "}.get(operation, "")
        return [Event("role", operation, (("role", name),), f"read {words}{name}", f"read {words}{name}")]
    asked = ("account", "count", "kind", "search", "limit", "offset")
    return [
        Event(
            "members", "list", (*_asked(call, asked), ("role", name)), f"listed members of {name}", f"list members of {name}"
        )
    ]


def member_added(call: Call) -> list[Event]:
    """A role was granted over HTTP."""
    return _membership(call, "add", "added {} to {}", "add {} to {}")


def member_removed(call: Call) -> list[Event]:
    """A role was taken back over HTTP."""
    return _membership(call, "remove", "removed {} from {}", "remove {} from {}")


def _membership(call: Call, operation: str, did: str, does: str) -> list[Event]:
    if call.facts.get("unchanged"):
        return []
    role, member = _named_role(call), _said(call, "member") or "-"
    subject = (("role", role), ("member", member))
    return [Event("membership", operation, subject, did.format(member, role), does.format(member, role))]


def policy_loaded(call: Call) -> list[Event]:
    """A policy document was loaded, or tried; the rows that changed have events of their own."""
    name = f"{call.values['account']}:policy:{call.values['identifier']}"
    if call.facts.get("dry_run"):
        words = f"a dry run of a load of {name}"
        return [Event("policy", "dry-run", (("policy", name),), f"made {words}", f"make {words}", severity=NOTICE)]
    return [Event("policy", "load", (("policy", name),), f"loaded {name}", f"load {name}", severity=NOTICE)]


def policy_read(call: Call) -> list[Event]:
    """What a policy holds was read."""
    name = f"{call.values['account']}:policy:{call.values['identifier']}"
    return [Event("policy", "read", (("policy", name),), f"read {name}", f"read {name}")]


def factory_tokens_made(call: Call) -> list[Event]:
    """Tokens of a host factory were made."""
    factory, count = call.facts.get("factory", "-"), call.facts.get("count", "-")
    subject = (("resource", factory), ("count", str(count)))
    return [Event("host-factory", "create-tokens", subject, f"made tokens of {factory}", f"make tokens of {factory}")]


def factory_token_revoked(call: Call) -> list[Event]:
    """A token of a host factory was revoked."""
    factory, token = call.facts.get("factory", "-"), call.facts.get("token", "-")
    words = f"the token {token} of {factory}"
    return [
        Event(
            "host-factory", "revoke-token", (("resource", factory), ("token", token)), f"revoked {words}", f"revoke {words}"
        )
    ]


def factory_host_made(call: Call) -> list[Event]:
    """A host was made with a host factory's token, or given another API key."""
    host, factory, token = (call.facts.get(name, "-") for name in ("host", "factory", "token"))
    words = f"with the token {token} of {factory}"
    return [
        Event(
            "host-factory",
            "create-host",
            (("role", host), ("resource", factory), ("token", token)),
            f"was made or given another API key {words}",
            f"be made {words}",
            user=host,
        )
    ]


def account_made(call: Call) -> list[Event]:
    """An account was made."""
    return [_account(call.facts.get("account", "-"), "create", "made", "make")]


def account_deleted(call: Call) -> list[Event]:
    """An account was deleted."""
    return [_account(call.values["account"], "delete", "deleted", "delete")]


def accounts_listed(call: Call) -> list[Event]:  # noqa: ARG001 (they are all called alike)
    """The accounts were listed."""
    return [Event("account", "list", (), "listed accounts", "list accounts")]


def _account(account: str, operation: str, did: str, does: str) -> Event:
    words = f"the account {account}"
    return Event("account", operation, (("account", account),), f"{did} {words}", f"{does} {words}")


def audit_read(call: Call) -> list[Event]:
    """The audit was read."""
    about = call.values.get("identifier")
    subject = () if about is None else (("resource", about),)
    words = "the audit" if about is None else f"the audit of {about}"
    return [Event("audit", "list", subject, f"read {words}", f"read {words}")]


def _named_role(call: Call) -> str:
    return f"{call.values['account']}:{call.values['kind']}:{call.values['identifier']}"


def _role(role: RoleName) -> Subject:
    return (("role", str(role)),)


def _asked(call: Call, names: tuple[str, ...]) -> Subject:
    """What the path or the query says under these names; the first of what is said more than once."""

    def said() -> Iterator[tuple[str, str]]:
        for name in names:
            text = call.values.get(name) or _said(call, name)
            if text is not None:
                yield name, text

    return tuple(said())


def _said(call: Call, name: str) -> str | None:
    """What the query says first under a name, right or wrong, empty where it is bare; ``None`` where the name is absent."""
    pairs = call.query.pairs
    return next((value or "" for key, value in pairs if key in {name, f"{name}[]"}), None) if pairs else None
