"""The audit events of each route's requests, made from the path, the query and the facts that the route recorded.

A route names its function here (``routes.add(…, audit=…)``). The words are those of the installed base where it has them
(AUD-3). The route itself records facts of a body (``Call.add_audit_facts``), never its secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svc.model.events import AUTH, NOTICE, Event, Subject
from svc.web.http.routing import AuditEventsFunction, Call
from svc.web.routes import access

#: The user of an event where no login was given, and where there is no such role (AUD-11).
_MISSING: Final = "USERNAME_MISSING"
_NOT_FOUND: Final = "not-found"


def _authentication_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    def events(call: Call) -> list[Event]:
        facts, account = call.audit_facts, call.values.get("account") or call.audit_facts.get("account", "-")
        name = facts.get("authenticator", "authn")
        role = facts.get("role") or claimed_role(account, facts.get("login") or call.values.get("login"))
        service_id = call.values.get("service_id") or facts.get("service_id")
        service = None if service_id is None else f"{name}/{service_id}"
        where = f" with authenticator {name}" + ("" if service is None else f" service {service}")
        user, tried = (_NOT_FOUND, f"be {role}, to {does}") if facts.get("unknown") else (role, does)
        subject = (("role", role),)
        return [Event("authn", operation, subject, did + where, tried + where, user, authenticator=name, service=service)]

    return events


logged_in = _authentication_events("login", "successfully logged in", "log in")
authenticated = _authentication_events("authenticate", "successfully authenticated", "authenticate")


def claimed_role(account: str, login: str | None) -> str:
    """Return the full id of the role that a login means, whether there is one or not."""
    kind, slash, rest = (login or _MISSING).partition("/")
    return f"{account}:{kind}:{rest}" if slash and kind in {"user", "host"} else f"{account}:user:{login or _MISSING}"


def _credential_events(msgid: str, operation: str, did: str, does: str, own: str, another: str) -> AuditEventsFunction:
    """Return the function for the credential of the role that acts, or of ``another``."""

    def events(call: Call) -> list[Event]:
        user, role = _acting_and_claimed_role(call)
        target = call.audit_facts.get("target", role)
        words = own if target == role else another.format(target)
        return [Event(msgid, operation, (("role", target),), f"{did} {words}", f"{does} {words}", user)]

    return events


password_changed = _credential_events("password", "change", "changed", "change", "its password", "")
api_key_rotated = _credential_events("api-key", "rotate", "rotated", "rotate", "its API key", "the API key of {}")
rotation_time_read = _credential_events("api-key", "show", "read", "read", *["when the API key of {} was rotated"] * 2)


def _session_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    """Return the function for a session that its user opens or renews."""

    def events(call: Call) -> list[Event]:
        facts = call.audit_facts
        role = facts.get("role") or claimed_role(call.values["account"], call.values["login"])
        user, tried = (_NOT_FOUND, f"be {role}, to {does}") if facts.get("unknown") else (role, does)
        more = (("session", facts["session"]),) if "session" in facts else ()
        return [Event("session", operation, (("role", role), *more), did, tried, user)]

    return events


session_opened = _session_events("open", "opened a session", "open a session")
session_renewed = _session_events("renew", "renewed a session", "renew a session")


def sessions_listed(call: Call) -> list[Event]:
    """The sessions of a role were listed."""
    target = call.audit_facts.get("target", "-")
    words = f"the sessions of {target}"
    return [Event("session", "list", (("role", target),), f"listed {words}", f"list {words}")]


def sessions_revoked(call: Call) -> list[Event]:
    """A session of a role was ended, or all."""
    target, session = call.audit_facts.get("target", "-"), call.values.get("session_id", "all")
    words = f"all sessions of {target}" if session == "all" else f"the session {session} of {target}"
    return [Event("session", "revoke", (("role", target), ("session", session)), f"revoked {words}", f"revoke {words}")]


def tokens_revoked(call: Call) -> list[Event]:
    """The access tokens of a role were revoked."""
    target = call.audit_facts.get("target", "-")
    words = f"the access tokens of {target}"
    return [Event("token", "revoke", (("role", target),), f"revoked {words}", f"revoke {words}")]


def _acting_and_claimed_role(call: Call) -> tuple[str, str]:
    """Return who acts, by an access token or by HTTP Basic, and the role that the request claims."""
    if call.caller_if_any is not None:
        return str(call.caller.role), str(call.caller.role)
    role = call.audit_facts.get("role") or claimed_role(call.values["account"], call.audit_facts.get("login"))
    return _NOT_FOUND if call.audit_facts.get("unknown") else role, role


def unless_repeated(events: AuditEventsFunction) -> AuditEventsFunction:
    """Return the function of a change that clients may repeat: a repeat changes nothing, and returns secrets again."""

    def events_or_repeats(call: Call) -> Sequence[Event]:
        found = events(call)
        if not call.audit_facts.get("repeated"):
            return found
        words = "repeated a request, and was given its answer again"
        return [event._replace(operation="repeat", did=f"{words}: {event.did}") for event in found]

    return events_or_repeats


def identity_checked(call: Call) -> list[Event]:
    """A role asked who it is."""
    subject = (("role", str(call.caller.role)),)
    return [Event("identity-check", "check", subject, "checked its identity", "check its identity", facility=AUTH)]


def secret_fetched(call: Call) -> list[Event]:
    """The value of a variable was read."""
    account, identifier = call.values["account"], call.values["identifier"]
    return [value_fetched(f"{account}:variable:{identifier}", call.query.first_values.get("version"))]


def value_fetched(name: str, version: str | None, user: str | None = None, reason: str | None = None) -> Event:
    """A value of a resource was read; of many at once one may have failed for a ``reason``."""
    if version is None:
        did, does = f"fetched {name}", f"fetch {name}"
        return Event("fetch", "fetch", (("resource", name),), did, does, user, reason=reason)
    words = f"version {version} of {name}"
    return Event("fetch", "fetch", (("resource", name), ("version", version)), f"fetched {words}", f"fetch {words}")


def _update_events(kind: str) -> AuditEventsFunction:
    def events(call: Call) -> list[Event]:
        name = _path_full_id(call, kind)
        return [Event("update", "update", (("resource", name),), f"updated {name}", f"update {name}")]

    return events


secret_updated = _update_events("variable")
public_key_updated = _update_events("public_key")


def expirations_cleared(call: Call) -> list[Event]:
    """The values of a variable were to end no more; without its flag there is no such route."""
    name = _path_full_id(call, call.values.get("kind", "variable"))
    words = f"the expiration of {name}"
    event = Event("expiration", "clear", (("resource", name),), f"cleared {words}", f"clear {words}")
    return [event] if call.query.has_flag("expirations") else []


def resources_listed(call: Call) -> list[Event]:
    """Resources were listed or counted."""
    names = ("account", "kind", "owner", "search", "limit", "offset", "count", "role", "acting_as")
    return [resources_listed_event(_request_values(call, *names))]


def resources_listed_event(asked: Subject) -> Event:
    """Resources were listed; the parameters of the request are the subject."""
    return Event("list", "list", asked, "listed resources", "list resources")


def resource_queried(call: Call) -> list[Event]:
    """A resource was shown, or the roles with a privilege on it."""
    name = _path_full_id(call)
    subject: Subject = (("resource", name),)
    privilege = call.query.first_values.get("privilege") or call.query.first_values.get("permission") or "-"
    if call.query.has_flag("check"):
        role = call.query.first_values.get("role") or str(call.caller.role)
        words = f"if {role} can {privilege} {name}"
        subject = (*subject, ("role", role), ("privilege", privilege))
        return [Event("check", "check", subject, f"checked {words}", f"check {words}")]
    if call.query.has_flag("permitted_roles"):
        words = f"the roles that can {privilege} {name}"
        subject = (*subject, ("privilege", privilege))
        return [Event("resource", "permitted-roles", subject, f"listed {words}", f"list {words}")]
    if call.query.has_flag("who_can"):
        return [access.holders_listed_event(name, privilege, _request_values(call, "direct", "limit", "count"))]
    if call.query.has_flag("can"):
        role = call.query.first_values.get("role") or "-"
        words = f"why {role} can {privilege} {name}"
        subject = (*subject, ("role", role), ("privilege", privilege))
        return [Event("resource", "can", subject, f"asked {words}", f"ask {words}")]
    return [resource_shown_event(name)]


def resource_shown_event(name: str) -> Event:
    """A resource was shown."""
    return Event("resource", "show", (("resource", name),), f"read {name}", f"read {name}")


_ROLE_READ_WORDS: Final = {
    "graph": "the graph of ",
    "all": "all roles of ",
    "memberships": "the memberships of ",
    "reach": "what is reached by ",
}


def role_queried(call: Call) -> list[Event]:
    """A role was shown, or its members, or its memberships or rights."""
    name = _path_full_id(call)
    operation = call.route.when or "show"
    if operation != "members":
        return [role_read(name, operation)]
    return [members_listed(name, _request_values(call, "account", "count", "kind", "search", "limit", "offset"))]


def role_read(name: str, operation: str) -> Event:
    """A role was read: by itself (``show``), or its ``graph``, its ``memberships``, ``all`` that it holds, its ``reach``."""
    words = _ROLE_READ_WORDS.get(operation, "")
    return Event("role", operation, (("role", name),), f"read {words}{name}", f"read {words}{name}")


def members_listed(name: str, asked: Subject) -> Event:
    """Members of a role were listed; ``asked`` are the parameters."""
    return Event("members", "list", (*asked, ("role", name)), f"listed members of {name}", f"list members of {name}")


def _membership_events(operation: str, did: str, does: str, preposition: str) -> AuditEventsFunction:
    def events(call: Call) -> list[Event]:
        role, member = _path_full_id(call), call.query.first_values.get("member") or "-"
        subject, words = (("role", role), ("member", member)), f"{member} {preposition} {role}"
        event = Event("membership", operation, subject, f"{did} {words}", f"{does} {words}")
        return [] if call.audit_facts.get("unchanged") else [event]

    return events


member_added = _membership_events("add", "added", "add", "to")
member_removed = _membership_events("remove", "removed", "remove", "from")


def policy_loaded(call: Call) -> list[Event]:
    """A policy document was loaded, or tried; the rows that changed have events of their own."""
    name = call.audit_facts.get("policy") or _path_full_id(call, "policy")
    if call.audit_facts.get("dry_run"):
        words = f"a dry run of a load of {name}"
        return [Event("policy", "dry-run", (("policy", name),), f"made {words}", f"make {words}", severity=NOTICE)]
    return [Event("policy", "load", (("policy", name),), f"loaded {name}", f"load {name}", severity=NOTICE)]


def deleted_listed(call: Call) -> list[Event]:
    """The records that a policy deleted were listed."""
    name = _path_full_id(call, "policy")
    return [Event("deleted", "list", (("policy", name),), f"listed what {name} deleted", f"list what {name} deleted")]


def deleted_restored(call: Call) -> list[Event]:
    """Deleted records and values were restored: an event for each, and for each row that came with them."""
    policy = _path_full_id(call, "policy")
    if "restored" not in call.audit_facts:
        words = f"what {policy} deleted"
        return [Event("deleted", "restore", (("policy", policy),), f"restored {words}", f"restore {words}", severity=NOTICE)]
    events = []
    for name, versions in call.audit_facts["restored"]:
        words = name + (f" with its versions {', '.join(map(str, versions))}" if versions else "")
        subject = (("resource", name), ("policy", policy))
        events.append(Event("deleted", "restore", subject, f"restored {words}", f"restore {words}", severity=NOTICE))
    return [*events, *call.audit_facts["rows"]]


def deleted_purged(call: Call) -> list[Event]:
    """Deleted records were purged: an event for each that was named, or one for all."""
    policy, purged = _path_full_id(call, "policy"), call.audit_facts.get("purged")
    if purged is None or (purged and not call.query.texts("number")):
        count, words = "-" if purged is None else str(len(purged)), f"what {policy} deleted"
        subject: Subject = (("policy", policy), ("count", count))
        return [Event("deleted", "purge", subject, f"purged {words}", f"purge {words}", severity=NOTICE)]
    return [
        Event(
            "deleted", "purge", (("resource", name), ("policy", policy)), f"purged {name}", f"purge {name}", severity=NOTICE
        )
        for name in dict.fromkeys(purged)
    ]


def policy_read(call: Call) -> list[Event]:
    """The contents of a policy were read."""
    name = _path_full_id(call, "policy")
    return [Event("policy", "read", (("policy", name),), f"read {name}", f"read {name}")]


def factory_tokens_made(call: Call) -> list[Event]:
    """Tokens of a host factory were made."""
    factory, count = call.audit_facts.get("factory", "-"), call.audit_facts.get("count", "-")
    subject = (("resource", factory), ("count", str(count)))
    return [Event("host-factory", "create-tokens", subject, f"made tokens of {factory}", f"make tokens of {factory}")]


def factory_tokens_listed(call: Call) -> list[Event]:
    """Tokens of a host factory were listed."""
    factory = call.audit_facts.get("factory", "-")
    subject = (("resource", factory),)
    return [Event("host-factory", "list-tokens", subject, f"listed tokens of {factory}", f"list tokens of {factory}")]


def factory_token_revoked(call: Call) -> list[Event]:
    """A token of a host factory was revoked."""
    factory, token = call.audit_facts.get("factory", "-"), call.audit_facts.get("token", "-")
    subject, words = (("resource", factory), ("token", token)), f"the token {token} of {factory}"
    return [Event("host-factory", "revoke-token", subject, f"revoked {words}", f"revoke {words}")]


def factory_host_made(call: Call) -> list[Event]:
    """A host was made with a host factory's token, or given another API key."""
    facts = call.audit_facts
    host, factory, token = facts.get("host", "-"), facts.get("factory", "-"), facts.get("token", "-")
    subject, words = (("role", host), ("resource", factory), ("token", token)), f"with the token {token} of {factory}"
    did = f"was made or given another API key {words}"
    return [Event("host-factory", "create-host", subject, did, f"be made {words}", user=host)]


