"""Tests of ``svc.cli.changes``; ``tests/services/test_dry_run.py`` has it tell the answers of a server."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.changes import Effect, change_sentences, describe_id


def item(name: str, **more: Any) -> dict[str, Any]:
    """An item of the account ``acme``, owned by the admin."""
    kind, _, identifier = name.partition(":")
    return {"identifier": f"acme:{name}", "id": identifier, "type": kind, "owner": "acme:user:admin", **more}


def told(created: Any = (), before: Any = (), after: Any = (), deleted: Any = (), effect: Effect | None = None) -> list[str]:
    """The sentences on an answer with these items, those of one effect or all."""
    answer = {
        "status": "Valid YAML",
        "created": {"items": list(created)},
        "updated": {"before": {"items": list(before)}, "after": {"items": list(after)}},
        "deleted": {"items": list(deleted)},
    }
    return [sentence.text for sentence in change_sentences(answer) if effect in {None, sentence.effect}]


class SentenceTests(SynchronousTestCase):
    """What is said of changes."""

    def test_nothing(self) -> None:
        """Of no changes nothing is said."""
        self.assertEqual(told(), [])

    def test_names(self) -> None:
        """Things are called by kind and id, without the account; what nobody may see has no name."""
        self.assertEqual(describe_id("acme:host:apps/shop"), "host apps/shop")
        self.assertEqual(describe_id("acme:host_factory:a:b"), "host factory a:b")
        self.assertEqual(describe_id("acme:user:[REDACTED]"), "a user that you may not see")

    def test_names_say_nothing_to_the_terminal(self) -> None:
        """Control characters in a name are spelt out: it can't begin a line, or colour what follows."""
        self.assertEqual(describe_id("acme:user:a\n\x1b[31mb"), "user a\\n\\x1b[31mb")
        variable = item("variable:v", permitted={"re\nad": ["acme:user:\u202ea"]})
        [_, text] = told([variable])
        self.assertTrue(text.isprintable(), text)

    def test_things(self) -> None:
        """What is deleted is a loss, with its values or its API key; what is created a gain, with its owner."""
        kinds = ["variable", "host", "user", "group", "policy"]
        self.assertEqual(
            told(deleted=[item(f"{kind}:x") for kind in kinds], effect=Effect.LOSS),
            [
                "variable x and its values will be deleted",
                "host x and its API key will be deleted",
                "user x and its API key will be deleted",
                "group x will be deleted",
                "policy x will be deleted",
            ],
        )
        self.assertEqual(told([item("group:x")], effect=Effect.GAIN), ["group x will be created, owned by user admin"])

    def test_access(self) -> None:
        """Privileges are told once, though both ends list them, together for each role and resource."""
        host = item("host:apps/shop", permissions={"read": ["acme:variable:p"], "execute": ["acme:variable:p"]})
        variable = item("variable:p", permitted={"read": ["acme:host:apps/shop"], "execute": ["acme:host:apps/shop"]})
        bare = [item("host:apps/shop", permissions={}), item("variable:p", permitted={})]
        self.assertEqual(told(before=bare, after=[host, variable]), ["host apps/shop may now execute and read variable p"])
        self.assertEqual(
            told(before=[host, variable], after=bare), ["host apps/shop may no longer execute or read variable p"]
        )
        self.assertEqual(told(before=[host, variable], after=[host, variable]), [])

    def test_hidden_roles(self) -> None:
        """Roles without a name are counted: that one of two loses a privilege is told."""
        hidden = "acme:user:[REDACTED]"
        variable = item("variable:p", permitted={"read": [hidden, hidden]})
        fewer = item("variable:p", permitted={"read": [hidden]})
        shrunk = {"identifier": hidden, "type": "user"}
        self.assertEqual(
            told(before=[variable, shrunk], after=[fewer, shrunk]),
            ["a user that you may not see may no longer read variable p", "1 of kind user that you may not see will change"],
        )

    def test_members(self) -> None:
        """Memberships are told once; an owner isn't told as a member."""
        group, user = item("group:ops", members=["acme:user:admin"]), item("user:bob", memberships=[])
        joined = [
            item("group:ops", members=["acme:user:admin", "acme:user:bob"]),
            item("user:bob", memberships=["acme:group:ops"]),
        ]
        self.assertEqual(told(before=[group, user], after=joined), ["user bob is now a member of group ops"])
        self.assertEqual(told(before=joined, after=[group, user]), ["user bob is no longer a member of group ops"])
        created = item("group:new", members=["acme:user:admin"])
        admin, owner = item("user:admin", memberships=[]), item("user:admin", memberships=["acme:group:new"])
        self.assertEqual(told([created], [admin], [owner]), ["group new will be created, owned by user admin"])

    def test_other_changes(self) -> None:
        """New owners, addresses and annotations are told, too."""
        before = item("host:h", annotations={"a": "1", "b": "2"}, restricted_to=["10.0.0.0/8"])
        after = item("host:h", annotations={"a": "1", "b": "3", "c": ""}, restricted_to=["10.1.0.0/16", "10.2.0.1/32"])
        after["owner"] = "acme:group:ops"
        self.assertEqual(
            told(before=[before], after=[after], effect=Effect.NEITHER),
            [
                "host h will be owned by group ops, no longer by user admin",
                "host h may now log in from 10.1.0.0/16 and 10.2.0.1/32 only",
                "host h has other annotations: b and c",
            ],
        )
        free = item("host:h", annotations=before["annotations"], restricted_to=[])
        self.assertEqual(told(before=[before], after=[free]), ["host h may now log in from anywhere"])

    def test_other_answers(self) -> None:
        """What is no answer to a dry run is refused."""
        answers: list[dict[str, Any]] = [{}, {"created": []}, {"created": {"items": []}, "deleted": {"items": []}}]
        for answer in answers:
            with self.assertRaises((KeyError, TypeError)):
                change_sentences(answer)
