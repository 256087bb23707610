"""Tests of ``svc.importing.conjur``: what is asked of a Conjur, and what is made of its answers."""

from __future__ import annotations

from typing import Any

import httpx

from svc.importing import conjur
from svc.importing.inventory import Grant, Inventory, Note, NoteKind, Permission, Record, RecordId
from svc.workload.replies import parse_json
from tests.importing.conjur_stand_in import ACCOUNT, full_id
from tests.importing.moving import ImportCase


def names(inventory: Inventory, kind: str) -> list[str]:
    """The identifiers of a kind."""
    return [each.id.identifier for each in inventory.of_kind(kind)]


class ReadingTests(ImportCase):
    """What is read."""

    def record(self, kind: str, name: str) -> Record:
        """The record of that name."""
        [found] = [each for each in self.read().records if each.id == RecordId(kind, name)]
        return found

    def notes_of(self, kind: NoteKind) -> list[Note]:
        """The notes of a kind."""
        return [each for each in self.read().notes if each.kind is kind]

    def test_long_lists(self) -> None:
        """A list is read in pages to a short one, whose order is the collation's (MOVE-41, IMP-2)."""
        wanted = sorted([f"v{number:04}" for number in range(2500)] + ["B", "a", "C"])
        for name in wanted:
            self.source.add(f"variable:{name}")
        self.assertEqual(names(self.read(), "variable"), wanted)
        pages = [path for path in self.source.asked("/resources") if "kind=variable" in path and "offset" in path]
        self.assertEqual(
            [path.partition("?")[2] for path in pages], [f"limit=1000&offset={at}&kind=variable" for at in (0, 1000, 2000)]
        )
        counts = [path for path in self.source.asked("/resources") if "kind=variable" in path and "count" in path]
        self.assertEqual(counts, [f"/resources/{ACCOUNT}?kind=variable&count=true"] * 2)

    def test_list_that_changes(self) -> None:
        """A list that changes while it is read is read again, and told if it always does (MOVE-41, IMP-2)."""
        self.source.add("variable:a")
        added: list[httpx.Request] = []

        def add_another(request: httpx.Request) -> None:
            if b"kind=variable&count" in request.url.query and len(added) < self.most:
                added.append(request)
                self.source.add(f"variable:new{len(added)}")

        self.source.intruders.append(add_another)
        self.most = 1
        self.assertEqual(names(self.read(), "variable"), ["a", "new1"])
        self.assertEqual(self.notes_of(NoteKind.UNSEEN), [])
        self.most = 1000
        [note] = self.notes_of(NoteKind.UNSEEN)
        self.assertEqual(note.what, "resources of kind variable")

    def test_endless(self) -> None:
        """A list whose pages are always full is read to a bound, which is named (IMP-53)."""
        self.patch(conjur, "ROWS_MOST", 3000)
        self.source.add("variable:a")
        row = self.session_row()

        def fill(request: httpx.Request) -> httpx.Response | None:
            query = request.url.query
            return httpx.Response(200, json=[row] * 1000) if b"kind=variable" in query and b"count" not in query else None

        self.source.intruders.append(fill)
        notes = self.notes_of(NoteKind.UNSEEN)
        self.assertIn("3,000 of it were read, and it goes on", [each.why for each in notes])

    def session_row(self) -> Any:
        """Return a row of a list."""
        reply = self.run_import(self.session.ask("/resources/myorg?limit=1&offset=0&kind=variable"))
        return parse_json(reply.body)[0]

    def test_members(self) -> None:
        """Members aren't cut, and are asked for without an offset (MOVE-41)."""
        hosts = [f"host:h{number:04}" for number in range(1501)]
        self.source.add(*hosts)
        self.source.add("layer:all", members=[(name, False) for name in hosts])
        self.assertEqual(len(self.read().grants), 1501)
        self.assertEqual([path for path in self.source.asked("/roles") if "?" in path], [])

    def test_versions(self) -> None:
        """The versions are those that the list has, in their order; old numbers are in the plan (MOVE-42, IMP-5)."""
        self.source.set_values("v", *(b"%d" % number for number in range(6, 26)), first=6)
        self.assertEqual(self.record("variable", "v").versions, tuple(range(6, 26)))
        [note] = [each for each in self.plan().notes if "oldest versions" in each.why]
        self.assertIn("variable:v, from version 6", note.why)

    def test_history(self) -> None:
        """Nothing is rebuilt from texts of loads or effective policies, and lists ask for kinds (MOVE-46, MOVE-47)."""
        inventory = self.read()
        self.assertEqual(names(inventory, "user"), ["admin"])
        self.assertEqual(self.source.asked("/policies"), [])
        lists = [path for path in self.source.asked("/resources") if "limit" in path]
        self.assertTrue(lists)
        self.assertEqual([path for path in lists if "kind=" not in path], [])

    def test_no_policy(self) -> None:
        """Records that no policy declared are kept, and told (MOVE-48, IMP-3)."""
        self.source.add("host:made-by-a-factory", policy=None)
        self.assertIsNone(self.record("host", "made-by-a-factory").policy)
        self.assertEqual([each.what for each in self.notes_of(NoteKind.TO_KNOW)], ["host:made-by-a-factory"])

    def test_memberships(self) -> None:
        """Ownership becomes the owner; memberships that come by themselves are no grants (MOVE-49, IMP-4)."""
        self.source.add("user:alice", "layer:web")
        self.source.add("group:ops", owner="user:alice", members=[("user:alice", False), ("layer:web", True)])
        self.source.add("host_factory:f", layers=["layer:web"])
        ops, alice = RecordId("group", "ops"), RecordId("user", "alice")
        self.assertEqual(self.record("group", "ops").owner, alice)
        self.assertEqual(self.read().grants, (Grant(ops, RecordId("layer", "web"), True), Grant(ops, alice, False)))

    def test_networks(self) -> None:
        """The networks of users and hosts are read one by one, since lists lack them (MOVE-50)."""
        self.source.add("host:x", restricted_to=["10.1.2.3/32"])
        self.source.add("user:y", restricted_to=[])
        self.assertEqual(self.record("host", "x").restricted_to, ("10.1.2.3/32",))
        self.assertEqual(self.record("user", "y").restricted_to, ())

    def test_public_keys(self) -> None:
        """A key's name is that of a resource, and its text comes from another route (MOVE-51)."""
        text = "ssh-ed25519 AAAA laptop at home"
        self.source.add("user:x", "user:x/y", "user:none")
        self.source.add("public_key:user/x/laptop at home", values={1: text.encode()})
        self.source.add("public_key:user/x/y/k", values={1: b"ssh-rsa BBBB k"})
        self.assertEqual(self.record("user", "x").public_keys, (("laptop at home", text),))
        self.assertEqual(self.record("user", "x/y").public_keys, (("k", "ssh-rsa BBBB k"),))
        self.assertEqual(self.record("user", "none").public_keys, ())
        self.assertEqual(names(self.read(), "public_key"), [])

    def test_ids(self) -> None:
        """Ids of all characters are encoded whole, and stay text (MOVE-53)."""
        for name in ("a//b", "trail/", "null", "~", "12", "é ü+%?#&=:*", "..", "a/../b", "x" * 3000, "user/x"):
            self.source.add(f"host:{name}", restricted_to=["10.0.0.1/32"])
            self.assertEqual(self.record("host", name).restricted_to, ("10.0.0.1/32",), name)

    def test_host_factories(self) -> None:
        """Layers are read, tokens aren't: the live ones are counted (MOVE-55)."""
        tokens = [
            {"token": "a-secret-value", "expiration": f"{year}-01-01T00:00:00Z", "cidr": []} for year in (1999, 2999, 2998)
        ]
        self.source.add("layer:web")
        self.source.add("host_factory:f", layers=["layer:web"], tokens=tokens)
        self.assertEqual(self.record("host_factory", "f").layers, (RecordId("layer", "web"),))
        [note] = self.notes_of(NoteKind.LEFT_OUT)
        self.assertEqual(note.what, "2 live tokens of host_factory:f")
        self.assertNotIn("a-secret-value", str(self.read()))

    def test_authenticators(self) -> None:
        """Settings are variables, and the state is what the route without a token says (MOVE-56)."""
        for name in ("authn-jwt/ci", "authn-jwt/cd", "authn-gcp", "authn-jwt/ci/status", "authn-jwt", "authn-gcp/x"):
            self.source.add(f"webservice:conjur/{name}")
        self.source.enabled += ["authn-jwt/ci", "authn-gcp"]
        states = {each.name: each.enabled for each in self.read().authenticators}
        self.assertEqual(states, {"authn-gcp": True, "authn-jwt/cd": False, "authn-jwt/ci": True})
        self.source.intruders.append(lambda request: httpx.Response(404) if request.url.path == "/authenticators" else None)
        self.assertEqual({each.enabled for each in self.read().authenticators}, {None})
        self.assertEqual([each.what for each in self.notes_of(NoteKind.UNSEEN)], ["the state of authenticators"])

    def test_oneself(self) -> None:
        """A role that isn't the admin doesn't see itself, which is told (MOVE-73)."""
        self.source.add("user:mover", "group:g", members=[("user:mover", False)])
        self.source.hidden.add("user:mover")
        session = self.make_session("mover")
        inventory = self.read(session)
        self.assertEqual([each.what for each in inventory.notes if each.kind is NoteKind.UNSEEN], ["user:mover"])

    def test_permissions(self) -> None:
        """All privileges are read, whatever they are called (MOVE-73)."""
        self.source.add("user:x")
        self.source.set_values("v", permissions=[("user:x", "frob"), ("user:x", "read")])
        wanted = [Permission(RecordId("user", "x"), each, RecordId("variable", "v")) for each in ("frob", "read")]
        self.assertEqual(list(self.read().permissions), wanted)

    def test_kinds_of_policies(self) -> None:
        """Kinds that policies made up are found by the count of everything (IMP-2)."""
        self.source.add("food:apple", "job:x")
        self.assertEqual(names(self.read(), "food") + names(self.read(), "job"), ["apple", "x"])

    def test_versions_of_conjur(self) -> None:
        """Conjur before 1.19 is refused, and one without a version is read with a note (IMP-1)."""
        self.assertEqual(self.read().source, "conjur 1.24.0")
        self.source.version = None
        self.assertIn("unknown", self.read().source)
        self.source.version = "1.18.4"
        self.assertIn("1.19 or later", str(self.stopped(self.read)))


