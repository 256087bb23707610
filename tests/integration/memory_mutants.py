"""What may be forgotten about what is remembered: mutants of the program and of the schema, each with what finds it.

A :class:`Case` is a directed history: a reading that is remembered, and a change after which it must have another answer. It
must hold of the program, and fail of its mutants. Mutants of the program are its own text with a piece replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Final, cast

import attrs

from svc.storage.cache.read_cache import ReadCache
from tests.integration.memory_changes import TOO_MANY
from tests.integration.memory_readings import BRANCH, ELSEWHERE, MANY

_numbers = count()

#: The triggers for each table, by what they are for.
EVENTS: Final = ("insert", "update", "delete", "truncate")


@attrs.frozen
class Case:
    """A change in plain SQL, after some preparation, that changes the answer to a reading; ``{a}`` is the account."""

    reading: str
    change: tuple[str, ...]
    before: tuple[str, ...] = ()
    crowded: bool = False


@attrs.frozen
class Mutant:
    """Something forgotten, and the case that finds it.

    ``sql`` changes the schema, and ``back`` changes it back. ``lacking``: beginnings of names that answers don't depend on.
    ``few``: answers depend on no more names of a sort than are told apart. ``module`` and ``pieces``: of the program what is
    replaced. ``counted``: whether commits raise slots.
    """

    name: str
    case: Case = Case("", ())
    sql: str = ""
    back: str = ""
    lacking: str = ""
    few: bool = False
    module: str = ""
    pieces: tuple[tuple[str, str], ...] = ()
    counted: bool = True

    def memory(self) -> type[ReadCache]:
        """Return the memory that it has."""
        return forgetful(self.module, *self.pieces) if self.pieces else ReadCache

    def names(self, account: str, names: list[str]) -> list[str]:
        """Return the names that an answer depends on, without those that were forgotten."""
        lacking = self.lacking.replace("{a}", account)
        kept = [name for name in names if not lacking or not name.startswith(lacking)]
        return kept[:64] if self.few else kept


def forgetful(module: str, *pieces: tuple[str, str]) -> type[ReadCache]:
    """Return a memory in which pieces of the text of one of its modules are replaced."""
    place = f"mutants_{next(_numbers)}"
    changed = _executed(module, place, {}, *pieces)
    if module == "read_cache":
        return cast(type[ReadCache], changed.ReadCache)
    over: dict[str, object] = {
        "InvalidationPoll": None,
        "CacheEntries": None,
        "expand_dependencies": None,
        "expand_touched": None,
    }
    over = {name: vars(changed)[name] for name in over if name in vars(changed)}
    if module == "dependency_names":
        over["InvalidationPoll"] = _executed(
            "invalidation_poll", place, {"expand_touched": changed.expand_touched}
        ).InvalidationPoll
    return cast(type[ReadCache], _executed("read_cache", place, over).ReadCache)


def _executed(module: str, place: str, over: dict[str, object], *pieces: tuple[str, str]) -> ModuleType:
    """Return a module of the room, executed once more, with some of its globals replaced, and pieces of its text."""
    spec = find_spec(f"svc.storage.cache.{module}")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    for piece, instead in pieces:
        if text.count(piece) != 1:
            raise AssertionError(f"{module} has {text.count(piece)} times {piece!r}")
        text = text.replace(piece, instead)
    made = ModuleType(f"{place}_{module}")
    sys.modules[made.__name__] = made  # where decorators look for it
    exec(compile(text, spec.origin, "exec"), vars(made))
    vars(made).update(over)
    return made


# -- triggers ----------------------------------------------------------------------------------------------------------

_ALICE, _H1, _V1 = "'{a}:user:alice'", "'{a}:host:h1'", "'{a}:variable:v1'"
_WEBSERVICE: Final = f"'{{a}}:webservice:{BRANCH}'"
_OF_WEBSERVICE: Final = f"resource_id = {_WEBSERVICE}"
_MISSING: Final = f"INSERT INTO directory_users VALUES ({_ALICE}, {_WEBSERVICE}, now(), true)"
_REFUSED_NO_MORE: Final = f"UPDATE directory_users SET refused = false WHERE role_id = {_ALICE}"
_NO_KEYS: Final = "DELETE FROM signing_keys WHERE account = '{a}'"
_SECRET: Final = "secret of alice: v1"
_KEY: Final = "INSERT INTO signing_keys (key_id, account, sealed, created_at) VALUES ('{a}-9', '{a}', 'x', 1)"
_MIME: Final = f"annotations WHERE resource_id = {_V1} AND name = 'svc/mime_type'"
_NONE: Final = "INSERT INTO resources (resource_id, owner_id) VALUES ('{a}:variable:none', '{a}:user:admin')"

#: Of each table the readings and changes by which the triggers for INSERT, UPDATE and DELETE are found.
_ROWS: Final[dict[str, tuple[Case, Case, Case]]] = {
    "accounts": (
        Case("credential: user:admin", ("INSERT INTO accounts (account) VALUES ('{a}')",), (
            _NO_KEYS, "DELETE FROM accounts WHERE account = '{a}'",
        )),
        Case("credential: user:admin", ("UPDATE accounts SET account = '{a}x' WHERE account = '{a}'",), (_NO_KEYS,)),
        Case("credential: user:admin", ("DELETE FROM accounts WHERE account = '{a}'",), (_NO_KEYS,)),
    ),
    "signing_keys": (
        Case("credential: user:admin", (_KEY,)),
        Case("credential: user:admin", ("UPDATE signing_keys SET key_id = key_id || 'x' WHERE account = '{a}'",)),
        Case("candidate: host:h1", (_NO_KEYS,)),
    ),
    "roles": (
        Case("present: h3", ("INSERT INTO roles (role_id, creation) VALUES ('{a}:host:h3', 0)",)),
        Case("present", (f"UPDATE roles SET creation = creation + 1 WHERE role_id = {_ALICE}",)),
        Case("present: h3", ("DELETE FROM roles WHERE role_id = '{a}:host:h3'",), (
            "INSERT INTO roles (role_id, creation) VALUES ('{a}:host:h3', 0)",
        )),
    ),
    "credentials": (
        Case("credential: user:alice", (f"INSERT INTO credentials (role_id, api_key) VALUES ({_ALICE}, 'new')",), (
            f"DELETE FROM credentials WHERE role_id = {_ALICE}",
        )),
        Case("credential: user:alice", (f"UPDATE credentials SET api_key = 'new' WHERE role_id = {_ALICE}",)),
        Case("credential: user:alice", (f"DELETE FROM credentials WHERE role_id = {_ALICE}",)),
    ),
    "directory_users": (
        Case("credential: user:alice", (_MISSING,)),
        Case("credential: user:alice", (_REFUSED_NO_MORE,), (_MISSING,)),
        Case("credential: user:alice", (f"DELETE FROM directory_users WHERE role_id = {_ALICE}",), (_MISSING,)),
    ),
    "restrictions": (
        Case("credential: host:h1", (f"INSERT INTO restrictions VALUES ({_H1}, '192.0.2.0/24')",)),
        Case("credential: host:h1", (f"UPDATE restrictions SET cidr = '192.0.2.0/24' WHERE role_id = {_H1}",)),
        Case("candidate: host:h1", (f"DELETE FROM restrictions WHERE role_id = {_H1}",)),
    ),
    "memberships": (
        Case("secret of h1: v3", (f"INSERT INTO memberships VALUES ('{{a}}:layer:l', {_H1}, false, false)",)),
        Case("secret of h1: v3", (
            f"UPDATE memberships SET role_id = '{{a}}:layer:l' WHERE member_id = {_H1} AND NOT ownership",
        )),
        Case(_SECRET, (f"DELETE FROM memberships WHERE member_id = {_ALICE} AND NOT ownership",)),
    ),
    "resources": (
        Case("secret of bob: none", (_NONE,)),
        Case("secret of alice: v3", (f"UPDATE resources SET owner_id = {_ALICE} WHERE resource_id = '{{a}}:variable:v3'",)),
        Case("secret of bob: none", ("DELETE FROM resources WHERE resource_id = '{a}:variable:none'",), (_NONE,)),
    ),
    "permissions": (
        Case("secret of alice: v3", (f"INSERT INTO permissions VALUES ('{{a}}:variable:v3', 'execute', {_ALICE})",)),
        Case(_SECRET, (f"UPDATE permissions SET privilege = 'x' WHERE resource_id = {_V1} AND privilege = 'execute'",)),
        Case(_SECRET, (f"DELETE FROM permissions WHERE resource_id = {_V1}",)),
    ),
    "annotations": (
        Case("secret of h1: v3", ("INSERT INTO annotations VALUES ('{a}:variable:v3', 'svc/mime_type', 'x')",)),
        Case(_SECRET, (f"UPDATE annotations SET value = 'x' WHERE resource_id = {_V1}",)),
        Case(_SECRET, (f"DELETE FROM {_MIME}",)),
    ),
    "secrets": (
        Case(_SECRET, (f"INSERT INTO secrets (resource_id, version, sealed) VALUES ({_V1}, 2, 'new')",)),
        Case("version of alice", (f"UPDATE secrets SET sealed = 'new' WHERE resource_id = {_V1}",)),
        Case("batch of alice", (f"DELETE FROM secrets WHERE resource_id = {_V1}",)),
    ),
    "authenticator_switches": (
        Case("candidate: host:h1", (f"INSERT INTO authenticator_switches VALUES ({_WEBSERVICE}, true)",)),
        Case("candidate: host:h1", (f"UPDATE authenticator_switches SET enabled = false WHERE {_OF_WEBSERVICE}",), (
            f"INSERT INTO authenticator_switches VALUES ({_WEBSERVICE}, true)",
        )),
        Case("candidate: host:h1", (f"DELETE FROM authenticator_switches WHERE resource_id = {_WEBSERVICE}",), (
            f"INSERT INTO authenticator_switches VALUES ({_WEBSERVICE}, true)",
        )),
    ),
    "key_refreshes": (
        Case("candidate: host:h1", (f"INSERT INTO key_refreshes VALUES ({_WEBSERVICE}, 1)",)),
        Case("candidate: host:h1", (f"UPDATE key_refreshes SET refreshes = 2 WHERE resource_id = {_WEBSERVICE}",), (
            f"INSERT INTO key_refreshes VALUES ({_WEBSERVICE}, 1)",
        )),
        Case("candidate: host:h1", (f"DELETE FROM key_refreshes WHERE resource_id = {_WEBSERVICE}",), (
            f"INSERT INTO key_refreshes VALUES ({_WEBSERVICE}, 1)",
        )),
    ),
    "distrusted_keys": (
        Case("candidate: host:h1", (f"INSERT INTO distrusted_keys VALUES ({_WEBSERVICE}, 'k', 'x')",)),
        Case("candidate: host:h1", (f"UPDATE distrusted_keys SET key = 'l' WHERE resource_id = {_WEBSERVICE}",), (
            f"INSERT INTO distrusted_keys VALUES ({_WEBSERVICE}, 'k', 'x')",
        )),
        Case("candidate: host:h1", (f"DELETE FROM distrusted_keys WHERE resource_id = {_WEBSERVICE}",), (
            f"INSERT INTO distrusted_keys VALUES ({_WEBSERVICE}, 'k', 'x')",
        )),
    ),
}  # fmt: skip

#: Tables that others refer to can only be emptied with all of these, whose triggers are called too.
_WITH_OTHERS: Final = {
    "accounts": ("accounts", "signing_keys"),
    "roles": tuple(_ROWS),
    "resources": tuple(set(_ROWS) - {"accounts", "signing_keys", "roles", "memberships", "credentials", "restrictions"}),
}


def of_triggers() -> Iterator[Mutant]:
    """Yield a mutant for each trigger, or for several where none of them can be called alone."""
    for table, cases in _ROWS.items():
        for event, case in zip(EVENTS, cases, strict=False):
            yield Mutant(f"{table}: {event}", case, *_without((table,), event))
        together = _WITH_OTHERS.get(table, (table,))
        case = attrs.evolve(cases[2], change=(f"TRUNCATE {table} CASCADE",))
        yield Mutant(f"{table}: truncate", case, *_without(together, "truncate"))


def _without(tables: tuple[str, ...], event: str) -> tuple[str, str]:
    disabled, enabled = (
        "; ".join(f"ALTER TABLE {table} {how} TRIGGER touched_by_{event}" for table in tables)
        for how in ("DISABLE", "ENABLE")
    )
    return disabled, enabled


# -- names -------------------------------------------------------------------------------------------------------------

_LEAVE: Final = "DELETE FROM memberships WHERE role_id = '{a}:group:g2' AND member_id = '{a}:group:g1'"
_LEAVE_G1: Final = f"DELETE FROM memberships WHERE role_id = '{{a}}:group:g1' AND member_id = {_H1}"
_DENY: Final = f"DELETE FROM permissions WHERE resource_id = {_V1}"
_SHOW_G2: Final = "INSERT INTO permissions VALUES ('{a}:layer:l', 'read', '{a}:group:g2')"
_SHOW: Final = f"INSERT INTO permissions VALUES ('{{a}}:layer:l', 'read', {_ALICE})"
_CREATION: Final = f"UPDATE roles SET creation = creation + 1 WHERE role_id = {_ALICE}"
_REVOKED: Final = f"UPDATE roles SET epoch = epoch + 1 WHERE role_id = {_ALICE}"
_EPOCH: Final = "UPDATE accounts SET epoch = epoch + 1 WHERE account = '{a}'"
_VALUE: Final = f"UPDATE secrets SET sealed = sealed || 'x' WHERE resource_id = {_V1}"
_ISSUER_NEW: Final = (
    f"INSERT INTO secrets (resource_id, version, sealed) VALUES ('{{a}}:variable:{BRANCH}/issuer', 2, 'new')"
)
_NO_VARIABLE: Final = f"DELETE FROM resources WHERE resource_id = '{{a}}:variable:{BRANCH}/keys'"
_SWITCH: Final = f"INSERT INTO authenticator_switches VALUES ({_WEBSERVICE}, true)"
_REF: Final = f"UPDATE annotations SET value = 'other' WHERE resource_id = {_H1}"
_NO_WEBSERVICE: Final = f"DELETE FROM permissions WHERE resource_id = {_WEBSERVICE}"
_RESTRICT: Final = f"INSERT INTO restrictions VALUES ({_H1}, '192.0.2.0/24')"
_VERSION: Final = f"INSERT INTO secrets (resource_id, version, sealed) VALUES ({_V1}, 2, 'new')"
_APPEAR: Final = f"INSERT INTO resources (resource_id, owner_id) VALUES ('{ELSEWHERE}{{a}}:variable:x', '{{a}}:user:alice')"
_JOIN: Final = "INSERT INTO memberships VALUES ('{a}:layer:l', '{a}:host:h2', false, false)"

_ROOT: Final = "'{a}:policy:root'"
_CLOSED: Final = "DELETE FROM permissions WHERE resource_id = '{a}:policy:q'"

#: Of readings the beginnings of names that they depend on, with changes that touch what has these names alone.
_NAMED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    _SECRET: {
        "m:": (_LEAVE,),
        "r:{a}:user:alice": (_CREATION,),
        "k:": (_EPOCH,),
        "r:{a}:variable:v1": (_DENY,),
        "v:": (_VALUE,),
    },
    "version of alice": {
        "m:": (_LEAVE,),
        "r:{a}:user": (_CREATION,),
        "k:": (_EPOCH,),
        "r:{a}:variable": (_DENY,),
        "v:": (_VALUE,),
    },
    "batch of alice": {
        "m:": (_LEAVE,),
        "r:{a}:user": (_CREATION,),
        "k:": (_EPOCH,),
        "r:{a}:variable:v1": (_DENY,),
        "v:": (_VALUE,),
    },
    "standing of alice: variable:v1": {
        "m:": (_LEAVE,),
        "r:{a}:user": (_REVOKED,),
        "k:": (_EPOCH,),
        "r:{a}:variable": (_DENY,),
    },
    "standing of alice: variable:v4": {
        "m:": (_LEAVE,),
        "r:{a}:policy:q": (_CLOSED,),
        "r:{a}:group:g3": ("UPDATE resources SET owner_id = '{a}:user:admin' WHERE resource_id = '{a}:group:g3'",),
        "r:{a}:variable:v4": ("UPDATE resources SET owner_id = '{a}:user:admin' WHERE resource_id = '{a}:variable:v4'",),
    },
    "secret of alice: v4": {"r:{a}:policy:root": (f"INSERT INTO permissions VALUES ({_ROOT}, 'inspect', {_ALICE})",)},
    "present": {"r:": (_REVOKED,), "k:": (_EPOCH,)},
    "credential: host:h3": {"r:": ("INSERT INTO roles (role_id, creation) VALUES ('{a}:host:h3', 0)",)},
    "credential: user:alice": {
        "r:": (_CREATION,),
        "c:": (f"UPDATE credentials SET api_key = 'new' WHERE role_id = {_ALICE}",),
        "k:": (_KEY,),
    },
    "candidate: host:h1": {
        "m:": (_LEAVE_G1,),
        "r:{a}:host": (_REF,),
        "r:{a}:webservice": (_NO_WEBSERVICE,),
        "/:": (_NO_VARIABLE,),
        "c:": (_RESTRICT,),
        "k:": (_KEY,),
        "/:{a}:variable": (_ISSUER_NEW,),
        "w:": (_SWITCH,),
    },
    "page of alice: variable": {"~:": (_DENY,), "v:": (_VERSION,), "k:": (_EPOCH,)},
    "page of alice: host": {"~:": (_LEAVE,), "c:": (_RESTRICT,)},
    "page of alice: elsewhere": {"~:{a}": (_CREATION,), f"~:{ELSEWHERE}": (_APPEAR,)},
    "members for alice: l": {
        "m:": (_LEAVE,),
        "r:{a}:user": (_CREATION,),
        "k:": (_EPOCH,),
        "r:{a}:layer": ("DELETE FROM permissions WHERE resource_id = '{a}:layer:l'",),
        "g:": (_JOIN,),
    },
}

#: What must be there before, by reading and name.
_BEFORE: Final = {
    ("members for alice: l", "m:"): (_SHOW_G2,),
    ("members for alice: l", "r:{a}:layer"): (_SHOW,),
    ("members for alice: l", "g:"): (_SHOW,),
    ("members for alice: l", "r:{a}:user"): (_SHOW,),
    ("members for alice: l", "k:"): (_SHOW,),
    ("secret of alice: v4", "r:{a}:policy:root"): (_CLOSED,),
}


def of_names() -> Iterator[Mutant]:
    """Yield a mutant for each sort of name that a statement returns."""
    for reading, named in _NAMED.items():
        for beginning, change in named.items():
            case = Case(reading, change, _BEFORE.get((reading, beginning), ()))
            yield Mutant(f"{reading} without {beginning}", case, lacking=beginning)


# -- coarse names ------------------------------------------------------------------------------------------------------

#: Beyond those memberships that are told apart.
BEYOND: Final = Case(
    "secret of bob: v3",
    (f"INSERT INTO memberships VALUES ('{{a}}:layer:l', '{{a}}:group:many-{MANY:03}', false, false)",),
    (
        "DELETE FROM memberships WHERE role_id = '{a}:policy:p' AND member_id = '{a}:user:bob'",
        "UPDATE resources SET owner_id = '{a}:user:bob' WHERE resource_id = '{a}:user:bob'",
    ),
    crowded=True,
)

_MANY_ROLES: Final = (
    f"INSERT INTO roles (role_id) SELECT '{{a}}:group:x-' || number FROM generate_series(1, {TOO_MANY}) AS number"
)

#: A transaction that changes more than is named, and then something that is asked for.
WHOLE: Final = Case(
    "credential: user:alice", (_MANY_ROLES, f"UPDATE credentials SET api_key = 'new' WHERE role_id = {_ALICE}")
)

#: The function that names what is touched, with one line less.
_TOUCH_LESS: Final = """
    DO $do$ BEGIN EXECUTE replace(
        (SELECT pg_get_functiondef('touch'::regproc)), $$INSERT INTO changes (touched) VALUES (ARRAY['*:' || account]);$$, ''
    ); END $do$
