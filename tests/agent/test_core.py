"""Tests of ``svc.agent.core``, with files that are real and a server and a clock that aren't."""

from __future__ import annotations

import shutil
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from svc.agent.core import MAX_DEPTH, format_duration
from svc.agent.source import VariableSnapshot
from svc.agent.steps import ChangeNotified, ReadVariables, VariablesRead, WatchStopped
from tests.agent.scene import AgentCase

TWO = """
[[file]]
destination = "DIR/one"
template = 'one={{ secret("a") }}'
command = ["reload", "x"]
[[file]]
destination = "DIR/two"
variable = "b"
command = ["reload", "x"]
[[file]]
destination = "DIR/three"
template = '{{ secret("a") }}{{ secret("b") }}'
"""


class RoundsTests(AgentCase):
    """What rounds read and write."""

    def test_all_at_once(self) -> None:
        """A round reads all variables as one batch, writes the files, and runs a command that they share once (AGT-15,
        AGT-27).
        """
        self.server.values = {"a": b"1", "b": b"\xff"}
        machine = self.machine(TWO.replace('{{ secret("b") }}', '{{ secret_base64("b") }}'))
        machine.round()
        self.assertEqual(self.server.asked, [(("a", "b"), None)])
        self.assertEqual((self.text_of("one"), (self.folder / "two").read_bytes()), ("one=1", b"\xff"))
        self.assertEqual((self.text_of("three"), machine.commands), ("1/w==", [("reload", "x")]))
        self.assertTrue(machine.core.is_ready and machine.core.is_up_to_date)
        self.assertEqual(self.names(), {"one", "two", "three"})

    def untouched(self) -> list[tuple[int, int, int]]:
        """What a file that isn't written keeps; when it was read last isn't in it."""
        found = [(self.folder / name).stat() for name in ("one", "two", "three")]
        return [(each.st_ino, each.st_mtime_ns, each.st_ctime_ns) for each in found]

    def test_unchanged(self) -> None:
        """The next round shows the tag; while nothing has changed no file is touched and nothing runs (AGT-15, AGT-22)."""
        self.server.values = {"a": b"1", "b": b"2"}
        machine = self.machine(TWO)
        machine.round()
        before = self.untouched()
        machine.round()
        self.assertEqual(self.server.asked[1], (("a", "b"), repr([("a", b"1"), ("b", b"2")])))
        self.assertEqual(self.untouched(), before)
        self.assertEqual(len(machine.commands), 1)
        again = self.machine(TWO)
        again.round()
        self.assertEqual(again.commands, [])

    def test_put_right(self) -> None:
        """A file that somebody has removed is there again after the next round (AGT-26)."""
        self.server.values = {"a": b"1", "b": b"2"}
        machine = self.machine(TWO)
        machine.round()
        (self.folder / "one").unlink()
        machine.round()
        self.assertEqual((self.text_of("one"), len(machine.commands)), ("one=1", 2))

    def test_intervals(self) -> None:
        """Rounds begin at the interval, give or take a tenth, and within a second of being told (AGT-16)."""
        self.server.values = {"a": b"1", "b": b"2"}
        machine = self.machine("interval = 100\n" + TWO)
        machine.round()
        self.assertEqual(machine.watches, [{"a", "b"}])
        for _ in range(20):
            before = machine.now
            machine.round()
            self.assertTrue(90 <= machine.now - before <= 110, machine.now - before)
            machine.now += 5
            machine.tell(ChangeNotified())
            machine.tell(ChangeNotified())
            told, rounds = machine.now, machine.core.rounds
            machine.round()
            self.assertTrue(0.2 <= machine.now - told <= 1, machine.now - told)
            self.assertEqual(machine.core.rounds, rounds + 1)
        self.assertEqual(len(machine.watches), 1)

    def test_told_while_reading(self) -> None:
        """What is told while a round reads begins another one, soon (AGT-16)."""
        machine = self.machine(TWO)
        [ask] = machine.core.handle_events(0.0)
        self.assertEqual(ask, ReadVariables(frozenset({"a", "b"})))
        machine.core.handle_events(1.0, ChangeNotified())
        self.assertIsNone(machine.core.wake_at)
        machine.now = 2.0
        self.server.values = {"a": b"1", "b": b"2"}
        machine.tell(VariablesRead(VariableSnapshot({"a": b"1", "b": b"2"})))
        self.assertEqual((machine.core.rounds, len(self.server.asked)), (2, 1))

    def test_watches(self) -> None:
        """What can be read is watched; a watch that ends is begun again, sooner or later, said once (AGT-16, AGT-19)."""
        self.server.values = {"a": b"1"}
        machine = self.machine("interval = 1000\n" + TWO)
        machine.round()
        self.assertEqual(machine.watches, [{"a"}])
        pauses = []
        for _ in range(12):
            machine.tell(WatchStopped("status 501"))
            count, before = len(machine.watches), machine.now
            while len(machine.watches) == count:
                assert machine.core.wake_at is not None
                machine.now = machine.core.wake_at
                machine.tell()
            pauses.append(machine.now - before)
        self.assertTrue(0.5 <= pauses[0] <= 1, pauses)
        self.assertTrue(150 <= pauses[-1] <= 300, pauses)
        self.assertEqual(len([each for each in machine.said if "does not tell of changes (status 501)" in each]), 1)
        machine.tell(ChangeNotified())
        self.assertIn("the server tells of changes again", machine.said)
        self.server.values["b"] = b"2"
        machine.round()
        self.assertEqual(machine.watches[-1], {"a", "b"})

    def test_without_watches(self) -> None:
        """Without a watch there are rounds alone (AGT-16)."""
        self.server.values = {"a": b"1", "b": b"2"}
        machine = self.machine("watch = false\n" + TWO)
        for _ in range(3):
            machine.round()
        self.assertEqual(machine.watches, [])

    def test_declared(self) -> None:
        """Declared variables are read with the others, and ids that only rendering knows in the same round (AGT-13)."""
        self.server.values = {"a": b"1", "which": b"b", "b": b"2", "more": b"3"}
        machine = self.machine(
            "variables = ['more']\n[[file]]\ndestination = 'DIR/out'\ntemplate = '{{ secret(secret(\"which\")) }}'"
        )
        machine.round()
        self.assertEqual([ids for ids, _ in self.server.asked], [("more", "which"), ("b", "more", "which")])
        self.assertEqual(self.text_of("out"), "2")
        machine.round()
        self.assertEqual(self.server.asked[2][0], ("b", "more", "which"))
        self.server.values["which"] = b"a"
        machine.round()
        machine.round()
        self.assertEqual((self.server.asked[-1][0], self.text_of("out")), (("a", "more", "which"), "1"))

    def test_ever_more(self) -> None:
        """A template that asks for ever more ids fails (AGT-13)."""
        self.server.values = {f"a{'x' * n}": f"a{'x' * (n + 1)}".encode() for n in range(40)}
        chain = "{% set ns = secret('a') %}" + "".join("{% set ns = secret(ns) %}" for _ in range(30)) + "{{ ns }}"
        machine = self.machine(f'[[file]]\ndestination = "DIR/out"\ntemplate = """{chain}"""')
        machine.round()
        self.assertEqual(len(self.server.asked), MAX_DEPTH + 1)
        self.assertIn("ever more variables", machine.core.problems[0])
        self.assertEqual(self.names(), set())

    def test_bad_rendering(self) -> None:
        """A template that fails with its values leaves its file, and no value in what is said; others go on (AGT-14)."""
        self.server.values = {"a": b"s3cr3t", "b": b"2"}
        machine = self.machine(TWO + "[[file]]\ndestination = 'DIR/bad'\ntemplate = '{{ {}[secret(\"a\")] }}'")
        machine.round()
        self.assertEqual(self.text_of("one"), "one=s3cr3t")
        self.assertFalse(machine.core.is_up_to_date or machine.core.is_ready)
        self.assertNotIn("s3cr3t", repr(machine.said) + repr(machine.core.problems))


