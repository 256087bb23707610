"""Tests of ``svc.server.data_keys``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.crypto.keyfiles import read_given_data_keys
from svc.crypto.vault import CANARY, Vault, data_key_id, new_data_key, parse_data_key
from svc.model.data_keys import KeyProgress, KeyUser, Reseal, ResealOutcome, StoredDataKey
from svc.model.errors import ReadOnlyStandby, StartRefused, StoreUnavailable, WrongDataKey
from svc.model.query_results import Sealed
from svc.server.data_key_source import DataKeySource
from svc.server.data_keys import ANNOUNCE_INTERVAL, GRACE, POLL_INTERVAL, KeyPoller, Resealer, describe_keys, format_status
from svc.settings.reading import read_settings
from svc.storage.data_keys import DataKeyStore
from tests.fakes import Fake, inherited_methods

TEXTS = [new_data_key() for _ in range(2)]
OLD, NEW = map(parse_data_key, TEXTS)
OLD_ID, NEW_ID = data_key_id(OLD), data_key_id(NEW)
BEFORE = [StoredDataKey(OLD_ID)]
DURING = [StoredDataKey(OLD_ID), StoredDataKey(NEW_ID)]
AFTER = [StoredDataKey(OLD_ID, closed=True, retired=True), StoredDataKey(NEW_ID)]
NAME = "acme:variable:v"


class FakeDataKeys(Fake, DataKeyStore):
    """Keys of a database that isn't one: ``fault`` is raised by everything, and ``moves`` are what steps do."""

    def __init__(self) -> None:
        self.stored: list[StoredDataKey] = BEFORE
        self.fault: Exception | None = None
        self.said: list[KeyUser] = []
        self.moves: list[ResealOutcome] = []
        self.asked: list[tuple[int, float]] = []
        self.known = KeyProgress()

    def _demand(self) -> None:
        if self.fault is not None:
            raise self.fault

    async def list_keys(self) -> list[StoredDataKey]:
        """See ``DataKeyStore``."""
        self._demand()
        return self.stored

    async def record_first_key(self, key_id: str) -> None:
        """See ``DataKeyStore``."""
        self.stored = [StoredDataKey(key_id)]

    async def announce_process(self, process: str, user: KeyUser) -> None:
        """See ``DataKeyStore``."""
        self._demand()
        self.said.append(user)

    async def list_key_users(self) -> list[KeyUser]:
        """See ``DataKeyStore``."""
        return self.said

    async def count_sealed_values(self) -> dict[str, int]:
        """See ``DataKeyStore``."""
        return {}

    async def begin_rotation(self, current: str, new: str, canary: Sealed, totals: Mapping[str, int]) -> bool:
        """See ``DataKeyStore``."""
        return True

    async def advance_rotation(self, reseal: Reseal, most: int, pause: float) -> ResealOutcome:
        """See ``DataKeyStore``."""
        self._demand()
        self.asked.append((most, pause))
        return self.moves.pop(0) if self.moves else ResealOutcome.SEALED

    async def read_progress(self) -> KeyProgress:
        """See ``DataKeyStore``."""
        return self.known