"""
_TOUCH_AGAIN: Final = """
    DO $do$ BEGIN EXECUTE replace(
        (SELECT pg_get_functiondef('touch'::regproc)),
        'PERFORM set_config(''svc.whole''',
        $$INSERT INTO changes (touched) VALUES (ARRAY['*:' || account]); PERFORM set_config('svc.whole'$$
    ); END $do$
"""


def of_coarse_names() -> Iterator[Mutant]:
    """Yield mutants without the names of whole accounts."""
    yield Mutant("memberships beyond those that are told apart", BEYOND, few=True)
    yield Mutant("an account that is named whole", WHOLE, _TOUCH_LESS, _TOUCH_AGAIN)


# -- the program -------------------------------------------------------------------------------------------------------

#: Pieces of the program that are left out, by what they are for.
_PIECES: Final[dict[str, tuple[str, tuple[tuple[str, str], ...]]]] = {
    "slots compared": ("invalidation_poll", ((" or self._counters.read_counters() != seen.sent.counters", ""),)),
    "slots before the look": (
        "invalidation_poll",
        (("PolledSnapshot.of(sent, seen", "PolledSnapshot.of(PendingPoll(sent.at, self._counters.read_counters()), seen"),),
    ),
    "joined": ("invalidation_poll", (("sent.counters == self._counters.read_counters()\n            and ", ""),)),
    "joined late": ("invalidation_poll", (("\n            and self._reactor.seconds() - sent.at <= self._lag", ""),)),
    "age": (
        "invalidation_poll",
        (("PolledSnapshot.of(sent, seen", "PolledSnapshot.of(PendingPoll(self._reactor.seconds(), sent.counters), seen"),),
    ),
    "lag": ("invalidation_poll", (("return bool(age <= self._lag)", "return True"),)),
    "running": ("invalidation_poll", (('tuple(map(int, filter(None, running.split(","))))', "()"),)),
    "overtaken": ("invalidation_poll", (("all(self._touched.get(name, 0) <= mark for name in names)", "True"),)),
    "history": ("invalidation_poll", ((" or mark < self._forgotten", ""),)),
    "forgotten": ("invalidation_poll", (("            self._on_history_reset()\n", "            pass\n"),)),
    "missed": ("invalidation_poll", ((" or int(below or 0) > seen.oldest", ""),)),
    "ends": ("read_cache", (("entry.ends_at is not None and now >= entry.ends_at", "False"),)),
    "everything in the account": ("dependency_names", (('yield f"~:{_account_of(name)}"', "pass"),)),
    "folders": ("dependency_names", (("yield folder", "pass"),)),
    "standby": (
        "invalidation_poll",
        (("        if standby or last is None or not last.primary:\n", "        if False:\n"),),
    ),
    "server": ("invalidation_poll", ((" or server != self._session.server", ""),)),
}


def of_programs() -> Iterator[Mutant]:
    """Yield a mutant for each piece of the program that is needed."""
    yield Mutant("slots raised", counted=False)
    for name, (module, pieces) in _PIECES.items():
        yield Mutant(name, module=module, pieces=pieces)


def of_program(name: str) -> Mutant:
    """Return one of them."""
    return next(mutant for mutant in of_programs() if mutant.name == name)
