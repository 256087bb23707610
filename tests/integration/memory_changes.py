"""What changes in histories: every kind of change that there is, at random, by the stores of a server or in plain SQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

import attrs

from svc.crypto.vault import Vault
from svc.model.dialect import NATIVE
from svc.model.errors import Refusal
from svc.model.host_factories import FactoryToken
from svc.model.ldap_directories import GROUP, DirectoryName
from svc.model.names import ResourceName, RoleName, admin_of, root_policy
from svc.model.policy_loads import AnnotationRow, Changes, Load, LoadMode, MembershipRow, ResourceRow, Rows
from svc.model.query_results import Caller, Sealed
from svc.policy.document import Bounds
from svc.services.policy_loads import LocalLoads
from svc.storage.driver.database import Database
from svc.storage.driver.statements import Statement
from tests.contracts.base import Draft, signing_key
from tests.integration.memory_readings import BRANCH, NAMES, nothing, prepared
from tests.integration.memory_world import StoresThrough, execute

#: More names than one transaction tells apart (schema 0010).
TOO_MANY: Final = 2001

#: A version of a policy, of which nothing else changes.
NEW_VERSION: Final = """
    INSERT INTO policy_versions (policy_id, version, text, sha256, loaded_by, client_ip)
    SELECT '{a}:policy:p', count(*) + 1, 'text', 'sha256', '{a}:user:admin', '192.0.2.7'
    FROM policy_versions WHERE policy_id = '{a}:policy:p'
"""

#: A user is refused for a missing entry, or no longer.
MISSING: Final = f"""
    INSERT INTO directory_users (role_id, webservice_id, missing_since, refused)
    SELECT role_id, resource_id, now(), true FROM roles, resources
    WHERE role_id = '{{a}}:user:alice' AND resource_id = '{{a}}:webservice:{BRANCH}'
    ON CONFLICT (role_id) DO UPDATE SET
        refused = NOT directory_users.refused, missing_since = CASE WHEN NOT directory_users.refused THEN now() END
"""

#: In how many seconds values end that end within a history.
SOON: Final = 0.25

#: The tables that nothing else refers to, which can be emptied alone.
LEAVES: Final = (
    *("memberships, mapped_memberships", "permissions", "annotations", "credentials", "secrets", "restrictions"),
    "signing_keys",
    *("authenticator_switches", "key_refreshes", "distrusted_keys", "directory_users"),
)


@attrs.define
class Maker:
    """Makes changes of one account through ``stores``, or through ``others``, where nobody counts commits.

    ``passed`` is called between the transactions of a change that takes several.
    """

    chance: Random
    account: str
    stores: StoresThrough
    others: Database
    number: int = 0
    passed: Callable[[], Awaitable[None]] = nothing

    def role(self, *names: str) -> RoleName:
        """Return a role, one of those by chance."""
        return RoleName.parse(f"{self.account}:{self.chance.choice(names)}")

    def resource(self, *names: str) -> ResourceName:
        """Return a resource, one of those by chance."""
        return ResourceName.parse(f"{self.account}:{self.chance.choice(names)}")

    def text(self) -> str:
        """Return a text that wasn't there before."""
        self.number += 1
        return f"t{self.number}"

    async def apply(self, changes: Changes, **keys: Sealed) -> None:
        """Apply changes of the root policy."""
        named = {f"{self.account}:host:{name}": key for name, key in keys.items()}
        await self.stores.policies.transact(
            lambda transaction: transaction.apply_changes(root_policy(self.account), changes, named)
        )

    async def sql(self, *statements: str) -> None:
        """Run statements in a transaction of psql; ``{a}`` is the account."""
        await execute(self.others, *(statement.replace("{a}", self.account) for statement in statements))


async def _write(make: Maker) -> None:
    variable = make.resource("variable:v1", "variable:v2", "variable:v3", f"variable:{BRANCH}/issuer")
    value = make.text()
    await make.stores.secrets.write_value(admin_of(make.account), variable, lambda _: Sealed(value.encode()))


async def _write_several(make: Maker) -> None:
    values = {f"{make.account}:variable:{name}": Sealed(make.text().encode()) for name in ("v1", f"{BRANCH}/keys")}
    await make.stores.policies.transact(lambda transaction: transaction.set_values(values))


