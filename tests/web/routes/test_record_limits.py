"""How much a record may carry, in however many loads, and how it is told: in pieces, whatever it carries."""

from __future__ import annotations

import json
from typing import Final

from svc.model.limits import RECORD_LIMITS, RecordLimits
from svc.web.http.messages import PIECE_SIZE, encode_elements, join_chunks
from tests.memory_resources import PART
from tests.web.world import ADMIN, WorldCase

#: Limits that a few lines reach.
FEW: Final = RecordLimits(annotations=4, annotation_bytes=60, permissions=4, restrictions=2, public_keys=2, layers=2)

KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ55cmzk0rRQ8xjcYZsfg2j3PjKZ3yIfaVLfqGZkqvA5"

START: Final = """
- !group g
- !group h
- !group i
- !layer l
- !layer m
- !layer n
"""

#: For each limit: what brings a record to its limit, what goes beyond it in a second load, and what that is called.
CASES: Final = {
    "annotations": (
        "- !variable { id: v, annotations: { a: 1, b: 1, c: 1, d: 1 } }",
        "- !variable { id: v, annotations: { e: 1 } }",
        "Variable 'v' would have 5 annotations; a record may have 4",
    ),
    "bytes": (
        f"- !variable {{ id: w, annotations: {{ a: {'x' * 59} }} }}",
        "- !variable { id: w, annotations: { b: é } }",
        "Variable 'w' would have 63 bytes of annotations; a record may have 60",
    ),
    "permissions": (
        "- !variable x\n- !permit { role: [ !group g, !group h ], privileges: [ read, execute ], resource: !variable x }",
        "- !permit { role: !group i, privileges: [ read ], resource: !variable x }",
        "Variable 'x' would have 5 permissions",
    ),
    "public keys": (
        f"- !user {{ id: bob, public_keys: [ {KEY} one, {KEY} two ] }}",
        f"- !user {{ id: bob, public_keys: [ {KEY} three ] }}",
        "User 'bob' would have 3 public keys; a record may have 2",
    ),
    "restrictions": (
        "- !host { id: h, restricted_to: [ 192.0.2.1, 192.0.2.2 ] }",
        "- !host { id: h, restricted_to: [ 192.0.2.3 ] }",
        "Host 'h' would have 3 networks in restricted_to; a record may have 2",
    ),
    "layers": (
        "- !host-factory { id: f, layers: [ !layer l, !layer m ] }",
        "- !host-factory { id: f, layers: [ !layer n ] }",
        "Host_factory 'f' would have 3 layers; a record may have 2",
    ),
}


#: Documents that have too much by themselves.
AT_ONCE: Final = {
    "- !host { id: h, annotations: { a: 1, b: 1, c: 1, d: 1, e: 1 } }": "Host 'h' would have 5 annotations",
    f"- !host {{ id: h, annotations: {{ a: {'x' * 60} }} }}": "Host 'h' would have 61 bytes of annotations",
    """
- !variable v
- !permit { role: [ !group g, !group h, !group i ], privileges: [ read, execute ], resource: !variable v }
""": "Variable 'v' would have 6 permissions",
    "- !host { id: h, restricted_to: [ 192.0.2.1, 192.0.2.2, 192.0.2.3 ] }": "Host 'h' would have 3 networks",
    f"- !user {{ id: eve, public_keys: [ {KEY} one, {KEY} two, {KEY} three ] }}": "User 'eve' would have 3 public keys",
    "- !host-factory { id: e, layers: [ !layer l, !layer m, !layer n ] }": "Host_factory 'e' would have 3 layers",
}


