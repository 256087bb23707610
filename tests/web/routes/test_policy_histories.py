"""Random histories of policies, their owners, their delegates and their host factories, judged by a model that knows nothing
of how loads are: after each load, whatever it did to whom must have been the policy's, or the caller's own, to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.memory import Memory
from tests.web.world import ADMIN, WorldCase, user

METHODS = ("POST", "PATCH", "PUT")
USERS = ("ann", "ben", "cat")

#: Who loads what; most of them may.
PAIRS = (
    *(("admin", policy) for policy in ("root", "A", "A/x", "B")),
    *(("ann", policy) for policy in ("A", "A/m", "A/x", "root")),
    *(("ben", policy) for policy in ("A/x", "B", "A")),
    *(("cat", policy) for policy in ("A", "B", "root", "A/m", "A/x")),
)
OWNERS = ("", *(f", owner: !{name}" for name in ("user /ann", "user /ben", "user /cat", "policy /A", "policy /B")))

#: Statements of a document. ``{new}`` is the id of a record, ``{name}`` and ``{host}`` are references, of things that are
#: mostly there; ``{place}`` is a policy beneath the loaded one.
STATEMENTS = (
    "!variable {{ id: {new}{owner} }}",
    "!group {{ id: {new}{owner} }}",
    "!host {{ id: {newhost}{owner} }}",
    "!user {{ id: dan{owner} }}",
    "!policy {{ id: {place}{owner} }}",
    "!policy {{ id: {place}{owner}, body: [ !group v, !host h, !user dan ] }}",
    "!host-factory {{ id: {place}/f, layers: !layer l{owner} }}",
    "!grant {{ role: !group {name}, member: !user /{user} }}",
    "!grant {{ role: !policy {place}, member: !user /{user} }}",
    "!grant {{ role: !user dan, member: !user /{user} }}",
    "!permit {{ role: !user /{user}, privilege: {privilege}, resource: !policy {place} }}",
    "!permit {{ role: !host {host}, privilege: execute, resource: !variable {name} }}",
    "!variable {{ id: {new}, annotations: {{ a: {user} }} }}",
    "!revoke {{ role: !group {name}, member: !user /{user} }}",
    "!deny {{ role: !host {host}, privilege: execute, resource: !variable {name} }}",
    "!delete {{ record: !host {host} }}",
    "!delete {{ record: !group {name} }}",
    "!delete {{ record: !policy {place} }}",
)


class Load(NamedTuple):
    """A document that somebody loads."""

    caller: str
    policy: str
    method: str
    text: str


class Make(NamedTuple):
    """A host that a factory makes."""

    factory: str
    host: str


statements = st.builds(
    lambda form, **words: f"- {form.format(**words)}\n",
    st.sampled_from(STATEMENTS),
    new=st.sampled_from(("v", "w", "x/v", "x/w", "m/v", "A/v", "A/x/v")),
    newhost=st.sampled_from(("h", "h", "x/h", "m/h", "i", "A/x/h", "C/h")),
    name=st.sampled_from(("v", "v", "x/v", "m/v", "/A/v", "/A/x/v", "/B/v")),
    host=st.sampled_from(("h", "h", "x/h", "/A/h", "/A/x/h", "/B/h", "/C/h")),
    place=st.sampled_from(("x", "m", "A", "A/x", "C")),
    user=st.sampled_from(USERS),
    owner=st.sampled_from(OWNERS),
    privilege=st.sampled_from(("create", "update", "read")),
)
loads = st.builds(
    lambda pair, method, text: Load(pair[0], pair[1], method, text),
    st.sampled_from(PAIRS),
    st.sampled_from(METHODS),
    st.lists(statements, min_size=1, max_size=2).map("".join),
)
makes = st.builds(
    Make, st.sampled_from(("f", "A/f", "B/f", "A/x/f")), st.sampled_from(("h", "A/h", "A/i", "A/x/h", "A/m/h", "B/h", "C/h"))
)
histories = st.lists(st.one_of(loads, loads, loads, makes), min_size=6, max_size=16)

_BODY = "!layer l, !host-factory { id: f, layers: !layer l }, !variable v, !group v, !user dan"

#: What each history begins with: teams that trust each other with nothing, one of them beneath another, and some delegates.
START = f"""
- !user ann
- !user ben
- !user cat
- !group g
- !variable v
- !group v
- !user dan
- !layer l
- !host-factory {{ id: f, layers: !layer l }}
- !policy {{ id: A, owner: !user ann, body: [ {_BODY}, !policy {{ id: m, body: [ {_BODY} ] }} ] }}
- !policy {{ id: A/x, owner: !user ben, body: [ {_BODY}, !host h ] }}
- !policy {{ id: B, owner: !user ben, body: [ {_BODY} ] }}
- !permit {{ role: !user cat, privilege: [ create, update ], resource: [ !policy A, !policy root ] }}
- !permit {{ role: !user cat, privilege: create, resource: !policy B }}
"""


class Before:
    """The model: what was stored before a load, asked with loops."""

    def __init__(self, memory: Memory) -> None:
        self.now = memory
        self.memory = Memory()
        self.memory.restore(memory.copied())

    def owned_by(self, policy: str, record: str) -> bool:
        """Rulings 9.2: the chain of owners leads to the policy; for the root, by way of policies to its own owner."""
        if record == policy:
            return False
        current, plain, steps = record, True, 0
        while current in self.memory.resources and steps < 100:
            current, steps = self.memory.resources[current][0], steps + 1
            if current == policy or (policy == "acme:policy:root" and current == "acme:user:admin" and plain):
                return True
            plain = plain and ":policy:" in current
        return False

    def around(self, record: str) -> str:
        """The policy with the longest id that begins the record's."""
        identifier = record.split(":", 2)[2]
        policies = [name for name in self.memory.resources if name.startswith("acme:policy:")]
        fitting = [name for name in policies if identifier.startswith(name.split(":", 2)[2] + "/") and "root" not in name]
        return max(fitting, key=len, default="acme:policy:root")

    def may(self, caller: str, privilege: str, record: str) -> bool:
        """Whether the caller has a privilege on a record himself."""
        access_facts = self.memory.access_facts(caller, record)
        return access_facts.owns or privilege in access_facts.privileges

    def disposes(self, caller: str, policy: str, record: str) -> bool:
        """Whether a record was the policy's, or the caller's, to dispose of."""
        owner, recorder = self.memory.resources[record]
        beneath = policy == "acme:policy:root" or record.split(":", 2)[2].startswith(policy.split(":", 2)[2] + "/")
        named = beneath or recorder == policy or record.split(":", 2)[2] == policy.split(":", 2)[2]
        if named and self.owned_by(policy, record):
            return True
        held = self.memory.held(caller)
        administered = any(
            role == record and admin and member in held for (role, member, _), (admin, _) in self.memory.memberships.items()
        )
        vouched = recorder is not None and self.owned_by(recorder, record) and self.may(caller, "update", recorder)
        return owner in held or administered or vouched

    def touched(self) -> Iterator[tuple[str, str]]:
        """The records of before to which something was done, and what."""
        old, new = self.memory, self.now
        gone = old.resources.keys() - new.resources.keys()
        for record in gone:
            if not gone.intersection(value for value in old.resources[record] if value) and ":public_key:" not in record:
                yield record, "deleted"
        for record in old.resources.keys() & new.resources.keys():
            if old.resources[record] != new.resources[record]:
                yield record, "given away"
        tables: tuple[tuple[dict[Any, Any], dict[Any, Any], str], ...] = (
            (old.memberships, new.memberships, "granted"),
            (old.permissions, new.permissions, "permitted"),
            (old.annotations, new.annotations, "annotated"),
        )
        for first, then, what in tables:
            for key in then:
                ownership = what == "granted" and key[2]
                if first.get(key, gone) != then[key] and key[0] in old.resources and not ownership:
                    yield key[0], what


