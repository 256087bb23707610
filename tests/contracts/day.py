"""A day of the service through its use cases alone, on whatever stores there are."""

from __future__ import annotations

import base64
import functools
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from typing import Any, TypeVar, Unpack

import attrs
from twisted.internet.task import Clock

from svc.authn.apikey import ApiKeyAuthenticator
from svc.crypto.tokens import AccessTokens, SigningKeys, new_signing_key
from svc.crypto.vault import Vault, api_key_name
from svc.model.authentication import LoginRequest
from svc.model.dialect import NATIVE
from svc.model.errors import AuthenticationRefused, Forbidden, NoValue, RecordNotFound
from svc.model.events import AuditContext, AuditFacts, Event, EventBatch, EventsQuery
from svc.model.idempotency import Once
from svc.model.names import RESERVED_ACCOUNT, ResourceName, RoleName, admin_of, root_policy
from svc.model.policy_loads import DocumentFaults, DryRun, LoadMode, LoadResult
from svc.model.query_results import MembersQuery, ResourcesQuery
from svc.policy.document import Bounds
from svc.policy.statement_writer import write_yaml
from svc.services.accounts import AccountService
from svc.services.audit_events import AuditService
from svc.services.authenticators import AuthenticatorService
from svc.services.credentials import CredentialService
from svc.services.effective_policy import EffectivePolicyService
from svc.services.host_factories import HostFactoryService, TokensRequest
from svc.services.invocation import Invocation, NullRecorder
from svc.services.login import AccessTokenService, ApiKeyService, LoginService
from svc.services.policy_loads import LocalLoads, PolicyLoadService
from svc.services.public_keys import PublicKeyService
from svc.services.resources import ResourceService
from svc.services.roles import RoleService
from svc.services.secret_batches import BatchService
from svc.services.secrets import SecretService
from tests.chronicle import Chronicle
from tests.contracts.base import Contract, Stores, scenario
from tests.memory_reads import uncounted
from tests.sshkeys import ONE, TWO
from tests.threads import Threads, passwords_in

T = TypeVar("T")

ACCOUNT = "acme"
ROOT = root_policy(ACCOUNT)
ALICE, BOB, OPS = (RoleName(ACCOUNT, kind, name) for kind, name in (("user", "alice"), ("user", "bob"), ("group", "ops")))
HOST = RoleName(ACCOUNT, "host", "web-1")
VARIABLE, UNSET = (ResourceName(ACCOUNT, "variable", name) for name in ("db", "unset"))
FACTORY = ResourceName(ACCOUNT, "host_factory", "fleet")
KEY = ResourceName(ACCOUNT, "public_key", "user/alice/home")
JWT = "authn-jwt/ci"

POLICY = f"""
- !user {{ id: alice, public_keys: {ONE} home }}
- !user bob
- !group ops
- !grant {{ role: !group ops, member: !user alice }}
- !variable db
- !variable unset
- !layer web
- !host-factory {{ id: fleet, layers: [ !layer web ] }}
- !permit {{ role: !group ops, privileges: [ read, execute ], resource: !variable db }}
- !permit {{ role: !group ops, privileges: [ read, execute ], resource: !variable unset }}
- !permit {{ role: !layer web, privileges: [ execute ], resource: !variable db }}
- !webservice {NATIVE.prefix}/{JWT}
"""

IP = "192.0.2.7"
UNRECORDED = NullRecorder()


@attrs.frozen
class Recorded:
    """A recorder of one event."""

    event_batch: EventBatch
    facts: dict[str, Any] = attrs.field(factory=dict)

    def add_audit_facts(self, **facts: Unpack[AuditFacts]) -> None:
        """Keep facts."""
        self.facts.update(facts)