class KeyWatchTests(SynchronousTestCase):
    """A process that follows the keys of its database."""

    def setUp(self) -> None:
        """Prepare a vault that knows both keys, and a file with them."""
        self.clock, self.store = Clock(), FakeDataKeys()
        self.assertEqual(inherited_methods(FakeDataKeys), [])
        self.vault = Vault(NEW, OLD)
        self.vault.use_stored_keys(BEFORE)
        self.old = self.vault.seal(NAME, b"value")
        self.writable = True
        self.told: list[Sequence[bytes]] = []
        self.file = Path(self.mktemp())
        self.give(*reversed(TEXTS))

    def give(self, *keys: str) -> None:
        """Replace the file by another one."""
        draft = self.file.with_suffix(".draft")
        draft.write_text("\n".join(keys))
        draft.chmod(0o600)
        draft.replace(self.file)

    def watch(self, vault: Vault | None = None) -> KeyPoller:
        """Begin to watch."""
        settings = read_settings({}, {"SERVICE_DATA_KEY_FILE": str(self.file)})
        source = DataKeySource.from_settings(self.clock, settings)
        watch = KeyPoller(
            self.clock, self.store, vault or self.vault, "p", "here", lambda: self.writable, source, self.told.append
        )
        watch.startService()
        self.addCleanup(watch.stopService)
        return watch

    def logged(self, kind: type[BaseException]) -> int:
        """How many errors of a kind were logged."""
        return len(self.flushLoggedErrors(kind))

    def test_follows(self) -> None:
        """It seals with the key that the database says, within a second (DATA-28)."""
        self.watch()
        self.assertEqual(self.vault.current_id, OLD_ID)
        self.store.stored = DURING
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual(self.vault.current_id, NEW_ID)
        self.assertEqual(self.vault.open(NAME, self.old), b"value")

    def test_forgets(self) -> None:
        """A retired key opens for a while, and after that nothing, when the database was heard of since (DATA-31)."""
        self.watch()
        self.store.stored = AFTER
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual(self.vault.open(NAME, self.old), b"value")
        self.store.fault = StoreUnavailable("away")
        self.clock.advance(2 * GRACE)
        self.assertEqual(self.vault.open(NAME, self.old), b"value")
        self.store.fault = None
        self.clock.advance(POLL_INTERVAL)
        self.assertRaises(WrongDataKey, self.vault.open, NAME, self.old)

    def test_retired_before(self) -> None:
        """A key that was retired before the start opens nothing (DATA-31)."""
        self.store.stored = AFTER
        self.vault.use_stored_keys(AFTER)
        self.watch()
        self.assertRaises(WrongDataKey, self.vault.open, NAME, self.old)

    def test_not_noted(self) -> None:
        """A key that nobody has noted is noted by a server on a primary (DATA-27)."""
        self.store.stored, self.writable = [], False
        self.watch()
        self.assertEqual(self.store.stored, [])
        self.writable = True
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual((self.store.stored, self.vault.current_id), (BEFORE, OLD_ID))

    def test_changed_while_starting(self) -> None:
        """A file that has changed since the start read it is read again (DATA-29)."""
        vault = Vault(OLD)
        vault.use_stored_keys(BEFORE)
        self.watch(vault)
        self.assertEqual((vault.given_keys, self.told), ((NEW, OLD), [(NEW, OLD)]))

    def test_removed_early(self) -> None:
        """A file without a key that the database needs changes nothing; once it needs the key no more, the file is in effect
        without another change (DATA-29).
        """
        self.watch()
        self.store.stored = DURING
        self.clock.advance(POLL_INTERVAL)
        self.give(TEXTS[1])
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual((self.vault.given_keys, self.told), ((NEW, OLD), []))
        self.store.stored = AFTER
        self.clock.pump([POLL_INTERVAL] * 2)
        self.assertEqual((self.vault.given_keys, self.told), ((NEW,), [(NEW,)]))

    def test_unreadable_for_a_moment(self) -> None:
        """A file that can't be read is read again at the next poll, and the log has the fault once (DATA-29)."""
        watch, faults = self.watch(), [OSError("Input/output error")] * 3
        source = watch._source
        assert source is not None
        self.store.stored = AFTER
        self.clock.advance(POLL_INTERVAL)
        self.give(TEXTS[1])

        def read() -> tuple[bytes, ...] | None:
            if faults:
                raise faults.pop()
            return read_given_data_keys(self.file)

        watch._source = attrs.evolve(source, read=read)
        with capturedLogs() as logs:
            self.clock.pump([POLL_INTERVAL] * 4)
        self.assertEqual((self.vault.given_keys, self.told), ((NEW,), [(NEW,)]))
        self.assertEqual(len([event for event in logs if "can't be used" in event["log_format"]]), 1)

    def test_announces(self) -> None:
        """It says what it seals with and knows: at once, when that changes, and again and again; on a standby not
        (DATA-30, DATA-31).
        """
        self.watch()
        both = (NEW_ID, OLD_ID)
        self.assertEqual(self.store.said, [KeyUser("here", OLD_ID, both)])
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual(len(self.store.said), 1)
        self.clock.pump([POLL_INTERVAL] * int(ANNOUNCE_INTERVAL / POLL_INTERVAL))
        self.assertEqual(len(self.store.said), 2)
        self.store.stored = DURING
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual(self.store.said[2:], [KeyUser("here", NEW_ID, both)])
        self.writable = False
        self.clock.advance(100 * POLL_INTERVAL)
        self.assertEqual(len(self.store.said), 3)

    def test_lacks_the_new_key(self) -> None:
        """A server that lacks a key says so: in its health, and to those who wait for it (DATA-31, DATA-33)."""
        vault = Vault(OLD)
        vault.use_stored_keys(BEFORE)
        self.give(TEXTS[0])
        watch = self.watch(vault)
        canary = Vault(OLD).seal(CANARY, b"svc")
        watch.open_canary(canary)
        self.store.stored = DURING
        self.clock.advance(POLL_INTERVAL)
        refusal = self.assertRaises(StartRefused, watch.open_canary, canary)
        self.assertIn(f"sealed under {NEW_ID}, and {OLD_ID} was given", str(refusal))
        self.assertEqual(self.store.said[-1], KeyUser("here", "", (OLD_ID,)))
        self.give(*reversed(TEXTS))
        self.clock.advance(POLL_INTERVAL)
        watch.open_canary(canary)
        self.assertEqual(self.store.said[-1], KeyUser("here", NEW_ID, (NEW_ID, OLD_ID)))
        self.assertEqual(self.told, [(NEW, OLD)])

    def test_bad_files(self) -> None:
        """A file that is gone, can't be used, or lacks a key that is needed changes nothing (DATA-29)."""
        self.store.stored = DURING
        self.watch()
        for text in ("c2VjcmV0", TEXTS[0], TEXTS[1], new_data_key()):
            self.give(text)
            self.clock.advance(POLL_INTERVAL)
            self.assertEqual(self.vault.given_keys, (NEW, OLD))
        self.file.unlink()
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual((self.vault.given_keys, self.told), ((NEW, OLD), []))
        self.store.stored = AFTER
        self.give(TEXTS[1])
        self.clock.pump([POLL_INTERVAL] * 2)
        self.give(f"{TEXTS[1]}\n")
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual((self.vault.given_keys, self.told), ((NEW,), [(NEW,)]))

    def test_faults(self) -> None:
        """It goes on after the database was away, took no writes, and after a fault in the program."""
        self.watch()
        for fault in (StoreUnavailable("away"), ReadOnlyStandby(), ZeroDivisionError()):
            self.store.fault = fault
            self.clock.advance(POLL_INTERVAL)
        self.assertEqual(self.logged(ZeroDivisionError), 1)
        self.store.fault, self.store.stored = None, DURING
        self.clock.advance(POLL_INTERVAL)
        self.assertEqual(self.vault.current_id, NEW_ID)