def _account_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    def events(call: Call) -> list[Event]:
        account = call.values.get("account") or call.audit_facts.get("account", "-")
        words = f"the account {account}"
        return [Event("account", operation, (("account", account),), f"{did} {words}", f"{does} {words}")]

    return events


account_made = _account_events("create", "made", "make")
account_deleted = _account_events("delete", "deleted", "delete")
account_tokens_revoked = _account_events("revoke-tokens", "revoked all access tokens of", "revoke all access tokens of")


def _listing_events(msgid: str, operation: str, words: str) -> AuditEventsFunction:
    def events(_: Call) -> list[Event]:
        return [Event(msgid, operation, (), f"listed {words}", f"list {words}")]

    return events


accounts_listed = _listing_events("account", "list", "accounts")
expirations_listed = _listing_events("endings", "expiring", "what ends")
inactive_roles_listed = _listing_events("endings", "unused", "roles that are not used")


def audit_read(call: Call) -> list[Event]:
    """The audit was read."""
    about = call.values.get("identifier")
    return [Event("audit", "list", (), "read the audit", "read the audit") if about is None else audit_read_event(about)]


def audit_read_event(name: str) -> Event:
    """The audit of one thing was read."""
    return Event("audit", "list", (("resource", name),), f"read the audit of {name}", f"read the audit of {name}")


def refusals_read(call: Call) -> list[Event]:
    """Recent refusals were read."""
    return [
        Event("refusals", "list", _request_values(call, "request", "limit"), "read recent refusals", "read recent refusals")
    ]


def _path_full_id(call: Call, kind: str | None = None) -> str:
    """Return the full id that the path makes, of this kind where the path has none."""
    return f"{call.values['account']}:{kind or call.values['kind']}:{call.values['identifier']}"


def _request_values(call: Call, *names: str) -> Subject:
    """Return the values of these names in the path or the query; the first value of each."""
    asked = call.query.first_values
    pairs = [(name, call.values.get(name) or asked.get(name)) for name in names]
    return tuple([(name, text) for name, text in pairs if text is not None])


def first_query_value(call: Call, name: str) -> str | None:
    """Return what the query says first under a name, right or wrong, empty where bare; ``None`` where the name is absent."""
    return call.query.first_values.get(name)
