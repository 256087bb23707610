"""The suite of ``SecretStore``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from twisted.internet.defer import Deferred, gatherResults

from svc.model.authorization import Allowed, decide_privilege
from svc.model.errors import Forbidden
from svc.model.names import ResourceName
from svc.model.policy_loads import Changes, ResourceRow, Rows
from svc.model.query_results import AccessFacts, CallerOrRole, Sealed, SecretReading
from tests.contracts.base import ACCOUNT, ADMIN, ODD_IDENTIFIERS, Contract, Draft, change, load, resource, role, scenario

VARIABLE = resource("variable:v")
OWNED = AccessFacts(caller_exists=True, exists=True, owns=True, recorded_by="acct:policy:root")


def is_readable(reading: SecretReading) -> bool:
    """Whether the caller may read the value."""
    return decide_privilege(reading.access_facts, "execute") == Allowed()


def always(value: bytes) -> Callable[[SecretReading], Sealed | None]:
    """Decide to store a value, whatever there is."""
    return lambda reading: Sealed(value)


class SecretsContract(Contract):
    """Sealed values of variables, with their versions."""

    @scenario
    async def test_no_value(self) -> None:
        """A variable that was never set has no value."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))
        self.assertEqual(await stores.secrets.read_value(ADMIN, VARIABLE), SecretReading(OWNED))

    @scenario
    async def test_no_variable(self) -> None:
        """A variable that does not exist has no value either."""
        stores = await self.stores_with_account()
        self.assertEqual(
            await stores.secrets.read_value(ADMIN, VARIABLE), SecretReading(AccessFacts(caller_exists=True, exists=False))
        )

    @scenario
    async def test_versions(self) -> None:
        """A value that is set becomes a new version, and the newest is read unless another is asked for (SEC-4, SEC-8)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))
        values = [b"one", b"\x00\xff\\'%s", b""]
        for number, value in enumerate(values, start=1):
            self.assertEqual(await stores.secrets.write_value(ADMIN, VARIABLE, always(value)), number)
            self.assertEqual(await stores.secrets.read_value(ADMIN, VARIABLE), SecretReading(OWNED, Sealed(value), number))
        for number, value in enumerate(values, start=1):
            self.assertEqual(
                await stores.secrets.read_value(ADMIN, VARIABLE, number), SecretReading(OWNED, Sealed(value), number)
            )

    @scenario
    async def test_no_such_version(self) -> None:
        """A version that there is not has no value, however large its number (SEC-9)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"value"))
        for version in (-(2**64), -1, 0, 2, 2**31 - 1, 2**31, 2**32 + 1, 2**64):
            self.assertEqual(await stores.secrets.read_value(ADMIN, VARIABLE, version), SecretReading(OWNED), version)

    @scenario
    async def test_trimmed(self) -> None:
        """The newest twenty versions are kept, and numbers go on rising (SEC-4, LIM-18)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v", "variable:w"))
        await stores.secrets.write_value(ADMIN, resource("variable:w"), always(b"kept"))
        for number in range(1, 24):
            self.assertEqual(await stores.secrets.write_value(ADMIN, VARIABLE, always(b"%d" % number)), number)
        self.assertIsNone((await stores.secrets.read_value(ADMIN, VARIABLE, 3)).sealed)
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE, 4)).sealed, b"4")
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).sealed, b"23")
        self.assertEqual((await stores.secrets.read_value(ADMIN, resource("variable:w"))).sealed, b"kept")

    @scenario
    async def test_decision(self) -> None:
        """The decision is made on what a reader would see, and may be to store nothing."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"value"))
        seen = []

        def unchanged(reading: SecretReading) -> None:
            seen.append(reading)

        self.assertIsNone(await stores.secrets.write_value(ADMIN, VARIABLE, unchanged))
        self.assertEqual(seen, [SecretReading(OWNED, Sealed(b"value"), 1)])
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).version, 1)

    @scenario
    async def test_refusal(self) -> None:
        """A refusal to store passes through, and nothing is stored."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))

        def refuse(reading: SecretReading) -> None:
            raise Forbidden("not today")

        with self.assertRaises(Forbidden):
            await stores.secrets.write_value(ADMIN, VARIABLE, refuse)
        self.assertEqual(await stores.secrets.read_value(ADMIN, VARIABLE), SecretReading(OWNED))

    @scenario
    async def test_writers_at_once(self) -> None:
        """Writers that come at once each add a version of their own, decided on the one before it (SEC-5)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))

        def longer(reading: SecretReading) -> Sealed:
            return Sealed((reading.sealed or b"") + b"x")

        writes = [Deferred.fromCoroutine(stores.secrets.write_value(ADMIN, VARIABLE, longer)) for _ in range(6)]
        self.assertEqual(sorted(version or 0 for version in await gatherResults(writes)), [1, 2, 3, 4, 5, 6])
        self.assertEqual(await stores.secrets.read_value(ADMIN, VARIABLE), SecretReading(OWNED, Sealed(b"xxxxxx"), 6))

    @scenario
    async def test_standing(self) -> None:
        """A reading says how its caller stands towards the variable, permitted or not."""
        stores = await self.stores_with_account()
        draft = Draft().define("variable:v", "group:readers", "host:h", "host:other")
        draft.grant("group:readers", "host:h").permit("variable:v", "group:readers", "read", "execute")
        await load(stores, draft)
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"value"))
        reading = await stores.secrets.read_value(role("host:h"), VARIABLE)
        self.assertEqual(reading.access_facts, await stores.roles.access_facts(role("host:h"), VARIABLE))
        self.assertEqual(reading.access_facts.privileges, {"read", "execute"})
        for stranger in ("host:other", "host:nobody"):
            reading = await stores.secrets.read_value(role(stranger), VARIABLE)
            self.assertEqual(reading.access_facts, await stores.roles.access_facts(role(stranger), VARIABLE))
            self.assertEqual(reading.access_facts.privileges, set())

    @scenario
    async def test_mime_type(self) -> None:
        """The MIME type is that of the annotation with the dialect's prefix (SEC-11)."""
        stores = await self.stores_with_account()
        draft = Draft().define("variable:v", "variable:w")
        draft.annotate("variable:v", {"svc/mime_type": "text/plain", "conjur/mime_type": "no"})
        await load(stores, draft.annotate("variable:w", {"conjur/mime_type": "no", "mime_type": "no"}))
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE)).mime_type, "text/plain")
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"value"))
        self.assertEqual((await stores.secrets.read_value(ADMIN, VARIABLE, 1)).mime_type, "text/plain")
        self.assertIsNone((await stores.secrets.read_value(ADMIN, resource("variable:w"))).mime_type)

    @scenario
    async def test_several(self) -> None:
        """Several are read as each by itself, newest versions alone, in the order asked for, what isn't there included; no
        value is told that the caller may not read (SEC-13).
        """
        stores = await self.stores_with_account()
        draft = Draft().define("user:bob", "group:ops", "variable:v", "variable:w", "variable:x")
        draft.grant("group:ops", "user:bob").permit("variable:v", "group:ops", "execute").permit(
            "variable:x", "user:bob", "read"
        )
        await load(stores, draft.annotate("variable:v", {"svc/mime_type": "text/plain"}))
        for value in (b"one", b"two"):
            await stores.secrets.write_value(ADMIN, VARIABLE, always(value))
        await stores.secrets.write_value(ADMIN, resource("variable:w"), always(b"three"))
        names = [resource(f"variable:{name}") for name in ("x", "v", "gone", "w", *ODD_IDENTIFIERS)]
        for caller in (ADMIN, role("user:bob"), role("user:gone")):
            readings = await stores.secrets.read_newest_values(caller, names, 1000)
            alone = [attrs.evolve(await stores.secrets.read_value(caller, name), mime_type=None) for name in names]
            told = [each if is_readable(each) else attrs.evolve(each, sealed=None) for each in alone]
            self.assertEqual(readings, told, caller)
        self.assertEqual([reading.version for reading in readings[:4]], [None, 2, None, 1])
        self.assertEqual(await stores.secrets.read_newest_values(ADMIN, [], 1000), [])

    @scenario
    async def test_too_many_bytes(self) -> None:
        """Of values that are too long together none is told, but which there are (SEC-14)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v", "variable:w", "variable:x"))
        names = [resource(f"variable:{name}") for name in ("v", "w", "x")]
        for name in names[:2]:
            await stores.secrets.write_value(ADMIN, name, always(b"12345"))
        told = [
            [(reading.version, reading.sealed) for reading in await stores.secrets.read_newest_values(ADMIN, names, most)]
            for most in (10, 9)
        ]
        self.assertEqual(told[0], [(1, b"12345"), (1, b"12345"), (None, None)])
        self.assertEqual(told[1], [(1, None), (1, None), (None, None)])

    @scenario
    async def test_bytes_of_others(self) -> None:
        """What the caller may not read doesn't count (SEC-14)."""
        stores = await self.stores_with_account()
        draft = Draft().define("user:bob", "variable:v", "variable:w", "variable:x")
        draft.permit("variable:v", "user:bob", "execute")
        await load(stores, draft.permit("variable:w", "user:bob", "read"))
        names = [resource(f"variable:{name}") for name in ("v", "w", "x")]
        for name in names:
            await stores.secrets.write_value(ADMIN, name, always(b"12345"))
        for most, value in ((5, b"12345"), (4, None)):
            told = await stores.secrets.read_newest_values(role("user:bob"), names, most)
            self.assertEqual([reading.sealed for reading in told], [value, None, None])

    @scenario
    async def test_digests(self) -> None:
        """A digest is made of what is read of several without their values: with names of versions that no other version
        has, not even one of a variable that was deleted and made again; and it is another one after each change (SEC-39).
        """
        stores = await self.stores_with_account()
        names = [f"variable:{name}" for name in ("v", "w", "x", *(f"ci/{number}" for number in range(20)))]
        await load(stores, Draft().define("user:bob", *names))
        ids = [str(resource(name)) for name in names]

        def made(readings: Sequence[SecretReading]) -> str:
            self.assertEqual({reading.sealed for reading in readings}, {None})
            told = [(is_readable(each), each.version, each.stamp) for each in readings]
            return repr(told)

        async def digest(caller: CallerOrRole = ADMIN) -> str:
            digests = {await stores.secrets.digest_values(caller, ids, made) for _ in range(3)}
            self.assertEqual(len(digests), 1)
            return digests.pop()

        seen = [await digest(), await digest(role("user:bob"))]
        for name in (names[0], names[-1]):
            await stores.secrets.write_value(ADMIN, resource(name), always(b"value"))
            seen += [await digest(), await digest(role("user:bob"))]
        await load(stores, Draft().permit(names[-1], "user:bob", "execute"))
        self.assertEqual(await digest(), seen[-2])
        seen.append(await digest(role("user:bob")))
        await change(stores, Changes(delete=Rows(resources=(ResourceRow(str(resource(names[0])), str(ADMIN)),))))
        await load(stores, Draft().define(names[0]))
        await stores.secrets.write_value(ADMIN, resource(names[0]), always(b"value"))
        seen.append(await digest())
        self.assertEqual(len(set(seen)), len(seen))

    @scenario
    async def test_deleted(self) -> None:
        """The values of a variable go with it, and one of the same name begins again (SEC-4)."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define("variable:v"))
        await stores.secrets.write_value(ADMIN, VARIABLE, always(b"value"))
        gone = Rows(resources=(ResourceRow(str(VARIABLE), str(ADMIN)),))
        await change(stores, Changes(delete=gone))
        await load(stores, Draft().define("variable:v"))
        self.assertEqual(await stores.secrets.read_value(ADMIN, VARIABLE), SecretReading(OWNED))
        self.assertEqual(await stores.secrets.write_value(ADMIN, VARIABLE, always(b"new")), 1)

    @scenario
    async def test_odd_identifiers(self) -> None:
        """A value is found under its variable's identifier, whatever that is made of."""
        stores = await self.stores_with_account()
        await load(stores, Draft().define(*(f"variable:{identifier}" for identifier in ODD_IDENTIFIERS)))
        for identifier in ODD_IDENTIFIERS:
            name = ResourceName(ACCOUNT, "variable", identifier)
            await stores.secrets.write_value(ADMIN, name, always(identifier.encode()))
        for identifier in ODD_IDENTIFIERS:
            reading = await stores.secrets.read_value(ADMIN, ResourceName(ACCOUNT, "variable", identifier))
            self.assertEqual((reading.sealed, reading.version), (identifier.encode(), 1))
