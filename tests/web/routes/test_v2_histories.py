"""Random histories of requests of the newer interface and of loads: what policy says at any time can be loaded back."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svc.web.http.refusal_responses import V2
from tests.memory import Memory
from tests.web.v2 import V2Case
from tests.web.world import ADMIN

#: Ids that are mostly there.
BRANCHES = ("a", "a/b", "c")
GROUPS = ("g", "a/g", "a/b/g", "c/g")
ROLES = (("user", "ann"), ("host", "a/h"), ("group", "g"), ("group", "a/g"), ("group", "c/g"))
LOADS = (
    "- !policy {{ id: {branch}, body: [ !group g, !host h, !variable v ] }}",
    "- !grant {{ role: !group {group}, member: !user ann }}",
    "- !revoke {{ role: !group {group}, member: !user ann }}",
    "- !group {{ id: {group}, annotations: {{ x: {word} }} }}",
    "- !delete {{ record: !group {group} }}",
    # Not of a group within: a load doesn't refuse that a policy belongs to what it owns.
    "- !policy {{ id: {branch}, owner: !group g }}",
    "- !permit {{ role: !group {group}, privilege: update, resource: !policy {branch} }}",
)
ACTS = (
    "branch", "group", "member", "member", "no member", "annotate", "own", "annotate group", "bare", "no branch", "no group",
    "authenticator", "no authenticator", "load", "load", "load",
)  # fmt: skip

acts = st.tuples(
    st.sampled_from(ACTS),
    st.fixed_dictionaries(
        {
            "branch": st.sampled_from(BRANCHES),
            "group": st.sampled_from(GROUPS),
            "role": st.sampled_from(ROLES),
            "text": st.sampled_from(LOADS),
            "word": st.sampled_from(("one", "..", "yes", "1.10", "a: b", "#")),
        }
    ),
)


class HistoryTests(V2Case):
    """What a history of requests leaves."""

    def act(self, act: str, said: dict[str, Any]) -> None:
        """Send a request, which may be refused, and never fails."""
        branch, group, (kind, ident), word = said["branch"], said["group"], said["role"], said["word"]
        place, _, name = branch.rpartition("/")
        role = {"kind": kind, "id": ident}
        members = f"/groups/acme/{group}/members"
        method, path, body = {
            "branch": ("POST", "/branches/acme", {"name": name, "branch": place or "/", "annotations": {"w": word}}),
            "group": ("POST", "/groups/acme", {"name": "g", "branch": branch}),
            "member": ("POST", members, role),
            "no member": ("DELETE", f"{members}/{kind}/{ident}", None),
            "annotate": ("PATCH", f"/branches/acme/{branch}", {"annotations": {"x": word}}),
            "own": ("PATCH", f"/branches/acme/{branch}", {"owner": role}),
            "annotate group": ("PATCH", f"/groups/acme/{group}", {"annotations": {"x": word}}),
            "bare": ("DELETE", f"/groups/acme/{group}/annotations/x", None),
            "no branch": ("DELETE", f"/branches/acme/{branch}", None),
            "no group": ("DELETE", f"/groups/acme/{group}", None),
            "authenticator": ("POST", "/authenticators/acme", {"type": "ldap", "name": "x", "owner": role, "data": {}}),
            "no authenticator": ("DELETE", "/authenticators/acme/ldap/x", None),
        }.get(act, ("PATCH", "/policies/acme/policy/root", said["text"].format(**said).encode()))
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.client.request(method, path, body=raw, role=ADMIN, headers=[("Accept", V2)])
        self.assertIn(answer.status, {200, 201, 204, 403, 404, 409, 422}, (method, path, body, answer.body))

    def tables(self) -> dict[str, dict[Any, Any]]:
        """All that policy says, but for annotations that a document can't say."""
        memory = self.memory
        return {
            "resources": {name: owner for name, (owner, _) in memory.resources.items()},
            "memberships": {key: admin for key, (admin, _) in memory.memberships.items()},
            "permissions": dict.fromkeys(memory.permissions),
            "annotations": {key: value for key, (value, _) in memory.annotations.items()},
        }

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(acts, min_size=4, max_size=12))
    def test_loads_back(self, history: list[tuple[str, dict[str, Any]]]) -> None:
        """After any history the effective policy of the root loads, and changes nothing (NEWER-6)."""
        self.memory.restore(Memory().copied())
        self.result_of(self.create_account("acme", "1admin"))
        self.load("- !user ann\n- !policy svc/authn-ldap\n- !group g\n- !policy { id: a, body: [ !group g, !host h ] }")
        for act, said in history:
            self.act(act, said)
            before = self.tables()
            effective = self.client.get("/policies/acme/policy/root", role=ADMIN)
            self.load(effective.body.decode(), method="PATCH")
            self.assertEqual(self.tables(), before, (act, said))
