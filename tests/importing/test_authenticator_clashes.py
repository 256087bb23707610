"""Tests of ``svc.importing.authenticator_clashes``: an authenticator is moved wholly or not at all."""

from __future__ import annotations

from typing import Any

import httpx

from svc.importing.inventory import Record, RecordId
from tests.importing.moving import ImportCase
from tests.web.world import ADMIN

SERVICE = "conjur/authn-jwt/cd"
_POLICY = "- !policy\n  id: conjur/authn-jwt/cd\n  body:\n  - !variable jwks-uri\n"
_WHOLE = f"{_POLICY}  - !webservice\n  - !group apps\n"


class AuthenticatorClashTests(ImportCase):
    """A source with the authenticator ``authn-jwt/cd`` and a host of it."""

    def setUp(self) -> None:
        """Make it."""
        super().setUp()
        inside: dict[str, Any] = {"policy": f"policy:{SERVICE}", "owner": f"policy:{SERVICE}"}
        self.source.add("policy:conjur", f"policy:{SERVICE}")
        self.source.add(f"webservice:{SERVICE}", permissions=[(f"group:{SERVICE}/apps", "authenticate")], **inside)
        self.source.add(f"group:{SERVICE}/apps", members=[("host:theirs", False)], **inside)
        self.source.set_values(f"{SERVICE}/jwks-uri", b"https://theirs.example", **inside)
        self.source.set_values(f"{SERVICE}/audience", b"theirs", **inside)
        self.source.add("host:theirs", annotations={"authn-jwt/cd/sub": "x", "description": "y"})
        self.source.add("group:owned", owner=f"group:{SERVICE}/apps")
        self.source.enabled.append("authn-jwt/cd")

    def prepare(self, policy: str, **values: bytes) -> None:
        """Load a policy into the target, and set settings there."""
        self.load(policy.replace("- !policy\n  id: conjur/", "- !policy conjur\n- !policy\n  id: conjur/"))
        for name, value in values.items():
            path = f"/secrets/acme/variable/{SERVICE.replace('/', '%2F')}%2F{name.replace('_', '-')}"
            self.assertEqual(self.client.post(path, value, role=ADMIN).status, 201)

    def found(self) -> dict[str, Record]:
        """Return the records of the target."""
        return {str(each.id): each for each in self.read_target().records}

    def test_clashing(self) -> None:
        """Where a part of it is here and other, nothing of it is made, and nothing new is enabled or let in (IMP-51)."""
        uri: dict[str, bytes] = {"jwks_uri": b"https://theirs.example"}
        for why, policy, values in (
            ("other values", _WHOLE, {"jwks_uri": b"https://ours.example"}),
            ("other values", _POLICY, {"jwks_uri": b"https://ours.example"}),
            ("here and not there", f"{_WHOLE}  - !variable public-keys\n", uri),
            ("other annotations", f"{_POLICY}  - !webservice {{ annotations: {{ a: b }} }}\n", uri),
            ("other annotations", f"{_WHOLE}  - !variable {{ id: audience, annotations: {{ a: b }} }}\n", uri),
            ("the owner of", f"- !group g\n{_POLICY}  - !group {{ id: apps, owner: !group /g }}\n", uri),
        ):
            with self.subTest(policy):
                self.setUp()
                self.prepare(policy, **values)
                before = self.found()
                plan = self.plan()
                self.assertEqual([each.what for each in plan.clashes][:1], ["authenticator authn-jwt/cd"])
                self.assertIn(why, plan.clashes[0].why)
                self.move(plan)
                after = self.found()
                here = {name for name in after if SERVICE in name}
                self.assertEqual(here, {name for name in before if SERVICE in name})
                self.assertEqual(after["host:theirs"].annotations, {"description": "y"})
                self.assertEqual(after["group:owned"].owner, RecordId("user", "admin"))
                target = self.read_target()
                self.assertFalse([each for each in target.grants if each.member == RecordId("host", "theirs")])
                self.assertFalse([each for each in target.authenticators if each.enabled])

    def test_theirs_alone(self) -> None:
        """A record below an authenticator that is the target's alone isn't made (IMP-51)."""
        del self.source.resources[f"webservice:{SERVICE}"]
        self.prepare(_WHOLE, jwks_uri=b"https://theirs.example")
        plan = self.plan()
        self.assertIn(f"webservice:{SERVICE} is here and not there", plan.clashes[0].why)
        self.move(plan)
        self.assertNotIn(f"variable:{SERVICE}/audience", self.found())

    def test_unreadable(self) -> None:
        """A setting whose values can't be compared is one that may be other (IMP-51)."""
        self.prepare(_WHOLE, jwks_uri=b"https://theirs.example")
        self.source.unreadable.add(f"variable:{SERVICE}/jwks-uri")
        self.assertIn("can't be read of both", self.plan().clashes[0].why)

    def test_equal_or_less(self) -> None:
        """What is here in part and equal is completed, and settings without a value there may have one here (IMP-51)."""
        for policy, values in (
            ("- !policy conjur/authn-jwt/cd\n", {}),
            (_WHOLE, {}),
            (_WHOLE, {"jwks_uri": b"https://theirs.example"}),
            (f"{_WHOLE}  - !variable ca-cert\n", {"ca_cert": b"ours"}),
        ):
            with self.subTest(policy):
                self.setUp()
                self.source.set_values(f"{SERVICE}/ca-cert", policy=f"policy:{SERVICE}", owner=f"policy:{SERVICE}")
                self.prepare(policy, **values)
                plan = self.plan()
                self.assertEqual(plan.clashes, ())
                self.move(plan)
                target = self.read_target()
                self.assertIn("host:theirs", [str(each.member) for each in target.grants])
                self.assertEqual([each.name for each in target.authenticators if each.enabled], ["authn-jwt/cd"])
                self.assertEqual(self.plan().clashes, ())

    def test_failed(self) -> None:
        """One of which a part failed to be loaded isn't enabled (IMP-51)."""
        plan = self.plan()

        def refuse(request: httpx.Request) -> httpx.Response | None:
            return httpx.Response(403) if b"audience" in request.url.raw_path else None

        self.source.intruders.append(refuse)
        load = self.move(plan)
        self.assertIn("state of authn-jwt/cd", [each.what for each in load.notes])
        self.assertFalse([each for each in self.read_target().authenticators if each.enabled])
        self.source.intruders.clear()
        self.move()
        self.assertTrue([each for each in self.read_target().authenticators if each.enabled])
