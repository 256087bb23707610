"""The page where a change is tried and loaded."""

from __future__ import annotations

from typing import Final

from svc.model.policy_loads import AccessChange, Batches, DryRun, NameSample, UnreportedChanges
from svc.web.console.changes import MAX_COUNT, AccessEffectsView, Change
from svc.web.console.rendering import PageRenderer
from svc.web.http.console import Visit
from tests.web.console.world import ConsoleCase
from tests.web.world import ADMIN, user

EVIL: Final = '- !variable "<b>x</b>"\n- !user carol\n'


class ChangeTests(ConsoleCase):
    """The two presses."""

    def setUp(self) -> None:
        """Alice may do nothing."""
        super().setUp()
        loaded = self.load("- !user alice\n- !variable old\n")
        self.alice = self.signed_in("alice", self.api_key(loaded, "acme:user:alice"))
        self.admin = self.signed_in("admin", "1admin")
        self.journal.told()

    def tries(self, text: str, mode: str = "append", policy: str = "root") -> str:
        """Try a change as the admin; what the page says."""
        self.admin.get("/ui/change")
        return self.admin.press("Try it", text=text, mode=mode, policy=policy).text

    def test_dry_run(self) -> None:
        """The first press shows what would be created, changed and deleted, as text, and loads nothing (CON-43)."""
        text = self.tries(EVIL)
        self.assertIn("Created: 2", text)
        self.assertIn("<b>x</b>", text)
        self.assertNotIn("b", [tag for tag, _ in self.admin.page.tags])
        self.assertNotIn("acme:user:carol", self.memory.resources)
        self.assertEqual([told[:2] for told in self.journal.told()], [("policy", "dry-run")])
        self.assertIn("Deleted: 1", self.tries("- !delete { record: !variable old }\n", "update"))
        self.assertIn("acme:variable:old", self.memory.resources)
        self.assertIn("Changed: 1", self.tries("- !variable { id: old, annotations: { a: b } }\n", "update"))

    def test_readers(self) -> None:
        """It says who has read what would be deleted, and whether others may have (CON-43, POL-112)."""
        self.set_value("old")
        self.load("- !permit { role: !user alice, privileges: [ read, execute ], resource: !variable old }\n")
        delete = "- !delete { record: !variable old }\n"
        self.memory.reads_kept_since = 0.0
        self.assertNotIn("Before you delete", self.tries(delete, "update"))
        self.assertEqual(self.client.get("/secrets/acme/variable/old", role=user("alice")).status, 200)
        self.server.reading_counter.hand_over()
        self.result_of(self.server.singletons.reading_recorder.write_counts())
        text = self.tries(delete, "update")
        self.assertIn("Before you delete old: 1 role has read it in the last 30 days: alice.", text)
        self.assertNotIn("Others may have read", text)
        self.memory.reading_servers["west"] = None, self.memory.now
        self.assertIn("counts of these servers are missing: west.", self.tries(delete, "update"))

    def test_effective(self) -> None:
        """It says who would gain and who would lose access, summed, with the way, as text; what is there has links
        (CON-43).
        """
        people = "".join(
            f"- !user p{number}\n- !grant {{ role: !group g, member: !user p{number} }}\n" for number in range(5)
        )
        self.load(f"- !group g\n{people}")
        text = self.tries("- !permit { role: !group g, privileges: [ execute ], resource: !variable old }\n")
        self.assertIn("5 users (p0, p1", text)
        self.assertIn("is a member of group:g, which is permitted it", text)
        self.assertIn("/ui/resources/acme:variable:old", self.admin.page.links)
        self.assertIn("Nobody that your role sees.", text)
        self.admin.press("Load it")
        text = self.tries("- !deny { role: !group g, privileges: [ execute ], resource: !variable old }\n", "update")
        self.assertIn("Who loses", text)
        self.assertNotIn("Who gains", text)
        text = self.tries(
            '- !user "<i>new"\n- !permit { role: !user "<i>new", privileges: [ read ], resource: !variable old }\n'
        )
        self.assertIn("new user <i>new", text)
        self.assertNotIn("i", [tag for tag, _ in self.admin.page.tags])
        self.assertFalse([link for link in self.admin.page.links if "new" in link])

    def test_untold(self) -> None:
        """It says where there is more than the reader may see, and where there was too much to be found (CON-43)."""
        rendering = PageRenderer(self.cookies)
        names = NameSample("variable", 3, ("acme:variable:a", "acme:variable:b"), differs=False)
        some = AccessChange(names, names, (), True, ("read",), None, 4, None)
        told = DryRun(
            gains=Batches.from_values([some] * 101), unreported=UnreportedChanges(gains=True, losses=True, complete=False)
        )
        page = rendering.render_page(
            Visit("x" * 32),
            "change.html",
            title="x",
            change=Change(),
            modes=[],
            faults=(),
            is_cut=False,
            sorts=[],
            effects=AccessEffectsView.from_dry_run(told),
            most=MAX_COUNT,
            warnings=(),
            readers=None,
        )
        text = page.body.decode()
        for words in (
            "There are losses that your role may not see",
            "There are gains that your role may not see",
            "there may be more. Load the document in parts",
            "all privileges but",
            "not each on each, 4 times in all",
            "and 1 more",
            "These are the first 100 of 101",
            "too long to be shown",
        ):
            self.assertIn(words, text)

    def test_faults(self) -> None:
        """Faults are told with their lines, and lead to no second press (CON-43)."""
        text = self.tries("- !user bob\n- !usr <b>bob</b>\n")
        self.assertEqual(self.admin.page.answer.status, 422)
        self.assertIn("Line 2", text)
        self.assertNotIn("Load it", self.admin.page.forms)
        self.assertNotIn("b", [tag for tag, _ in self.admin.page.tags])

    def test_load(self) -> None:
        """The second press loads what was tried, shows API keys once, and is recorded as a load (CON-44)."""
        self.tries(EVIL.replace("\n", "\r\n"))
        self.journal.told()
        page = self.admin.press("Load it")
        self.assertEqual(page.answer.status, 200, page.text)
        self.assertIn("has version 2 now", page.text)
        self.assertIn("acme:user:carol", self.memory.resources)
        self.assertEqual(page.answer.headers["cache-control"], "no-store")
        key = page.text.partition("user carol")[2].split()[0]
        self.signed_in("carol", key)
        told = self.journal.told()
        self.assertIn(("policy", "load"), [each[:2] for each in told])
        self.assertNotIn(key, repr(told))
        self.assertNotIn(key, self.admin.get("/ui/change").text)

    def test_another_text(self) -> None:
        """What differs from what was tried is not loaded (CON-44)."""
        for name, value in (("text", "- !user mallory\n"), ("mode", "replace"), ("policy", "prod"), ("digest", "")):
            self.tries("- !user carol\n")
            page = self.admin.press("Load it", **{name: value})
            self.assertEqual(page.answer.status, 422)
            self.assertIn("This isn't what was tried", page.text)
        self.assertFalse({"acme:user:carol", "acme:user:mallory"} & set(self.memory.resources))

    def test_refused(self) -> None:
        """Who lacks the privilege is refused at both presses, in words, and so is a form without token (CON-11, CON-17)."""
        self.tries("- !user carol\n")
        path, _, fields = self.admin.page.forms["Load it"]
        own = self.alice.get("/ui/change").forms["Try it"][2]["token"]
        for target in ("/ui/change", path):
            self.assertIn(self.alice.send(target, {**fields, "token": own}).answer.status, {403, 404})
            self.assertIn("This form is not taken", self.admin.send(target, {**fields, "token": ""}).text)
        self.assertNotIn("acme:user:carol", self.memory.resources)

    def test_bad_input(self) -> None:
        """Modes, names and sizes that aren't ones are refused in words (CON-17, CON-43)."""
        self.tries("- !user carol\n", mode="burn")
        self.assertIn("'mode' is append", self.admin.page.text)
        self.assertEqual(self.admin.page.answer.status, 422)
        self.tries("- !user carol\n", policy="absent")
        self.assertEqual(self.admin.page.answer.status, 404)
        self.tries("#" * 70_000)
        self.assertEqual(self.admin.page.answer.status, 413)

    def test_follower(self) -> None:
        """On a follower both presses say that it changes nothing (CON-10)."""
        self.tries("- !user carol\n")
        path, _, fields = self.admin.page.forms["Load it"]
        self.memory.standby = True
        for target in ("/ui/change", path):
            page = self.admin.send(target, fields)
            self.assertEqual(page.answer.status, 405)
            self.assertIn("It is a follower", page.text)

    def test_records(self) -> None:
        """A dry run and a load leave the records of their routes, with the same outcome, faults too (CON-18)."""
        for text in ("- !user carol\n", "- !usr x\n"):
            self.tries(text)
            by_page = self.journal.told()
            self.client.request("POST", "/policies/acme/policy/root?dryRun=true", body=text.encode(), role=ADMIN)
            self.assertEqual(by_page, self.journal.told())