async def _member(make: Maker) -> None:
    role, member = make.role("group:g1", "group:g2", "layer:l"), make.role("user:alice", "user:bob", "host:h1", "host:h2")
    change = make.chance.choice((make.stores.roles.add_member, make.stores.roles.remove_member))
    await change(admin_of(make.account), role, member, lambda _: None)


async def _mapping(make: Maker) -> None:
    """A mapping of an LDAP authenticator changes, with which memberships go, or a login changes what follows from it."""
    webservice, name = make.resource(f"webservice:{BRANCH}"), DirectoryName(GROUP, make.chance.choice(("n1", "n2")))
    roles = [f"{make.account}:group:{each}" for each in make.chance.sample(("g1", "g2"), make.chance.randrange(3))]
    match make.chance.randrange(3):
        case 0:
            await make.stores.mappings.transact(lambda changing: changing.set_mapping(webservice, name, "said", roles))
        case _:
            member = make.role("user:alice", "user:bob")
            names = [name] if make.chance.random() < 0.7 else []
            await make.stores.mappings.apply_mappings(webservice, member, names, lambda _: None)


async def _key(make: Maker) -> None:
    await make.stores.credentials.set_api_key(make.role("user:alice", "host:h1"), Sealed(make.text().encode()))


async def _password(make: Maker) -> None:
    await make.stores.credentials.set_password(make.role("user:alice"), Sealed(make.text().encode()))


async def _operate(make: Maker) -> None:
    webservice, key = make.resource(f"webservice:{BRANCH}"), make.chance.choice(("k1", "k2"))
    store = make.stores.authenticators
    match make.chance.randrange(4):
        case 0:
            await store.switch_authenticator(webservice, make.chance.random() < 0.5)
        case 1:
            await store.request_key_refresh(webservice)
        case 2:
            await store.distrust_key(webservice, key, admin_of(make.account))
        case _:
            await store.trust_key(webservice, key)


async def _factory_host(make: Maker) -> None:
    digest, host = make.chance.randbytes(32), make.role("host:h3", "host:h4")
    factory = make.role("host_factory:f")
    await make.stores.factories.add_tokens([digest], FactoryToken(factory, 4e9))
    await make.stores.factories.create_host(digest, host, {make.text(): "x"}, Sealed(make.text().encode()))


async def _define(make: Maker) -> None:
    draft = Draft(make.account)
    match make.chance.randrange(5):
        case 0:
            draft.define("host:h3", owner="policy:p")
        case 1:
            draft.define("variable:none").permit("variable:none", "group:g1", "read", "execute")
        case 2:
            draft.annotate("variable:v1", {"rotation/rotator": "none"}).restrict("user:alice", "192.0.2.0/24")
        case 3:
            draft.annotate("host:h1", {"authn-jwt/ci/project": make.text()}).permit("variable:v2", "user:alice", "update")
        case _:
            draft.grant("group:g2", "host:h2", admin=True).restrict("host:h1", f"10.{make.chance.randrange(9)}.0.0/16")
    await make.apply(Changes(create=draft.rows), h3=Sealed(make.text().encode()))


async def _redefine(make: Maker) -> None:
    a = make.account
    owner = make.chance.choice((f"{a}:user:bob", f"{a}:group:g1", f"{a}:policy:p"))
    update = Rows(
        resources=(ResourceRow(f"{a}:variable:v1", owner),),
        memberships=(MembershipRow(f"{a}:group:g1", f"{a}:user:alice", False, make.chance.random() < 0.5),),
        annotations=(AnnotationRow(f"{a}:variable:v1", "svc/mime_type", make.text()),),
    )
    await make.apply(Changes(update=update))


async def _undefine(make: Maker) -> None:
    draft = Draft(make.account)
    match make.chance.randrange(6):
        case 0:
            delete = Rows(resources=(ResourceRow(str(make.resource("host:h1", "host:h3", "user:alice")), ""),))
        case 1:
            delete = Rows(resources=(ResourceRow(str(make.resource("variable:v1", f"webservice:{BRANCH}")), ""),))
        case 2:
            delete = draft.permit("variable:v1", "group:g2", "execute").rows
        case 3:
            delete = draft.grant("group:g2", "group:g1").rows
        case 4:
            delete = draft.annotate("host:h1", {"authn-jwt/ci/ref": "main"}).rows
        case _:
            delete = draft.restrict("host:h1", "10.0.0.0/8").rows
    await make.apply(Changes(delete=delete))