class HistoryTests(WorldCase):
    """Whatever people load, in whatever order."""

    @settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
    @given(histories)
    def test_nobody_gets_further(self, history: list[Load | Make]) -> None:
        """A load disposes of what the policy or the caller disposes of, makes nothing beneath another owner's policy, and no
        host that a factory elsewhere made gains anything by being declared (POL-56, POL-63).
        """
        self.setUp()
        self.load(START)
        for step in history:
            before = Before(self.memory)
            if isinstance(step, Make):
                self.make(before, step)
            else:
                self.judge(before, step)

    def judge(self, before: Before, step: Load) -> None:
        """Load a document, and compare."""
        role = ADMIN if step.caller == "admin" else user(step.caller)
        path = f"/policies/acme/policy/{step.policy.replace('/', '%2F')}"
        answer = self.client.request(step.method, path, body=step.text.encode(), role=role)
        self.assertIn(answer.status, {201, 403, 404, 422}, (step, answer.body))
        if answer.status != 201:
            self.assertEqual(self.memory.resources, before.memory.resources)
            self.assertEqual(self.memory.memberships, before.memory.memberships)
            return
        caller, policy = str(role), f"acme:policy:{step.policy}"
        self.assertTrue(before.may(caller, "create" if step.method == "POST" else "update", policy), step)
        for record, what in before.touched():
            around = before.around(record)
            by_name = what == "deleted" and ":host:" in record and (around == policy or before.may(caller, "update", around))
            self.assertTrue(by_name or before.disposes(caller, policy, record), (step, record, what))
        for record in self.memory.resources.keys() - before.memory.resources.keys():
            around = before.around(record)
            if ":user:" not in record and around != policy and record.split(":", 2)[2] != step.policy:
                entitled = before.owned_by(policy, around) or before.may(caller, "update", around)
                self.assertTrue(entitled or before.disposes(caller, policy, around), (step, record))
        self.hosts(before, step)

    def hosts(self, before: Before, step: Load) -> None:
        """No host of a factory elsewhere was declared by the document."""
        for record, (owner, recorder) in before.memory.resources.items():
            if recorder is not None or ":host:" not in record or record not in self.memory.resources:
                continue
            full = record.split(":", 2)[2]
            written = full if step.policy == "root" else full.removeprefix(f"{step.policy}/")
            declared = f"- !host {{ id: {written} }}" in step.text or f"- !host {{ id: {written}," in step.text
            if declared and (step.policy == "root" or full.startswith(f"{step.policy}/")):
                self.assertEqual(before.around(owner), before.around(record), (step, record))

    def make(self, before: Before, step: Make) -> None:
        """Have a factory make a host."""
        factory, host = f"acme:host_factory:{step.factory}", f"acme:host:{step.host}"
        if factory not in self.memory.resources:
            return
        fields = {"host_factory": factory, "expiration": "2099-01-01T00:00:00Z"}
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        tokens = self.client.post("/host_factory_tokens", urlencode(fields).encode(), headers=form, role=ADMIN).json()
        given = [*form, ("Authorization", f"Token token={tokens[0]['token']}")]
        answer = self.client.post("/host_factories/hosts", urlencode({"id": step.host}).encode(), headers=given)
        self.assertIn(answer.status, {201, 403})
        if host in before.memory.roles:
            mine = before.memory.resources.get(host, ("",))[0] == factory
            self.assertEqual(answer.status, 201 if mine else 403, step)
        elif before.around(host) not in {"acme:policy:root", before.around(factory)}:
            self.assertEqual(answer.status, 403, step)
        elif before.around(host) == "acme:policy:root":
            self.assertEqual(answer.status, 201, step)
