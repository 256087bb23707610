"""What each route's request is in the audit: its events, from the path, the query and what the route has found out.

A route names its function here (``routes.add(…, audit=…)``). The words are those of the installed base where it has them
(AUD-3). What a body said is told by the route (``Call.tell``), never its secrets.
"""

from __future__ import annotations

from typing import Final

from svc.model.events import AUTH, NOTICE, Event, Subject
from svc.web.http.routing import Call, Recount

#: Who logs in where no login was given, and where there is no such role (AUD-11).
_MISSING: Final = "USERNAME_MISSING"
_NOT_FOUND: Final = "not-found"

#: The authenticator whose status isn't audited (AUD-3).
_UNAUDITED_STATUS: Final = "authn-jwt"


def _authentication(operation: str, did: str, does: str) -> Recount:
    def events(call: Call) -> list[Event]:
        facts, account = call.facts, call.values["account"]
        name = facts.get("authenticator", "authn")
        role = facts.get("role") or _would_be(account, facts.get("login") or call.values.get("login"))
        service_id = call.values.get("service_id")
        service = None if service_id is None else f"{name}/{service_id}"
        where = f" with authenticator {name}" + ("" if service is None else f" service {service}")
        user, tried = (_NOT_FOUND, f"be {role}, to {does}") if facts.get("unknown") else (role, does)
        subject = (("role", role),)
        return [Event("authn", operation, subject, did + where, tried + where, user, authenticator=name, service=service)]

    return events


logged_in = _authentication("login", "successfully logged in", "log in")
authenticated = _authentication("authenticate", "successfully authenticated", "authenticate")


def _would_be(account: str, login: str | None) -> str:
    """Return the full id of the role that a login means, whether there is one or not."""
    kind, slash, rest = (login or _MISSING).partition("/")
    return f"{account}:{kind}:{rest}" if slash and kind in {"user", "host"} else f"{account}:user:{login or _MISSING}"


def _credential(msgid: str, operation: str, did: str, does: str, own: str, another: str) -> Recount:
    """Return the function for the credential of the role that acts, or of ``another``."""

    def events(call: Call) -> list[Event]:
        user, role = _proven(call)
        target = call.facts.get("target", role)
        words = own if target == role else another.format(target)
        return [Event(msgid, operation, (("role", target),), f"{did} {words}", f"{does} {words}", user)]

    return events


password_changed = _credential("password", "change", "changed", "change", "its password", "")
api_key_rotated = _credential("api-key", "rotate", "rotated", "rotate", "its API key", "the API key of {}")
rotation_asked = _credential("api-key", "show", "read", "read", *["when the API key of {} was rotated"] * 2)


def _proven(call: Call) -> tuple[str, str]:
    """Return who acts, by an access token or by HTTP Basic, and the role that the request claims."""
    if call.caller_if_any is not None:
        return str(call.caller.role), str(call.caller.role)
    role = call.facts.get("role") or _would_be(call.values["account"], call.facts.get("login"))
    return _NOT_FOUND if call.facts.get("unknown") else role, role


def identity_checked(call: Call) -> list[Event]:
    """A role asked who it is."""
    subject = (("role", str(call.caller.role)),)
    return [Event("identity-check", "check", subject, "checked its identity", "check its identity", facility=AUTH)]


def status_validated(call: Call) -> list[Event]:
    """The status of an authenticator was asked for."""
    name = call.facts.get("authenticator")
    service = f"{name}/{call.values['service_id']}"
    words = f"status of authenticator {service}"
    event = _on_authenticator(call, "validate-status", service, f"validated the {words}", f"validate the {words}")
    return [] if name == _UNAUDITED_STATUS else [event]


