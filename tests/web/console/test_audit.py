"""The page of the audit: to whom it is shown, what its links look for, and that nothing in it is markup."""

from __future__ import annotations

import json
from typing import Final

from tests.web.console.test_pages import PASSWORD, PagesCase
from tests.web.world import ADMIN, user

EVIL: Final = "<script>alert('&')</script>\u202e"


class AuditPageTests(PagesCase):
    """The page of the audit."""

    def test_shown(self) -> None:
        """It has the changes of the account, the newest first, for its owners, and is 403 for others (CON-27)."""
        page = self.admin.get("/ui/audit")
        self.assertIn("updated acme:variable:prod/db/password", page.text)
        self.assertLess(page.text.index("updated acme:variable"), page.text.index("added resource"))
        self.assertIn("/ui/audit", self.alice.get("/ui/policies").links)
        page = self.alice.get("/ui/audit")
        self.assertEqual(page.answer.status, 403)
        self.assertNotIn("updated", page.text)
        self.assertEqual(self.alice.get("/ui/audit?who=acme:user:alice&operation=update").answer.status, 403)

    def test_records(self) -> None:
        """To look at it leaves the records of the routes of the audit, with the same outcome (CON-18)."""
        self.assert_as_by(self.admin.get("/ui/audit?operation=update"), ADMIN, "/audit")
        self.assert_as_by(self.alice.get("/ui/audit"), user("alice"), "/audit")
        for what in (PASSWORD, "acme:variable:hidden", "acme:variable:absent"):
            self.assert_as_by(self.alice.get(f"/ui/audit?what={what}"), user("alice"), f"/audit/resources/{what}")

    def test_history(self) -> None:
        """The page of a resource leads to its history, which who owns it may see, and others may not (CON-27)."""
        self.load("- !variable { id: own, owner: !user alice }\n")
        self.set_value("own", b"value")
        page = self.alice.get("/ui/resources/acme:variable:own")
        [history] = [link for link in page.links if link.startswith("/ui/audit?")]
        page = self.alice.get(history)
        self.assertEqual(page.answer.status, 200)
        self.assertIn("updated acme:variable:own", page.text)
        self.assertNotIn(PASSWORD, page.text)
        self.assertEqual(self.alice.get(f"/ui/audit?what={PASSWORD}").answer.status, 403)
        hidden, absent = (self.alice.get(f"/ui/audit?what=acme:variable:{name}") for name in ("hidden", "absent"))
        self.assertEqual((hidden.answer.status, hidden.words), (404, absent.words))
        self.assertEqual(self.admin.get("/ui/audit?what=other:variable:x").answer.status, 404)
        self.assertEqual(self.admin.get("/ui/audit?what=nothing").answer.status, 422)
        self.assertEqual(self.admin.get("/ui/audit?offset=x").answer.status, 422)

    def test_filters(self) -> None:
        """Each event has links to those like it, and each of these leads back to all (CON-27)."""
        self.set_value("hidden", b"value")
        page = self.admin.get("/ui/audit")
        for name, told, not_told in (
            ("what=acme%3Avariable%3Ahidden", "updated acme:variable:hidden", "updated acme:variable:prod"),
            ("operation=update", "updated acme:variable:hidden", "added resource"),
            ("who=acme%3Auser%3Aadmin", "updated acme:variable:hidden", "There is no event"),
        ):
            found = [link for link in page.links if name in link]
            self.assertTrue(found, name)
            narrowed = self.admin.get(found[0])
            self.assertIn(told, narrowed.text)
            self.assertNotIn(not_told, narrowed.text)
            self.assertIn("/ui/audit", narrowed.links)
        [request, *_] = [link for link in page.links if "request=" in link]
        self.assertEqual(self.admin.get(request).text.count("updated acme:variable:hidden"), 1)
        page = self.admin.get("/ui/audit?operation=update&what=acme:variable:hidden")
        self.assertIn("/ui/audit?operation=update", page.links)
        self.assertIn("/ui/audit?what=acme%3Avariable%3Ahidden", page.links)
        self.assertIn("There is no event", self.admin.get("/ui/audit?request=none").text)

    def test_load(self) -> None:
        """Each version of a policy leads to what the load of it changed, alone and with other filters (CON-23, CON-27)."""
        self.load("- !variable late\n- !user later\n")
        self.load("- !variable latest\n")
        page = self.admin.get("/ui/resources/acme:policy:root")
        links = [link for link in page.links if "load=" in link]
        newest, before = links[:2]
        self.assertEqual(page.text.count("What version"), len(links))
        self.assertIn("added resource acme:variable:latest", self.admin.get(newest).text)
        self.assertNotIn("acme:user:later", self.admin.page.text)
        page = self.admin.get(before)
        self.assertIn("added role acme:user:later", page.text)
        self.assertNotIn("acme:variable:latest", page.text)
        self.assertIn("/ui/audit", page.links)
        [about, *_] = [link for link in page.links if "what=acme%3Avariable%3Alate" in link]
        self.assertNotIn("acme:user:later", self.admin.get(about).text)
        self.assertIn(before, self.admin.page.links)
        self.assertEqual(self.alice.get(before).answer.status, 403)
        self.assertIn("There is no event", self.admin.get("/ui/audit?load=acme:policy:root@999999999").text)
        for load in ("acme:policy:root", "acme:policy:root@0", "acme:policy:root@x", "@1", "acme:policy:root@9999999999"):
            self.assertEqual(self.admin.get(f"/ui/audit?load={load}").answer.status, 422, load)

    def test_long(self) -> None:
        """It is in pages, whatever filters it has (CON-22, CON-27)."""
        for number in range(150):
            self.set_value("hidden", b"value %d" % number)
        page = self.admin.get("/ui/audit?what=acme:variable:hidden&operation=update")
        self.assertEqual(page.text.count("updated acme:variable:hidden"), 100)
        [older] = [link for link in page.links if "offset=" in link]
        page = self.admin.get(older)
        self.assertEqual(page.text.count("updated acme:variable:hidden"), 50)
        self.assertIn("Back to the newest", page.text)
        self.assertEqual([link for link in page.links if "offset=100" in link and "operation=update" not in link], [])

    def test_markup(self) -> None:
        """Names in events, and filters from the address, are text (CON-14)."""
        self.load(f"- !variable {json.dumps(EVIL)}\n")
        page = self.admin.get("/ui/audit")
        self.assertIn("<script>alert('&')</script>U+202E", page.text)
        tags = {tag for tag, _ in page.tags}
        [link, *_] = [each for each in page.links if "what=acme%3Avariable%3A%3Cscript" in each]
        page = self.admin.get(link)
        self.assertEqual(page.answer.status, 200)
        self.assertIn("added resource acme:variable:<script>", page.text)
        page = self.admin.get("/ui/audit?who=%22%3E%3Cscript%3E&operation=%3Cscript%3E&request=%22onload=x")
        self.assertIn('"><script>', page.text)
        self.assertNotIn("script", {*tags, *(tag for tag, _ in page.tags)})
