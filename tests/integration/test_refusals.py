"""Refusals and explanations of a real server: of one with several processes, they are those of all."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from twisted.internet.threads import deferToThread

from tests.integration.process import beat
from tests.integration.test_processes import Line, ProcessesCase

POLICY = b"""
- !user alice
- !variable hidden
- !host { id: near, restricted_to: 10.0.0.0/8 }
"""

#: What nobody should find anywhere.
WRONG = "1wrongkey1wrongkey"


class RefusalsTests(ProcessesCase):
    """A server of two processes."""

    async def prepare(self) -> None:
        """Load a policy."""
        await super().prepare()
        self.admin = await self.api.authenticate("admin", self.admin_key)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", POLICY, self.admin)
        assert loaded.status == 201, loaded
        made = loaded.json()["created_roles"]
        self.keys = {role.rpartition(":")[2]: each["api_key"] for role, each in made.items()}

    async def found(self, query: str = "") -> Any:
        """What the server tells, in which no key is."""
        answer = await self.api.ask("GET", f"/refusals{query}", token=self.admin)
        self.assertEqual(answer.status, 200, answer.body)
        for secret in (WRONG, *self.keys.values(), self.admin_key):
            self.assertNotIn(secret, answer.body.decode())
        return answer.json()

    async def test_of_all_processes(self) -> None:
        """What any process refused is told by each, a second later at most (REF-9); a flood pushes nothing else out (REF-4);
        and what is tried by an explanation counts with the failures of all processes (REF-14).
        """
        alice = await self.api.authenticate("alice", self.keys["alice"])
        hidden = await self.api.ask("GET", "/secrets/acme/variable/hidden", token=alice)
        self.assertEqual(hidden.status, 404)

        def fail() -> list[int]:
            opened = [Line(self.url) for _ in range(8)]
            found = [line.ask("POST", "/authn/acme/host%2Fnone/authenticate", WRONG.encode())[0] for line in opened]
            for line in opened:
                line.close()
            return found

        self.assertEqual(await deferToThread(fail), [401] * 8)
        for _ in range(200):
            if sum(each["count"] for each in (await self.found())["sums"]) == 9:
                break
            await beat()
        for _ in range(6):
            found = await self.found()
            self.assertEqual(
                {(each["reason"], each["authenticator"]): each["count"] for each in found["sums"]},
                {("role-unknown", "authn"): 8, ("hidden", None): 1},
            )
            self.assertTrue(found["complete"])
        (refused,) = (await self.found(f"?request={hidden.headers['x-request-id']}"))["refusals"]
        self.assertEqual((refused["reason"], refused["role"]), ("hidden", "acme:user:alice"))
        self.assertEqual({each["role"] for each in found["refusals"]}, {None, "acme:user:alice"})

        def explained(login: str, **fields: str) -> Any:
            line = Line(self.url)
            body = urlencode(fields).encode()
            status, answer = line.ask(
                "POST", f"/authn/acme/{login}/explain", body, Authorization=f'Token token="{self.admin}"'
            )
            line.close()
            assert status == 200, answer
            assert WRONG not in answer.decode()
            return json.loads(answer)

        def explain() -> list[str]:
            return [explained("alice", evidence=WRONG)["steps"][0]["detail"] for _ in range(9)]

        details = await deferToThread(explain)
        self.assertEqual(
            [detail.split(" failures")[0] for detail in details], ["no", *(str(number) for number in range(1, 9))]
        )
        right = await deferToThread(lambda: explained("alice", evidence=self.keys["alice"]))
        self.assertTrue(right["admitted"])
        near = await deferToThread(lambda: explained("host%2Fnear", evidence=self.keys["near"]))
        self.assertEqual([step["reason"] for step in near["steps"] if step["reason"]], ["origin-refused"])
        near = await deferToThread(lambda: explained("host%2Fnear", evidence=self.keys["near"], address="10.9.9.9"))
        self.assertTrue(near["admitted"])
        said = self.process.said
        self.assertNotIn(WRONG, said)
        self.assertEqual(await self.process.stop(), 0)