class TroubleTests(AgentCase):
    """What can't be read, written or run."""

    def test_refused(self) -> None:
        """A file whose variable is refused stays, the others go on, and that is said once (AGT-17, AGT-19)."""
        self.server.values = {"a": b"1", "b": b"2"}
        machine = self.machine(TWO)
        machine.round()
        self.server.forbidden = {"a"}
        self.server.values["b"] = b"3"
        for _ in range(3):
            machine.round()
        self.assertEqual((self.text_of("one"), self.text_of("two"), self.text_of("three")), ("one=1", "3", "12"))
        said = [each for each in machine.said if "is not up to date" in each]
        self.assertEqual(len(said), 2, machine.said)
        self.assertIn("one is not up to date: a: the role may not read it; it stays as it is", said[0])
        self.assertEqual(self.server.asked[-2:], [(("b",), repr([("b", b"3")])), (("a",), None)])
        self.assertFalse(machine.core.is_up_to_date)
        self.server.forbidden = set()
        machine.round()
        self.assertEqual(self.text_of("three"), "13")
        self.assertTrue(machine.core.is_up_to_date)
        self.assertEqual(len([each for each in machine.said if "is up to date again" in each]), 2)

    def test_removed(self) -> None:
        """With ``on_forbidden = "remove"`` a file goes when the server says no, and not when it says nothing (AGT-17)."""
        self.server.values = {"a": b"1"}
        machine = self.machine(
            '[[file]]\ndestination = "DIR/out"\nvariable = "a"\non_forbidden = "remove"\ncommand = ["stop"]'
        )
        machine.round()
        self.server.fault = "the server refused the API key"
        machine.round()
        self.assertEqual(self.names(), {"out"})
        self.server.fault, self.server.forbidden = None, {"a"}
        machine.round()
        machine.round()
        self.assertEqual((self.names(), machine.commands), (set(), [("stop",), ("stop",)]))
        self.server.forbidden = set()
        machine.round()
        self.assertEqual((self.text_of("out"), len(machine.commands)), ("1", 3))

    def test_outage(self) -> None:
        """While the server is away files stay, it is asked ever more rarely, and that is said once; then all goes on
        (AGT-18, AGT-19).
        """
        self.server.values = {"a": b"1", "b": b"2"}
        machine = self.machine("interval = 30\n" + TWO)
        self.server.fault = "cannot reach https://svc.example.org: refused"
        pauses = []
        for _ in range(12):
            before = machine.now
            machine.round()
            pauses.append(machine.now - before)
        self.assertEqual(self.names(), set())
        self.assertTrue(all(0.5 * 2**n <= pause <= 2**n for n, pause in enumerate(pauses[1:6])), pauses)
        self.assertTrue(all(15 <= pause <= 30 for pause in pauses[7:]), pauses)
        away = "nothing can be read: cannot reach https://svc.example.org: refused; there are no files yet"
        self.assertEqual(machine.said, [away])
        self.assertFalse(machine.core.is_ready or machine.core.is_up_to_date)
        self.server.fault = None
        machine.round()
        self.assertIn("reading again, after", machine.said[1])
        self.assertEqual(self.text_of("one"), "one=1")
        self.server.fault = "the server refused the API key"
        machine.round()
        self.server.fault = "cannot reach it"
        machine.round()
        self.assertEqual(self.text_of("one"), "one=1")
        self.assertEqual(
            [each for each in machine.said if "nothing can be read" in each][1:],
            [
                "nothing can be read: the server refused the API key; the files stay as they are",
                "nothing can be read: cannot reach it; the files stay as they are",
            ],
        )

    def test_start_in_an_outage(self) -> None:
        """An agent that starts while the server is away, with all files of an earlier run, is ready (AGT-35)."""
        self.server.values = {"a": b"1", "b": b"2"}
        self.machine(TWO).round()
        self.server.fault = "no server"
        machine = self.machine(TWO)
        self.assertFalse(machine.core.is_ready)
        machine.round()
        self.assertTrue(machine.core.is_ready)
        self.assertFalse(machine.core.is_up_to_date)

    def test_unwritable(self) -> None:
        """A file that can't be written is said once, tried in each round, and holds no other up (AGT-24)."""
        self.server.values = {"a": b"1", "b": b"2"}
        (self.folder / "one").symlink_to("/dev/null")
        machine = self.machine(TWO)
        machine.round()
        machine.round()
        self.assertEqual(len([each for each in machine.said if "symbolic link" in each]), 1)
        self.assertEqual((self.text_of("two"), machine.commands), ("2", [("reload", "x")]))
        (self.folder / "one").unlink()
        machine.round()
        self.assertEqual((self.text_of("one"), machine.core.is_up_to_date), ("one=1", True))

    def test_failing_command(self) -> None:
        """A command that fails runs in each round until it succeeds, also after the next start (AGT-28)."""
        self.server.values = {"a": b"1", "b": b"2"}
        machine = self.machine(TWO)
        machine.failing = {"reload"}
        machine.round()
        machine.round()
        self.assertEqual(len(machine.commands), 2)
        self.assertEqual(len([each for each in machine.said if "the command reload failed: exit code 3" in each]), 1)
        self.assertFalse(machine.core.is_up_to_date)
        after = self.machine(TWO)
        after.round()
        self.assertEqual((after.commands, after.core.is_up_to_date), ([("reload", "x")], True))
        after.round()
        self.assertEqual(len(after.commands), 1)