def switched(call: Call) -> list[Event]:
    """An authenticator was switched on or off."""
    kind, service_id = call.values.get("kind"), call.values.get("service_id")
    service = "authn" if kind is None else f"authn-{kind}" + ("" if service_id is None else f"/{service_id}")
    words = f"the authenticator {service}" + {None: "", True: " on", False: " off"}[call.facts.get("enabled")]
    operation = "update-authenticator-configuration"
    return [_on_authenticator(call, operation, service, f"switched {words}", f"switch {words}")]


def _operated(operation: str, did: str, does: str) -> Recount:
    def events(call: Call) -> list[Event]:
        service = f"{call.facts.get('authenticator')}/{call.values['service_id']}"
        key = call.values.get("key")
        words = f"{'' if key is None else f'the key {key} for '}the authenticator {service}"
        more = () if key is None else (("key", key),)
        return [_on_authenticator(call, operation, service, f"{did} {words}", f"{does} {words}", *more)]

    return events


explained = _operated("explain", "had a login explained of", "have a login explained of")
keys_refreshed = _operated("refresh-keys", "had the keys fetched again of", "have the keys fetched again of")
key_distrusted = _operated("distrust-key", "distrusts", "distrust")
key_trusted = _operated("trust-key", "trusts again", "trust again")


def _on_authenticator(call: Call, operation: str, service: str, did: str, does: str, *more: tuple[str, str]) -> Event:
    # The webservice is that of the path's account, or would be.
    resource = f"{call.values['account']}:webservice:{call.origin.server.appname}/{service}"
    subject = (("resource", resource), ("role", str(call.caller.role)), *more)
    return Event("authn", operation, subject, did, does, authenticator=service.partition("/")[0], service=service)


def fetched(call: Call) -> list[Event]:
    """The value of a variable was read."""
    return [_fetched(_name(call, "variable"), _said(call, "version"))]


def fetched_several(call: Call) -> list[Event]:
    """Values of several resources were read: an event for each."""
    return [_fetched(name, None) for name in call.facts.get("resources", ())] or [_fetched("-", None)]


def _fetched(name: str, version: str | None) -> Event:
    if version is None:
        return Event("fetch", "fetch", (("resource", name),), f"fetched {name}", f"fetch {name}")
    words = f"version {version} of {name}"
    return Event("fetch", "fetch", (("resource", name), ("version", version)), f"fetched {words}", f"fetch {words}")


def _updated(kind: str) -> Recount:
    def events(call: Call) -> list[Event]:
        name = _name(call, kind)
        return [Event("update", "update", (("resource", name),), f"updated {name}", f"update {name}")]

    return events


updated = _updated("variable")
public_key_updated = _updated("public_key")


def expirations_cleared(call: Call) -> list[Event]:
    """The values of a variable were to end no more; without its flag there is no such route."""
    name = _name(call, call.values.get("kind", "variable"))
    words = f"the expiration of {name}"
    event = Event("expiration", "clear", (("resource", name),), f"cleared {words}", f"clear {words}")
    return [event] if call.query.flag("expirations") else []


def resources_listed(call: Call) -> list[Event]:
    """Resources were listed or counted."""
    asked = _asked(call, "account", "kind", "owner", "search", "limit", "offset", "count", "role", "acting_as")
    return [Event("list", "list", asked, "listed resources", "list resources")]


def resource_asked(call: Call) -> list[Event]:
    """A resource was shown, or who has a privilege on it."""
    name = _name(call)
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
    name = _name(call)
    operation = next((flag for flag in ("graph", "all", "memberships", "members") if call.query.flag(flag)), "show")
    if operation != "members":
        words = {"graph": "the graph of ", "all": "all roles of ", "memberships": "the memberships of "}.get(operation, "")
        return [Event("role", operation, (("role", name),), f"read {words}{name}", f"read {words}{name}")]
    subject = (*_asked(call, "account", "count", "kind", "search", "limit", "offset"), ("role", name))
    return [Event("members", "list", subject, f"listed members of {name}", f"list members of {name}")]