class ResealingTests(SynchronousTestCase):
    """The service that seals again."""

    def setUp(self) -> None:
        """Prepare a vault in the middle of a rotation."""
        self.clock, self.store, self.vault = Clock(), FakeDataKeys(), Vault(NEW, OLD)
        self.vault.use_stored_keys(DURING)
        self.primary = True

    async def ensure_writable(self) -> None:
        """Check that the database is a primary."""
        if not self.primary:
            raise ReadOnlyStandby()

    def seal_again(self, pace: int = 500) -> Resealer:
        """Begin."""
        service = Resealer(self.clock, self.store, self.vault, pace, self.ensure_writable)
        service.startService()
        self.addCleanup(service.stopService)
        return service

    def test_pace(self) -> None:
        """It asks for so many values, and for such a pause, that the pace is kept (DATA-32)."""
        for pace, asked in ((500, (100, 0.2)), (10, (10, 1.0)), (100_000, (100, 0.001)), (1, (1, 1.0))):
            self.store.asked.clear()
            service = self.seal_again(pace)
            self.assertEqual(self.store.asked, [asked])
            service.stopService()

    def test_nothing_to_do(self) -> None:
        """Without a rotation, on a standby, and where a key is missing it does nothing (DATA-32)."""
        self.vault.use_stored_keys(AFTER)
        self.seal_again()
        self.clock.pump([0.1] * 10)
        self.vault.use_stored_keys(DURING)
        self.primary = False
        self.clock.pump([0.1] * 10)
        self.primary = True
        self.vault.set_keys((OLD,))
        self.clock.pump([0.1] * 10)
        self.assertEqual(self.store.asked, [])
        self.vault.set_keys((NEW, OLD))
        self.clock.advance(0.1)
        self.assertEqual(len(self.store.asked), 1)

    def test_faults(self) -> None:
        """It goes on after the database was away, and after a fault in the program (DATA-32)."""
        self.seal_again()
        for fault in (StoreUnavailable("away"), ReadOnlyStandby(), ZeroDivisionError()):
            self.store.fault = fault
            self.clock.advance(0.1)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.store.fault = None
        self.clock.advance(0.1)
        self.assertEqual(len(self.store.asked), 2)

    def test_counted(self) -> None:
        """Counters have how it stands, once a second; nothing remains when the old key is retired (HEALTH-26)."""
        self.store.known = KeyProgress({"a": 10, "b": 5}, {"a": 4, "b": 6}, 1, "a value")
        service = self.seal_again()
        self.assertEqual(service.count_values(), {"resealed": 10, "remaining": 6, "unopened": 1})
        self.store.known = KeyProgress({"a": 10}, {"a": 10})
        self.clock.advance(0.1)
        self.assertEqual(service.count_values()["remaining"], 6)
        self.store.moves = [ResealOutcome.RETIRED]
        self.clock.advance(0.1)
        self.vault.use_stored_keys([AFTER[0], StoredDataKey(NEW_ID, age=7.0)])
        self.assertEqual(service.count_values(), {"resealed": 10, "remaining": 0, "unopened": 0})
        self.assertEqual(service.key_age(), 7.0)


