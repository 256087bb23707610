"""The audit events of authenticators themselves: the requests and changes of operators (AUD-3)."""

from __future__ import annotations

from typing import Final

from svc.model.dialect import authenticator_name
from svc.model.events import NOTICE, Event
from svc.web.http.routing import AuditEventsFunction, Call
from svc.web.routes.authn import claimed_role

#: The authenticator whose status isn't audited (AUD-3).
_UNAUDITED_STATUS: Final = "authn-jwt"


def status_validated(call: Call) -> list[Event]:
    """The status of an authenticator was asked for."""
    return status_events(call, authenticator_name(f"{call.audit_facts.get('authenticator')}", call.values["service_id"]))


def status_events(call: Call, service: str) -> list[Event]:
    """The status of the authenticator of this name was asked for."""
    words = f"status of authenticator {service}"
    event = _authenticator_event(call, "validate-status", service, f"validated the {words}", f"validate the {words}")
    return [] if service.partition("/")[0] == _UNAUDITED_STATUS else [event]


def authenticator_switched(call: Call) -> list[Event]:
    """An authenticator was switched on or off."""
    kind, service_id = call.values.get("kind"), call.values.get("service_id")
    service = "authn" if kind is None else f"authn-{kind}" + ("" if service_id is None else f"/{service_id}")
    words = f"the authenticator {service}" + {None: "", True: " on", False: " off"}[call.audit_facts.get("enabled")]
    operation = "update-authenticator-configuration"
    return [_authenticator_event(call, operation, service, f"switched {words}", f"switch {words}")]


def _operation_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    def events(call: Call) -> list[Event]:
        service = authenticator_name(f"{call.audit_facts.get('authenticator')}", call.values["service_id"])
        key = call.values.get("key")
        words = f"{'' if key is None else f'the key {key} for '}the authenticator {service}"
        more = () if key is None else (("key", key),)
        return [_authenticator_event(call, operation, service, f"{did} {words}", f"{does} {words}", *more)]

    return events


def login_explained(call: Call) -> list[Event]:
    """A login by key or password was explained; attempted credentials, if any, are recorded as for a login."""
    facts, values = call.audit_facts, call.values
    name, service_id = facts.get("authenticator", "authn"), values.get("service_id")
    service = name if service_id is None else f"{name}/{service_id}"
    account, login = values.get("account") or call.caller.role.account, values.get("login") or facts.get("login")
    subject = claimed_role(account, login)
    tried = "with a key or password" if facts.get("tried") else "without a key or password"
    words = f"a login of {subject} at {service} explained, {tried}"
    more = (("login", subject), ("tried", "yes" if facts.get("tried") else "no"), ("reason", facts.get("reason", "-")))
    return [_authenticator_event(call, "explain", service, f"had {words}", f"have {words}", *more)]


token_explained = _operation_events("explain", "had a login explained of", "have a login explained of")
keys_refreshed = _operation_events("refresh-keys", "had the keys fetched again of", "have the keys fetched again of")
key_distrusted = _operation_events("distrust-key", "distrusts", "distrust")
key_trusted = _operation_events("trust-key", "trusts again", "trust again")


def _mapping_events(operation: str, did: str, does: str) -> AuditEventsFunction:
    """Return the function for requests about mappings of an LDAP authenticator; memberships that went have events too."""

    def events(call: Call) -> list[Event]:
        values, kind = call.values, call.audit_facts.get("kind", "-")
        service, name = f"authn-ldap/{values['service_id']}", values.get("name")
        words = f"the mapped {kind}s of {service}" if name is None else f"the mapping of the {kind} {name} of {service}"
        resource = f"{values['account']}:webservice:{call.origin.server.appname}/{service}"
        subject = (("resource", resource), ("kind", kind), *((("name", name),) if name is not None else ()))
        own = Event(
            "ldap-mapping",
            operation,
            subject,
            f"{did} {words}",
            f"{does} {words}",
            authenticator="authn-ldap",
            service=service,
            severity=NOTICE,
        )
        return [own, *call.audit_facts.get("rows", ())]

    return events


mappings_listed = _mapping_events("list", "listed", "list")
mapping_read = _mapping_events("show", "read", "read")
mapping_set = _mapping_events("set", "set", "set")
mapping_removed = _mapping_events("remove", "removed", "remove")


def _authenticator_event(call: Call, operation: str, service: str, did: str, does: str, *more: tuple[str, str]) -> Event:
    # The webservice is that of the path's account, or would be; a page names none.
    resource = f"{call.values.get('account') or call.caller.role.account}:webservice:{call.origin.server.appname}/{service}"
    subject = (("resource", resource), ("role", str(call.caller.role)), *more)
    return Event("authn", operation, subject, did, does, authenticator=service.partition("/")[0], service=service)
