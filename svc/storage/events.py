"""The store of audit events on PostgreSQL: written in the transaction of their change, listed newest first."""

from __future__ import annotations

import functools
import json
from typing import Any, Final

import attrs

from svc.model.events import AuditContext, Event, EventBatch, EventsQuery, StoredEvent, Subject
from svc.storage.driver.columns import fetch_for_rows
from svc.storage.driver.connection import Fetched
from svc.storage.driver.statements import Statement, Statements, Transaction

#: How long events are kept, in seconds: the schema lets none be removed before.
RETENTION: Final = 365 * 86400.0

#: Parameters of the subject that have a column, and an index, of their own.
_INDEXED: Final = ("role", "resource", "member")

#: The start of a page later than any account has; with a greater one the sum with the page's size would overflow.
_FARTHEST: Final = 2**62

#: How many events one statement removes.
PURGED: Final = 1000

# An act of the program itself belongs to the account of the resource that it changed.
_ADD: Final = Statement.with_name("events_add")("""
    WITH added AS (
        INSERT INTO audit_events (
            account, facility, severity, hostname, appname, procid, client_ip, msgid, operation, user_id, authenticator,
            service, policy_id, policy_version, role_id, resource_id, member_id, others, did
        )
        SELECT split_part(CASE WHEN user_id LIKE '%:%' THEN user_id ELSE resource_id END, ':', 1), facility::smallint,
            severity::smallint, $15::text, $16::text, $17::text, $18::text, msgid, operation, user_id,
            nullif(authenticator, ''), nullif(service, ''), nullif(policy_id, ''), nullif(version, '')::integer,
            nullif(role_id, ''), nullif(resource_id, ''), nullif(member_id, ''), others::jsonb, did
        FROM unnest(
            $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
            $10::text[], $11::text[], $12::text[], $13::text[], $14::text[]
        ) AS given (
            facility, severity, msgid, operation, user_id, authenticator, service, policy_id, version, role_id, resource_id,
            member_id, others, did
        )
        RETURNING number
    )
    SELECT min(number) - 1, max(number) FROM added
""")

_COLUMNS: Final = """
    number, extract(epoch FROM at)::double precision, facility, severity, hostname, appname, procid, msgid, operation,
    user_id, authenticator, service, client_ip, policy_id, policy_version, role_id, resource_id, member_id, others, did
"""

#: When a policy got a version: at the time of the load's transaction, which its events have, too. Without it, a policy that
#: was deleted and made again would have the events of another load of the same number.
_LOADED: Final = "SELECT created_at FROM policy_versions WHERE policy_versions.policy_id = $21 AND version = $22"

#: The condition on every event, whichever way it is found; the account's parameter comes first, the page's last. No index
#: serves the conditions on account and time: in a table without statistics, PostgreSQL would as readily read the account's
#: events from the newest on, or those of the time, as use the index on one resource or role.
_WANTED: Final = f"""
    (account = $1::text) IS TRUE AND (at >= (SELECT created_at FROM accounts WHERE accounts.account = $1)) IS TRUE
    AND ($2::smallint IS NULL OR facility = $2) AND ($3::smallint IS NULL OR severity = $3)
    AND ($4::text IS NULL OR hostname = $4) AND ($5::text IS NULL OR appname = $5) AND ($6::text IS NULL OR procid = $6)
    AND ($7::text IS NULL OR msgid = $7) AND ($8::text IS NULL OR operation = $8) AND ($9::text IS NULL OR user_id = $9)
    AND ($10::text IS NULL OR client_ip = $10) AND ($11::text IS NULL OR policy_id = $11)
    AND ($12::text IS NULL OR role_id = $12) AND ($13::text IS NULL OR resource_id = $13)
    AND ($14::text IS NULL OR member_id = $14) AND others @> $15::jsonb
    AND ($18::text IS NULL OR msgid = $18 OR operation = $18)
    AND ($19::double precision IS NULL OR at >= to_timestamp($19))
    AND ($20::double precision IS NULL OR at < to_timestamp($20))
    AND ($21::text IS NULL OR (policy_id = $21 AND policy_version = $22::integer AND at = ({_LOADED})))
"""
_PAGE: Final = "ORDER BY number DESC LIMIT $16::bigint OFFSET $17::bigint"
_UP_TO_PAGE: Final = "ORDER BY number DESC LIMIT $16::bigint + $17::bigint"