class ProgramsTests(AgentCase):
    """The environment of a program."""

    text = TWO + "[environment]\nA = 'a'\nB = { template = '<{{ secret(\"b\") }}>' }\n"

    def test_provided(self) -> None:
        """The program is started when each file and the environment is there, and told of each change (AGT-29, AGT-30)."""
        self.server.values = {"a": b"1"}
        machine = self.machine(self.text, program=True)
        machine.round()
        self.assertEqual(machine.provided, [])
        self.assertIn("B in the environment: b: empty or not found; the program is not started", machine.said)
        self.server.values["b"] = b"2"
        machine.round()
        machine.round()
        self.assertEqual(machine.provided, [({"A": b"1", "B": b"<2>"}, True)])
        self.server.values["b"] = b"3"
        machine.round()
        self.assertEqual(machine.provided[1:], [({"A": b"1", "B": b"<3>"}, True)])

    def test_kept(self) -> None:
        """While a value can't be had, or holds a NUL byte, the program keeps what it has (AGT-29, AGT-30)."""
        self.server.values = {"a": b"1", "b": b"2"}
        machine = self.machine("[environment]\nA = 'a'", program=True)
        machine.round()
        for spoil in (lambda: self.server.forbidden.add("a"), lambda: self.server.values.update(a=b"\0")):
            spoil()
            machine.round()
            self.server.forbidden.clear()
        self.assertEqual(machine.provided, [({"A": b"1"}, False)])
        self.assertIn("NUL byte", machine.core.problems[0])
        self.server.values["a"] = b"4"
        machine.round()
        self.assertEqual(machine.provided[1:], [({"A": b"4"}, False)])

    def test_only_files(self) -> None:
        """A program with files alone starts when they are there, in an outage too, and is told of changes (AGT-29)."""
        self.server.values = {"a": b"1", "b": b"2"}
        self.machine(TWO).round()
        self.server.fault = "away"
        machine = self.machine(TWO, program=True)
        machine.round()
        machine.round()
        self.assertEqual(machine.provided, [({}, False)])
        self.server.fault, self.server.values["a"] = None, b"3"
        machine.round()
        self.assertEqual(machine.provided[1:], [({}, True)])


