"""Tests of ``svc.importing.load`` and ``plan``: from a stand-in for Conjur into a server in memory."""

from __future__ import annotations

from typing import Any

import attrs
import httpx

from svc.importing.documents import declare
from svc.importing.inventory import NoteKind, Record, RecordId, Version
from svc.importing.load import digest, find_missing_versions, fold_equal
from svc.importing.translation import ROTATOR_OFF
from svc.model.dialect import NATIVE
from tests.importing.moving import ImportCase
from tests.web.world import ADMIN

KEY_TEXT = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH2+lT1A2zv8VcC0zS9Z0sd8tGQeY0F1KQpC0XbSXb1v laptop"


class LoadTests(ImportCase):
    """Into the dialect ``conjur``."""

    def fill(self) -> None:
        """Make a source with something of everything."""
        source = self.source
        source.add("user:alice", "group:ops", "group:devs")
        source.add("user:bob", restricted_to=["1.2.3.4/32", "10.0.0.0/8"])
        source.add("public_key:user/bob/laptop", owner="user:admin", values={1: KEY_TEXT.encode()})
        source.add("policy:app", owner="group:ops", annotations={"description": "the app"})
        app: dict[str, Any] = {"owner": "policy:app", "policy": "policy:app"}
        source.add("user:carol@app", "group:app/admins", "layer:app/web", **app)
        source.add("host:app/h1", restricted_to=["10.1.2.3/32"], annotations={"authn-jwt/ci/sub": "x:y"}, **app)
        source.add("host_factory:app/hf", layers=["layer:app/web"], **app)
        source.add("host:made", owner="host_factory:app/hf", policy=None)
        source.add("policy:app/deep", owner="policy:app", policy="policy:app")
        deep: dict[str, Any] = {"owner": "group:app/deep/g", "policy": "policy:app/deep"}
        source.add("group:app/deep/g", **{**deep, "owner": "policy:app/deep"})
        source.set_values("app/deep/v", b" v ", **deep)
        source.set_values("app/password", *(b"%d" % number for number in range(6, 26)), first=6, **app)
        source.set_values("app/none", **app)
        source.set_values("bytes", b"\xff\x00\n")
        source.resources["variable:app/password"].permissions = [
            ("layer:app/web", each) for each in ("execute", "frob", "read")
        ]
        source.resources["layer:app/web"].members = [("host:app/h1", False), ("host:made", False)]
        source.resources["group:app/admins"].members = [("user:alice", True), ("group:devs", False)]
        source.resources["group:devs"].members = [("group:app/admins", False)]

    def test_everything(self) -> None:
        """Records, owners, networks, keys, memberships, permissions and versions are the same (MOVE-47, MOVE-49, IMP-10)."""
        self.fill()
        load = self.move()
        self.assertEqual(load.notes, [])
        self.assert_same()
        self.assertEqual([self.value("app/password", number) for number in (1, 20)], [b"6", b"25"])
        self.assertEqual((self.value("app/deep/v"), self.value("bytes")), (b" v ", b"\xff\x00\n"))
        shown = {each.id: each for each in self.read_target().records}
        self.assertEqual(shown[RecordId("policy", "app")].owner, RecordId("group", "ops"))
        self.assertEqual(shown[RecordId("host", "app/h1")].policy, "app")
        self.assertEqual(shown[RecordId("user", "carol@app")].policy, "app")
        self.assertEqual(shown[RecordId("host", "made")].policy, "root")

    def test_again(self) -> None:
        """An import that is run again changes nothing (IMP-11)."""
        self.fill()
        self.move()
        self.target.changes.clear()
        self.assertTrue(self.plan().is_empty)
        load = self.move()
        self.assertEqual((self.target.changes, load.equal_values), ([], 3))

    def test_interrupted_anywhere(self) -> None:
        """An import that ends before any of its changes goes on when it is run again (IMP-11)."""
        self.fill()
        done = 0
        for changes in (0, 1, 1, 2, 1, 3, 1, 5, 1, 1, 7, 1, 100):
            left = [changes]

            def end(method: str, path: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt

            self.target.fault = end
            try:
                self.move()
                done += 1
            except KeyboardInterrupt:
                self.assertEqual(done, 0)
        self.assertGreater(done, 0)
        self.target.fault = lambda *_: None
        self.assert_same()
        self.assertEqual([self.value("app/password", number) for number in (1, 20)], [b"6", b"25"])

    def test_source_that_stops(self) -> None:
        """A source that stops in the middle leaves whole values alone, and another run goes on (IMP-8, IMP-11)."""
        for number in range(40):
            self.source.set_values(f"v{number:02}", b"a", b"b", b"c")
        left = [60]

        def stop(request: httpx.Request) -> httpx.Response | None:
            left[0] -= b"version" in request.url.query
            return httpx.Response(500) if left[0] < 0 else None

        self.source.intruders.append(stop)
        self.stopped(self.move)
        self.source.intruders.clear()
        sizes = {len(each.versions) for each in self.read_target().of_kind("variable")}
        self.assertEqual(sizes, {0, 3})
        self.move()
        self.assert_same()

    def test_ids(self) -> None:
        """Ids come out as they were, also those that look like something else in YAML (MOVE-53, MOVE-54)."""
        names = [
            "a//b",
            "trail/",
            "null",
            "~",
            "12",
            "é ü+%?#&=:*!|>'\"",
            "a/../b",
            "x" * 1024,
            "yes",
            "2026-01-01",
            "- a",
            "%TAG",
        ]
        self.source.add("policy:p", "policy:p/q")
        for name in names:
            self.source.set_values(name, b"1", permissions=[("user:b@a", "read")])
            self.source.set_values(f"p/q/{name}"[:1024], b"1", policy="policy:p/q", owner="policy:p/q")
        self.source.add("user:b@a", "user:b@pp-a", "user:x@y@p", policy="policy:p")
        self.source.add("user:@p", policy="policy:p")
        self.move()
        self.assert_same()

    def test_annotations(self) -> None:
        """Annotations are text, whatever YAML would make of them (MOVE-52)."""
        values = [
            "010",
            "8",
            "yes",
            "true",
            "",
            "~",
            "null",
            "1.10",
            "2026-01-01",
            "x # y",
            "a: b",
            " b ",
            "\u2028\t\n",
            "'\"\\",
        ]
        self.source.add("host:x", annotations={f"a{number}": value for number, value in enumerate(values)})
        self.source.add("host:y", annotations={"yes": "1", "~": "2", "a" * 300: "3", "? b": "4"})
        self.move()
        self.assert_same()

    def test_equal_versions(self) -> None:
        """Two equal versions in a row are folded, as the target folds them, and told (MOVE-43, IMP-12)."""
        self.source.set_values("v", b"a", b"a", b"b", b"a")
        load = self.move()
        self.assertEqual([(each.kind, each.what) for each in load.notes], [(NoteKind.TO_KNOW, "1 versions of variable:v")])
        self.assert_same()
        self.assertEqual([self.value("v", number) for number in (1, 2, 3)], [b"a", b"b", b"a"])

    def test_newer_versions(self) -> None:
        """A run after the source got new versions sets these alone (IMP-12)."""
        self.source.set_values("v", b"a", b"b")
        self.move()
        self.source.set_values("v", b"b", b"c", first=2)
        self.assertEqual(self.move().versions_set, 1)
        self.assertEqual([self.value("v", number) for number in (1, 2, 3)], [b"a", b"b", b"c"])
        self.assert_same()

    def test_clash_of_values(self) -> None:
        """A variable with another value here is left as it is, and listed (MOVE-1, IMP-12)."""
        self.source.set_values("v", b"a", b"b")
        self.load("- !variable v")
        self.client.post("/secrets/acme/variable/v", b"ours", role=ADMIN)
        load = self.move()
        self.assertEqual([(each.kind, each.what) for each in load.notes], [(NoteKind.LEFT_OUT, "variable:v")])
        self.assertEqual(self.value("v"), b"ours")
        self.assertEqual(len(self.verify().differences), 1)

    def test_clash_of_records(self) -> None:
        """A record that is here and other is left as it is, and listed with what differs (MOVE-1, IMP-11)."""
        self.source.add("user:x", "user:z")
        self.source.add("host:h", restricted_to=["10.0.0.0/8"], owner="user:x")
        self.source.add("host:i", owner="user:x")
        self.load("- !user x\n- !user z\n- !host { id: h, restricted_to: 11.0.0.0/8 }\n- !host { id: i, owner: !user z }")
        plan = self.plan()
        self.assertEqual([str(each.what) for each in plan.clashes], ["host:h", "host:i"])
        self.assertIn("networks", plan.clashes[0].why)
        self.move()
        self.assertEqual(
            {each.what.partition(" of ")[2] for each in self.verify().differences if " of " in each.what},
            {"host:h", "host:i"},
        )
        shown = {each.id: each for each in self.read_target().records}
        self.assertEqual(shown[RecordId("host", "h")].restricted_to, ("11.0.0.0/8",))
        self.assertEqual(shown[RecordId("host", "i")].owner, RecordId("user", "z"))

    def test_clash_of_admin_options(self) -> None:
        """A membership that is here with another admin option stays, and is listed (MOVE-49, IMP-11)."""
        self.source.add("user:x", "user:y")
        self.source.add("group:g", members=[("user:x", True), ("user:y", False)])
        self.load("- !user x\n- !user y\n- !group g\n- !grant { role: !group g, member: !user x }")
        [clash] = self.plan().clashes
        self.assertEqual(clash.what, "membership of user:x in group:g")
        self.move()
        self.assertEqual([each.what for each in self.verify().differences], ["membership of user:x in group:g"])

    def test_rotation(self) -> None:
        """Rotation is moved switched off, and told; once it is on here, that is no difference (MOVE-58, IMP-13)."""
        self.source.set_values("p", b"1", annotations={"rotation/rotator": "postgresql/password", "rotation/ttl": "P1D"})
        self.assertEqual([each.what for each in self.plan().notes if each.kind is NoteKind.CHANGED], ["variable:p"])
        self.move()
        [record] = self.read_target().of_kind("variable")
        self.assertEqual(record.annotations, {ROTATOR_OFF: "postgresql/password", "rotation/ttl": "P1D"})
        self.assert_same()

    def test_authenticators(self) -> None:
        """Settings are moved as variables, and what was enabled is enabled (MOVE-56, IMP-14)."""
        self.source.add("policy:conjur/authn-jwt/cd")
        inside: dict[str, Any] = {"policy": "policy:conjur/authn-jwt/cd", "owner": "policy:conjur/authn-jwt/cd"}
        self.source.add("webservice:conjur/authn-jwt/cd", **inside)
        self.source.set_values("conjur/authn-jwt/cd/jwks-uri", b"https://x.example", **inside)
        self.source.enabled.append("authn-jwt/cd")
        self.assertEqual([each.name for each in self.plan().authenticators], ["authn-jwt/cd"])
        self.move()
        self.assertEqual(self.plan().authenticators, ())
        self.assert_same()

    def test_left_out(self) -> None:
        """What no policy can declare is listed with what to do, and everything else is moved (MOVE-53, IMP-9)."""
        self.source.add("host:" + "x" * 1025, "user:a/b", "configuration:c", "user:..", "group:g")
        self.source.add("host:ok", owner="user:a/b", annotations={"path": "a/../b", "fine": "a..b"})
        self.source.resources["group:g"].members = [("user:a/b", False), ("user:..", False), ("host:ok", False)]
        self.source.set_values("v", b"1", permissions=[("user:a/b", "read"), ("user:..", "read"), ("host:ok", "read")])
        plan = self.plan()
        left = {each.what for each in plan.notes if each.kind is NoteKind.LEFT_OUT}
        for name in (
            "host:" + "x" * 1025,
            "user:a/b",
            "configuration:c",
            "annotation path of host:ok",
            "membership of user:a/b in group:g",
            "membership of user:.. in group:g",
            "'read' of user:a/b on variable:v",
            "'read' of user:.. on variable:v",
        ):
            self.assertIn(name, left)
        self.assertTrue(all(each.remedy for each in plan.notes if each.kind is NoteKind.LEFT_OUT))
        self.assertEqual(self.move().notes, [])
        self.assertEqual(len(self.read_target().grants), 1)

    def test_refused_statement(self) -> None:
        """A statement that the target refuses is found, and everything else of its document is loaded (IMP-9)."""
        plan = self.plan()
        bad = Record(RecordId("host", "bad"), restricted_to=("10.0.0.0/99",))
        records = [Record(RecordId("host", f"h{number}")) for number in range(50)]
        load = self.move(attrs.evolve(plan, records=(*records[:20], bad, *records[20:])))
        self.assertEqual([(each.kind, each.what) for each in load.notes], [(NoteKind.LEFT_OUT, "host:bad")])
        self.assertIn("10.0.0.0/99", load.notes[0].why)
        self.assertEqual(len(self.read_target().of_kind("host")), 50)

    def test_keys(self) -> None:
        """The keys of a piece are announced before it is loaded, and taken after (IMP-15)."""
        self.source.add("host:a", "user:x")
        self.source.add("host:none", annotations={"authn/api-key": "false"})
        plan = self.plan()
        self.assertEqual(plan.keyed, (RecordId("host", "a"), RecordId("user", "x")))
        self.move(plan)
        self.assertEqual(set(self.keys_made), set(plan.keyed))
        self.assertLessEqual(set(plan.keyed), set(self.expected))
        self.assertNotIn(self.keys_made[RecordId("host", "a")], repr(self.target.changes))


class NativeTests(ImportCase):
    """Into the dialect ``native``."""

    dialect = NATIVE

    def test_translated(self) -> None:
        """Prefixes and annotations are those of the dialect, by the table (IMP-13)."""
        self.source.add("policy:conjur/authn-azure/x", "policy:conjur/authn-jwt/ci", "policy:conjur")
        self.source.add("webservice:conjur/authn-azure/x", policy="policy:conjur/authn-azure/x")
        self.source.set_values(
            "conjur/authn-jwt/ci/issuer", b"x", policy="policy:conjur/authn-jwt/ci", owner="policy:conjur"
        )
        self.source.set_values(
            "conjurer", b"x", annotations={"conjur/mime_type": "text/plain", "conjur/x": "y", "authn-azure/x/sub": "1"}
        )
        self.source.enabled.append("authn-azure/x")
        plan = self.plan()
        self.move()
        ids = {str(each.id) for each in self.read_target().records}
        self.assertLessEqual(
            {"policy:svc/authn-cloud/x", "webservice:svc/authn-cloud/x", "policy:svc", "variable:conjurer"}, ids
        )
        [record] = [each for each in self.read_target().records if each.id.identifier == "conjurer"]
        self.assertEqual(record.annotations, {"svc/mime_type": "text/plain", "conjur/x": "y", "authn-cloud/x/sub": "1"})
        self.assertEqual(self.value("svc/authn-jwt/ci/issuer"), b"x")
        self.assertEqual([each.what for each in plan.notes if "configuration" in each.why], ["authenticators authn-cloud/x"])
        differing = [each.what for each in self.verify().differences]
        self.assertEqual(differing, ["authenticator authn-cloud/x"])

    def test_two_with_one_name(self) -> None:
        """What only the translation would make an authenticator's is left out, with all that names it (IMP-50)."""
        for prefix in ("conjur", "svc"):
            self.source.add(f"policy:{prefix}", f"policy:{prefix}/authn-jwt/ci", f"group:{prefix}/team")
            inside: dict[str, Any] = {"owner": f"policy:{prefix}/authn-jwt/ci", "policy": f"policy:{prefix}/authn-jwt/ci"}
            self.source.add(f"webservice:{prefix}/authn-jwt/ci", f"group:{prefix}/authn-jwt/ci/apps", **inside)
            self.source.add(f"layer:{prefix}/authn-jwt/ci/layer", **inside)
        self.source.set_values("conjur/authn-jwt/ci/issuer", b"ours", policy="policy:conjur/authn-jwt/ci")
        self.source.set_values("svc/authn-jwt/ci/issuer", b"evil")
        self.source.set_values("svc/authn-jwt/ci/public-keys", b"evil")
        self.source.add("user:bob", "user:carol", "user:dave@svc-authn-jwt-ci")
        self.source.add("host:theirs", owner="policy:svc/authn-jwt/ci", policy="policy:svc/authn-jwt/ci")
        self.source.add("host_factory:f", layers=["layer:svc/authn-jwt/ci/layer"])
        self.source.resources["group:svc/authn-jwt/ci/apps"].members = [("user:bob", False)]
        self.source.resources["group:svc/team"].members = [("user:bob", False)]
        self.source.resources["group:conjur/team"].members = [("user:carol", False)]
        self.source.resources["variable:conjur/authn-jwt/ci/issuer"].permissions = [("group:svc/team", "update")]
        plan = self.plan()
        self.move(plan)
        target = self.read_target()
        found = {str(each.id): each for each in target.records}
        self.assertEqual(self.value("svc/authn-jwt/ci/issuer"), b"ours")
        self.assertNotIn("variable:svc/authn-jwt/ci/public-keys", found)
        self.assertNotIn("host_factory:f", found)
        self.assertEqual(found["host:theirs"].owner, RecordId("user", "admin"))
        self.assertEqual([(str(each.role), str(each.member)) for each in target.grants], [("group:svc/team", "user:carol")])
        self.assertEqual(target.permissions, ())
        left_out = {each.what for each in plan.notes if each.kind is NoteKind.LEFT_OUT}
        self.assertLessEqual(
            {"variable:svc/authn-jwt/ci/public-keys", "membership of user:bob in group:svc/authn-jwt/ci/apps"}
            | {"group:svc/team", "'update' of group:svc/team on variable:conjur/authn-jwt/ci/issuer", "host_factory:f"},
            left_out,
        )

    def test_not_in_native(self) -> None:
        """What only ``conjur`` takes is listed (IMP-9)."""
        self.source.add("food:apple", "host_factory:f")
        self.source.add("policy:self", owner="policy:self")
        self.source.add("host:h", annotations={"authn-jwt/ci/a/b": "1", "authn-jwt/ci/a": "1"})
        notes = {each.what: each.kind for each in self.plan().notes}
        self.assertEqual(
            {
                name: notes.get(name)
                for name in ("food:apple", "host_factory:f", "policy:self", "annotation authn-jwt/ci/a/b of host:h")
            },
            {
                "food:apple": NoteKind.LEFT_OUT,
                "host_factory:f": NoteKind.LEFT_OUT,
                "policy:self": NoteKind.CHANGED,
                "annotation authn-jwt/ci/a/b of host:h": NoteKind.CHANGED,
            },
        )


class VersionsTests(ImportCase):
    """Which versions are missing."""

    def test_missing(self) -> None:
        """A target's newest versions must be the source's oldest; what comes after them is missing (IMP-12)."""
        for there, source, wanted in (
            ("", "abc", "abc"),
            ("a", "abc", "bc"),
            ("abc", "abc", ""),
            ("xab", "abc", "c"),
            ("ab", "bcd", "cd"),
            ("aba", "aba", ""),
            ("abx", "abc", None),
            ("abcd", "abc", None),
            ("x", "abc", None),
        ):
            versions = [Version(number, text.encode()) for number, text in enumerate(source, 1)]
            digests = [digest(Version(0, text.encode())) for text in there]
            missing = find_missing_versions(versions, digests)
            found = None if missing is None else b"".join(each.value for each in missing).decode()
            self.assertEqual(found, wanted, (there, source))

    def test_folded(self) -> None:
        """Of equal versions in a row the first counts (MOVE-43)."""
        folded = fold_equal([Version(number, text.encode()) for number, text in enumerate("aabba", 1)])
        self.assertEqual([each.number for each in folded], [1, 3, 5])

    def test_owner(self) -> None:
        """A default owner isn't written."""
        record = Record(RecordId("group", "p/g"), owner=RecordId("policy", "p"), policy="p")
        self.assertEqual(declare(record, {"p"}).text, '!group {"id": "g"}')
        self.assertIn("owner", declare(record, set()).text)