class Services:
    """All use cases, on the same stores. Their clock stands still."""

    def __init__(self, stores: Stores) -> None:
        clock, vault, passwords = Clock(), Vault(b"k" * 32), passwords_in(Threads())
        clock.advance(1_700_000_000)
        self._stores, self._clock, self._vault = stores, clock, vault
        keys = SigningKeys(stores.accounts, vault, clock)
        self._tokens = AccessTokens(keys, clock, 480, 480)
        self._journal = Chronicle()
        by_api_key = ApiKeyAuthenticator(stores.credentials, vault, passwords, clock)
        self.accounts = AccountService(stores.accounts, stores.roles, keys, self.make_account, vault)
        self.login = LoginService(by_api_key.authenticate, self._tokens, lambda _: None)
        self.api_keys = ApiKeyService(by_api_key.api_key)
        self.access_tokens = AccessTokenService(stores.roles, keys)
        self.credentials = CredentialService(
            self.api_keys, stores.credentials, stores.roles, vault, passwords, stores.answers
        )
        loads = LocalLoads(stores.policies, vault, NATIVE, Bounds())
        self.policies = PolicyLoadService(loads, stores.roles, stores.events, self._journal)
        self.effective = EffectivePolicyService(stores.effective, stores.roles, vault, NATIVE, clock)
        self.secrets = SecretService(stores.secrets, stores.expirations, vault, uncounted(), lambda _: None)
        self.batches = BatchService(stores.secrets, vault, Clock(), uncounted())
        self.public_keys = PublicKeyService(stores.public_keys, stores.secrets, vault)
        self.roles = RoleService(stores.roles, NATIVE, stores.last_logins)
        self.resources = ResourceService(stores.resources, stores.roles, NATIVE)
        self.factories = HostFactoryService(stores.factories, stores.roles, stores.resources, vault, NATIVE, clock)
        self.authenticators = AuthenticatorService(
            stores.authenticators, stores.roles, ("authn-jwt",), frozenset({JWT}), NATIVE
        )
        self.audit = AuditService(stores.events, stores.roles)

    async def make_account(
        self, account: str, api_key: str, trail: EventBatch | None = None, once: Once[None] | None = None
    ) -> None:
        """Make an account, as the server does."""
        sealed = self._vault.seal(api_key_name(admin_of(account)), api_key.encode())
        signing_key = new_signing_key(self._vault, account, self._clock.seconds())
        await self._stores.accounts.create_account(account, sealed, signing_key, trail, once)

    async def enter(self, role: RoleName, api_key: str) -> Invocation:
        """Log a role in, and return its invocation by the access token."""
        token = await self.login.authenticate(request(role, api_key), UNRECORDED)
        caller = await self._tokens.find_caller(b'Token token="%s"' % base64.b64encode(token))
        return Invocation(caller, IP, UNRECORDED)

    def recorded(self, by: Invocation, msgid: str, operation: str, name: ResourceName | RoleName) -> Invocation:
        """Return the same invocation with a recorder of an event about ``name``."""
        origin = AuditContext(self._journal.server, by.caller.role.full_id, IP, "request-1")
        event = Event(msgid, operation, (("resource", str(name)),), f"{operation} {name}", f"{operation} {name}")
        return attrs.evolve(by, recorder=Recorded(EventBatch(origin, (event,))))

    def journalled(self) -> list[str]:
        """Return the operations that the journal took, which it forgets."""
        return [operation for _, operation, _, _ in self._journal.told()]


def request(role: RoleName, evidence: str) -> LoginRequest:
    """A request of a role to be authenticated."""
    return LoginRequest(role.account, role.login, evidence.encode(), IP)


def flat(batches: Iterable[Sequence[T]]) -> list[T]:
    """What stands in batches."""
    return [each for batch in batches for each in batch]


def given(loaded: LoadResult) -> dict[str, str]:
    """The API keys that a load gave out."""
    return {actor: key for actor, key in flat(loaded.api_keys) if key is not None}


async def all_of(batches: AsyncIterator[Sequence[T]]) -> list[T]:
    """What stands in batches that are yet to be read."""
    return [each async for batch in batches for each in batch]


