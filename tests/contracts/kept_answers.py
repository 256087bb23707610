"""The suite of all seams that make a change once for the key of a caller (``svc.model.idempotency``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from svc.model.errors import Conflict, InvalidParameter, RecordNotFound, RequestRunning, TooOften
from svc.model.host_factories import FactoryToken
from svc.model.idempotency import PIECES_MOST, AlreadyAnswered, Once, RequestKey
from svc.model.query_results import Caller, Sealed
from svc.storage.policies import PolicyTransaction
from tests.contracts.base import ACCOUNT, ROOT, Contract, Draft, Stores, load, role, scenario, signing_key

HOST, FACTORY = role("host:one"), role("host_factory:f")
REQUEST = RequestKey("k-1", "PUT /x?y").with_body(b"body").for_caller("acct:user:admin 17")

#: Makes a change, once if asked for.
Change = Callable[[Once[Any] | None], Awaitable[object]]


def once(request: RequestKey = REQUEST, *pieces: bytes) -> Once[Any]:
    """A change that has this answer."""
    return Once(request, lambda _: [Sealed(piece) for piece in pieces or (b"answer",)])


class KeptAnswersContract(Contract):
    """What is made once, and what is kept of it."""

    async def pass_time(self, seconds: float) -> None:
        """Let all answers be older by that."""
        raise NotImplementedError

    async def hold(self, request: RequestKey) -> None:
        """Have a request with this key be under way."""
        raise NotImplementedError

    @scenario
    async def test_once(self) -> None:
        """Every change is made once for a key, and what a repeat gets is the answer of the first (WIRE-53)."""
        stores, changes = await self._changes()
        for number, (name, change) in enumerate(changes.items()):
            request = RequestKey(f"k-{number}", "POST /x").for_caller(name)
            await change(once(request, b"first", b"and more"))
            for again in (b"second", b"third"):
                with self.assertRaises(AlreadyAnswered) as raised:
                    await change(once(request, again))
                self.assertEqual(list(raised.exception.answer.pieces), [b"first", b"and more"], name)
        self.assertEqual((await stores.credentials.read_credential(HOST)).api_key, b"key 1")
        self.assertEqual(len(await stores.factories.list_tokens(FACTORY, 10, 0)), 2)

    @scenario
    async def test_another_request(self) -> None:
        """With another method, path, query or body the key is refused, and tells nothing (WIRE-54)."""
        _, changes = await self._changes()
        for name, change in changes.items():
            request = RequestKey("k", "POST /x").with_body(b"1").for_caller(name)
            await change(once(request))
            others = RequestKey("k", "POST /x?"), RequestKey("k", "PUT /x"), RequestKey("k", "POST /x").with_body(b"2")
            for other in others:
                with self.assertRaises(InvalidParameter):
                    await change(once(other.for_caller(name)))

    @scenario
    async def test_another_caller(self) -> None:
        """Another caller, or another creation of the role, makes a change of its own under the same key (WIRE-55)."""
        stores = await self._stores()
        callers: tuple[Caller | str, ...] = (Caller(HOST, 0, 1), Caller(HOST, 0, 2), "acct:host:one", "acct:host:one 1 ")
        for number, caller in enumerate(callers):
            change = self._rotation(stores)
            await change(once(RequestKey("k", "PUT /x").for_caller(caller), b"%d" % number))
            kept = await stores.answers.read_answer(RequestKey("k", "").for_caller(caller))
            assert kept is not None
            self.assertEqual(kept.pieces[0], b"%d" % number)

    @scenario
    async def test_under_way(self) -> None:
        """While a request with the key is under way, others are refused, and change nothing (WIRE-54)."""
        stores, changes = await self._changes()
        await self.hold(REQUEST)
        for change in changes.values():
            with self.assertRaises(RequestRunning):
                await change(once())
        self.assertEqual((await stores.credentials.read_credential(HOST)).api_key, b"old")
        await self._rotation(stores)(once(REQUEST.for_caller("another")))

    @scenario
    async def test_refused(self) -> None:
        """A change that is refused keeps nothing, so that the same key may make it later (WIRE-53)."""
        stores = await self._stores()
        key = signing_key(ACCOUNT, "again")
        refused: Sequence[tuple[Change, type[Exception]]] = (
            (lambda given: stores.credentials.set_api_key(role("host:none"), Sealed(b"x"), None, given), RecordNotFound),
            (lambda given: stores.accounts.create_account(ACCOUNT, Sealed(b"x"), key, None, given), Conflict),
            (lambda given: stores.factories.create_host(b"none", HOST, {}, Sealed(b"x"), None, given), RecordNotFound),
        )
        for change, refusal in refused:
            with self.assertRaises(refusal):
                await change(once())
            self.assertIsNone(await stores.answers.read_answer(REQUEST))
        await self._rotation(stores)(once())

    @scenario
    async def test_ten_minutes(self) -> None:
        """An answer is kept for ten minutes; then the key makes a change again, and a round removes the rest (WIRE-53)."""
        stores = await self._stores()
        change = self._rotation(stores)
        await change(once(REQUEST, b"first", b"and more"))
        await self.pass_time(590)
        self.assertEqual(await stores.answers.purge_expired(), 0)
        with self.assertRaises(AlreadyAnswered):
            await change(once())
        await self.pass_time(11)
        self.assertIsNone(await stores.answers.read_answer(REQUEST))
        await change(once(REQUEST, b"second"))
        kept = await stores.answers.read_answer(REQUEST)
        assert kept is not None
        self.assertEqual(list(kept.pieces), [b"second"])
        await self.pass_time(700)
        self.assertEqual(await stores.answers.purge_expired(), 1)
        self.assertEqual(await stores.answers.purge_expired(), 0)

    @scenario
    async def test_bounded(self) -> None:
        """Of one caller so much is kept at most; then its keys are refused, and not those of others (WIRE-57)."""
        stores = await self._stores()
        change = self._rotation(stores)
        await change(once(REQUEST, *[b"piece"] * PIECES_MOST))
        other = RequestKey("k-2", "PUT /x").for_caller(REQUEST.caller)
        with self.assertRaises(TooOften):
            await change(once(other))
        with self.assertRaises(AlreadyAnswered) as raised:
            await change(once())
        self.assertEqual(len(raised.exception.answer.pieces), PIECES_MOST)
        await change(once(other.for_caller("another")))

    async def _stores(self) -> Stores:
        stores = await self.stores_with_account()
        draft = Draft().define("host:one", "host_factory:f")
        await load(stores, draft, ROOT, {str(HOST): Sealed(b"old")})
        return stores

    def _rotation(self, stores: Stores) -> Change:
        return lambda given: stores.credentials.set_api_key(HOST, Sealed(b"key 1"), None, given)

    async def _changes(self) -> tuple[Stores, dict[str, Change]]:
        """All changes that can be made once; each names something of its own each time, so that nothing else refuses."""
        stores = await self._stores()
        numbers = iter(range(1, 1000))
        token = FactoryToken(FACTORY, 2e9)
        await stores.factories.add_tokens([b"token"], token)

        async def make_account(given: Once[Any] | None) -> None:
            name = f"more{next(numbers)}"
            await stores.accounts.create_account(name, Sealed(b"key"), signing_key(name, name), None, given)

        async def make_host(given: Once[Any] | None) -> None:
            await stores.factories.create_host(b"token", role(f"host:{next(numbers)}"), {}, Sealed(b"key"), None, given)

        async def load_policy(given: Once[Any] | None) -> None:
            async def work(transaction: PolicyTransaction) -> None:
                assert given is not None
                if (kept := await transaction.claim_request_key(given.request)) is not None:
                    kept.require_same_request(given.request)
                    raise AlreadyAnswered(given.request, kept)
                await transaction.keep_answer(given.request, given.answer(None))

            await stores.policies.transact(work)

        return stores, {
            "rotation": self._rotation(stores),
            "tokens": lambda given: stores.factories.add_tokens([b"%d" % next(numbers)], token, None, given),
            "host": make_host,
            "account": make_account,
            "load": load_policy,
        }
