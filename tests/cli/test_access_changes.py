"""Tests of ``svc.cli.policy``; ``tests/services/test_access_changes.py`` has it tell the answers of a server."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.changes import Effect
from svc.cli.policy import access_sentences, gain_sentence
from tests.cli.test_policy import access, gain


class AccessSentenceTests(SynchronousTestCase):
    """What is said of access."""

    def said(self, **changed: Any) -> str:
        """The sentence on one gain with these fields."""
        [sentence] = access_sentences({"access": access({**gain(), **changed})})
        return sentence.text

    def test_nothing(self) -> None:
        """Of no changes, and of an older server's answer, nothing is said."""
        self.assertEqual(access_sentences({}), [])
        self.assertEqual(access_sentences({"access": access()}), [])

    def test_privileges(self) -> None:
        """Privileges are listed; ownership is all of them, but those that the role has in any case (POL-84)."""
        self.assertEqual(
            self.said(privileges=["execute", "read"]), "host h of layer web gains execute and read on variable v"
        )
        self.assertEqual(self.said(owner=True, privileges=[]), "host h of layer web gains all privileges on variable v")
        self.assertEqual(
            self.said(owner=True, privileges=[], **{"except": ["a", "b"]}),
            "host h of layer web gains all privileges but a and b on variable v",
        )

    def test_many(self) -> None:
        """Several are counted and the first of them named (POL-85)."""
        first = [f"a:policy:p{number}" for number in range(5)]
        roles = {"kind": "policy", "count": 412, "first": first, "new": True}
        resources = {"kind": "host_factory", "count": 2, "first": ["a:host_factory:x", "a:host_factory:y"], "new": False}
        self.assertEqual(
            self.said(roles=roles, resources=resources, pairs=824, through=None, way=None),
            "412 new policies (p0, p1, p2, p3, p4 and 407 more) gain read on 2 host factories (x and y)",
        )
        keys = {"kind": "public_key", "count": 2, "first": ["a:public_key:x", "a:public_key:y"], "new": False}
        self.assertEqual(
            self.said(resources=keys, pairs=1, through="a:user:u", way=None),
            "host h through user u gains read on 2 public keys (x and y), not each on each: 1 times in all",
        )

    def test_names_say_nothing_to_the_terminal(self) -> None:
        """Control characters of names and privileges are spelt out."""
        evil = "a:host:\n\x1b[31mh"
        roles = {"kind": "host", "count": 1, "first": [evil], "new": False}
        steps = [{"role": evil, "by": "member"}] * 2 + [{"role": None, "by": "owner"}]
        text = self.said(roles=roles, privileges=["\u202e"], through=evil, way=steps)
        self.assertTrue(text.isprintable(), text)
        self.assertIn("roles that you don't see, which own it", text)

    def test_checks(self) -> None:
        """A check says whether access is gained, or that this can't be excluded, which counts as a gain (POL-89)."""
        gained, doubted = "Access would be gained.", "can't exclude that access would be gained, which counts as a gain"
        for told, any_gain, of_existing in (
            (access(), None, None),
            (access(untold="losses"), None, None),
            (access(gain()), gained, gained),
            (access(untold="new_gains"), gained, None),
            (access(gain(new_role=True), complete=False), gained, doubted),
            (access(complete=False), doubted, doubted),
            ({**access(), "complete": None}, doubted, doubted),
        ):
            for new_too, expected in ((True, any_gain), (False, of_existing)):
                said = gain_sentence({"access": told}, new_too=new_too)
                self.assertEqual(said is None, expected is None, told)
                self.assertIn(expected or "", said or "")

    def test_untold(self) -> None:
        """That there is more is said, as a gain or a loss; losses come first (POL-87, POL-88)."""
        for untold, effect in (("gains", Effect.GAIN), ("new_gains", Effect.GAIN), ("losses", Effect.LOSS)):
            [sentence] = access_sentences({"access": access(untold=untold)})
            self.assertEqual((sentence.effect, "you may not see" in sentence.text), (effect, True))
        [sentence] = access_sentences({"access": access(complete=False)})
        self.assertTrue(sentence.text.endswith("there may be more. Go on."), sentence.text)
        loss = {
            **gain(),
            "roles": {**gain()["roles"], "deleted": True},
            "resources": {**gain()["resources"], "deleted": False},
        }
        both = {**access(gain()), "losses": [loss]}
        self.assertEqual(
            [sentence.text for sentence in access_sentences({"access": both})],
            ["deleted host h of layer web loses read on variable v", "host h of layer web gains read on variable v"],
        )
