"""Secrets of a Vault as variables."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.task import Clock

from svc.importing import vault_kv
from svc.importing.inventory import NoteKind, Record, RecordId, Values
from svc.importing.vault_kv import DEEPEST, Limits, Mount, parse_duration, parse_time, read_mount
from svc.importing.vault_names import Records, propose_identifier
from svc.importing.vault_secrets import SecretReader
from tests.importing.test_vault_http import VaultTestCase
from tests.importing.vault_stand_in import KeptSecret, reply
from tests.walls import Wall

FIRST = Mount("", "kv/", "kv", 1)
SECOND = Mount("", "secret/", "kv", 2)


class SecretsTestCase(VaultTestCase):
    """A reader of two engines."""

    def setUp(self) -> None:
        """Make them."""
        super().setUp()
        self.vault.mounts = {"kv/": {}, "secret/": {"options": {"version": "2"}}}

    def read(self, mount: Mount, *, as_json: bool = False, into: str = "") -> SecretReader:
        """Return the reader after an engine was read."""
        self.records = Records(into)
        self.reader = SecretReader(self.connection, Wall(Clock()), self.records, as_json)
        asyncio.run(self.reader.read_mount(mount, lambda what, done, total: None))
        return self.reader

    def variables(self) -> dict[str, tuple[int, ...]]:
        """Return all variables with the numbers of their versions."""
        return {record.id.identifier: record.versions for record in self.records.sorted() if record.id.kind == "variable"}

    def branches(self) -> list[str]:
        """Return all branches."""
        return [record.id.identifier for record in self.records.sorted() if record.id.kind == "policy"]

    def notes(self, kind: NoteKind | None = None) -> str:
        """Return all notes as lines."""
        return "\n".join(str(note) for note in self.records.notes if kind in {None, note.kind})

    def values(self) -> dict[str, list[bytes]]:
        """Return the values of all variables."""
        return {each.variable.identifier: [version.value for version in each.versions] for each in self.read_values()}

    def read_values(self) -> list[Values]:
        """Return what the reader gives for all variables."""

        async def collect(records: list[Record]) -> list[Values]:
            return [each async for each in self.reader.read_values(records)]

        return asyncio.run(collect([each for each in self.records.sorted() if each.id.kind == "variable"]))


class WalkTests(SecretsTestCase):
    """Folders and lists."""

    def put(self, *keys: str) -> None:
        """Store secrets of both versions."""
        for key in keys:
            self.vault.first["kv/", key] = '{"v":"1"}'
            self.vault.second["secret/", key] = KeptSecret({1: '{"v":"1"}'})

    def test_endless(self) -> None:
        """A source whose folders never end is read to a depth and a number, which are named (IMP-53)."""

        def answer(method: str, path: str) -> None:
            names = [f"{number}/" for number in range(self.wide)] + ["s"]
            self.vault.odd[method, path] = [reply(200, {"data": {"keys": names}})] if method == "LIST" else []

        self.vault.before = answer
        for mount in (FIRST, SECOND):
            with self.subTest(mount.path):
                self.wide = 1
                self.read(mount)
                self.assertEqual(max(each.count("/") for each in self.branches()), DEEPEST)
                self.assertIn(f"deeper than {DEEPEST} folders isn't read", self.notes(NoteKind.UNSEEN))
                self.wide = 2
                patched = self.patch(vault_kv, "NAMES_MOST", 120)
                self.read(mount)
                self.assertLessEqual(len(self.branches()), 130)
                self.assertIn("120 names of an engine are read", self.notes(NoteKind.UNSEEN))
                patched.restore()

    def test_endless_names(self) -> None:
        """A name with folders without end is left out, in lists and scans (IMP-53)."""
        self.put("a", "a/" * 101 + "b")
        deep = reply(200, {"data": {"keys": ["a", "a/" * 101 + "b"]}})
        self.vault.odd["LIST", "kv/"] = [deep]
        self.read(FIRST)
        self.assertEqual([*self.variables()], ["kv/a/v"])
        self.vault.refused = [("LIST", ".*")]
        self.read(FIRST)
        self.assertEqual([*self.variables()], ["kv/a/v"])
        self.assertIn("isn't read", self.notes(NoteKind.UNSEEN))

    def test_secret_and_folder(self) -> None:
        """A secret and a folder of one name are both moved, with a branch for each folder (MOVE-1)."""
        self.put("app", "app/a", "app-x", "App", "app/deep/er")
        for mount in (FIRST, SECOND):
            with self.subTest(mount.path):
                self.read(mount)
                top = mount.path
                self.assertEqual(
                    [*self.variables()], [f"{top}{key}/v" for key in ("App", "app-x", "app/a", "app/deep/er", "app")]
                )
                self.assertEqual(self.branches(), [top[:-1], f"{top}app", f"{top}app/deep"])
                self.assertEqual(self.notes(), "")

    def test_clash(self) -> None:
        """Of two fields that would be one variable the second is in the plan, and doesn't overwrite the first (MOVE-1)."""
        self.vault.first["kv/", "a"] = '{"b/c":"of a"}'
        self.vault.first["kv/", "a/b"] = '{"c":"of a/b"}'
        self.read(FIRST)
        self.assertEqual(self.values(), {"kv/a/b/c": [b"of a"]})
        self.assertIn("field 'c' of kv/a/b: field 'b/c' of kv/a has the id 'kv/a/b/c'", self.notes(NoteKind.LEFT_OUT))

    def test_empty(self) -> None:
        """An empty engine is a branch, and no failure (MOVE-2)."""
        self.read(SECOND)
        self.assertEqual((self.branches(), self.variables(), self.notes()), (["secret"], {}, ""))

    def test_scan(self) -> None:
        """Where LIST is refused SCAN is sorted here, both refused is "not seen", and the rest is moved (MOVE-3)."""
        self.put("z", "b/y", "b/c/x", "a/w")
        self.read(SECOND)
        expected = self.variables()
        self.vault.refused = [("LIST", "secret/.*")]
        self.read(SECOND)
        self.assertEqual((self.variables(), self.branches()), (expected, ["secret", "secret/a", "secret/b", "secret/b/c"]))
        self.vault.refused = [("LIST", "secret/metadata/b/"), ("SCAN", ".*")]
        self.read(SECOND)
        self.assertEqual([*self.variables()], ["secret/a/w/v", "secret/z/v"])
        self.assertIn("secret/b/: it may not be listed", self.notes(NoteKind.UNSEEN))

    def test_names(self) -> None:
        """Names are kept as they are, and one that no id can be is in the plan with another (MOVE-12)."""
        kept = ["a b", "a+b", "p%q", "q?x", "h#x", "s*x", "c:x", "b\\x", ".dot", "UP", "e\u0301", "\u00e9"]
        odd = [" lead", "trail ", "x" * 5000]
        self.put(*kept, *odd)
        self.read(SECOND)
        found = self.variables()
        self.assertEqual(
            {name for name in found if f"secret/{name[7:-2]}/v" == name and name[7:-2] in kept},
            {f"secret/{k}/v" for k in kept},
        )
        self.assertEqual(set(self.values()), set(found))
        self.assertIn("secret/%20lead/v", found)
        self.assertIn("secret/trail%20/v", found)
        self.assertEqual(len(found), len(kept) + len(odd))
        self.assertEqual(self.notes(NoteKind.CHANGED).count("no id here can be"), len(odd))
        self.assertTrue(all(len(name.encode()) <= 1024 for name in found))
        self.assertNotEqual(propose_identifier("x" * 5000), propose_identifier("x" * 4999))

    def test_long(self) -> None:
        """A list of 20,000 names comes in one answer, and each secret is read once for it (MOVE-13)."""
        self.put(*(f"k{number}" for number in range(20_000)))
        self.read(SECOND, as_json=True)
        self.assertEqual(len(self.variables()), 20_000)
        lists = [path for method, path in self.vault.asked if method == "LIST"]
        self.assertEqual((lists, len(self.vault.asked)), (["secret/metadata/"], 20_002))

    def test_version_of_mount(self) -> None:
        """Version 2 is where the option is the text "2" alone; an engine may be deep (MOVE-14)."""
        cases: tuple[tuple[dict[str, Any], int], ...] = (
            ({"type": "kv", "options": {}}, 1),
            ({"type": "kv", "options": None}, 1),
            ({"type": "generic", "options": {"version": "1"}}, 1),
            ({"type": "kv", "options": {"version": "2"}}, 2),
            ({"type": "kv", "options": {"version": 2}}, 1),
        )
        for described, version in cases:
            with self.subTest(str(described)):
                mount = read_mount(described, "team/", "a/b/kv/")
                self.assertEqual((mount.version, mount.is_kv, mount.name), (version, True, "team/a/b/kv/"))
        self.vault.mounts["team/a/b/kv/"] = {}
        self.vault.first["team/a/b/kv/", "s"] = '{"v":"1"}'
        self.read(Mount("team/", "a/b/kv/"), into="old")
        self.assertEqual(self.branches(), ["old", "old/team", "old/team/a", "old/team/a/b", "old/team/a/b/kv"])
        self.assertEqual([*self.variables()], ["old/team/a/b/kv/s/v"])