class LimitsTests(WorldCase):
    """Records that carry as much as they may."""

    records = FEW

    def setUp(self) -> None:
        """Have something to name."""
        super().setUp()
        self.load(START)

    def refused(self, text: str, message: str, method: str = "POST", policy: str = "root") -> None:
        """Have a load refused with this, with nothing left of it; and a dry run of it with the same."""
        before = self.memory.copied()
        answer = self.load(text, policy, method=method, status=422)
        self.assertIn(message, self.error(answer, 422, "policy_invalid"))
        dry_run = self.load(text, f"{policy}?dryRun=true", method=method, status=422)
        self.assertIn(message, dry_run.json()["errors"][0]["message"])
        self.assertEqual(self.memory.copied(), before)

    def test_over_several_loads(self) -> None:
        """What a record has counts with what a load adds: beyond the limit is 422, which names record, limit and remedy
        (LIM-12).
        """
        for full, more, message in CASES.values():
            self.load(full)
            self.refused(more, message)

    def test_in_one_document(self) -> None:
        """So is one document refused that has too much, in every mode (LIM-12)."""
        for text, message in AT_ONCE.items():
            for method in ("POST", "PATCH", "PUT"):
                self.refused(START + text, message, method)

    def test_over_several_policies(self) -> None:
        """Whichever policies gave it: what another one adds to a record counts the same (LIM-12)."""
        self.load("- !policy { id: team, body: [ !variable { id: v, annotations: { a: 1, b: 1, c: 1 } } ] }")
        self.load("- !variable { id: v, annotations: { d: 1 } }", "team")
        self.refused("- !variable { id: team/v, annotations: { e: 1 } }", "Variable 'team/v' would have 5 annotations")

    def test_what_takes_none(self) -> None:
        """A load that replaces what is there by as much is taken, and so is one that changes nothing (LIM-13)."""
        for full, _, _ in CASES.values():
            self.load(START + full, method="PUT")
            self.load(START + full, method="PUT")
            self.load(START + full)
        self.load(START + "- !variable { id: v, annotations: { e: 1, f: 1, g: 1, h: 1 } }", method="PUT")
        self.load(START + "- !variable { id: v, annotations: { e: 2, f: 2, g: 2, h: 2 } }", method="PATCH")
        grown = "- !variable { id: v, annotations: { e: " + "x" * 56 + " } }"
        self.refused(START + grown, "bytes of annotations", "PATCH")

    def test_members(self) -> None:
        """A host factory gets no more layers as a member than policy gives it (LIM-14)."""
        self.load("".join(f"- !layer l{number}\n" for number in range(RECORD_LIMITS.layers)))
        self.load("- !host-factory { id: f, layers: [ !layer l ] }")
        for number in range(RECORD_LIMITS.layers - 1):
            key = (f"acme:layer:l{number}", "acme:host_factory:f", False)
            self.memory.memberships[key] = (False, None)
        answer = self.client.post("/roles/acme/layer/m?members&member=acme:host_factory:f", role=ADMIN)
        self.assertIn("layers", self.error(answer, 422, "argument_error"))
        self.assertEqual(self.client.post("/roles/acme/group/g?members&member=acme:host_factory:f", role=ADMIN).status, 204)


class PiecesTests(WorldCase):
    """Records that carry more than goes into one piece."""

    def test_pieces(self) -> None:
        """A piece has some bytes, whatever its rows: at least so many but for the last, at most those of a few rows more."""
        for size in (1, 100, 5000, 70_000):
            rows = [{"value": "x" * size}] * (4 * PIECE_SIZE // size // 3 + 40)
            pieces = list(join_chunks(encode_elements(rows)))
            self.assertEqual(json.loads(b"[" + b"".join(pieces) + b"]"), rows)
            self.assertTrue(all(len(piece) >= PIECE_SIZE for piece in pieces[:-1]), size)
            self.assertTrue(all(len(piece) <= PIECE_SIZE + 16 * (size + 20) for piece in pieces), size)

    def test_parts(self) -> None:
        """A resource that comes in parts is told as it would be whole, by itself and within a list (RES-17)."""
        permits = "- !permit {{ role: !user u{0}, privileges: [ read, execute ], resource: !variable {1} }}\n"
        self.load("".join(f"- !user u{number}\n" for number in range(PART)))
        for name, roles, annotated in (
            ("a", 1, 1),
            ("b", PART, 0),
            ("c", 0, 2 * PART + 1),
            ("d", PART, PART),
            ("e", 0, 0),
        ):
            text = ", ".join(f"n{number:02}: v" for number in range(annotated))
            self.load(f"- !variable {{ id: {name}, annotations: {{ {text} }} }}\n")
            self.load("[]\n" if not roles else "".join(permits.format(number, name) for number in range(roles)))
        listed = self.client.get("/resources/acme/variable", role=ADMIN).json()
        self.assertEqual([resource["id"][-1] for resource in listed], ["a", "b", "c", "d", "e"])
        for resource in listed:
            path = "/resources/acme/variable/" + resource["id"].rpartition(":")[2]
            self.assertEqual(self.client.get(path, role=ADMIN).json(), resource)
            self.assertEqual(
                list(resource), ["created_at", "id", "owner", "policy", "permissions", "annotations", "secrets"]
            )
        found = {resource["id"][-1]: resource for resource in listed}
        sizes = {name: (len(each["permissions"]), len(each["annotations"])) for name, each in found.items()}
        expected = {"a": (2, 1), "b": (2 * PART, 0), "c": (0, 2 * PART + 1), "d": (2 * PART, PART), "e": (0, 0)}
        self.assertEqual(sizes, expected)
        for name, each in found.items():
            self.assertEqual([row["name"] for row in each["annotations"]], [f"n{n:02}" for n in range(sizes[name][1])])
            given = [(row["role"], row["privilege"]) for row in each["permissions"]]
            self.assertEqual(given, sorted(set(given)))