class StatusTests(SynchronousTestCase):
    """What operators read."""

    def lines(self, vault: Vault, users: Sequence[KeyUser] = (), progress: KeyProgress | None = None) -> str:
        """Return the lines."""
        return "\n".join(format_status(describe_keys(vault, users, progress or KeyProgress())))

    def test_lines(self) -> None:
        """In each state of a rotation it says which keys are needed, whom it waits for, and what is left (CLI-33)."""
        vault = Vault(NEW, OLD)
        vault.use_stored_keys(BEFORE)
        self.assertIn(f"{NEW_ID}: given, and not in use: svc data-key rotate", self.lines(vault))
        self.assertNotIn("Sealed again", self.lines(vault))
        vault.use_stored_keys(DURING)
        lagging = [KeyUser("one", NEW_ID, (NEW_ID, OLD_ID)), KeyUser("two", "", (OLD_ID,))]
        lines = self.lines(vault, lagging, KeyProgress({"a": 10}, {"a": 3}, 2, "a value"))
        for line in (
            f"Data key {OLD_ID}: needed",
            "Sealed again: 3 values, about 7 remain",
            "Waiting for these to seal with the new key: two\n",
            "doesn't open 2 values that seem to be sealed under it, the first a value",
            f"Server two: seals with none, knows {OLD_ID}",
        ):
            self.assertIn(line, lines)
        self.assertIn("No server runs", self.lines(vault))
        vault.use_stored_keys(AFTER)
        self.assertIn("not needed, but by backups that name it; remove it from where", self.lines(vault))
        vault.set_keys((NEW,))
        self.assertNotIn("remove it", self.lines(vault))

    def test_document(self) -> None:
        """The document has the same (CLI-33)."""
        vault = Vault(NEW, OLD)
        vault.use_stored_keys([StoredDataKey(OLD_ID, closed=True, age=60.4), StoredDataKey(NEW_ID, age=1.0)])
        self.assertEqual(
            describe_keys(vault, [KeyUser("one", "", (OLD_ID,))], KeyProgress({"a": 10}, {"a": 3})),
            {
                "keys": [
                    {"id": OLD_ID, "state": "closed", "given": True, "age": 60},
                    {"id": NEW_ID, "state": "current", "given": True, "age": 1},
                ],
                "new": [],
                "servers": [{"place": "one", "seals": None, "knows": [OLD_ID]}],
                "rotating": True,
                "values": {"resealed": 3, "remaining": 7, "unopened": 0, "first_unopened": None},
            },
        )
