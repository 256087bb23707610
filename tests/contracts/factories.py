"""The suite of ``HostFactoryStore``."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred, gatherResults

from svc.model.errors import Conflict, RecordNotFound
from svc.model.events import EventBatch, EventsQuery
from svc.model.host_factories import CreatedHost, ExpiredToken, FactoryToken, digest_token, name_token
from svc.model.policy_loads import Changes, ResourceRow, Rows
from svc.model.query_results import MembersQuery, OutstandingToken, ResourceAnnotation, Sealed, Search
from tests.contracts import events
from tests.contracts.base import (
    ACCOUNT,
    ADMIN,
    ODD_IDENTIFIERS,
    Contract,
    Draft,
    Stores,
    change,
    described,
    load,
    resource,
    role,
    scenario,
)

FACTORY, HOST = role("host_factory:f"), role("host:web/1")
TOKEN = FactoryToken(FACTORY, 2000.5, ("10.0.0.0/8", "::1/128"))
ONE, TWO, THREE = (digest_token(text) for text in ("one", "two", "three"))
KEY = Sealed(b"\x00key\\")


class HostFactoriesContract(Contract):
    """Tokens of host factories, and the hosts that they make."""

    async def _factories(self) -> Stores:
        """Two host factories, of which one has two layers, belongs to a group and owns a layer of its own."""
        stores = await self.stores_with_account("other")
        draft = Draft().define("host_factory:f", "host_factory:g", "layer:a", "layer:b", "layer:c", "group:ops")
        draft.define("layer:mine", owner="host_factory:f")
        for granted in ("layer:a", "layer:b", "group:ops"):
            draft.grant(granted, "host_factory:f")
        await load(stores, draft.grant("layer:c", "host_factory:g"))
        return stores

    @scenario
    async def test_known(self) -> None:
        """It knows what health asks for."""
        factories = (await self.stores()).factories
        self.assertIs(await factories.can_find_known_token(), True)

    @scenario
    async def test_tokens(self) -> None:
        """A token comes back as it was added, expired or not, until it is removed."""
        factories = (await self._factories()).factories
        await factories.add_tokens([ONE, TWO], TOKEN)
        await factories.add_tokens([THREE], FactoryToken(role("host_factory:g"), 1.0))
        self.assertEqual([await factories.read_token(digest) for digest in (ONE, TWO)], [TOKEN, TOKEN])
        self.assertEqual(await factories.read_token(THREE), FactoryToken(role("host_factory:g"), 1.0, ()))
        self.assertIsNone(await factories.read_token(digest_token("four")))
        self.assertIs(await factories.remove_token(ONE), True)
        self.assertIs(await factories.remove_token(ONE), False)
        self.assertEqual([await factories.read_token(digest) for digest in (ONE, TWO)], [None, TOKEN])

    @scenario
    async def test_no_factory(self) -> None:
        """There are no tokens of what doesn't exist, and none outlives its factory (HF-25)."""
        stores = await self._factories()
        with self.assertRaises(RecordNotFound):
            await stores.factories.add_tokens([ONE], FactoryToken(role("host_factory:none"), 1.0))
        await stores.factories.add_tokens([ONE], TOKEN)
        await stores.factories.add_tokens([TWO], FactoryToken(role("host_factory:g"), 1.0))
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(FACTORY), str(ADMIN)),))))
        self.assertIsNone(await stores.factories.read_token(ONE))
        self.assertIsNotNone(await stores.factories.read_token(TWO))

    @scenario
    async def test_told(self) -> None:
        """A factory tells when its tokens expire, in that order, and from where they may be used (RES-18, HF-2)."""
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        await stores.factories.add_tokens([TWO, THREE], FactoryToken(FACTORY, 1000.25))
        factory, other = await described(stores, [str(FACTORY), "acct:host_factory:g"])
        soon = [OutstandingToken(name_token(digest), 1000.25, ()) for digest in sorted([TWO, THREE])]
        last = OutstandingToken(name_token(ONE), TOKEN.expires_at, TOKEN.networks)
        self.assertEqual(factory.tokens, (*soon, last))
        self.assertEqual(other.tokens, ())
        listed = stores.factories.list_tokens
        self.assertEqual(await listed(FACTORY, 10, 0), [*soon, last])
        self.assertEqual([await listed(FACTORY, 1, 1), await listed(FACTORY, 9, 2)], [soon[1:], [last]])
        self.assertEqual([await listed(FACTORY, 9, 3), await listed(role("host_factory:g"), 9, 0)], [[], []])

    @scenario
    async def test_called(self) -> None:
        """A token is found by its name, in its own account alone (HF-28, HF-29)."""
        stores = await self._factories()
        ends = bytes(6) + ONE[6:], b"\xff" * 6 + ONE[6:]
        await stores.factories.add_tokens([ONE, TWO, *ends], TOKEN)
        for digest in (ONE, TWO, *ends):
            self.assertEqual(await stores.factories.find_digest(ACCOUNT, name_token(digest)), digest)
            self.assertIsNone(await stores.factories.find_digest("other", name_token(digest)))
        for name in (name_token(THREE), "sha256:" + "0" * 11 + "1"):
            self.assertIsNone(await stores.factories.find_digest(ACCOUNT, name))
        # Of several of one name, which hardly ever are, it is the first.
        alike = ONE[:6] + bytes(26), ONE[:6] + b"\xff" * 26
        await stores.factories.add_tokens(alike, TOKEN)
        for digest in (alike[0], ONE, alike[1]):
            self.assertEqual(await stores.factories.find_digest(ACCOUNT, name_token(ONE)), digest)
            await stores.factories.remove_token(digest)
        self.assertIsNone(await stores.factories.find_digest(ACCOUNT, name_token(ONE)))

    @scenario
    async def test_new_host(self) -> None:
        """A new host belongs to its factory and to the factory's layers, as recorded by no policy, and is found at once
        (HF-15).
        """
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        self.assertIs((await stores.factories.create_host(ONE, HOST, {"name": "frontend", "a'b": ""}, KEY)).new, True)
        (host,) = await described(stores, [str(HOST)])
        self.assertEqual((host.owner, host.policy, host.permissions), (str(FACTORY), None, ()))
        self.assertEqual(
            host.annotations, (ResourceAnnotation("a'b", "", None), ResourceAnnotation("name", "frontend", None))
        )
        self.assertEqual((await stores.credentials.read_credential(HOST)).api_key, KEY)
        (owner,) = await stores.roles.list_members(MembersQuery(HOST))
        self.assertEqual((owner.member, owner.ownership, owner.admin_option, owner.policy), (str(FACTORY), True, True, None))
        memberships = await stores.roles.list_memberships(MembersQuery(HOST))
        self.assertEqual([row.role for row in memberships], ["acct:layer:a", "acct:layer:b"])
        self.assertEqual({(row.ownership, row.admin_option, row.policy) for row in memberships}, {(False, False, None)})
        self.assertTrue((await stores.roles.access_facts(FACTORY, HOST.resource)).owns)
        found = await stores.roles.list_members(
            MembersQuery(role("layer:a"), search=Search("frontend", split=True, by_class=False))
        )
        self.assertEqual([row.member for row in found], [str(HOST)])

    @scenario
    async def test_no_api_key(self) -> None:
        """A host whose annotation says so is given no key, neither when it is made nor again (TOK-53)."""
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        for given in ({"authn/api-key": "False"}, {}):
            made = await stores.factories.create_host(ONE, HOST, given, KEY)
            self.assertEqual(made, CreatedHost(new=bool(given), has_key=False))
            credential = await stores.credentials.read_credential(HOST)
            self.assertEqual((credential.api_key, credential.api_key_off), (None, True))
            self.assertIsNone(await stores.credentials.read_rotation_time(HOST))
        other = role("host:web/2")
        made = await stores.factories.create_host(ONE, other, {"authn/api-key": "true"}, KEY)
        self.assertEqual((made, (await stores.credentials.read_credential(other)).api_key), (CreatedHost(True, True), KEY))

    @scenario
    async def test_same_host_again(self) -> None:
        """The same host made again is given another key, and keeps all else (HF-16)."""
        stores = await self._factories()
        await stores.factories.add_tokens([ONE, TWO], TOKEN)
        await stores.factories.create_host(ONE, HOST, {"a": "b"}, KEY)
        before = await described(stores, [str(HOST)])
        self.assertIsNone(await stores.credentials.read_rotation_time(HOST))
        self.assertIs((await stores.factories.create_host(TWO, HOST, {"a": "c", "d": "e"}, Sealed(b"other"))).new, False)
        self.assertEqual((await stores.credentials.read_credential(HOST)).api_key, b"other")
        self.assertIsNotNone(await stores.credentials.read_rotation_time(HOST))
        self.assertEqual(await described(stores, [str(HOST)]), before)

    @scenario
    async def test_hosts_of_others(self) -> None:
        """A host that policy declared, or another factory made, is a conflict, and so is a role that outlived its host
        (HF-17).
        """
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        await stores.factories.add_tokens([TWO], FactoryToken(role("host_factory:g"), 1.0))
        key = Sealed(b"its own")
        await load(stores, Draft().define("host:declared"), api_keys={"acct:host:declared": key})
        await stores.factories.create_host(TWO, role("host:made"), {}, key)
        await self.remain(role("host:remains"))
        for name in ("host:declared", "host:made", "host:remains"):
            with self.assertRaises(Conflict):
                await stores.factories.create_host(ONE, role(name), {"a": "b"}, KEY)
            self.assertNotEqual((await stores.credentials.read_credential(role(name))).api_key, KEY)
        self.assertEqual(await described(stores, ["acct:host:remains"]), [])

    @scenario
    async def test_same_creation(self) -> None:
        """A host is the one that a factory made until it is deleted, made again or given to another owner (WIRE-55)."""
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        first = (await stores.factories.create_host(ONE, HOST, {}, KEY)).creation
        self.assertEqual((await stores.factories.create_host(ONE, HOST, {}, KEY)).creation, first)
        await stores.factories.require_host(FACTORY, HOST, first)
        with self.assertRaises(Conflict):
            await stores.factories.require_host(role("host_factory:g"), HOST, first)
        gone = Changes(delete=Rows((ResourceRow(str(HOST), str(FACTORY)),)))
        await change(stores, gone)
        with self.assertRaises(RecordNotFound):
            await stores.factories.require_host(FACTORY, HOST, first)
        second = (await stores.factories.create_host(ONE, HOST, {}, KEY)).creation
        await stores.factories.require_host(FACTORY, HOST, second)
        with self.assertRaises(RecordNotFound):
            await stores.factories.require_host(FACTORY, HOST, first)
        await change(stores, gone)
        await load(stores, Draft().define("host:web/1"), api_keys={str(HOST): KEY})
        with self.assertRaises(Conflict):
            await stores.factories.require_host(FACTORY, HOST, first)

    @scenario
    async def test_hosts_that_policy_gave_to_the_factory(self) -> None:
        """A host that policy declared with the factory for its owner is the factory's too (HF-17)."""
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        await load(stores, Draft().define("host:given", owner="host_factory:f"), api_keys={"acct:host:given": KEY})
        self.assertIs((await stores.factories.create_host(ONE, role("host:given"), {}, Sealed(b"other"))).new, False)
        self.assertEqual((await stores.credentials.read_credential(role("host:given"))).api_key, b"other")

    @scenario
    async def test_policies_around_hosts(self) -> None:
        """A factory makes hosts of its own policy, and where there is none; what it made before it gives another key
        (HF-19).
        """
        stores = await self._factories()
        await load(stores, Draft().define("policy:p", "policy:p/q", "policy:other"))
        await load(stores, Draft().define("host_factory:p/f", owner="policy:p"), role("policy:p"))
        await stores.factories.add_tokens([ONE], FactoryToken(role("host_factory:p/f"), 1.0))
        await stores.factories.add_tokens([TWO], TOKEN)
        for digest, identifier, made in (
            (ONE, "p/h", True),
            (ONE, "p/deep/er/h", True),
            (ONE, "elsewhere/h", True),
            (TWO, "elsewhere/g", True),
            (ONE, "p/q/h", False),
            (ONE, "other/h", False),
            (TWO, "p/g", False),
        ):
            host = role(f"host:{identifier}")
            if made:
                self.assertIs((await stores.factories.create_host(digest, host, {}, KEY)).new, True)
                continue
            with self.assertRaises(Conflict):
                await stores.factories.create_host(digest, host, {"a": "b"}, KEY)
            self.assertFalse(await stores.has_role(host))
            self.assertEqual([found async for part in stores.resources.stream_described([str(host)]) for found in part], [])
        await load(stores, Draft().define("policy:elsewhere"))
        self.assertIs((await stores.factories.create_host(ONE, role("host:elsewhere/h"), {}, Sealed(b"other"))).new, False)
        with self.assertRaises(Conflict):
            await stores.factories.create_host(TWO, role("host:elsewhere/h"), {}, KEY)

    @scenario
    async def test_no_token(self) -> None:
        """Without a token there is no host."""
        stores = await self._factories()
        with self.assertRaises(RecordNotFound):
            await stores.factories.create_host(ONE, HOST, {}, KEY)
        self.assertFalse(await stores.has_role(HOST))

    @scenario
    async def test_at_once(self) -> None:
        """Of several that make one host at once, one makes it, and all succeed; the key is that of one of them (HF-23)."""
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        keys = [Sealed(b"%d" % number) for number in range(4)]
        attempts = [Deferred.fromCoroutine(stores.factories.create_host(ONE, HOST, {"a": "b"}, key)) for key in keys]
        self.assertEqual(sorted(made.new for made in await gatherResults(attempts)), [False, False, False, True])
        self.assertIn((await stores.credentials.read_credential(HOST)).api_key, keys)
        self.assertEqual(await stores.roles.count_memberships(MembersQuery(HOST)), 2)

    @scenario
    async def test_odd_identifiers(self) -> None:
        """A host may have any identifier (HF-18)."""
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        for identifier in ODD_IDENTIFIERS:
            host = role(f"host:{identifier}")
            self.assertIs((await stores.factories.create_host(ONE, host, {identifier: identifier}, KEY)).new, True)
            (found,) = await described(stores, [str(host)])
            self.assertEqual(found.annotations, (ResourceAnnotation(identifier, identifier, None),))

    @scenario
    async def test_hosts_go_with_their_factory(self) -> None:
        """The hosts of a factory go with it, though their names stay taken (HF-25)."""
        stores = await self._factories()
        await stores.factories.add_tokens([ONE], TOKEN)
        await stores.factories.add_tokens([TWO], FactoryToken(role("host_factory:g"), 1.0))
        await stores.factories.create_host(ONE, HOST, {}, KEY)
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(FACTORY), str(ADMIN)),))))
        self.assertFalse((await stores.roles.access_facts(ADMIN, HOST.resource)).exists)
        with self.assertRaises(Conflict):
            await stores.factories.create_host(TWO, HOST, {}, KEY)

    @scenario
    async def test_expired(self) -> None:
        """Tokens that have expired are removed, some at a time, and recorded with that; the others stay (HF-26)."""
        stores = await self._factories()
        factories, counts = stores.factories, list[int]()

        def recount(tokens: Sequence[ExpiredToken]) -> EventBatch:
            counts.append(len(tokens))
            return events.trail(*(events.event(resource=str(token.factory), token=token.name) for token in tokens))

        async def remove(now: float) -> int:
            count = 0
            while removed := await factories.remove_expired(now, recount):
                count += len(removed)
            return count

        self.assertEqual(await remove(1e12), 0)
        digests = [digest_token(str(number)) for number in range(2500)]
        await factories.add_tokens(digests, FactoryToken(FACTORY, 1000.0))
        await factories.add_tokens([ONE], TOKEN)
        self.assertEqual(await remove(999.9), 0)
        self.assertEqual(counts, [])
        self.assertEqual(await remove(1000.0), 2500)
        self.assertEqual(sum(counts), 2500)
        self.assertEqual(len(await events.operations(stores, EventsQuery(ACCOUNT, limit=5000))), 2500)
        self.assertEqual(
            await events.operations(stores, EventsQuery(ACCOUNT, data=(("subject", "token", name_token(digests[7])),))),
            ["update"],
        )
        self.assertEqual((await factories.read_token(digests[0]), await factories.read_token(ONE)), (None, TOKEN))
        self.assertIs(await factories.can_find_known_token(), True)

    @scenario
    async def test_tokens_of_any_factory(self) -> None:
        """The identifier of a factory may be odd, and accounts don't get mixed up."""
        stores = await self._factories()
        await load(stores, Draft("other").define("host_factory:f"), role("policy:root", "other"))
        await stores.factories.add_tokens([ONE], FactoryToken(role("host_factory:f", "other"), 5.0))
        token = await stores.factories.read_token(ONE)
        assert token is not None
        self.assertEqual(token.factory.account, "other")
        self.assertEqual((await described(stores, [f"{ACCOUNT}:host_factory:f"]))[0].tokens, ())
        self.assertFalse((await stores.roles.access_facts(ADMIN, resource("host_factory:f", "other"))).owns)
