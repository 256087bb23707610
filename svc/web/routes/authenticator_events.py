"""The audit events of authenticators themselves: the requests and changes of operators (AUD-3)."""

from __future__ import annotations

from typing import Final

from svc.model.dialect import authenticator_name
from svc.model.events import NOTICE, Event
from svc.web.http.routing import Call, Recount
from svc.web.routes.audit_events import would_be

#: The authenticator whose status isn't audited (AUD-3).
_UNAUDITED_STATUS: Final = "authn-jwt"


def status_validated(call: Call) -> list[Event]:
    """The status of an authenticator was asked for."""
    return status_told(call, authenticator_name(f"{call.facts.get('authenticator')}", call.values["service_id"]))


def status_told(call: Call, service: str) -> list[Event]:
    """The status of the authenticator of this name was asked for."""
    words = f"status of authenticator {service}"
    event = _on_authenticator(call, "validate-status", service, f"validated the {words}", f"validate the {words}")
    return [] if service.partition("/")[0] == _UNAUDITED_STATUS else [event]


def switched(call: Call) -> list[Event]:
    """An authenticator was switched on or off."""
    kind, service_id = call.values.get("kind"), call.values.get("service_id")
    service = "authn" if kind is None else f"authn-{kind}" + ("" if service_id is None else f"/{service_id}")
    words = f"the authenticator {service}" + {None: "", True: " on", False: " off"}[call.facts.get("enabled")]
    operation = "update-authenticator-configuration"
    return [_on_authenticator(call, operation, service, f"switched {words}", f"switch {words}")]


def _operated(operation: str, did: str, does: str) -> Recount:
    def events(call: Call) -> list[Event]:
        service = authenticator_name(f"{call.facts.get('authenticator')}", call.values["service_id"])
        key = call.values.get("key")
        words = f"{'' if key is None else f'the key {key} for '}the authenticator {service}"
        more = () if key is None else (("key", key),)
        return [_on_authenticator(call, operation, service, f"{did} {words}", f"{does} {words}", *more)]

    return events


def login_explained(call: Call) -> list[Event]:
    """A login by key or password was explained; attempted credentials, if any, are recorded as for a login."""
    facts, values = call.facts, call.values
    name, service_id = facts.get("authenticator", "authn"), values.get("service_id")
    service = name if service_id is None else f"{name}/{service_id}"
    account, login = values.get("account") or call.caller.role.account, values.get("login") or facts.get("login")
    subject = would_be(account, login)
    tried = "with a key or password" if facts.get("tried") else "without a key or password"
    words = f"a login of {subject} at {service} explained, {tried}"
    more = (("login", subject), ("tried", "yes" if facts.get("tried") else "no"), ("reason", facts.get("reason", "-")))
    return [_on_authenticator(call, "explain", service, f"had {words}", f"have {words}", *more)]


explained = _operated("explain", "had a login explained of", "have a login explained of")
keys_refreshed = _operated("refresh-keys", "had the keys fetched again of", "have the keys fetched again of")
key_distrusted = _operated("distrust-key", "distrusts", "distrust")
key_trusted = _operated("trust-key", "trusts again", "trust again")


def _of_mappings(operation: str, did: str, does: str) -> Recount:
    """Return the function for requests about mappings of an LDAP authenticator; memberships that went have events too."""

    def events(call: Call) -> list[Event]:
        values, kind = call.values, call.facts.get("kind", "-")
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
        return [own, *call.facts.get("rows", ())]

    return events


mappings_listed = _of_mappings("list", "listed", "list")
mapping_shown = _of_mappings("show", "read", "read")
mapping_set = _of_mappings("set", "set", "set")
mapping_removed = _of_mappings("remove", "removed", "remove")


def _on_authenticator(call: Call, operation: str, service: str, did: str, does: str, *more: tuple[str, str]) -> Event:
    # The webservice is that of the path's account, or would be; a page names none.
    resource = f"{call.values.get('account') or call.caller.role.account}:webservice:{call.origin.server.appname}/{service}"
    subject = (("resource", resource), ("role", str(call.caller.role)), *more)
    return Event("authn", operation, subject, did, does, authenticator=service.partition("/")[0], service=service)
