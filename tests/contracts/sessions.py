"""The suite of ``SessionStore``."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Final

import attrs

from svc.model.authentication import SESSIONS_PER_USER, Admitted, SessionFacts, UserSession
from svc.model.errors import RecordNotFound
from svc.model.policy_loads import AnnotationRow, Changes, ResourceRow, Rows
from svc.model.query_results import Sealed
from tests.contracts import events
from tests.contracts.base import ACCOUNT, ADMIN, ROOT, Contract, Draft, Stores, change, load, role, scenario, signing_key

ALICE: Final = role("user:alice")
NOW: Final = 1000.0

ONE: Final = UserSession("1" * 32, NOW, NOW + 60.0, NOW, "192.0.2.7")


class SessionsContract(Contract):
    """Sessions of Alice."""

    async def with_alice(self) -> tuple[Stores, Admitted]:
        """A store with Alice, as she is admitted."""
        stores = await self.stores_with_account()
        draft = Draft().define("user:alice").restrict("user:alice", "192.0.2.0/24")
        await load(stores, draft, ROOT, {str(ALICE): Sealed(b"key")})
        return stores, await self.admitted(stores)

    async def admitted(self, stores: Stores) -> Admitted:
        """Alice, as she is admitted now."""
        found = await stores.credentials.read_credential(ALICE)
        assert found.signing_key is not None
        return Admitted(ALICE, found.signing_key, found.creation, found.epoch, found.version)

    async def read(self, stores: Stores, session_id: str = ONE.id, now: float = NOW) -> SessionFacts:
        """The session, which there must be."""
        reading = await stores.sessions.read_session(ALICE, session_id, now)
        assert reading is not None
        return reading

    @scenario
    async def test_opened(self) -> None:
        """A session is read with what bears on renewing it, and is nobody else's (TOK-45, TOK-46)."""
        stores, admitted = await self.with_alice()
        await stores.sessions.open_session(ONE, admitted, b"t1", events.trail(events.event(operation="open")))
        networks = (ip_network("192.0.2.0/24"),)
        reading = await self.read(stores)
        self.assertEqual(reading, SessionFacts(ONE, b"t1", None, None, None, "acct-1", networks))
        self.assertEqual((reading.creation, reading.epoch), (admitted.creation, admitted.epoch))
        self.assertIsNone(await stores.sessions.read_session(ADMIN, ONE.id, NOW))
        self.assertIsNone(await stores.sessions.read_session(ALICE, "2" * 32, NOW))
        self.assertEqual(await events.operations(stores), ["open"])
        with self.assertRaises(RecordNotFound):
            await stores.sessions.open_session(ONE, attrs.evolve(admitted, role=role("user:none")), b"t1")

    @scenario
    async def test_turned(self) -> None:
        """The token for the next renewal is replaced once; when and from where it was used is noted (TOK-43)."""
        stores, admitted = await self.with_alice()
        await stores.sessions.open_session(ONE, admitted, b"t1")
        later = attrs.evolve(ONE, used_at=NOW + 5.0, used_from="192.0.2.8")
        self.assertIs(await stores.sessions.rotate_token(ALICE, later, b"t1", b"seed", b"t2"), True)
        for used in (b"t1", b"t3"):
            self.assertIs(await stores.sessions.rotate_token(ALICE, ONE, used, b"other", b"t4"), False)
        self.assertIs(await stores.sessions.rotate_token(ADMIN, ONE, b"t2", b"other", b"t4"), False)
        reading = await self.read(stores)
        self.assertEqual((reading.session, reading.token, reading.used, reading.seed), (later, b"t2", b"t1", b"seed"))

    @scenario
    async def test_outdated(self) -> None:
        """A session is outdated by a revocation of tokens, another credential, an annotation that says that there is no API
        key, and the end of the signing key; then it isn't listed (TOK-45, TOK-49, TOK-52).
        """
        stores, _ = await self.with_alice()

        async def another_key(stores: Stores) -> None:
            await stores.accounts.rotate_signing_key(signing_key(ACCOUNT, "acct-2"), NOW + 10.0)

        for outdate, why in (
            (lambda: stores.credentials.revoke_tokens(ALICE), "revoked"),
            (lambda: stores.accounts.revoke_tokens(ACCOUNT), "revoked"),
            (lambda: stores.credentials.set_api_key(ALICE, Sealed(b"new")), "credential"),
            (lambda: stores.credentials.set_password(ALICE, Sealed(b"hash")), "credential"),
            (lambda: load(stores, Draft().annotate("user:alice", {"authn/api-key": "false"})), "no API key"),
            (lambda: another_key(stores), "signing key"),
        ):
            annotation = AnnotationRow(str(ALICE), "authn/api-key", "")
            await change(stores, Changes(delete=Rows(annotations=(annotation,))))
            await stores.sessions.end_sessions(ALICE)
            await stores.sessions.open_session(ONE, await self.admitted(stores), b"t1")
            self.assertIsNone((await self.read(stores)).outdated)
            self.assertEqual(await stores.sessions.list_sessions(ALICE, NOW), [ONE])
            await outdate()
            self.assertIn(why, (await self.read(stores, now=NOW + 11.0)).outdated or "")
            self.assertEqual(await stores.sessions.list_sessions(ALICE, NOW + 11.0), [])

    @scenario
    async def test_the_same_credential(self) -> None:
        """A hash that is replaced by one of the same password outdates nothing, and neither does a key that has yet to
        retire (TOK-45).
        """
        stores, _ = await self.with_alice()
        await stores.credentials.set_password(ALICE, Sealed(b"hash"))
        await stores.sessions.open_session(ONE, await self.admitted(stores), b"t1")
        self.assertIs(await stores.credentials.set_password(ALICE, Sealed(b"renewed"), Sealed(b"hash")), True)
        await stores.accounts.rotate_signing_key(signing_key(ACCOUNT, "acct-2"), NOW + 10.0)
        reading = await self.read(stores, now=NOW + 9.0)
        self.assertEqual((reading.outdated, reading.signing_key), (None, "acct-2"))

    @scenario
    async def test_deleted(self) -> None:
        """A session goes with its role, and one of an older role of the name would be outdated (TOK-45)."""
        stores, admitted = await self.with_alice()
        await stores.sessions.open_session(ONE, admitted, b"t1")
        await change(stores, Changes(delete=Rows((ResourceRow(str(ALICE), str(ADMIN)),))))
        self.assertIsNone(await stores.sessions.read_session(ALICE, ONE.id, NOW))
        await load(stores, Draft().define("user:alice"), ROOT, {str(ALICE): Sealed(b"key")})
        self.assertIsNone(await stores.sessions.read_session(ALICE, ONE.id, NOW))
        await stores.sessions.open_session(ONE, admitted, b"t1")
        self.assertIsNotNone((await self.read(stores)).outdated)

    @scenario
    async def test_many(self) -> None:
        """One too many takes the place of the one used longest ago, once those that have ended are gone (TOK-51)."""
        stores, admitted = await self.with_alice()
        ended = attrs.evolve(ONE, id="0" * 32, expires_at=NOW + 1.0, used_at=NOW + 0.5)
        await stores.sessions.open_session(ended, admitted, b"t0")
        numbers = range(SESSIONS_PER_USER + 1)
        several = [UserSession(f"{number:032}", NOW + number, NOW + 60.0, NOW + number, "::1") for number in numbers]
        for session in several[2:]:
            await stores.sessions.open_session(session, admitted, session.id.encode())
        self.assertIsNone(await stores.sessions.read_session(ALICE, ended.id, NOW))
        found = await stores.sessions.list_sessions(ALICE, NOW + 30.0)
        self.assertEqual(found, several[:1:-1])
        for number in (31, 32):
            more = UserSession(f"{number:032}", NOW + number, NOW + 60.0, NOW + number, "::1")
            await stores.sessions.open_session(more, admitted, more.id.encode())
            several.append(more)
        self.assertEqual(await stores.sessions.list_sessions(ALICE, NOW + 33.0), several[:2:-1])
        self.assertEqual(await stores.sessions.list_sessions(ALICE, NOW + 60.0), [])

    @scenario
    async def test_ended(self) -> None:
        """A session is ended by its id, or all at once; an event is written only where one was there (TOK-50)."""
        stores, admitted = await self.with_alice()
        two, three = (attrs.evolve(ONE, id=digit * 32) for digit in "23")
        for session in (ONE, two, three):
            await stores.sessions.open_session(session, admitted, session.id.encode())
        trail = events.trail(events.event(operation="revoke"))
        for session_id, count in ((two.id, 1), (two.id, 0), (None, 2), (None, 0)):
            self.assertEqual(await stores.sessions.end_sessions(ALICE, session_id, trail), count)
        self.assertEqual(await stores.sessions.list_sessions(ALICE, NOW), [])
        self.assertEqual(await events.operations(stores), ["revoke", "revoke"])