async def primary() -> None:
    """Say that the server may write."""


class DayContract(Contract):
    """What the use cases do together."""

    async def begun(self) -> tuple[Services, Invocation]:
        """The use cases with one account, and an invocation of its admin."""
        services = Services(await self.stores())
        await services.make_account(RESERVED_ACCOUNT, "1operator")
        operator = await services.enter(admin_of(RESERVED_ACCOUNT), "1operator")
        account = await services.accounts.create_account(operator, lambda: ACCOUNT)
        self.assertEqual(await services.accounts.list_accounts(operator), [ACCOUNT])
        return services, await services.enter(admin_of(ACCOUNT), account.api_key)

    async def loaded(self) -> tuple[Services, Invocation, dict[str, str]]:
        """The same with ``POLICY``, and the API keys that its load gave out."""
        services, admin = await self.begun()
        outcome = await services.policies.load_policy(admin, ROOT, LoadMode.APPEND, POLICY.encode(), dry_run=False)
        assert isinstance(outcome, LoadResult)
        return services, admin, given(outcome)

    @scenario
    async def test_a_day(self) -> None:
        """From the account to the last audit event, no use case needs more than values and stores."""
        services, admin = await self.begun()
        keys = await self.policy(services, admin)
        alice = await services.enter(ALICE, keys[str(ALICE)])
        await self.secret(services, admin, alice)
        await self.members(services, admin, await services.enter(BOB, keys[str(BOB)]))
        await self.rotated_key(services, keys[str(ALICE)])
        await self.machine(services, admin)
        await self.authenticator(services, admin, alice)
        await self.audit(services, admin, alice)

    async def policy(self, services: Services, admin: Invocation) -> dict[str, str]:
        """A dry run changes nothing and tells what the load then makes; what is in force loads to the same."""
        by, document = services.recorded(admin, "policy", "load", ROOT), POLICY.encode()
        before = await self.resources(services, admin)
        trial = await services.policies.load_policy(by, ROOT, LoadMode.APPEND, document, dry_run=True)
        assert isinstance(trial, DryRun)
        created = {str(item["identifier"]) for item in flat(trial.created)}
        self.assertEqual(await self.resources(services, admin), before)
        loaded = await services.policies.load_policy(by, ROOT, LoadMode.APPEND, document, dry_run=False)
        assert isinstance(loaded, LoadResult)
        self.assertEqual(await self.resources(services, admin) - before, created)
        self.assertEqual(loaded.version, 1)
        self.assertEqual(set(services.journalled()), {"add"})
        text = "".join(write_yaml((await services.effective.read_policy(admin, ROOT)).statements))
        again = await services.policies.load_policy(admin, ROOT, LoadMode.REPLACE, text.encode(), dry_run=True)
        assert isinstance(again, DryRun)
        self.assertEqual([flat(items) for items in (again.created, again.before, again.after, again.deleted)], [[]] * 4)
        wrong = await services.policies.load_policy(admin, ROOT, LoadMode.APPEND, b"- !grant", dry_run=True)
        self.assertIsInstance(wrong, DocumentFaults)
        return given(loaded)

    async def resources(self, services: Services, by: Invocation) -> set[str]:
        """The ids of all resources that the caller sees."""
        query = ResourcesQuery(by.caller.role, ACCOUNT)
        return {each.id for each in await all_of(await services.resources.list_resources(by, query, None, lambda: None))}

    async def secret(self, services: Services, admin: Invocation, alice: Invocation) -> None:
        """Who may reads a value, in every version; who may not neither sets nor finds one."""
        with self.assertRaises(NoValue):
            await services.secrets.read_value(alice, VARIABLE)
        by = services.recorded(admin, "update", "update", VARIABLE)
        first = await services.secrets.write_value(by, VARIABLE, b"one")
        self.assertEqual(await services.secrets.write_value(admin, VARIABLE, b"one"), first)
        second = await services.secrets.write_value(admin, VARIABLE, b"two")
        newest, old = (
            await services.secrets.read_value(alice, VARIABLE),
            await services.secrets.read_value(alice, VARIABLE, 1),
        )
        self.assertEqual([(newest.tag, newest.value), (old.tag, old.value)], [(second, b"two"), (first, b"one")])
        known = await services.secrets.read_value(alice, VARIABLE, None, lambda tag: tag == second)
        self.assertEqual((known.tag, known.value), (second, None))
        batch = await services.batches.read_secrets(alice.caller, alice.recorder, [str(VARIABLE)])
        self.assertEqual(batch.values, {str(VARIABLE): b"two"})
        again = await services.batches.read_secrets(
            alice.caller, alice.recorder, [str(VARIABLE)], is_known=lambda tag: tag == batch.tag
        )
        self.assertEqual((again.values, again.known, again.tag), ({}, True, batch.tag))
        with self.assertRaises(NoValue):
            await services.batches.read_secrets(alice.caller, alice.recorder, [str(VARIABLE), str(UNSET)])
        with self.assertRaises(Forbidden):
            await services.secrets.write_value(alice, VARIABLE, b"three")
        await services.secrets.clear_expirations(admin, VARIABLE)
        self.assertEqual(await services.public_keys.list_keys(ALICE), [f"{ONE} home".encode()])
        await services.public_keys.replace_key(admin, KEY, TWO.encode())
        self.assertEqual(await services.public_keys.list_keys(ALICE), [TWO.encode()])

    async def members(self, services: Services, admin: Invocation, bob: Invocation) -> None:
        """A member that is added reads what the role may, until it is removed."""
        with self.assertRaises(NoValue):
            await services.secrets.read_value(bob, VARIABLE)
        await services.roles.add_member(admin, OPS, BOB)
        page = await services.roles.list_members(admin, MembersQuery(OPS))
        members = [row.member for row in await all_of(page.batches)]
        self.assertEqual(members, [str(name) for name in (admin.caller.role, ALICE, BOB)])
        self.assertEqual((await services.secrets.read_value(bob, VARIABLE)).value, b"two")
        await services.roles.remove_member(admin, OPS, BOB)
        with self.assertRaises(NoValue):
            await services.secrets.read_value(bob, VARIABLE)

    async def rotated_key(self, services: Services, api_key: str) -> None:
        """A key that was rotated logs nobody in, the new one does, and so does a password for the key."""
        new = await services.credentials.rotate_api_key(request(ALICE, api_key), lambda: None, IP, UNRECORDED)
        with self.assertRaises(AuthenticationRefused):
            await services.enter(ALICE, api_key)
        alice = await services.enter(ALICE, new)
        await services.access_tokens.check_caller(alice.caller)
        password = "Correct-Horse-7!"
        await services.credentials.change_password(request(ALICE, new), lambda: None, password.encode(), IP, UNRECORDED)
        self.assertEqual(await services.api_keys.read_api_key(request(ALICE, password), UNRECORDED), new.encode())

    async def machine(self, services: Services, admin: Invocation) -> None:
        """A machine with a token of a host factory makes its host, which reads what its layer may."""
        made = await services.factories.create_tokens(admin, FACTORY, lambda: TokensRequest(1, "2033-01-01"))
        (token,) = made.texts
        new = await services.factories.create_host(token, primary, lambda: HOST.identifier, dict, IP, UNRECORDED)
        self.assertEqual([each.id for each in await all_of(new.described)], [str(HOST)])
        assert new.api_key is not None
        host = await services.enter(HOST, new.api_key)
        self.assertEqual((await services.secrets.read_value(host, VARIABLE)).value, b"two")
        self.assertFalse(await services.resources.has_privilege(host, VARIABLE, "update", None))
        await services.factories.revoke_token(admin, token)
        with self.assertRaises(AuthenticationRefused):
            await services.factories.create_host(token, primary, lambda: HOST.identifier, dict, IP, UNRECORDED)

    async def authenticator(self, services: Services, admin: Invocation, alice: Invocation) -> None:
        """Who has ``update`` on an authenticator switches it off and on, and others don't."""
        with self.assertRaises(Forbidden):
            await services.authenticators.switch_authenticator(alice, ACCOUNT, JWT, lambda: False)
        for on, enabled in ((False, ["authn"]), (True, ["authn", JWT])):
            await services.authenticators.switch_authenticator(admin, ACCOUNT, JWT, functools.partial(bool, on))
            known = await services.authenticators.list_authenticators()
            self.assertEqual((known.configured, known.enabled), (["authn", JWT], enabled))

    async def audit(self, services: Services, admin: Invocation, alice: Invocation) -> None:
        """The events of recorded changes are read by who owns the root policy, or the thing that they are about."""
        found = await services.audit.list_events_about(admin, EventsQuery(ACCOUNT), VARIABLE, "resource")
        self.assertIn(("update", "update"), [(event.msgid, event.data["action"]["operation"]) for event in found])
        self.assertGreater(len(await services.audit.list_all_events(admin, EventsQuery(ACCOUNT))), len(found))
        for asked in (
            services.audit.list_all_events(alice, EventsQuery(ACCOUNT)),
            services.audit.list_events_about(alice, EventsQuery(ACCOUNT), VARIABLE),
        ):
            with self.assertRaises(Forbidden):
                await asked

    @scenario
    async def test_other_accounts(self) -> None:
        """A caller of another account finds nothing of this one, whatever it may in its own."""
        services, admin, _ = await self.loaded()
        await services.secrets.write_value(admin, VARIABLE, b"one")
        await services.make_account("other", "1other")
        stranger = await services.enter(admin_of("other"), "1other")
        with self.assertRaises(NoValue):
            await services.secrets.read_value(stranger, VARIABLE)
        with self.assertRaises(NoValue):
            await services.batches.read_secrets(stranger.caller, stranger.recorder, [str(VARIABLE)])
        missing: tuple[Awaitable[object], ...] = (
            services.secrets.write_value(stranger, VARIABLE, b"two"),
            services.public_keys.replace_key(stranger, KEY, TWO.encode()),
            services.audit.list_events_about(stranger, EventsQuery(ACCOUNT), VARIABLE),
            services.effective.read_policy(stranger, ROOT),
            services.policies.load_policy(stranger, ROOT, LoadMode.APPEND, b"[]", dry_run=False),
            services.factories.create_tokens(stranger, FACTORY, lambda: TokensRequest(1, "2033-01-01")),
        )
        for asked in missing:
            with self.assertRaises(RecordNotFound):
                await asked
        self.assertEqual(await services.audit.list_all_events(stranger, EventsQuery(ACCOUNT)), [])
        with self.assertRaises(Forbidden):
            await services.accounts.list_accounts(stranger)
        with self.assertRaises(Forbidden):
            await services.accounts.delete_account(stranger, ACCOUNT)

    @scenario
    async def test_deleted(self) -> None:
        """With an account go its tokens and keys; its name can be used again."""
        services, admin, keys = await self.loaded()
        operator = await services.enter(admin_of(RESERVED_ACCOUNT), "1operator")
        await services.accounts.delete_account(operator, ACCOUNT)
        self.assertEqual(await services.accounts.list_accounts(operator), [])
        with self.assertRaises(AuthenticationRefused):
            await services.enter(ALICE, keys[str(ALICE)])
        with self.assertRaises(Forbidden):
            await services.access_tokens.check_caller(admin.caller)
        with self.assertRaises(RecordNotFound):
            await services.access_tokens.list_public_keys(ACCOUNT)
        account = await services.accounts.create_account(operator, lambda: ACCOUNT)
        await services.enter(admin_of(ACCOUNT), account.api_key)