class StrangeAnswersTests(ImportCase):
    """Answers that no Conjur gives."""

    def test_shapes(self) -> None:
        """Whatever answers in another shape stops the import, which says how to go on (IMP-8)."""
        self.source.add("host:x", "variable:v")
        good = {"id": full_id("host:x"), "owner": full_id("user:admin"), "permissions": [], "annotations": []}
        for path, answer in (
            ("/resources/myorg?kind=host&count", httpx.Response(200, json={"count": "1"})),
            ("/resources/myorg?kind=host&count", httpx.Response(200, json=[1])),
            ("/resources/myorg?limit=1000&offset=0&kind=host", httpx.Response(404)),
            ("/resources/myorg?limit=1000&offset=0&kind=host", httpx.Response(200, text="<html>")),
            ("/resources/myorg?limit=1000&offset=0&kind=host", httpx.Response(200, json={})),
            ("/resources/myorg?limit=1000&offset=0&kind=host", httpx.Response(200, json=["x"])),
            ("/resources/myorg?limit=1000&offset=0&kind=host", httpx.Response(200, json=[{**good, "id": "x"}])),
            ("/resources/myorg?limit=1000&offset=0&kind=host", httpx.Response(200, json=[{**good, "id": "other:host:x"}])),
            ("/resources/myorg?limit=1000&offset=0&kind=host", httpx.Response(200, json=[{**good, "annotations": [1]}])),
            (
                "/resources/myorg/host/x",
                httpx.Response(200, json={**good, "annotations": [{"name": 1, "value": 2}]}),
            ),
            ("/resources/myorg?limit=1000&offset=0&kind=host", httpx.Response(200, json=[{**good, "permissions": [{}]}])),
            ("/resources/myorg/host/x", httpx.Response(500)),
            ("/resources/myorg/host/x", httpx.Response(302, headers={"location": "https://elsewhere.example/"})),
            ("/roles/myorg/host/x", httpx.Response(200, json={"members": [{"role": full_id("host:x")}]})),
            ("/roles/myorg/host/x", httpx.Response(200, json={})),
            ("/authenticators", httpx.Response(200, json={"enabled": "authn"})),
        ):

            def intrude(request: httpx.Request, path: str = path, answer: httpx.Response = answer) -> httpx.Response | None:
                return answer if request.url.raw_path.decode().startswith(path) else None

            self.source.intruders = [intrude]
            self.stopped(self.read)

    def test_refused_role(self) -> None:
        """A role whose members are refused is listed as not seen, and the rest is read (IMP-7)."""
        self.source.add("group:g", "group:h", members=[("user:admin", True)])
        self.source.intruders.append(lambda request: httpx.Response(403) if request.url.path.endswith("group/g") else None)
        unseen = [each.what for each in self.read().notes if each.kind is NoteKind.UNSEEN]
        self.assertEqual(unseen, ["members of group:g"])

    def test_named_and_unseen(self) -> None:
        """Whatever others name, and no list has, is listed as not seen (MOVE-73, IMP-7)."""
        self.source.add("user:x", "policy:p")
        self.source.set_values("v", permissions=[("user:x", "read")], owner="policy:p")
        self.source.hidden |= {"user:x", "policy:p"}
        unseen = [each.what for each in self.read().notes if each.kind is NoteKind.UNSEEN]
        self.assertEqual(unseen, ["policy:p", "user:x"])