class VersionTests(SecretsTestCase):
    """Versions of KV 2."""

    def put(self, key: str = "app", **more: Any) -> KeptSecret:
        """Store a secret."""
        self.vault.second["secret/", key] = KeptSecret(**more)
        return self.vault.second["secret/", key]

    def test_gone(self) -> None:
        """Deleted and destroyed versions are reported, and nothing is written there (MOVE-4, MOVE-5)."""
        self.put(values={1: '{"v":"a"}', 2: '{"v":"b"}', 3: '{"v":"c"}'}, deleted={2: "2026-01-01T00:00:00Z"}, destroyed={1})
        self.read(SECOND)
        self.assertEqual(self.values(), {"secret/app/v": [b"c"]})
        self.assertIn("version 1 of secret/app: it is destroyed", self.notes())
        self.assertIn(
            "version 2 of secret/app: it was deleted at 2026-01-01T00:00:00Z; undelete it there first", self.notes()
        )
        self.assertIn("versions 3 of secret/app: they are numbered from 1 here", self.notes())
        self.assertEqual({method for method, _ in self.vault.asked}, {"GET", "LIST"})

    def test_changed(self) -> None:
        """A version that metadata name and that isn't there: the metadata are read again (MOVE-4)."""
        secret = self.put(values={1: '{"v":"a"}', 2: '{"v":"b"}'})

        def prune(method: str, path: str) -> None:
            if path == "secret/data/app":
                secret.values.pop(1, None)

        self.vault.before = prune
        self.read(SECOND)
        self.assertEqual(self.variables(), {"secret/app/v": (2,)})
        self.assertEqual(self.notes(NoteKind.UNSEEN), "")
        del self.vault.second["secret/", "app"]
        self.assertEqual([(each.versions, each.complete) for each in self.read_values()], [((), False)])

    def test_gone_secret(self) -> None:
        """A secret that is gone after its folder was listed is named in the plan (MOVE-4)."""
        self.put(values={1: '{"v":"a"}'})
        self.vault.before = lambda method, path: self.vault.second.clear() if path == "secret/metadata/app" else None
        self.read(SECOND)
        self.assertEqual(self.variables(), {})
        self.assertIn("secret/app: it was in a list, and is gone by now", self.notes())

    def test_without_value(self) -> None:
        """A secret without a readable value is a variable without one, reported (MOVE-6, IMP-43)."""
        self.put("all", values={1: '{"v":"a"}'}, deleted={1: "2026-01-01T00:00:00Z"})
        self.put("none")
        for as_json in (False, True):
            with self.subTest(as_json=as_json):
                self.read(SECOND, as_json=as_json)
                self.assertEqual(self.values(), {"secret/all": [], "secret/none": []})
                self.assertIn("secret/none: none of its versions can be read", self.notes())

    def test_future(self) -> None:
        """A version that will be deleted is moved with a word; the server's clock counts, with its fractions (MOVE-7)."""
        self.put(
            values={1: '{"v":"a"}', 2: '{"v":"b"}'},
            deleted={1: "2027-01-15T07:59:59.89055075Z", 2: "2027-01-15T08:00:00.1Z"},
        )
        self.read(SECOND)
        self.assertEqual(self.variables(), {"secret/app/v": (2,)})
        self.assertIn("version 2 of secret/app: it ends there at 2027-01-15T08:00:00.1Z, and doesn't here", self.notes())
        self.assertEqual(parse_time("2027-01-15T08:00:00.5+00:00"), 1_800_000_000.5)
        for text in ("2027-01-15", "2027-01-15T08:00:00", "yesterday", "0001-01-01T00:00:00+23:00"):
            self.assertRaises(ValueError, parse_time, text)

    def test_numbers(self) -> None:
        """Versions are sorted as numbers, the newest 20 moved oldest first, and each asked for by its number (MOVE-8)."""
        self.put(values={number: f'{{"v":"{number}"}}' for number in range(8, 33)}, oldest=8, max_versions=30)
        self.read(SECOND)
        self.assertEqual(self.variables(), {"secret/app/v": tuple(range(13, 33))})
        self.assertEqual(self.values(), {"secret/app/v": [str(number).encode() for number in range(13, 33)]})
        self.assertIn("versions 8, 9, 10, 11, 12 of secret/app: the newest 20 are moved", self.notes())
        self.assertIn("versions below 8 of secret/app: they are pruned there", self.notes())
        self.assertIn(("GET", "secret/data/app?version=13"), self.vault.asked)

    def test_another_number(self) -> None:
        """A version that isn't the one that was asked for ends the reading (MOVE-8)."""
        self.put(values={1: '{"v":"a"}', 3: '{"v":"b"}'})
        body = b'{"data":{"data":{"v":"x"},"metadata":{"version":3}}}'
        self.vault.odd["GET", "secret/data/app"] = [reply(200, body)]
        records = Records()
        reader = SecretReader(self.connection, Wall(Clock()), records)
        fault = self.stopped(reader.read_mount(SECOND, lambda what, done, total: None))
        self.assertIn("version 1 was asked for, and another came", str(fault))

    def test_settings(self) -> None:
        """The effective limits are reported: the secret's count, the shorter time, cas of either (MOVE-16)."""
        hour, day = 3600 * 10**9, 86400 * 10**9
        for own, mount, expected in (
            (Limits(), Limits(), Limits(10)),
            (Limits(5), Limits(30), Limits(5)),
            (Limits(30), Limits(5), Limits(30)),
            (Limits(0), Limits(5), Limits(5)),
            (Limits(0, True), Limits(0, False), Limits(10, True)),
            (Limits(0, False), Limits(0, True), Limits(10, True)),
            (Limits(delete_after=day), Limits(delete_after=hour), Limits(10, False, hour)),
            (Limits(delete_after=hour), Limits(), Limits(10, False, hour)),
        ):
            with self.subTest(str(own)):
                self.assertEqual(own.within(mount), expected)
        for text, nanoseconds in (
            ("0s", 0),
            ("1h0m0s", hour),
            ("24h", day),
            ("1.5s", 1_500_000_000),
            ("-1s", 0),
            ("2\u00b5s", 2000),
        ):
            self.assertEqual(parse_duration(text), nanoseconds)
        self.assertRaises(ValueError, parse_duration, "soon")
        self.vault.mounts["secret/"]["config"] = {"max_versions": 5, "cas_required": False, "delete_version_after": "1h0m0s"}
        self.put(values={1: '{"v":"a"}'}, cas_required=True)
        self.read(SECOND)
        self.assertIn("limits of secret/: there they are: at most 5 versions, versions deleted after 3600 s", self.notes())
        self.assertIn("limits of secret/app: there they are: at most 5 versions, writes only with cas", self.notes())

    def test_custom(self) -> None:
        """Custom metadata are annotations of all variables of a secret; null is none (MOVE-15)."""
        self.put("a", values={1: '{"v":"a","w":"b"}'}, custom={"team": "x", "cost": "5.50"})
        self.put("b", values={1: '{"v":"a"}'}, custom=None)
        self.read(SECOND)
        self.assertEqual(
            {record.id.identifier: record.annotations for record in self.records.sorted() if record.id.kind == "variable"},
            {"secret/a/v": {"cost": "5.50", "team": "x"}, "secret/a/w": {"cost": "5.50", "team": "x"}, "secret/b/v": {}},
        )

    def test_metadata_refused(self) -> None:
        """Without a right to metadata the newest version is moved, and the rest counted as not seen (MOVE-76)."""
        self.put(values={1: '{"v":"a"}', 2: '{"v":"b"}'})
        self.vault.refused = [("GET", "secret/metadata/.*")]
        self.read(SECOND)
        self.assertEqual(self.values(), {"secret/app/v": [b"b"]})
        self.assertIn("older versions and metadata of 1 secrets of secret/", self.notes(NoteKind.UNSEEN))

    def test_data_refused(self) -> None:
        """A value that may not be read is "not seen", and its variable has none (MOVE-29)."""
        self.put(values={1: '{"v":"a"}'})
        self.vault.refused = [("GET", "secret/data/.*")]
        self.read(SECOND)
        self.assertEqual(self.values(), {"secret/app": []})
        self.assertIn("secret/app: versions 1 may not be read", self.notes(NoteKind.UNSEEN))


