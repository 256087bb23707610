"""The page of what ends."""

from __future__ import annotations

from tests.web.console.test_pages import PagesCase
from tests.web.support import NOW

DAY = 86_400


class EndingsPageTests(PagesCase):
    """What ends."""

    async def certificates(self) -> list[tuple[str, str, float]]:
        """A certificate of the server."""
        return [("listen", "<b>443</b>", NOW + 5 * DAY)]

    def setUp(self) -> None:
        """Let some keys end."""
        super().setUp()
        self.memory.key_expirations |= {"acme:user:bob": NOW + DAY, "acme:user:alice": NOW + 60 * DAY}

    def test_list(self) -> None:
        """It has what ends in its order, why, and where there is more of it; the time and the kind are links (CON-45)."""
        page = self.admin.get("/ui/expiring")
        self.assertIn("API key", page.text)
        self.assertLess(page.text.index("2023-11-15 22:13:20"), page.text.index("2023-11-19 22:13:20"))
        self.assertIn("listen (<b>443</b>)", page.text)
        self.assertNotIn("b", [tag for tag, _ in page.tags])
        self.assertIn("/ui/roles/acme:user:bob", page.links)
        self.assertNotIn("/ui/roles/acme:user:alice", page.links)
        [later] = [link for link in page.links if link == f"/ui/expiring?within={90 * DAY}"]
        self.assertIn("/ui/roles/acme:user:alice", self.admin.get(later).links)
        [kind] = [link for link in self.admin.page.links if link.endswith(f"{90 * DAY}&kind=certificate")]
        self.assertNotIn("/ui/roles/acme:user:alice", self.admin.get(kind).links)
        self.assertIn("listen", self.admin.page.text)

    def test_seen(self) -> None:
        """What the caller doesn't see is absent; certificates are for those who read the whole audit (CON-45)."""
        page = self.bob.get("/ui/expiring")
        self.assertIn("2023-11-15 22:13:20", page.text)
        self.assertNotIn("listen", page.text)
        page = self.alice.get("/ui/expiring")
        self.assertNotIn("/ui/roles/acme:user:bob", page.links)
        self.assertIn("Nothing that your role sees ends in this time.", page.text)

    def test_old(self) -> None:
        """What has grown old, and what has failed, says so (CON-45)."""
        self.clock.advance(400 * DAY)
        self.admin = self.signed_in("admin", "1admin")
        text = self.admin.get("/ui/expiring?kind=api-key").text
        self.assertIn("is old", text)
        self.assertIn("(passed)", text)

    def test_long(self) -> None:
        """A long list leads on to the rest, and back (CON-22, CON-45)."""
        self.load("\n".join(f"- !user m{number:03}" for number in range(250)))
        self.memory.key_expirations |= {f"acme:user:m{number:03}": NOW + 2 * DAY + number for number in range(250)}
        page, found = self.admin.get("/ui/expiring?kind=api-key"), list[str]()
        while True:
            found += [link for link in page.links if link.startswith("/ui/roles/acme:user:m")]
            more = [link for link in page.links if "after=" in link]
            if not more:
                break
            self.assertIn("The list goes on", page.text)
            page = self.admin.get(more[0])
        self.assertEqual(found, [f"/ui/roles/acme:user:m{number:03}" for number in range(250)])
        self.assertIn("Back to the soonest", page.text)
        self.assertNotIn("certificate (", page.text)

    def test_bad_input(self) -> None:
        """What isn't a time, a kind or a place is refused in words (CON-17)."""
        for query in ("within=x", "kind=x", "after=x", "within=99999999999"):
            page = self.admin.get(f"/ui/expiring?{query}")
            self.assertEqual(page.answer.status, 422, query)
            self.assertIn(query.partition("=")[0], page.text)
