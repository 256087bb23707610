"""The page of users and hosts that have not logged in for long."""

from __future__ import annotations

from tests.web.console.test_pages import PagesCase
from tests.web.world import user

DAY = 86_400


class UnusedPageTests(PagesCase):
    """Who hasn't logged in."""

    def test_list(self) -> None:
        """It has those without a login for so long, with what isn't known; how long is a choice of links; it leaves the
        record of the route (CON-18, CON-49).
        """
        self.result_of(self.notes.write_notes())
        self.at_followers.append("b.example")
        self.clock.advance(100 * DAY)
        self.admin = self.signed_in("admin", "1admin")
        self.result_of(self.notes.write_notes())
        self.journal.told()
        page = self.admin.get("/ui/unused")
        self.assert_as_by(page, user("admin"), "/unused")
        self.assertIn("/ui/roles/acme:user:bob", page.links)
        self.assertEqual(page.links.count("/ui/roles/acme:user:admin"), 1)  # who is signed in
        for text in ("2023-11-14", "at these followers: b.example", "No login before 2020-09-13"):
            self.assertIn(text, page.text)
        [longer] = [link for link in page.links if link == f"/ui/unused?since={180 * DAY}"]
        self.assertNotIn("/ui/roles/acme:user:bob", self.admin.get(longer).links)
        self.assertIn("Nobody that your role sees", self.admin.page.text)
        self.assertIn("/ui/unused", self.admin.get("/ui/expiring").links)

    def test_seen(self) -> None:
        """Others see only roles that they see (CON-49)."""
        page = self.alice.get("/ui/unused?since=0")
        self.assertEqual(page.answer.status, 200)
        self.assertNotIn("/ui/roles/acme:user:bob", page.links)

    def test_long(self) -> None:
        """A long list leads on to the rest, and back; what isn't a time is refused in words (CON-17, CON-22, CON-49)."""
        self.load("\n".join(f"- !host m{number:03}" for number in range(250)))
        self.clock.advance(DAY)
        self.admin = self.signed_in("admin", "1admin")
        page, found = self.admin.get("/ui/unused?since=0"), list[str]()
        while True:
            found += [link for link in page.links if link.startswith("/ui/roles/acme:host:m")]
            more = [link for link in page.links if "after=" in link]
            if not more:
                break
            self.assertIn("The list goes on", page.text)
            page = self.admin.get(more[0])
        self.assertEqual(sorted(found), [f"/ui/roles/acme:host:m{number:03}" for number in range(250)])
        self.assertIn("Back to the first", page.text)
        for query in ("since=x", "after=x", "since=99999999999"):
            self.assertEqual(self.admin.get(f"/ui/unused?{query}").answer.status, 422)