class FieldTests(SecretsTestCase):
    """Fields of a version."""

    def test_numbers(self) -> None:
        """A number's value is its text; what version 2 has perhaps rounded is reported (MOVE-9)."""
        self.vault.first["kv/", "n"] = '{"a":12345678901234567890,"b":1.0,"c":1e3,"e":9007199254740993}'
        self.read(FIRST)
        expected = {
            "kv/n/a": [b"12345678901234567890"],
            "kv/n/b": [b"1.0"],
            "kv/n/c": [b"1e3"],
            "kv/n/e": [b"9007199254740993"],
        }
        self.assertEqual(self.values(), expected)
        self.assertNotIn("rounded", self.notes())
        self.vault.second["secret/", "n"] = KeptSecret({1: '{"a":12345678901234567000}', 2: '{"a":1}'})
        self.read(SECOND)
        self.assertIn("secret/n, versions 1: they have numbers of 16 digits or more", self.notes(NoteKind.TO_KNOW))
        self.read(SECOND, as_json=True)
        (values,) = self.read_values()
        self.assertIn("secret/n, versions 1: they have numbers", str(values.notes[0]))
        self.assertEqual([version.value for version in values.versions], [b'{"a":12345678901234567000}', b'{"a":1}'])

    def test_null(self) -> None:
        """A version that is null or {} has no fields, and is text of JSON otherwise; a null field is reported (MOVE-10)."""
        self.vault.second["secret/", "n"] = KeptSecret({1: "null", 2: "{}", 3: '{"v":null,"w":"x"}'})
        self.read(SECOND)
        self.assertEqual(self.values(), {"secret/n/w": [b"x"]})
        self.assertIn("secret/n, versions 1, 2: they have no fields; --as-json keeps them", self.notes(NoteKind.LEFT_OUT))
        self.assertIn("field 'v' of secret/n, versions 3: it is null", self.notes(NoteKind.LEFT_OUT))
        self.read(SECOND, as_json=True)
        self.assertEqual(self.values(), {"secret/n": [b"null", b"{}", b'{"v":null,"w":"x"}']})
        self.assertEqual(
            self.records[RecordId("variable", "secret/n")].annotations, {"conjur/mime_type": "application/json"}
        )

    def test_not_text(self) -> None:
        """Anything else than text is its JSON, decoded once; a field without a name needs --as-json (MOVE-11)."""
        self.vault.second["secret/", "n"] = KeptSecret(
            {1: r'{"b":true,"o":{"z":1.50,"a":["\u003c",null]},"":"x","t":"\u003c\u0026\u2028\u0000","e":" "}'}
        )
        self.read(SECOND)
        self.assertEqual(
            self.values(),
            {
                "secret/n/b": [b"true"],
                "secret/n/o": [b'{"z":1.50,"a":["<",null]}'],
                "secret/n/t": ["<&\u2028\x00".encode()],
            },
        )
        self.assertIn("field 'o' of secret/n, versions 1: it is no text; the value here is its JSON", self.notes())
        self.assertIn("field '' of secret/n, versions 1: a field without a name", self.notes(NoteKind.LEFT_OUT))
        self.assertIn("field 'e' of secret/n, versions 1: it is blank", self.notes(NoteKind.LEFT_OUT))

    def test_fields_of_versions(self) -> None:
        """A variable has the versions that have its field, and a field that was taken away is named (IMP-42)."""
        self.vault.second["secret/", "n"] = KeptSecret({1: '{"a":"1","b":"1"}', 2: '{"a":"2"}'})
        self.read(SECOND)
        self.assertEqual(self.values(), {"secret/n/a": [b"1", b"2"], "secret/n/b": [b"1"]})
        self.assertIn("field 'b' of secret/n: version 2 hasn't got it", self.notes(NoteKind.CHANGED))