def _membership(operation: str, did: str, does: str, preposition: str) -> Recount:
    def events(call: Call) -> list[Event]:
        role, member = _name(call), _said(call, "member") or "-"
        subject = (("role", role), ("member", member))
        words = f"{member} {preposition} {role}"
        event = Event("membership", operation, subject, f"{did} {words}", f"{does} {words}")
        return [] if call.facts.get("unchanged") else [event]

    return events


member_added = _membership("add", "added", "add", "to")
member_removed = _membership("remove", "removed", "remove", "from")


def policy_loaded(call: Call) -> list[Event]:
    """A policy document was loaded, or tried; the rows that changed have events of their own."""
    name = _name(call, "policy")
    if call.facts.get("dry_run"):
        words = f"a dry run of a load of {name}"
        return [Event("policy", "dry-run", (("policy", name),), f"made {words}", f"make {words}", severity=NOTICE)]
    return [Event("policy", "load", (("policy", name),), f"loaded {name}", f"load {name}", severity=NOTICE)]


def policy_read(call: Call) -> list[Event]:
    """What a policy holds was read."""
    name = _name(call, "policy")
    return [Event("policy", "read", (("policy", name),), f"read {name}", f"read {name}")]


def factory_tokens_made(call: Call) -> list[Event]:
    """Tokens of a host factory were made."""
    factory, count = call.facts.get("factory", "-"), call.facts.get("count", "-")
    subject = (("resource", factory), ("count", str(count)))
    return [Event("host-factory", "create-tokens", subject, f"made tokens of {factory}", f"make tokens of {factory}")]


def factory_token_revoked(call: Call) -> list[Event]:
    """A token of a host factory was revoked."""
    factory, token = call.facts.get("factory", "-"), call.facts.get("token", "-")
    subject, words = (("resource", factory), ("token", token)), f"the token {token} of {factory}"
    return [Event("host-factory", "revoke-token", subject, f"revoked {words}", f"revoke {words}")]


def factory_host_made(call: Call) -> list[Event]:
    """A host was made with a host factory's token, or given another API key."""
    host, factory, token = (call.facts.get(name, "-") for name in ("host", "factory", "token"))
    subject, words = (("role", host), ("resource", factory), ("token", token)), f"with the token {token} of {factory}"
    did = f"was made or given another API key {words}"
    return [Event("host-factory", "create-host", subject, did, f"be made {words}", user=host)]


def _account(operation: str, did: str, does: str) -> Recount:
    def events(call: Call) -> list[Event]:
        account = call.values.get("account") or call.facts.get("account", "-")
        words = f"the account {account}"
        return [Event("account", operation, (("account", account),), f"{did} {words}", f"{does} {words}")]

    return events


account_made = _account("create", "made", "make")
account_deleted = _account("delete", "deleted", "delete")


def accounts_listed(_: Call) -> list[Event]:
    """The accounts were listed."""
    return [Event("account", "list", (), "listed accounts", "list accounts")]


def audit_read(call: Call) -> list[Event]:
    """The audit was read."""
    about = call.values.get("identifier")
    subject = () if about is None else (("resource", about),)
    words = "the audit" if about is None else f"the audit of {about}"
    return [Event("audit", "list", subject, f"read {words}", f"read {words}")]


def _name(call: Call, kind: str | None = None) -> str:
    """Return the full id that the path makes, of this kind where the path has none."""
    return f"{call.values['account']}:{kind or call.values['kind']}:{call.values['identifier']}"


def _asked(call: Call, *names: str) -> Subject:
    """Return what the path or the query says under these names; the first of what is said more than once."""
    said = ((name, call.values.get(name) or _said(call, name)) for name in names)
    return tuple((name, text) for name, text in said if text is not None)


def _said(call: Call, name: str) -> str | None:
    """Return what the query says first under a name, right or wrong, empty where bare; ``None`` where the name is absent."""
    pairs = call.query.pairs
    return next((value or "" for key, value in pairs if key in {name, f"{name}[]"}), None) if pairs else None