async def _document(make: Maker) -> None:
    admin = admin_of(make.account)
    creation = (await make.stores.credentials.read_credential(admin)).creation
    mode = make.chance.choice(tuple(LoadMode))
    document = make.chance.choice(
        (
            "- !host h3\n- !grant { role: !group g1, member: !host h3 }\n",
            "- !permit { role: !host h2, privileges: [ read, execute ], resource: !variable v3 }\n",
            "- !permit { role: !user bob, privilege: inspect, resource: !policy root }\n",
            "- !variable { id: v4, owner: !user bob }\n",
            "- !delete { record: !variable v3 }\n",
            "- !revoke { role: !group g1, member: !user alice }\n",
            "- !deny { role: !group g2, privileges: [ execute ], resource: !variable v1 }\n",
            "- !host { id: h1, restricted_to: [ 192.0.2.7 ], annotations: { authn-jwt/ci/ref: other } }\n",
            "- !group g1\n- !user alice\n- !grant { role: !group g1, member: !user alice }\n- !variable v1\n",
        )
    )
    loads = LocalLoads(make.stores.policies, Vault(b"k" * 32), NATIVE, Bounds())
    await loads.load_policy(
        Load(root_policy(make.account), mode, Caller(admin, 0, creation), "192.0.2.7", document.encode())
    )


async def _revoke(make: Maker) -> None:
    if make.chance.random() < 0.5:
        await make.stores.credentials.revoke_tokens(make.role("user:alice", "host:h1"))
    else:
        await make.stores.accounts.revoke_tokens(make.account)


async def _signing_key(make: Maker) -> None:
    await make.stores.accounts.rotate_signing_key(signing_key(make.account, f"{make.account}-{make.chance.random()}"), 4e9)


async def _account(make: Maker) -> None:
    again = make.chance.random() < 0.5
    try:
        await make.stores.accounts.delete_account(make.account)
    except Refusal:
        # Nothing was confirmed: it isn't there.
        if not again:
            raise
    else:
        if again:
            await make.passed()
    if again:
        await prepared(make.stores, make.account, make.passed)