def _numbers_by(column: str, parameter: str) -> str:
    return f"(SELECT number FROM audit_events WHERE {column} = {parameter}::text AND {_WANTED} {_UP_TO_PAGE})"


def _list_statement(name: str, condition: str) -> Statement:
    return Statement(f"events_{name}", f"SELECT {_COLUMNS} FROM audit_events WHERE {condition} AND {_WANTED} {_PAGE}")


_LISTED: Final = _list_statement("listed", "account = $1::text")

#: One statement for each parameter that has an index of its own, or leads to one, the most selective first.
_NARROWED: Final = {
    # By bounds, not by equality: with statistics, PostgreSQL would estimate an equality at the average number per value.
    "load": _list_statement("by_time", f"at BETWEEN ({_LOADED}) AND ({_LOADED})"),
    "role": _list_statement("by_role", "role_id = $12"),
    "resource": _list_statement("by_resource", "resource_id = $13"),
    "member": _list_statement("by_member", "member_id = $14"),
    "procid": _list_statement("by_procid", "procid = $6"),
    "user": _list_statement("by_user", "user_id = $9"),
    "operation": _list_statement("by_operation", "account || ' ' || operation = $1::text || ' ' || $8"),
}
_ABOUT: Final = Statement.with_name("events_about")(f"""
    SELECT event.* FROM (
        SELECT number FROM (
            {_numbers_by("role_id", "$23")} UNION {_numbers_by("resource_id", "$23")} UNION {_numbers_by("member_id", "$23")}
        ) AS any_way
        {_PAGE}
    ) AS found, LATERAL (
        SELECT {_COLUMNS} FROM audit_events WHERE account = $1 AND number = found.number OFFSET 0
    ) AS event
    ORDER BY event.number DESC
""")
_AFTER: Final = Statement.with_name("events_after")(f"""
    SELECT {_COLUMNS} FROM audit_events
    WHERE procid = $3::text AND user_id = $4::text AND client_ip = $5::text AND number > $1::bigint AND number <= $2::bigint
    ORDER BY number LIMIT $6::integer
""")
_BEGAN: Final = Statement(
    "events_account_began",
    "SELECT extract(epoch FROM created_at)::double precision FROM accounts WHERE account = $1::text",
)
_PURGE: Final = Statement.with_name("events_purge")(f"""
    DELETE FROM audit_events WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM audit_events WHERE at < to_timestamp($1::double precision) LIMIT {PURGED}
    )) RETURNING number
""")


async def record_events(transaction: Transaction, trail: EventBatch | None) -> tuple[int, int]:
    """Write the events of a trail, and return their numbers: after the first of the two, up to the second."""
    if trail is None or not trail.events:
        return 0, 0
    origin = trail.origin
    rows = [_row_of(event, origin.user) for event in trail.events]
    found = await fetch_for_rows(
        transaction, _ADD, rows, origin.server.hostname, origin.server.appname, origin.request_id, origin.client_ip
    )
    return min(first for first, _ in found), max(last for _, last in found)


async def change_and_record(
    database: Statements, trail: EventBatch | None, statement: Statement, *parameters: object
) -> Fetched:
    """Run a statement that writes and return its rows; record the trail too if the first row begins with a true value."""

    async def apply_change(transaction: Transaction) -> Fetched:
        rows = await transaction.fetch(statement, *parameters)
        await record_events(transaction, trail if rows and rows[0][0] else None)
        return rows

    return await database.transact(apply_change)


