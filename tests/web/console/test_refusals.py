"""The page of recent refusals."""

from __future__ import annotations

import attrs

from svc.model.refusals import RefusedRequest
from tests.web.console.test_pages import PagesCase
from tests.web.support import NOW

REFUSED = RefusedRequest(
    NOW,
    "id-1",
    "192.0.2.1",
    "acme",
    "POST /authn-jwt/<b>",
    "token-expired",
    "<i>late</i>",
    "authn-jwt",
    "ci",
    "acme:host:shop",
)


class RefusalsPageTests(PagesCase):
    """Recent refusals."""

    def test_list(self) -> None:
        """It has each with reason, detail, role, address and request, as text, and how many there are of each sort
        (CON-46).
        """
        for each in (
            REFUSED,
            attrs.evolve(REFUSED, reason="forbidden", authenticator=None, service_id=None, request_id="id-2"),
        ):
            self.refusals.add_refusal(each)
        page = self.admin.get("/ui/refusals")
        for text in ("token-expired", "at authn-jwt/ci: <i>late</i>", "192.0.2.1", "id-1", "forbidden", "no login", "id-2"):
            self.assertIn(text, page.text)
        self.assertFalse({"i", "b"} & {tag for tag, _ in page.tags})
        self.assertIn("/ui/roles/acme:host:shop", page.links)
        self.assertIn("since 2023-11-14", page.text)

    def test_one(self) -> None:
        """A request is found by its id, those of one sort by a link, and what isn't there is said (CON-46)."""
        for number in range(3):
            self.refusals.add_refusal(attrs.evolve(REFUSED, request_id=f"id-{number}", service_id=f"s{number}"))
        self.admin.get("/ui/refusals")
        page = self.admin.press("Find it", request="id-1")
        self.assertIn("authn-jwt/s1:", page.text)
        self.assertNotIn("authn-jwt/s2:", page.text)
        [link] = [each for each in page.links if "service=s2" in each]
        page = self.admin.get(link)
        self.assertIn("authn-jwt/s2:", page.text)
        self.assertNotIn("authn-jwt/s1:", page.text)
        self.assertIn("Only token-expired at authn-jwt/s2", page.text)
        self.assertIn("There are none of this kind", self.admin.get("/ui/refusals?request=%3Cb%3E").text)
        self.assertIn("the request <b>", self.admin.page.text)

    def test_meaning(self) -> None:
        """What a reason means, and what to do, is said with the refusals of one request or sort (CON-46)."""
        self.refusals.add_refusal(REFUSED)
        page = self.admin.get("/ui/refusals")
        self.assertNotIn("Remedy.", page.text)
        of_sort = next(link for link in page.links if "reason=token-expired" in link)
        for path in ("/ui/refusals?request=id-1", of_sort):
            page = self.admin.get(path)
            for text in ("What token-expired means", "Cause.", "Remedy."):
                self.assertIn(text, page.text)
        self.refusals.add_refusal(attrs.evolve(REFUSED, reason="of-a-newer-server", request_id="id-2"))
        self.assertIn("no explanation in this version", self.admin.get("/ui/refusals?request=id-2").text)

    def test_own_account(self) -> None:
        """Only those who read the whole audit see it, and only refusals of their account (CON-46)."""
        self.refusals.add_refusal(attrs.evolve(REFUSED, account="other"))
        self.assertNotIn("late", self.admin.get("/ui/refusals").text)
        page = self.alice.get("/ui/refusals")
        self.assertEqual(page.answer.status, 403)
        self.assertNotIn("token-expired", page.text)

    def test_long(self) -> None:
        """A long list leads on to the rest, and one that is incomplete says so (CON-22, CON-46)."""
        for number in range(250):
            self.refusals.add_refusal(attrs.evolve(REFUSED, request_id=f"id-{number}."))
        page, found = self.admin.get("/ui/refusals"), 0
        while True:
            found += page.text.count("<i>late</i>")
            more = [link for link in page.links if "after=" in link]
            if not more:
                break
            self.assertIn("The list goes on", page.text)
            page = self.admin.get(more[0])
        self.assertEqual(found, 250)
        self.assertIn("Back to the newest", page.text)
        self.assertNotIn("there were too many", page.text)
        self.refusals.add_batch([], complete=False)
        self.assertIn("there were too many", self.admin.get("/ui/refusals").text)
        self.assertEqual(self.admin.get("/ui/refusals?after=x").answer.status, 422)