async def _sql(make: Maker) -> None:
    many = f"generate_series(1, {TOO_MANY}) AS number"
    await make.sql(
        *make.chance.choice(
            (
                ("UPDATE roles SET creation = creation + 1 WHERE role_id = '{a}:user:alice'",),
                ("UPDATE roles SET epoch = epoch + 1 WHERE role_id = '{a}:user:alice'",),
                ("UPDATE accounts SET epoch = epoch + 1 WHERE account = '{a}'",),
                ("UPDATE memberships SET admin_option = NOT admin_option WHERE member_id = '{a}:user:alice'",),
                (
                    "UPDATE memberships SET member_id = '{a}:host:h2' WHERE member_id = '{a}:host:h1'"
                    " AND NOT ownership AND NOT EXISTS (SELECT FROM memberships AS other"
                    " WHERE other.member_id = '{a}:host:h2' AND other.role_id = memberships.role_id)",
                ),
                ("UPDATE secrets SET resource_id = '{a}:variable:v3' WHERE resource_id = '{a}:variable:v2'",),
                ("UPDATE permissions SET privilege = 'x' WHERE resource_id = '{a}:variable:v1' AND privilege = 'read'",),
                ("UPDATE annotations SET value = value || '!' WHERE resource_id LIKE '{a}:%'",),
                ("UPDATE credentials SET expires_at = coalesce(expires_at, 0) + 1 WHERE role_id LIKE '{a}:%'",),
                ("UPDATE signing_keys SET key_id = key_id || 'x' WHERE account = '{a}'",),
                ("UPDATE permissions SET privilege = 'inspect' WHERE resource_id = '{a}:policy:p'",),
                ("UPDATE resources SET owner_id = '{a}:policy:p' WHERE resource_id = '{a}:group:g3'",),
                ("DELETE FROM accounts WHERE account = '{a}'",),
                ("DELETE FROM roles WHERE role_id = '{a}:policy:p'",),
                ("DELETE FROM ldap_mappings WHERE webservice_id LIKE '{a}:%'",),
                ("DELETE FROM secrets WHERE resource_id LIKE '{a}:%' AND version = 1",),
                (
                    "SAVEPOINT s",
                    "UPDATE credentials SET api_key = 'rolled back' WHERE role_id LIKE '{a}:%'",
                    "ROLLBACK TO s",
                    "SAVEPOINT t",
                    "UPDATE credentials SET api_key = api_key || 'x' WHERE role_id = '{a}:user:alice'",
                    "RELEASE t",
                ),
                (
                    f"INSERT INTO roles (role_id) SELECT '{{a}}:group:x-{make.text()}-' || number FROM {many}",
                    "UPDATE credentials SET api_key = api_key || 'x' WHERE role_id LIKE '{a}:%'",
                    "DELETE FROM memberships WHERE member_id = '{a}:user:alice' AND NOT ownership",
                    "DELETE FROM roles WHERE role_id LIKE '{a}:group:x-%'",
                ),
                (
                    "SAVEPOINT s",
                    f"INSERT INTO roles (role_id) SELECT '{{a}}:group:x-{make.text()}-' || number FROM {many}",
                    "ROLLBACK TO s",
                    "UPDATE secrets SET sealed = sealed || 'x' WHERE resource_id LIKE '{a}:%'",
                ),
                (f"TRUNCATE {make.chance.choice(LEAVES)}",),
                ("UPDATE expirations SET failures = failures + 1 WHERE resource_id LIKE '{a}:%'",),
                ("INSERT INTO restrictions VALUES ('{a}:host:h1', '192.0.2.8/32')",),
                (NEW_VERSION,),
                (MISSING,),
                (MISSING,),
                ("DELETE FROM directory_users WHERE role_id LIKE '{a}:%'",),
            )
        )
    )


async def load_elsewhere(make: Maker) -> None:
    """A large load, which another process commits and the server counts when it is told."""
    worker = StoresThrough(make.others, make.others)
    inner = Maker(make.chance, make.account, worker, make.others, make.number + 1000)
    await make.chance.choice((_define, _redefine, _undefine, _document))(inner)


Kind = Callable[[Maker], Awaitable[None]]

#: Changes that a server makes, each as likely as its number says.
OF_SERVERS: Final[Mapping[Kind, int]] = {
    _write: 6,
    _write_several: 2,
    _member: 5,
    _mapping: 4,
    _key: 2,
    _password: 1,
    _operate: 4,
    _factory_host: 2,
    _define: 5,
    _redefine: 4,
    _undefine: 5,
    _document: 3,
    _signing_key: 2,
    _revoke: 3,
    _account: 1,
}

#: Changes that nobody counts.
OF_OTHERS: Final[Mapping[Kind, int]] = {_sql: 1}

#: What is written in a transaction that stays open for a while.
SLOW: Final = (
    "UPDATE annotations SET value = value || '?' WHERE resource_id = '{a}:host:h1'",
    "UPDATE credentials SET api_key = api_key || '?' WHERE role_id = '{a}:host:h1'",
    "UPDATE secrets SET sealed = sealed || '?' WHERE resource_id = '{a}:variable:v2'",
)

#: A value that ends soon.
ENDING: Final = (
    "INSERT INTO secrets (resource_id, version, sealed, expires_at) SELECT resource_id, max(version) + 1, 'ending',"
    f" clock_timestamp() + interval '{SOON} seconds' FROM secrets WHERE resource_id IN ('{{a}}:variable:v1',"
    f" '{{a}}:variable:{BRANCH}/{NAMES[0]}') GROUP BY resource_id"
)

#: Of an account: whether no value that is to end soon has ended, and whether all have.
ENDED: Final = Statement.with_name("history_ended")("""
    SELECT
        coalesce(bool_and(expires_at > clock_timestamp()), true), coalesce(bool_and(expires_at <= clock_timestamp()), true)
    FROM secrets WHERE split_part(resource_id, ':', 1) = $1::text AND expires_at > now() - interval '10 seconds'
""")