@attrs.frozen
class EventStore:
    """The events that the database keeps: those that changed it, written with the change."""

    _database: Statements

    async def list_events(self, query: EventsQuery) -> list[StoredEvent]:
        """Return the events that the query matches, the newest first. None is older than the account."""
        data = {(name, key): value for name, key, value in query.data}
        subject = {key: value for (name, key), value in data.items() if name == "subject"}
        named = {key: subject.pop(key, None) for key in _INDEXED}
        header = (query.facility, query.severity, query.hostname, query.appname, query.procid, query.msgid)
        elements = (("action", "operation"), ("auth", "user"), ("client", "ip"), ("policy", "id"))
        page = (query.limit, min(query.offset, _FARTHEST))
        data_of = (*map(data.get, elements), *named.values(), json.dumps(subject))
        parameters = (
            query.account,
            *header,
            *data_of,
            *page,
            query.what,
            query.since,
            query.until,
            *(query.load or (None, None)),
        )
        if query.about is not None:
            return [_parse_stored(row) for row in await self._database.fetch(_ABOUT, *parameters, query.about)]
        given = {
            "load": query.load,
            **named,
            "procid": query.procid,
            "user": data.get(("auth", "user")),
            "operation": data.get(("action", "operation")),
        }
        statement = next((way for name, way in _NARROWED.items() if given[name] is not None), _LISTED)
        return [_parse_stored(row) for row in await self._database.fetch(statement, *parameters)]

    async def list_events_after(self, number: int, last: int, origin: AuditContext, limit: int) -> list[tuple[int, Event]]:
        """Return the first ``limit`` events of an origin that are numbered after ``number``, up to ``last``, in order."""
        asked = (number, last, origin.request_id, origin.user or "-", origin.client_ip)
        rows = await self._database.fetch(_AFTER, *asked, limit)
        return [(row[0], _event_of(row)) for row in rows]

    async def account_began(self, account: str) -> float | None:
        """Return since when, in epoch seconds, an account has events; ``None`` where there is none of that name."""
        rows = await self._database.fetch(_BEGAN, account)
        return rows[0][0] if rows else None

    async def purge_before(self, before: float) -> int:
        """Remove those from before a moment (epoch seconds), and return how many they were."""
        count = 0
        while removed := len(await self._database.change(_PURGE, before)):
            count += removed
        return count


def _row_of(event: Event, user: str | None) -> tuple[str, ...]:
    policy, version = event.policy or ("", "")
    subject = dict(event.subject)
    named = [subject.pop(name, "") for name in _INDEXED]
    header = (str(event.facility), str(event.severity), event.msgid, event.operation)
    auth = (event.user or user or "-", event.authenticator or "", event.service or "")
    return *header, *auth, policy, str(version), *named, _other_parameters(tuple(subject.items())), event.did


@functools.lru_cache(1024)
def _other_parameters(parameters: Subject) -> str:
    """Return parameters of a subject in JSON; a load has the same in thousands of events."""
    return json.dumps(dict(parameters))


def _event_of(row: tuple[Any, ...]) -> Event:
    facility, severity, _, _, _, msgid, operation, user, authenticator, service, _, policy, version = row[2:15]
    *named, others, did = row[15:]
    subject = {name: value for name, value in zip(_INDEXED, named, strict=True) if value is not None} | others
    return Event(
        msgid,
        operation,
        tuple(subject.items()),
        did,
        did,
        user=user,
        authenticator=authenticator,
        service=service,
        policy=None if policy is None else (policy, version),
        facility=facility,
        severity=severity,
    )


def _parse_stored(row: tuple[Any, ...]) -> StoredEvent:
    event = _event_of(row)
    number, at, facility, severity, hostname, appname, procid, msgid = row[:8]
    auth = {"user": event.user, "authenticator": event.authenticator, "service": event.service}
    data: dict[str, dict[str, str]] = {
        "subject": dict(event.subject),
        "auth": {key: value for key, value in auth.items() if value is not None},
        "client": {"ip": row[12]},
        "action": {"result": "success", "operation": event.operation},
    }
    if event.policy is not None:
        data["policy"] = {"id": event.policy[0], "version": str(event.policy[1])}
    message = f"{event.user} {event.did}"
    return StoredEvent(
        number=number,
        at=at,
        facility=facility,
        severity=severity,
        hostname=hostname,
        appname=appname,
        procid=procid,
        msgid=msgid,
        data=data,
        message=message,
    )