_VALUES = st.dictionaries(st.sampled_from("abc"), st.binary(max_size=6), max_size=3)
_HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.just("values"), _VALUES),
        st.tuples(st.just("forbid"), st.frozensets(st.sampled_from("abc"))),
        st.tuples(st.sampled_from(["away", "back", "told", "round", "restart", "unwatched", "spoil"]), st.none()),
    ),
    max_size=25,
)
_THREE = "".join(f'[[file]]\ndestination = "DIR/{name}"\nvariable = "{name}"\n' for name in "abc")


class HistoriesTests(AgentCase):
    """Any history of values, refusals, outages and restarts."""

    @settings(max_examples=150, deadline=None)
    @given(_HAPPENINGS)
    def test_newest(self, happenings: list[tuple[str, object]]) -> None:
        """Each file always holds a whole value that its variable had, and when the server answers the newest that may be
        read; an outage changes nothing (AGT-17, AGT-18, AGT-20).
        """
        shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o755)
        server = self.server
        server.__init__()  # type: ignore[misc] # another one, in the same place
        machine = self.machine(_THREE)
        expected: dict[str, bytes] = {}
        rounds = 0
        for what, given_ in happenings:
            match what, given_:
                case "values", dict(values):
                    server.values = values
                case "forbid", frozenset(names):
                    server.forbidden = set(names)
                case "away", _:
                    server.fault = "away"
                case "back", _:
                    server.fault = None
                case "told", _:
                    machine.tell(ChangeNotified())
                case "unwatched", _:
                    machine.tell(WatchStopped(None))
                case "restart", _:
                    machine = self.machine(_THREE)
                case "spoil", _:
                    for name in "abc":
                        Path(self.folder / name).write_bytes(b"spoilt!")
                    expected = dict.fromkeys("abc", b"spoilt!")
                case _:
                    machine.round()
            # A round may begin by itself, at the start or after something was told.
            if machine.core.rounds > rounds and what != "restart":
                if server.fault is None:
                    expected |= {name: value for name, value in server.values.items() if name not in server.forbidden}
                    self.assertEqual(machine.core.is_up_to_date, server.values.keys() - server.forbidden == set("abc"))
                self.assertEqual({name: (self.folder / name).read_bytes() for name in self.names()}, expected)
            rounds = machine.core.rounds


class WordsTests(AgentCase):
    """Durations in words."""

    def test_lasting(self) -> None:
        """A duration is told in the unit that has at least two of it."""
        self.assertEqual(
            [format_duration(each) for each in (0.4, 60, 119, 130, 7200)], ["0 s", "60 s", "119 s", "2 min", "2 h"]
        )
