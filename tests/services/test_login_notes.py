"""Tests of ``svc.services.login``: what is noted, when it is written, and what is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.model.authentication import DAY, Admitted, LoginRecord
from svc.model.names import RoleName
from svc.services import login
from svc.services.login import INTERVAL, LAST_ROUND, LastLoginRecorder
from tests.memory import Memory
from tests.memory_endings import MemoryLastLogins

#: A day that has just begun.
TODAY = 20_000


class Watched(MemoryLastLogins):
    """A store that keeps what it was handed; ``waits`` is what it waits for, if it does."""

    batches: list[int]
    waits: list[Deferred[None]]

    async def record_logins(self, logins: Sequence[LoginRecord]) -> Sequence[LoginRecord]:
        """See ``LastLoginStore``."""
        self.batches.append(len(logins))
        for wait in self.waits:
            await wait
        return await super().record_logins(logins)


class LoginNotesTests(SynchronousTestCase):
    """The notes of a process."""

    def setUp(self) -> None:
        """Make hosts."""
        self.memory, self.clock = Memory(), Clock()
        self.clock.advance(TODAY * DAY + 1.0)
        self.hosts = [RoleName("acct", "host", f"h{number}") for number in range(5)]
        self.memory.roles.update((str(host), None) for host in self.hosts)
        self.store = Watched(self.memory)
        object.__setattr__(self.store, "batches", [])
        object.__setattr__(self.store, "waits", [])
        self.logged: list[str] = []
        observer = cast(ILogObserver, self.observe)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.notes = self.made()

    def made(self, most: int = 100, many: int = 50) -> LastLoginRecorder:
        """Notes, whose rounds have begun."""
        notes = LastLoginRecorder(self.clock, self.clock, self.store, self.memory.ensure_writable, most=most, many=many)
        notes.startService()
        self.addCleanup(notes.stopService)
        return notes

    def observe(self, event: LogEvent) -> None:
        """Keep what is logged of the notes."""
        if event.get("log_namespace") == "svc.authn.login_notes":
            self.logged.append(event["log_format"].format(**event))

    def note(self, *hosts: int, notes: LastLoginRecorder | None = None, creation: int = 0) -> None:
        """Have hosts log in."""
        for number in hosts:
            (notes or self.notes).note_login(Admitted(self.hosts[number], "key", creation))

    def kept(self) -> dict[str, int]:
        """The days that are kept, by what a host is called, as days from today."""
        return {role.rpartition(":")[2]: day - TODAY for role, day in self.memory.last_logins.items()}

    def test_rounds(self) -> None:
        """A login asks the store nothing; a round writes all notes at once, and a role once a day (END-21)."""
        self.note(0, 1, 0)
        self.assertEqual(self.store.batches, [])
        self.clock.advance(INTERVAL)
        self.assertEqual((self.store.batches, self.kept()), ([2], {"h0": 0, "h1": 0}))
        self.note(0, 1)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.store.batches, [2])
        self.clock.advance(DAY)
        self.note(1)
        self.clock.advance(INTERVAL)
        self.assertEqual((self.store.batches, self.kept()), ([2, 1], {"h0": 0, "h1": 1}))

    def test_another_of_the_name(self) -> None:
        """The next role of a name is noted for itself; what is noted of a role that went is written to none (END-20)."""
        self.note(0, 1)
        self.memory.roles.pop(str(self.hosts[1]))
        self.memory.creations[str(self.hosts[0])] = 1
        self.clock.advance(INTERVAL)
        self.assertEqual(self.kept(), {})
        self.note(0, creation=1)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.kept(), {"h0": 0})

    def test_stop(self) -> None:
        """When the server stops the rest is written (END-21)."""
        self.note(0, 3)
        self.successResultOf(self.notes.stopService())
        self.assertEqual((self.kept(), self.logged), ({"h0": 0, "h3": 0}, []))

    def test_stop_in_vain(self) -> None:
        """A store that is away, or hangs, doesn't keep the server from stopping; the log says what is lost (END-21)."""
        self.note(0, 3)
        self.memory.down = True
        self.successResultOf(self.notes.stopService())
        lost = "The last logins of 2 roles aren't kept: they could not be written before the end"
        self.assertEqual(self.logged, [lost])
        self.memory.down = False
        notes = self.made()
        self.note(1, 2, notes=notes)
        self.store.waits.append(Deferred())
        stopped = notes.stopService()
        self.assertNoResult(stopped)
        self.clock.advance(LAST_ROUND)
        self.successResultOf(stopped)
        self.assertEqual(self.logged, [lost, lost])
        self.store.waits.clear()

    def test_away(self) -> None:
        """While the store can't be asked the notes wait, and are written with their day (END-21)."""
        self.note(0)
        self.memory.down = True
        self.clock.advance(DAY)
        self.note(1)
        self.memory.down = False
        self.clock.advance(INTERVAL)
        self.assertEqual((self.kept(), self.logged), ({"h0": 0, "h1": 1}, []))

    def test_follower(self) -> None:
        """A follower writes nothing and doesn't complain; what it noted is written when it is a primary (END-23)."""
        self.memory.standby = True
        notes = self.made(most=2)
        self.note(0, 1, 2, notes=notes)
        self.clock.advance(INTERVAL)
        self.assertEqual((self.kept(), self.store.batches, self.logged), ({}, [], []))
        self.successResultOf(Deferred.fromCoroutine(notes.write_notes()))
        self.memory.standby = False
        self.clock.advance(INTERVAL)
        self.assertEqual(self.kept(), {"h0": 0, "h1": 0})

    def test_locked(self) -> None:
        """A role that somebody is changing is written in a later round (END-22)."""
        self.note(0, 1)
        self.memory.locked_roles.add(str(self.hosts[0]))
        self.clock.advance(INTERVAL)
        self.assertEqual(self.kept(), {"h1": 0})
        self.memory.locked_roles.clear()
        self.clock.advance(INTERVAL)
        self.assertEqual(self.kept(), {"h0": 0, "h1": 0})

    def test_noted_meanwhile(self) -> None:
        """What is noted while a round is writing is kept for the next (END-21)."""
        self.note(0)
        wait = Deferred[None]()
        self.store.waits.append(wait)
        self.clock.advance(INTERVAL)
        self.clock.advance(DAY)
        self.note(0, 1)
        self.store.waits.clear()
        wait.callback(None)
        self.assertEqual(self.kept(), {"h0": 0})
        self.clock.advance(INTERVAL)
        self.assertEqual(self.kept(), {"h0": 1, "h1": 1})

    def test_directories(self) -> None:
        """A user is written once more on a day where another authenticator admitted it, or told it an API key; a login by
        API key or session changes nothing, and hosts have no directory (LDAP-20, END-21).
        """
        alice = RoleName("acct", "user", "alice")
        self.memory.roles[str(alice)] = None
        self.memory.resources.update({"acct:webservice:a": ("", None), "acct:webservice:b": ("", None)})
        written = 0
        for directory, told, kept in (
            (None, False, None),
            ("acct:webservice:a", False, "acct:webservice:a"),
            ("acct:webservice:a", False, "acct:webservice:a"),
            (None, False, "acct:webservice:a"),
            ("acct:webservice:b", True, "acct:webservice:b"),
            ("acct:webservice:a", False, "acct:webservice:a"),
            ("", False, None),
        ):
            admitted = Admitted(alice, "key", directory=directory)
            (self.notes.note_directory if told else self.notes.note_login)(admitted)
            self.notes.note_login(Admitted(self.hosts[0], "key", directory=directory))
            self.clock.advance(INTERVAL)
            found = self.memory.directory_users.get(str(alice))
            self.assertEqual(None if found is None else found[0], kept, (directory, told))
            written = len(self.store.batches)
        self.assertEqual((written, list(self.memory.directory_users)), (5, []))

    def test_directories_that_wait(self) -> None:
        """Of notes that wait the last directory counts, with the day of the last login (LDAP-20, END-20)."""
        alice, bob = RoleName("acct", "user", "alice"), RoleName("acct", "user", "bob")
        self.memory.roles.update({str(alice): None, str(bob): None})
        self.memory.resources["acct:webservice:a"] = ("", None)
        by_a = Admitted(alice, "key", directory="acct:webservice:a")
        self.notes.note_login(by_a)
        self.clock.advance(DAY - INTERVAL)
        self.memory.down = True
        self.clock.advance(INTERVAL)
        self.notes.note_login(Admitted(alice, "key"))
        self.notes.note_directory(attrs.evolve(by_a, role=bob))
        self.memory.down = False
        self.clock.advance(INTERVAL)
        self.assertEqual(self.memory.last_logins, {str(alice): TODAY + 1})
        self.assertEqual(sorted(self.memory.directory_users), [str(alice), str(bob)])

    def test_many(self) -> None:
        """When many are noted they are written at once, in batches (END-21)."""
        self.patch(login, "BATCH", 2)
        notes = self.made(many=5)
        self.note(0, 1, 2, 3, notes=notes)
        self.assertEqual(self.store.batches, [])
        self.note(4, notes=notes)
        self.assertEqual(self.store.batches, [2, 2, 1])
        self.assertEqual(len(self.kept()), 5)

    def test_bounded(self) -> None:
        """So many are remembered; what was written is forgotten first, and the log says what isn't noted (END-21)."""
        notes = self.made(most=2)
        self.note(0, 1, notes=notes)
        self.clock.advance(INTERVAL)
        self.note(2, 3, 0, 1, notes=notes)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.kept(), {"h0": 0, "h1": 0, "h2": 0, "h3": 0})
        self.assertEqual(self.logged, ["2 logins aren't kept as last logins: there are too many to be written"])
        self.note(4, notes=notes)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.kept()["h4"], 0)
