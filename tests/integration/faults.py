"""The faults of the two PostgreSQLs, and of what is kept there."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import psycopg2
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from svc.crypto.vault import CANARY, Vault, parse_data_key, signing_key_name
from svc.server.bootstrap import WRITERS
from tests.integration.bed import DATABASE as DATABASE_NAME
from tests.integration.bed import ROLE, Bed, Side
from tests.integration.verdicts import OK, WITHOUT_DATABASE, Fault, failing

reactor: Any = installed_reactor

#: Another data key than the servers'.
OTHER_KEY: Final = base64.b64encode(b"another key than that of servers").decode("ascii")

#: Writes that are sent over and over, more than a server has sessions.
_WRITERS: Final = 64

_SIDES: Final[Mapping[str, Callable[[Bed], Side]]] = {
    "primary": lambda bed: bed.primary,
    "follower": lambda bed: bed.follower,
}


def _of_postgres(side: str) -> list[Fault]:
    """PostgreSQL killed, stopped, suspended; its disk full."""
    at = _SIDES[side]
    place = {"primary": "primary's PostgreSQL", "follower": "standby's PostgreSQL"}[side]

    primary = WITHOUT_DATABASE if side == "primary" else OK
    follower = WITHOUT_DATABASE if side == "follower" else OK

    async def kill(bed: Bed) -> None:
        await at(bed).postgres.kill()

    async def stop(bed: Bed) -> None:
        await at(bed).postgres.stop()

    async def start(bed: Bed) -> None:
        await at(bed).postgres.start()
        await bed.fed()

    async def freeze(bed: Bed) -> None:
        await at(bed).postgres.freeze()

    async def thaw(bed: Bed) -> None:
        await at(bed).postgres.thaw()

    async def fill(bed: Bed) -> None:
        # The log goes on in a new file each time, which finds no room in the end, though old files make some.
        for _ in range(12):
            at(bed).disk.fill()
            try:
                bed.primary.command("SELECT pg_logical_emit_message(false, 'test', 'fill'), pg_switch_wal()")
                ((written,),) = bed.primary.command("SELECT pg_current_wal_insert_lsn()::text")
            except psycopg2.Error:
                return
            if not await _received(bed, written):
                return
        raise AssertionError("the disk has room for everything")

    async def clear(bed: Bed) -> None:
        at(bed).disk.clear()
        if side == "primary":
            # It may have given up its recovery half-way, and says for ever then that it has begun.
            await kill(bed)
        await start(bed)

    return [
        Fault(
            name=f"{side}_postgres_killed",
            words=f"`kill -9` of the {place} and all its processes",
            inject=kill,
            undo=start,
            primary=primary,
            follower=follower,
        ),
        Fault(
            name=f"{side}_postgres_stopped",
            words=f"The {place} is shut down",
            inject=stop,
            undo=start,
            primary=primary,
            follower=follower,
        ),
        Fault(
            name=f"{side}_postgres_suspended",
            words=f"The {place} and all its processes hang (`SIGSTOP`)",
            inject=freeze,
            undo=thaw,
            hangs=True,
            primary=primary,
            follower=follower,
        ),
        Fault(
            name=f"{side}_disk_full",
            words=f"The disk of the log of the {place} is full",
            inject=fill,
            undo=clear,
            mounts=True,
            primary=primary,
            told=None if side == "primary" else _lags(2),
            telling="" if side == "primary" else "`lag_seconds` grows",
        ),
    ]


async def _received(bed: Bed, position: str) -> bool:
    """Whether the standby receives the log up to there, which takes it a moment."""
    for _ in range(20):
        if bed.follower.command(f"SELECT pg_last_wal_receive_lsn() >= '{position}'::pg_lsn - 1024") == [(True,)]:
            return True
        await _pause(0.05)
    return False


def _lags(seconds: float) -> Callable[[Mapping[str, Any]], bool]:
    return lambda status: (status.get("lag_seconds") or 0) >= seconds


def _pause(seconds: float) -> Deferred[None]:
    return deferLater(reactor, seconds)


async def _disconnect(bed: Bed) -> None:
    await bed.pair.disconnect()


async def _reconnect(bed: Bed) -> None:
    await bed.pair.reconnect()


async def _stop_replay(bed: Bed) -> None:
    bed.pair.pause()
    bed.primary.command("SELECT pg_logical_emit_message(false, 'test', repeat('x', 10000))")


async def _resume_replay(bed: Bed) -> None:
    bed.pair.resume()


async def _exhaust(bed: Bed) -> None:
    """Lock the table of values, and send writes until all sessions for them wait; new ones follow those given up."""
    holder = psycopg2.connect(bed.primary.postgres.dsn(DATABASE_NAME))
    holder.cursor().execute("LOCK TABLE secrets IN EXCLUSIVE MODE")
    ended: list[bool] = []

    async def write() -> None:
        while not ended:
            await bed.api.ask("POST", bed.api.variable("password"), b"x", bed.admin)

    bed.kept = [holder, ended, [Deferred.fromCoroutine(write()) for _ in range(_WRITERS)]]
    waiting = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{ROLE}' AND wait_event_type = 'Lock'"
    for _ in range(200):
        if bed.primary.command(waiting) == [(WRITERS,)]:
            return
        await _pause(0.05)
    raise AssertionError("the server has sessions for writes that wait for nothing")


async def _let_go(bed: Bed) -> None:
    holder, ended, writers = bed.kept
    ended.append(True)
    holder.close()
    for writer in writers:
        await writer


def _end_sessions(side: Side) -> None:
    with suppress(psycopg2.OperationalError):
        side.postgres.command(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'")


async def _take_all(bed: Bed) -> None:
    """Take every session that PostgreSQL has, those of the server's too."""
    dsn = bed.primary.postgres.dsn()
    bed.kept = [psycopg2.connect(dsn)]
    cursor = bed.kept[0].cursor()
    while True:
        cursor.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'")
        with suppress(psycopg2.OperationalError):
            while True:
                bed.kept.append(psycopg2.connect(dsn))
        bed.kept[0].rollback()  # which ends the look of this transaction at who is there
        cursor.execute(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{ROLE}'")
        if cursor.fetchone() == (0,):
            return


async def _give_back(bed: Bed) -> None:
    for connection in bed.kept:
        connection.close()


async def _revoke(bed: Bed) -> None:
    bed.primary.command(f"ALTER ROLE {ROLE} NOLOGIN")
    _end_sessions(bed.primary)


async def _grant(bed: Bed) -> None:
    bed.primary.command(f"ALTER ROLE {ROLE} LOGIN")


async def _forbid_writes(bed: Bed) -> None:
    bed.primary.command(f"ALTER ROLE {ROLE} SET default_transaction_read_only = on")
    _end_sessions(bed.primary)


async def _allow_writes(bed: Bed) -> None:
    bed.primary.command(f"ALTER ROLE {ROLE} RESET default_transaction_read_only")
    _end_sessions(bed.primary)


async def _rename(bed: Bed) -> None:
    bed.primary.postgres.command(f"ALTER DATABASE {DATABASE_NAME} ALLOW_CONNECTIONS false")
    for _ in range(100):
        _end_sessions(bed.primary)
        with suppress(psycopg2.errors.ObjectInUse):
            bed.primary.postgres.command(f"ALTER DATABASE {DATABASE_NAME} RENAME TO another")
            return
    raise AssertionError("the database can't be renamed")


async def _rename_back(bed: Bed) -> None:
    bed.primary.postgres.command(f"ALTER DATABASE another RENAME TO {DATABASE_NAME}")
    bed.primary.postgres.command(f"ALTER DATABASE {DATABASE_NAME} ALLOW_CONNECTIONS true")


def _of_rows(
    name: str, words: str, fails: str, table: str, where: str, change: Callable[[Bed], str], *, reads: bool = False
) -> Fault:
    """Rows of a table changed on the primary, and so on the standby."""

    async def inject(bed: Bed) -> None:
        bed.primary.command(f"CREATE TABLE kept AS SELECT * FROM {table} WHERE {where}; {change(bed)}")
        await bed.pair.caught_up()

    async def undo(bed: Bed) -> None:
        bed.primary.command(
            f"BEGIN; DELETE FROM {table} WHERE {where}; INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM kept;"
            " DROP TABLE kept; COMMIT"
        )
        await bed.pair.caught_up()

    verdict = failing(fails, reads=reads)
    return Fault(name=name, words=words, inject=inject, undo=undo, primary=verdict, follower=verdict)


def _deleted(name: str, words: str, fails: str, table: str, where: str = "true", *, reads: bool = False) -> Fault:
    return _of_rows(name, words, fails, table, where, lambda _: f"DELETE FROM {table} WHERE {where}", reads=reads)


def _literal(octets: bytes) -> str:
    return f"'\\x{octets.hex()}'::bytea"


def _foreign_canary(_: Bed) -> str:
    sealed = Vault(parse_data_key(OTHER_KEY)).seal(CANARY, b"svc")
    return f"UPDATE canary SET sealed = {_literal(bytes(sealed))}"


def _foreign_key(bed: Bed) -> str:
    ((account, key_id),) = bed.primary.command("SELECT account, key_id FROM signing_keys")
    sealed = Vault(parse_data_key(OTHER_KEY)).seal(signing_key_name(account, key_id), bytes(32))
    return f"UPDATE signing_keys SET sealed = {_literal(bytes(sealed))}"


OF_POSTGRES: Final = (
    *_of_postgres("primary"),
    *_of_postgres("follower"),
    Fault(
        name="standby_disconnected",
        words="The standby receives nothing from the primary",
        inject=_disconnect,
        undo=_reconnect,
        told=_lags(3),
        telling="`lag_seconds` grows",
    ),
    Fault(
        name="replay_paused",
        words="The standby replays nothing of what it receives",
        inject=_stop_replay,
        undo=_resume_replay,
        told=lambda status: (status.get("lag_bytes") or 0) >= 10_000,
        telling="`lag_bytes` grows",
    ),
    Fault(
        name="pool_exhausted",
        words="Every session for writes of the primary's server waits for a lock that somebody holds, 2 s each",
        inject=_exhaust,
        undo=_let_go,
        primary=failing("core", "expiration", reads=True),
        within=4.0,
        hangs=True,
    ),
    Fault(
        name="connections_taken",
        words="Somebody takes all connections of the primary's PostgreSQL, and the server's are ended",
        inject=_take_all,
        undo=_give_back,
        primary=WITHOUT_DATABASE,
    ),
    Fault(
        name="login_revoked",
        words="The server's role may log in to the primary's PostgreSQL no more, and its sessions are ended",
        inject=_revoke,
        undo=_grant,
        primary=WITHOUT_DATABASE,
    ),
    Fault(
        name="database_read_only",
        words="The primary's database takes no writes (`default_transaction_read_only`)",
        inject=_forbid_writes,
        undo=_allow_writes,
        primary=failing("core", "expiration", reads=True),
    ),
    Fault(
        name="database_renamed",
        words="The primary's database gets another name",
        inject=_rename,
        undo=_rename_back,
        primary=WITHOUT_DATABASE,
    ),
)

OF_ROWS: Final = (
    _of_rows(
        "canary_foreign", "The canary is replaced by one sealed with another key", "core", "canary", "true", _foreign_canary
    ),
    _deleted("canary_deleted", "The canary is deleted", "core", "canary"),
    _deleted("signing_key_deleted", "An account's signing key is deleted", "authn", "signing_keys"),
    _of_rows(
        "signing_key_overwritten",
        "An account's signing key is overwritten by one sealed with another data key",
        "authn",
        "signing_keys",
        "true",
        _foreign_key,
    ),
    _deleted(
        "privilege_deleted",
        "The privilege whose answer is known is deleted",
        "authz",
        "permissions",
        "resource_id = '/:webservice:health'",
    ),
    _deleted(
        "factory_token_deleted",
        "The host factory's token that is known is deleted",
        "host-factory",
        "host_factory_tokens",
        f"digest = {_literal((1).to_bytes(32))}",
    ),
    _deleted(
        "public_key_deleted",
        "The public key that is known is deleted",
        "pubkeys",
        "secrets",
        "resource_id = '/:public_key:health/known'",
    ),
    _deleted("heartbeat_deleted", "The row that health writes is deleted", "core", "heartbeat", reads=True),
)
