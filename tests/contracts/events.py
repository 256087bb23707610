"""What every store of events does."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from svc.model.errors import InvalidParameter
from svc.model.events import NOTICE, AuditContext, Event, EventBatch, EventSource, EventsQuery
from svc.model.policy_loads import PolicyVersion
from svc.model.query_results import MemberChangeFacts, Sealed, SecretReading
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Contract, Draft, Stores, load, resource, role, scenario, signing_key

ORIGIN = AuditContext(EventSource("machine", "svc"), str(ADMIN), "192.0.2.7", "request-1")


def event(msgid: str = "update", operation: str = "update", **subject: str) -> Event:
    """An event."""
    return Event(msgid, operation, tuple(subject.items()), "did it", "do it")


def trail(*events: Event, origin: AuditContext = ORIGIN) -> EventBatch:
    """A trail of events."""
    return EventBatch(origin, events)


async def record(stores: Stores, *events: Event, origin: AuditContext = ORIGIN) -> tuple[int, int]:
    """Have a load record events."""

    async def work(transaction: PolicyTransaction) -> tuple[int, int]:
        return await transaction.write_events(trail(*events, origin=origin))

    return await stores.policies.transact(work)


async def recorded_load(stores: Stores, *events: Event) -> int:
    """Have a load of the root policy make a version of it, and record events; return the version's number."""

    async def work(transaction: PolicyTransaction) -> int:
        number = await transaction.record_version(PolicyVersion(ROOT, "", "0" * 64, ADMIN, "192.0.2.7"))
        await transaction.write_events(trail(*events))
        return number

    return await stores.policies.transact(work)


async def operations(stores: Stores, query: EventsQuery | None = None) -> list[str]:
    """The operations of the events that a query matches."""
    return [found.data["action"]["operation"] for found in await stores.events.list_events(query or EventsQuery(ACCOUNT))]


