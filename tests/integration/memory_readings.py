"""What is read in histories: all that is remembered, about one account, by the stores that use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from svc.model.authentication import CandidateFacts
from svc.model.credentials import Credential
from svc.model.errors import CallerReplaced
from svc.model.names import ResourceName, RoleName, admin_of, root_policy
from svc.model.policy_loads import Changes
from svc.model.query_results import Caller, CallerOrRole, MembersQuery, ResourcesQuery, Sealed
from svc.storage.driver.database import Database
from tests.contracts.base import Draft, signing_key
from tests.integration.memory_world import StoresThrough, execute

#: Where the authenticator is, what its variables are called, and the names of annotations about it.
BRANCH: Final = "svc/authn-jwt/ci"
NAMES: Final = ("issuer", "keys")
UNDER: Final = "authn-jwt/ci"

#: A role that holds so many others that they aren't told apart.
MANY: Final = 70

#: What the names of accounts begin with that have no row.
ELSEWHERE: Final = "else-"

Reading = Callable[[StoresThrough], Awaitable[object]]


def base(account: str) -> Draft:
    """What each history begins with."""
    draft = Draft(account).define(
        "policy:p", "user:alice", "user:bob", "host:h1", "host:h2", "group:g1", "group:g2", "layer:l"
    )
    draft.define("variable:v1", owner="policy:p").define("variable:v2", owner="group:g2").define("variable:v3")
    draft.define("host_factory:f").grant("layer:l", "host_factory:f")
    # What g2, and so alice, only inspects.
    draft.define("policy:q").define("group:g3", owner="policy:q").define("variable:v4", owner="group:g3")
    draft.permit("policy:q", "group:g2", "inspect")
    draft.define(f"webservice:{BRANCH}", *(f"variable:{BRANCH}/{name}" for name in NAMES))
    draft.grant("group:g1", "user:alice", "host:h1").grant("group:g2", "group:g1").grant("policy:p", "user:bob", admin=True)
    draft.permit("variable:v1", "group:g2", "read", "execute").permit("variable:v3", "layer:l", "execute")
    draft.permit(f"webservice:{BRANCH}", "group:g1", "authenticate").permit("group:g2", "user:bob", "read")
    draft.annotate("host:h1", {f"{UNDER}/ref": "main", "note": "x"}).annotate("variable:v1", {"svc/mime_type": "text/plain"})
    for name in ("host:h1", "policy:p", "host_factory:f"):
        draft.permit(name, "group:g2", "read")
    return draft.restrict("host:h1", "10.0.0.0/8")


async def crowd(database: Database, account: str) -> None:
    """Have ``user:bob`` hold ``MANY`` groups more."""
    named = f"'{account}:group:many-' || lpad(number::text, 3, '0') FROM generate_series(1, {MANY}) AS number"
    await execute(
        database,
        f"INSERT INTO roles (role_id) SELECT {named}",
        "INSERT INTO memberships (role_id, member_id, ownership, admin_option)"
        f" SELECT role_id, '{account}:user:bob', false, false FROM roles WHERE role_id LIKE '{account}:group:many-%'",
    )


def readings(account: str, creation: int) -> Mapping[str, Reading]:
    """Return readings by name; ``creation`` is that of ``user:alice`` at first."""

    def role(name: str) -> RoleName:
        return RoleName.parse(f"{account}:{name}")

    def resource(name: str) -> ResourceName:
        return ResourceName.parse(f"{account}:{name}")

    variables = [resource(f"variable:{name}") for name in ("v1", "v2", "v3", "v4", "none")]
    # So many that the reading depends on their folder.
    listed = [f"{account}:variable:{BRANCH}/{name}" for name in (*NAMES, *range(20))] + [f"{account}:variable:v1"]
    alice = Caller(role("user:alice"), 0, creation)
    callers: dict[str, CallerOrRole] = {
        "alice": alice,
        "bob": role("user:bob"),
        "h1": role("host:h1"),
        "h3": role("host:h3"),
    }
    found: dict[str, Reading] = {}

    def secret(caller: CallerOrRole, variable: ResourceName, version: int | None) -> Reading:
        return lambda stores: stores.secrets.read_value(caller, variable, version)

    def batch(caller: CallerOrRole, most: int) -> Reading:
        return lambda stores: stores.secrets.read_newest_values(caller, variables, most)

    def digest(caller: CallerOrRole) -> Reading:
        return lambda stores: stores.secrets.digest_values(caller, listed, repr)

    def credential(name: str) -> Reading:
        return lambda stores: stores.credentials.read_credential(role(name))

    def candidate(name: str) -> Reading:
        return lambda stores: stores.authenticators.read_candidate(role(name), BRANCH, NAMES, UNDER)

    def standing(caller: CallerOrRole, name: str) -> Reading:
        return lambda stores: stores.roles.cached_access_facts(caller, resource(name))

    def members(caller: CallerOrRole, name: str) -> Reading:
        return lambda stores: stores.roles.list_members_with_facts(caller, MembersQuery(role(name), limit=10), whole=True)

    def page(caller: Caller, of: str, kind: str) -> Reading:
        query = ResourcesQuery(caller.role, of, (kind,) if kind else (), limit=20)
        return lambda stores: stores.resources.read_first_page(caller, query)

    for name, caller in callers.items():
        for variable in variables:
            found[f"secret of {name}: {variable.identifier}"] = secret(caller, variable, None)
        found[f"version of {name}"] = secret(caller, variables[0], 1)
        found[f"batch of {name}"] = batch(caller, 20 if name == "bob" else 1_000_000)
        found[f"digest of {name}"] = digest(caller)
        for thing in ("variable:v1", "variable:v4", "group:g2", "host:h3", f"webservice:{BRANCH}"):
            found[f"standing of {name}: {thing}"] = standing(caller, thing)
        found[f"members for {name}: g1"] = members(caller, "group:g1")
        found[f"members for {name}: l"] = members(caller, "layer:l")
    for name in ("user:alice", "host:h1", "host:h3", "user:admin"):
        found[f"credential: {name}"] = credential(name)
        found[f"candidate: {name}"] = candidate(name)
    for kind in ("variable", "host", "policy", "host_factory", ""):
        found[f"page of alice: {kind or 'all'}"] = page(alice, account, kind)
    found["page of alice: elsewhere"] = page(alice, ELSEWHERE + account, "")
    found["page of h3"] = page(Caller(role("host:h3"), 0, 0), account, "")
    found["present"] = lambda stores: stores.roles.caller_exists(Caller(role("user:alice"), 0, creation))
    found["present: h3"] = lambda stores: stores.roles.caller_exists(Caller(role("host:h3"), 0, 0))
    return found


async def answered(reading: Reading, stores: StoresThrough) -> object:
    """Return the answer to a reading, or what tells that its caller was replaced."""
    try:
        answer = await reading(stores)
    except CallerReplaced:
        return "CallerReplaced"
    # Comparisons pass over it.
    return (answer, answer.creation, answer.epoch) if isinstance(answer, Credential | CandidateFacts) else answer


async def nothing() -> None:
    """Do nothing."""


async def prepared(stores: StoresThrough, account: str, passed: Callable[[], Awaitable[None]] = nothing) -> int:
    """Make what a history begins with; return the creation of ``user:alice``.

    ``passed`` is called after each transaction.
    """
    await stores.accounts.create_account(account, Sealed(b"key of admin"), signing_key(account, f"{account}-1"))
    await passed()
    keys = {f"{account}:{name}": Sealed(name.encode()) for name in ("user:alice", "user:bob", "host:h1", "host:h2")}
    draft = base(account)
    await stores.policies.transact(
        lambda transaction: transaction.apply_changes(root_policy(account), Changes(create=draft.rows), keys)
    )
    await passed()
    for name in ("v1", "v2", f"{BRANCH}/issuer"):
        await stores.secrets.write_value(
            admin_of(account), ResourceName(account, "variable", name), lambda _: Sealed(b"first")
        )
        await passed()
    return (await stores.credentials.read_credential(RoleName(account, "user", "alice"))).creation
