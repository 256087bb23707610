"""The world of tests of the newer interface: requests that accept its media type, in both dialects."""

from __future__ import annotations

import json
from typing import Any, Final

from svc.model.names import RoleName
from svc.web.http.refusal_responses import V2
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

ALICE: Final = user("alice")
BOB: Final = user("bob")

#: Another resource than those that a test makes.
Document = dict[str, Any]


class V2Case(WorldCase):
    """A test of routes of the newer interface."""

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        role: RoleName | None = ADMIN,
        accept: str | None = V2,
        status: int = 200,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Answer:
        """Send a request, and return the answer, which must have this status; a ``body`` is sent as JSON, or as it is."""
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        accepted = () if accept is None else (("Accept", accept),)
        answer = self.client.request(method, path, body=raw, role=role, headers=[*accepted, *headers])
        self.assertEqual(answer.status, status, (method, path, body, answer.body))
        return answer

    def told(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        """The document of an answer, which must have the media type."""
        answer = self.ask(method, path, body, **more)
        self.assertEqual(answer.headers["content-type"], V2)
        return json.loads(answer.body)

    def refusal(self, status: int, method: str, path: str, body: object = None, **more: Any) -> str:
        """The message of a refusal, which must have this status, and the form of the newer interface."""
        document = self.told(method, path, body, status=status, **more)
        self.assertEqual(document.keys(), {"code", "message"})
        self.assertEqual(document["code"], str(status))
        return str(document["message"])

    def policy_events(self) -> list[tuple[str, dict[str, str]]]:
        """The events of rows, in the order of their making."""
        return [(event.operation, dict(event.subject)) for _, event in self.memory.events.values() if event.policy]