class EventsContract(Contract):
    """``EventStore``, and the events that other stores write."""

    @scenario
    async def test_listed(self) -> None:
        """Events are listed as they were recorded, the newest first, and page by page (AUD-27)."""
        stores = await self.stores_with_account()
        self.assertEqual(await operations(stores), [])
        change = Event(
            "policy",
            "add",
            (("resource", "acct:variable:v"), ("owner", "acct:user:admin")),
            "added resource acct:variable:v",
            "add it",
            policy=(str(ROOT), 3),
            severity=NOTICE,
        )
        login = Event("authn", "x", (), "did", "do", user="acct:host:h", authenticator="authn", service="authn-jwt/ci")
        first, last = await record(stores, change, login)
        self.assertEqual(last - first, 2)
        newest, oldest = await stores.events.list_events(EventsQuery(ACCOUNT))
        self.assertEqual(
            attrs.asdict(oldest) | {"number": 0, "at": 0},
            {
                "number": 0,
                "at": 0,
                "facility": 10,
                "severity": 5,
                "hostname": "machine",
                "appname": "svc",
                "procid": "request-1",
                "msgid": "policy",
                "data": {
                    "subject": {"resource": "acct:variable:v", "owner": "acct:user:admin"},
                    "auth": {"user": "acct:user:admin"},
                    "client": {"ip": "192.0.2.7"},
                    "action": {"result": "success", "operation": "add"},
                    "policy": {"id": "acct:policy:root", "version": "3"},
                },
                "message": "acct:user:admin added resource acct:variable:v",
            },
        )
        self.assertEqual(newest.data["auth"], {"user": "acct:host:h", "authenticator": "authn", "service": "authn-jwt/ci"})
        await record(stores, *(event(operation=f"o{number}") for number in range(5)))
        self.assertEqual(await operations(stores, EventsQuery(ACCOUNT, limit=2)), ["o4", "o3"])
        self.assertEqual(await operations(stores, EventsQuery(ACCOUNT, limit=2, offset=4)), ["o0", "x"])

    @scenario
    async def test_filters(self) -> None:
        """Each filter leaves what is equal to it, alone and together with others (AUD-30)."""
        stores = await self.stores_with_account()
        await record(stores, event(operation="a", role="acct:user:u"), event("policy", "b", resource="acct:user:u"))
        other = AuditContext(EventSource("other", "svc"), "acct:user:bob", "::1", "request-2")
        await record(stores, event(operation="c", member="acct:user:u", resource="acct:variable:v", note="n"), origin=other)
        for filters, expected in (
            ({"msgid": "policy"}, ["b"]),
            ({"hostname": "other"}, ["c"]),
            ({"appname": "svc", "hostname": "machine"}, ["b", "a"]),
            ({"procid": "request-2"}, ["c"]),
            ({"procid": "request-2", "msgid": "policy"}, []),
            ({"what": "policy"}, ["b"]),
            ({"what": "a"}, ["a"]),
            ({"what": "a", "about": "acct:user:u"}, ["a"]),
            ({"what": "nothing"}, []),
            ({"since": 0.0, "until": 9e9}, ["c", "b", "a"]),
            ({"since": 9e9}, []),
            ({"until": 1.0, "about": "acct:user:u"}, []),
            ({"facility": 4}, []),
            ({"facility": 10, "severity": 6}, ["c", "b", "a"]),
            ({"about": "acct:user:u"}, ["c", "b", "a"]),
            ({"about": "acct:user:u", "msgid": "update"}, ["c", "a"]),
            ({"about": "acct:user:u", "limit": 1, "offset": 1}, ["b"]),
            ({"about": "acct:user:nobody"}, []),
            ({"about": "acct:user:u", "limit": 1000, "offset": 2**63 - 1}, []),
            ({"limit": 1000, "offset": 2**63 - 1}, []),
            ({"data": (("subject", "role", "acct:user:u"),)}, ["a"]),
            ({"data": (("subject", "resource", "acct:user:u"),)}, ["b"]),
            ({"data": (("subject", "member", "acct:user:u"),)}, ["c"]),
            ({"data": (("subject", "note", "n"),)}, ["c"]),
            ({"data": (("subject", "note", "n"), ("subject", "member", "acct:user:u"))}, ["c"]),
            ({"data": (("subject", "role", "acct:user:u"), ("subject", "member", "acct:user:u"))}, []),
            ({"data": (("action", "operation", "b"),)}, ["b"]),
            ({"data": (("auth", "user", "acct:user:bob"),)}, ["c"]),
            ({"data": (("client", "ip", "::1"),)}, ["c"]),
            ({"data": (("policy", "id", "acct:policy:root"),)}, []),
        ):
            self.assertEqual(await operations(stores, EventsQuery(ACCOUNT, **filters)), expected, filters)

    @scenario
    async def test_of_a_load(self) -> None:
        """The events of one load are found by the policy and the version that it made, alone and with other filters, as long
        as the policy has the version (CON-27).
        """
        stores = await self.stores_with_account()
        for number in (1, 2):
            made = [
                event("policy", f"{word}{number}", role="acct:user:u")._replace(policy=(str(ROOT), number)) for word in "ab"
            ]
            self.assertEqual(await recorded_load(stores, *made, event(operation="other")), number)
        await record(stores, event("policy", "early")._replace(policy=(str(ROOT), 3)))
        second = (str(ROOT), 2)
        for filters, expected in (
            ({}, ["b2", "a2"]),
            ({"about": "acct:user:u"}, ["b2", "a2"]),
            ({"about": "acct:user:nobody"}, []),
            ({"data": (("action", "operation", "a2"),)}, ["a2"]),
            ({"procid": "request-2"}, []),
            ({"limit": 1, "offset": 1}, ["a2"]),
        ):
            self.assertEqual(await operations(stores, EventsQuery(ACCOUNT, load=second, **filters)), expected, filters)
        for policy, version in ((str(ROOT), 3), ("acct:policy:other", 2)):
            self.assertEqual(await operations(stores, EventsQuery(ACCOUNT, load=(policy, version))), [])

    @scenario
    async def test_accounts_apart(self) -> None:
        """An account's events are those of its own roles, and a new account of an old name has none of the old one's
        (AUD-26).
        """
        stores = await self.stores_with_account("other")
        await record(stores, event(operation="a"))
        await record(stores, event(operation="b"), origin=attrs.evolve(ORIGIN, user="other:user:x"))
        self.assertEqual(await operations(stores, EventsQuery("other")), ["b"])
        self.assertEqual(await operations(stores, EventsQuery("absent")), [])
        await stores.accounts.delete_account("other")
        await stores.accounts.create_account("other", Sealed(b"key"), signing_key("other", "other-2"))
        self.assertEqual(await operations(stores, EventsQuery("other")), [])

    @scenario
    async def test_after(self) -> None:
        """The events of a request are read in order, some at a time, as they were recorded."""
        stores = await self.stores_with_account()
        recorded = [event(operation=f"o{number}", role="acct:user:u", note="n") for number in range(5)]
        first, last = await record(stores, *recorded)
        another = attrs.evolve(ORIGIN, request_id="another")
        await record(stores, event(operation="z"), origin=another)
        found = await stores.events.list_events_after(first, last, ORIGIN, 3)
        self.assertEqual([each.operation for _, each in found], ["o0", "o1", "o2"])
        self.assertEqual(found[0][1], recorded[0]._replace(user=str(ADMIN), does=found[0][1].does))
        rest = await stores.events.list_events_after(found[-1][0], last, ORIGIN, 3)
        self.assertEqual([each.operation for _, each in rest], ["o3", "o4"])
        for other in (another, attrs.evolve(ORIGIN, user="acct:user:bob"), attrs.evolve(ORIGIN, client_ip="::1")):
            self.assertEqual(await stores.events.list_events_after(first, last, other, 3), [])

    @scenario
    async def test_purge(self) -> None:
        """What isn't old stays (AUD-25)."""
        stores = await self.stores_with_account()
        await record(stores, event(operation="a"))
        self.assertEqual(await stores.events.purge_before(1000.0), 0)
        self.assertEqual(await operations(stores), ["a"])

    @scenario
    async def test_written_with_the_change(self) -> None:
        """Anyone who changes something writes its events; where nothing changed, or it failed, there are none (AUD-24)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("group:g", "user:u", "variable:v", "webservice:svc/authn-jwt/ci"))
        webservice, member = resource("webservice:svc/authn-jwt/ci"), role("user:u")
        for _ in range(2):
            await stores.roles.add_member(ADMIN, role("group:g"), member, _admit_member, trail(event(operation="add")))
        for _ in range(2):
            await stores.roles.remove_member(ADMIN, role("group:g"), member, _admit_member, trail(event(operation="take")))
        for sealed in (Sealed(b"one"), None):
            await stores.secrets.write_value(ADMIN, resource("variable:v"), _sealing(sealed), trail(event(operation="set")))
        await stores.authenticators.switch_authenticator(webservice, True, trail(event(operation="switch")))
        await stores.authenticators.request_key_refresh(webservice, trail(event(operation="refresh")))
        await stores.authenticators.distrust_key(webservice, "k1", ADMIN, trail(event(operation="distrust")))
        for _ in range(2):
            await stores.authenticators.trust_key(webservice, "k1", trail(event(operation="trust")))
        self.assertEqual(await operations(stores), ["trust", "distrust", "refresh", "switch", "set", "take", "add"])

        def refuse(reading: SecretReading) -> Sealed | None:
            raise InvalidParameter("value", "no")

        try:
            await stores.secrets.write_value(ADMIN, resource("variable:v"), refuse, trail(event(operation="never")))
        except InvalidParameter:
            self.assertEqual(len(await operations(stores)), 7)

    @scenario
    async def test_began(self) -> None:
        """An account has events since it was made, and one that isn't there since never (AUD-26)."""
        stores = await self.stores_with_account("other")
        began = await stores.events.account_began("other")
        assert began is not None
        self.assertGreater(began, 1_600_000_000)
        self.assertIsNone(await stores.events.account_began("absent"))

    @scenario
    async def test_an_account_that_goes(self) -> None:
        """That an account was made or deleted is an event of the one who did it."""
        stores = await self.stores_with_account()
        made = trail(event("account", "create", account="new"))
        await stores.accounts.create_account("new", Sealed(b"key"), signing_key("new", "new-1"), made)
        await stores.accounts.delete_account("new", trail(event("account", "delete", account="new")))
        self.assertEqual(await operations(stores), ["delete", "create"])


def _admit_member(reading: MemberChangeFacts) -> None:
    """Let it happen."""


def _sealing(sealed: Sealed | None) -> Callable[[SecretReading], Sealed | None]:
    def decide(reading: SecretReading) -> Sealed | None:
        return sealed

    return decide
