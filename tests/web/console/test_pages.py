"""What the pages show: to whom, how much of it, and what records they leave."""

from __future__ import annotations

import html
from typing import Final

import attrs

from svc.model.databases import VerifiedBackup
from svc.model.names import RoleName
from tests.web.console.world import ConsoleCase, Page
from tests.web.support import NOW
from tests.web.world import ADMIN, user

POLICY: Final = """
- !user alice
- !user bob
- !group ops
- !grant { role: !group ops, member: !user bob }
- !policy
  id: prod
  body:
  - &variables
    - !variable { id: db/password, annotations: { description: "of the shop" } }
    - !variable url
  - !policy { id: db, body: [ !variable size ] }
  - !permit { role: !user /alice, privileges: [ read, execute ], resources: *variables }
  - !permit { role: !user /bob, privileges: [ read ], resource: !variable url }
- !permit { role: !user alice, privileges: [ read ], resources: [ !policy prod, !group ops, !policy prod/db ] }
- !variable hidden
"""
PASSWORD: Final = "acme:variable:prod/db/password"


class PagesCase(ConsoleCase):
    """An account with some policy, and Alice, who sees a part of it."""

    def setUp(self) -> None:
        """Load it."""
        super().setUp()
        loaded = self.load(POLICY)
        self.keys_of = {name: self.api_key(loaded, f"acme:user:{name}") for name in ("alice", "bob")}
        self.set_value("prod/db/password", b"first")
        self.set_value("prod/db/password", b"s3cret")
        self.alice, self.bob = (self.signed_in(name, self.keys_of[name]) for name in ("alice", "bob"))
        self.admin = self.signed_in("admin", "1admin")
        self.journal.told()

    def assert_as_by(self, page: Page, role: RoleName, *paths: str) -> None:
        """Fail unless a page left the records that these requests leave."""
        by_page = self.journal.told()
        for path in paths:
            self.client.get(path, role=role)
        self.assertEqual(by_page, self.journal.told(), page.path)
        self.assertTrue(by_page)


class RecordsTests(PagesCase):
    """A page leaves the records that the same readings leave by the other routes."""

    def test_records(self) -> None:
        """Each page leaves the records of the routes that read the same, with the same outcome, be it a refusal (CON-18)."""
        alice, bob = user("alice"), user("bob")
        shown = "/resources/acme/variable/prod%2Fdb%2Fpassword"
        who_can = [f"{shown}?who_can&privilege={each}&limit=20" for each in ("read", "execute", "update")]
        for browser, role, path, requests in (
            (self.alice, alice, f"/ui/resources/{PASSWORD}", (shown, *who_can)),
            (
                self.alice,
                alice,
                f"/ui/resources/{PASSWORD}?privilege=frob",
                (shown, f"{shown}?who_can&privilege=frob&limit=100"),
            ),
            (self.bob, bob, f"/ui/resources/{PASSWORD}", (shown,)),
            (self.bob, bob, f"/ui/resources/{PASSWORD}?privilege=read", (shown,)),
            (self.alice, alice, "/ui/resources/acme:variable:absent", ("/resources/acme/variable/absent",)),
            (self.alice, alice, "/ui/policies", ("/resources/acme?kind=policy&limit=101",)),
            (self.alice, alice, "/ui/resources?search=shop", ("/resources/acme?search=shop&limit=101",)),
            (
                self.alice,
                alice,
                "/ui/roles/acme:group:ops",
                (
                    "/roles/acme/group/ops?members&limit=100",
                    "/roles/acme/group/ops?memberships",
                    "/roles/acme/group/ops?reach",
                ),
            ),
            (self.admin, ADMIN, "/ui", ("/expiring", "/refusals", "/audit")),
            (self.alice, alice, "/ui", ("/expiring",)),
            (self.alice, alice, "/ui/expiring", ("/expiring",)),
            (self.admin, ADMIN, "/ui/refusals?request=x", ("/refusals?request=x",)),
            (self.alice, alice, "/ui/refusals", ("/refusals",)),
            (
                self.admin,
                ADMIN,
                "/ui/roles/acme:user:bob",
                (
                    "/roles/acme/user/bob?members&limit=100",
                    "/roles/acme/user/bob?memberships",
                    "/roles/acme/user/bob",
                    "/audit/roles/acme%3Auser%3Abob",
                    "/roles/acme/user/bob?reach",
                ),
            ),
            (self.admin, ADMIN, "/ui/audit?what=acme:user:bob", ("/audit/entities/acme%3Auser%3Abob",)),
            (self.alice, alice, "/ui/audit", ("/audit",)),
        ):
            self.assert_as_by(browser.get(path), role, *requests)

    def test_malformed(self) -> None:
        """The record of a request that is refused for what it asks about says what that was (CON-18)."""
        self.admin.get("/ui/audit?what=%3Cnothing%3E")
        self.assertEqual(self.journal.told(), [("audit", "list", {"resource": "<nothing>"}, "invalid")])

    def test_values(self) -> None:
        """A value that is shown is a fetch, like any; so is one that is refused (CON-12, CON-18)."""
        self.alice.get(f"/ui/resources/{PASSWORD}")
        self.journal.told()
        page = self.alice.press("Show the value of version 1")
        self.assertIn("first", page.text)
        shown = "/resources/acme/variable/prod%2Fdb%2Fpassword"
        self.assert_as_by(page, user("alice"), "/secrets/acme/variable/prod%2Fdb%2Fpassword?version=1", shown)
        path, _, fields = self.alice.page.forms["Show the value of version 2"]
        self.bob.get("/ui/resources/acme:variable:prod/url")
        token = self.bob.page.forms["Sign out"][2]["token"]
        self.journal.told()
        page = self.bob.send(path, {**fields, "token": token})
        self.assertEqual(page.answer.status, 404)
        self.assert_as_by(page, user("bob"), "/secrets/acme/variable/prod%2Fdb%2Fpassword?version=2")

    def test_no_journal(self) -> None:
        """Where nothing can be recorded, no page is answered that reads (CON-18)."""
        self.journal.away = True
        for path in ("/ui/policies", f"/ui/resources/{PASSWORD}", "/ui"):
            self.assertEqual(self.admin.ask("GET", path).status, 503)


class HomeTests(PagesCase):
    """The first page."""

    def test_health(self) -> None:
        """It says in words how the servers are (CON-19)."""
        page = self.alice.get("/ui")
        self.assertIn("This server is well.", page.text)
        self.assertIn("/ui/health", page.links)

    def test_backups(self) -> None:
        """It says how old the newest verified backup is, to those who read the whole audit (CON-19)."""
        verified = VerifiedBackup(NOW - 3 * 3600, None, "/elsewhere/svc.dump", False)
        for backup, sentence in (
            (None, "No backup of this database was verified."),
            (verified, "The newest backup that was verified is 3 hours old."),
            (
                attrs.evolve(verified, dumped=NOW - 9 * 86400, beside=True),
                "is 9 days old. It was on the database's own disk",
            ),
        ):
            self.memory.verified = backup
            self.assertIn(sentence, html.unescape(self.admin.get("/ui").text))
            self.assertNotIn("backup", self.alice.get("/ui").text)

    def test_changes(self) -> None:
        """Who reads the whole audit sees the last changes, and others nothing of them (CON-19)."""
        self.assertIn("updated acme:variable:prod/db/password", self.admin.get("/ui").text)
        page = self.alice.get("/ui")
        self.assertEqual(page.answer.status, 200)
        self.assertNotIn("Last changes", page.text)

    def test_ends(self) -> None:
        """It has what ends within a month, as far as the caller sees it, and leads to the rest (CON-19)."""
        self.memory.key_expirations["acme:user:bob"] = NOW + 3600
        for browser, count in ((self.admin, 1), (self.bob, 1), (self.alice, 0)):
            page = browser.get("/ui")
            self.assertEqual(page.links.count("/ui/roles/acme:user:bob") - (browser is self.bob), count)
            self.assertIn("/ui/expiring", page.links)
        self.assertIn("Nothing that your role sees", page.text)
        for number in range(12):
            self.memory.key_expirations[f"acme:user:u{number}"] = NOW + 7200 + number
        self.assertIn("These are the first.", self.admin.get("/ui").text)

    def test_refusals(self) -> None:
        """It has the refusals of the last hour by reason and authenticator, for who reads the whole audit (CON-19)."""
        self.assertIn("Nothing since 2023-11-14", self.admin.get("/ui").text)
        self.new_browser().sign_in("alice", "wrong")
        page = self.admin.get("/ui")
        self.assertIn("credentials-wrong", page.text)
        self.assertIn("/ui/refusals?reason=credentials-wrong&authenticator=authn", page.links)
        page = self.alice.get("/ui")
        self.assertNotIn("credentials-wrong", page.text)
        self.assertNotIn("Refused in the last hour", page.text)

    def test_gone(self) -> None:
        """A page that reads nothing admits no more than others (CON-9)."""
        self.load("- !delete { record: !user alice }\n", method="PATCH")
        self.assertEqual(self.alice.ask("GET", "/ui").status, 303)


class TreeTests(PagesCase):
    """The tree, and the search."""

    def test_tree(self) -> None:
        """It lists the policies that the caller sees, one below the other, and what is beneath one by kind (CON-20)."""
        page = self.alice.get("/ui/policies")
        self.assertIn("/ui/policies/acme:policy:prod", page.links)
        self.assertIn("/ui/policies/acme:policy:prod/db", page.links)
        self.assertNotIn("/ui/policies/acme:policy:root", page.links)
        page = self.alice.get("/ui/policies/acme:policy:prod")
        self.assertNotIn(
            "/ui/policies/acme:policy:prod", [link for link in page.links if "kind" not in link and link != page.path]
        )
        page = self.alice.get("/ui/policies/acme:policy:prod?kind=variable")
        self.assertIn(f"/ui/resources/{PASSWORD}", page.links)
        self.assertNotIn("prod/db/size", page.text)
        self.assertIn("prod/db/size", self.admin.get("/ui/policies/acme:policy:prod?kind=variable").text)
        self.assertNotIn("hidden", self.admin.page.text)
        self.assertIn("hidden", self.admin.get("/ui/policies/acme:policy:root?kind=variable").text)

    def test_users(self) -> None:
        """Users, whose ids don't tell their policy, are listed beneath the policy that owns them (CON-20)."""
        self.load("- !policy { id: team, body: [ !user carol ] }\n")
        self.assertIn("carol", self.admin.get("/ui/policies/acme:policy:team?kind=user").text)
        self.assertNotIn("bob", self.admin.page.text)

    def test_hidden(self) -> None:
        """What isn't seen and what isn't there look alike, and so do other kinds (CON-17)."""
        told = set()
        for path in (
            "/ui/policies/acme:policy:root",
            "/ui/policies/acme:policy:absent",
            "/ui/policies/acme:group:ops",
            "/ui/resources/acme:variable:hidden",
            "/ui/resources/acme:variable:absent",
            "/ui/resources/other:variable:hidden",
            "/ui/resources/nothing",
            "/ui/roles/acme:user:nobody",
            "/ui/roles/acme:variable:hidden",
        ):
            page = self.alice.get(path)
            told.add((page.answer.status, page.words))
        self.assertEqual(len(told), 1, told)
        self.assertEqual(page.answer.status, 404)

    def test_search(self) -> None:
        """The search finds what the caller sees, by words of ids and annotations, and of one kind (CON-21)."""
        page = self.alice.get("/ui/policies")
        page = self.alice.press("Search", search="shop")
        self.assertEqual([link for link in page.links if "variable" in link], [f"/ui/resources/{PASSWORD}"])
        self.assertIn("Nothing is found", self.alice.get("/ui/resources?search=hidden").text)
        self.assertIn("Nothing is found", self.alice.get("/ui/resources?search=shop&kind=group").text)
        self.assertEqual(self.alice.get("/ui/resources").answer.status, 200)
        self.assertEqual(self.alice.get("/ui/resources?kind=nonsense").answer.status, 422)

    def test_long(self) -> None:
        """Long lists say that they are cut, and lead on to the rest (CON-22)."""
        self.load("\n".join(f"- !variable many/{number:03}" for number in range(250)))
        seen: list[str] = []
        for start in ("/ui/policies/acme:policy:root?kind=variable", "/ui/resources?search=many"):
            page, found = self.admin.get(start), []
            while True:
                found += [link for link in page.links if link.startswith("/ui/resources/acme:variable:many")]
                more = [link for link in page.links if "after=" in link or "offset=" in link]
                if not more:
                    break
                self.assertIn("next", page.text)
                page = self.admin.get(more[0])
            self.assertEqual(len(found), 250)
            self.assertEqual(len(set(found)), 250)
            seen += found
        self.assertEqual(len(seen), 500)


class ResourceTests(PagesCase):
    """The page of a resource."""

    def test_shown(self) -> None:
        """It shows owner, permissions, annotations and the times of versions, and no value (CON-12, CON-23)."""
        page = self.alice.get(f"/ui/resources/{PASSWORD}")
        for text in ("of the shop", "execute", "prod", "2, the newest", "2023-11-14 22:13:20 UTC"):
            self.assertIn(text, page.text)
        self.assertNotIn("s3cret", page.text)
        self.assertIn("s3cret", self.alice.press("Show the value of version 2").text)
        self.assertNotIn("s3cret", self.alice.get(f"/ui/resources/{PASSWORD}").text)

    def test_refused(self) -> None:
        """A value is shown with execute alone; without, the page says in words that it is refused (CON-12)."""
        self.set_value("prod/url", b"https://")
        self.bob.get("/ui/resources/acme:variable:prod/url")
        page = self.bob.press("Show the value of version 1")
        self.assertEqual(page.answer.status, 403)
        self.assertIn("lacks the privilege", page.text)
        self.assertNotIn("https://", page.text)
        for version, status in (("x", 422), ("-1", 422), ("99999999999", 422), ("7", 404)):
            self.alice.get(f"/ui/resources/{PASSWORD}")
            page = self.alice.press("Show the value of version 1", version=version)
            self.assertEqual(page.answer.status, status, version)

    def test_large(self) -> None:
        """A resource with more than a page shows says so, and a long annotation and a long value are cut (CON-22)."""
        permit = "- !permit {{ role: !user alice, privileges: [ p{:03} ], resource: !variable hidden }}\n"
        body = "".join(map(permit.format, range(150)))
        self.load(body)
        self.set_value("hidden", b"x" * 100_000)
        self.memory.annotations["acme:variable:hidden", "long"] = ("y" * 10_000, "acme:policy:root")
        page = self.admin.get("/ui/resources/acme:variable:hidden")
        self.assertIn("Only 100 of each sort are shown here", page.text)
        self.assertIn("p099", page.text)
        self.assertNotIn("p100", page.text)
        self.assertNotIn("y" * 2001, page.text)
        page = self.admin.press("Show the value of version 1")
        self.assertIn("It is cut", page.text)
        self.assertNotIn("x" * 65_537, page.text)

    def test_kinds(self) -> None:
        """A policy has its loads, a user where it logs in from, and both lead to their roles (CON-23)."""
        self.load("- !user { id: near, restricted_to: [ 10.0.0.0/8 ] }\n")
        page = self.admin.get("/ui/resources/acme:policy:root")
        self.assertIn("Loaded", page.text)
        self.assertIn("/ui/roles/acme:policy:root", page.links)
        self.assertIn("10.0.0.0/8", self.admin.get("/ui/resources/acme:user:near").text)
        self.assertIn("It has no value yet.", self.admin.get("/ui/resources/acme:variable:hidden").text)


class WhoCanTests(PagesCase):
    """Who can, on the page of a resource."""

    def test_shown(self) -> None:
        """It says who can read, execute and update a resource, and by which way (CON-25)."""
        self.load("- !permit { role: !group ops, privileges: [ read ], resource: !variable hidden }\n")
        page = self.admin.get("/ui/resources/acme:variable:hidden")
        self.assertIn("/ui/roles/acme:user:bob", page.links)
        self.assertIn("is a member of group:ops, which is permitted it", page.text)
        self.assertNotIn("/ui/roles/acme:user:alice", page.links)
        page = self.alice.get(f"/ui/resources/{PASSWORD}")
        self.assertEqual(page.text.count("is permitted it"), 2)
        self.assertIn("owns it", page.text)

    def test_picture(self) -> None:
        """A picture has the same roles and ways as the tables, and names in it are text (CON-14, CON-25)."""
        evil = "<script>alert('&')"
        self.memory.permissions["acme:variable:hidden", "</text>", "acme:group:ops"] = "acme:policy:root"
        self.load(
            f'- !group "{evil}"\n- !grant {{ role: !group ops, member: !group "{evil}" }}\n'
            "- !permit { role: !group ops, privileges: [ read ], resource: !variable hidden }\n"
        )
        page = self.admin.get("/ui/resources/acme:variable:hidden?privilege=%3C%2Ftext%3E")
        drawn = page.answer.body.decode().partition("<svg")[2].rpartition("</svg>")[0]
        for text in ("ops", "&lt;script&gt;alert(&#39;&amp;&#39;)", "&lt;/text&gt;", "member of", "hidden", "owns"):
            self.assertIn(text, drawn)
        self.assertNotIn("<script", drawn)
        self.assertEqual(drawn.count("<rect"), len([tag for tag, _ in page.tags if tag == "rect"]))
        self.assertNotIn("style=", drawn)

    def test_picture_cut(self) -> None:
        """Roles for which the picture has no place are in the tables, and the page says so (CON-25)."""
        self.load("\n".join(f"- !user m{number:03}" for number in range(30)))
        self.load(
            "\n".join(
                f"- !permit {{ role: !user m{number:03}, privileges: [ read ], resource: !variable hidden }}"
                for number in range(30)
            )
        )
        page = self.admin.get("/ui/resources/acme:variable:hidden?privilege=read")
        self.assertIn("Not all roles have a place in the picture", page.text)
        self.assertIn("/ui/roles/acme:user:m029", page.links)
        self.assertEqual(len([tag for tag, _ in page.tags if tag == "rect"]), 13)

    def test_others(self) -> None:
        """Other privileges that are given have a link each, also where their names could be markup (CON-14, CON-25)."""
        evil = "<script>alert('&')</script>\u202e"
        self.memory.permissions["acme:variable:hidden", evil, "acme:user:alice"] = "acme:policy:root"
        page = self.admin.get("/ui/resources/acme:variable:hidden")
        [link] = [each for each in page.links if "privilege=" in each]
        page = self.admin.get(link.partition("#")[0])
        self.assertIn("/ui/roles/acme:user:alice", page.links)
        self.assertIn("<script>alert('&')</script>U+202E", page.text)
        self.assertNotIn("script", [tag for tag, _ in page.tags])
        self.assertIn("/ui/resources/acme:variable:hidden#who-can", page.links)

    def test_hidden(self) -> None:
        """On ways, a role that the reader doesn't see has no name (CON-25)."""
        self.load(
            "- !group inner\n- !group outer\n- !grant { role: !group inner, member: !group outer }\n"
            "- !grant { role: !group outer, member: !user alice }\n"
            "- !permit { role: !group inner, privileges: [ read ], resource: !variable hidden }\n"
            "- !permit { role: !user bob, privileges: [ read ], resource: !variable hidden }\n"
        )
        page = self.bob.get("/ui/resources/acme:variable:hidden")
        self.assertIn("is a member of roles that you don't see, which are permitted it", page.text)
        self.assertNotIn("which is permitted it", page.text)

    def test_long(self) -> None:
        """A long list leads on to the rest, of one privilege at a time (CON-22, CON-25)."""
        names = [f"m{number:03}" for number in range(250)]
        self.load("\n".join(f"- !user {name}\n- !grant {{ role: !group ops, member: !user {name} }}" for name in names))
        self.load("- !permit { role: !group ops, privileges: [ read ], resource: !variable hidden }\n")
        page, found = self.admin.get("/ui/resources/acme:variable:hidden"), list[str]()
        while True:
            rows = [link for link in page.links if link.startswith("/ui/roles/acme:user:m")]
            self.assertLessEqual(len(rows), 100)
            found += rows
            more = [link for link in page.links if "after=" in link]
            if not more:
                break
            self.assertIn("The list goes on", page.text)
            page = self.admin.get(more[0].partition("#")[0])
        self.assertEqual(found, [f"/ui/roles/acme:user:{name}" for name in names])
        self.assertEqual(self.admin.get("/ui/resources/acme:variable:hidden?privilege=read&after=x").answer.status, 422)


class RoleTests(PagesCase):
    """The page of a role."""

    def test_shown(self) -> None:
        """It shows the members of a role, and what it is a member of (CON-24)."""
        page = self.admin.get("/ui/roles/acme:group:ops")
        self.assertIn("/ui/roles/acme:user:bob", page.links)
        page = self.admin.get("/ui/roles/acme:user:bob")
        self.assertIn("/ui/roles/acme:group:ops", page.links)
        self.assertIn("a grant", page.text)

    def test_long(self) -> None:
        """A long list of members leads on to the rest (CON-22)."""
        names = [f"m{number:03}" for number in range(150)]
        self.load("\n".join(f"- !user {name}\n- !grant {{ role: !group ops, member: !user {name} }}" for name in names))
        page = self.admin.get("/ui/roles/acme:group:ops")
        self.assertNotIn("m149", page.text)
        [more] = [link for link in page.links if "cursor=" in link]
        page = self.admin.get(more)
        self.assertIn("m149", page.text)
        self.assertIn("continued", page.text)
        self.assertNotIn("m000", page.text)

    def test_hidden(self) -> None:
        """A role that the reader doesn't see and one that isn't there have one and the same page (CON-17)."""
        told = [self.alice.get(f"/ui/roles/acme:user:{name}") for name in ("bob", "nobody")]
        self.assertEqual([page.answer.status for page in told], [404, 404])
        self.assertEqual(told[0].words, told[1].words)

    def test_logins(self) -> None:
        """The page of a user or host has the day of its last login, and the servers whose logins aren't counted (CON-47)."""
        bob = "/ui/roles/acme:user:bob"
        self.assertIn("none since 2020-09-13", self.admin.get("/ui/roles/acme:user:bob").text)
        self.assertNotIn("followers", self.admin.page.text)
        self.result_of(self.notes.write_notes())
        self.at_followers.append("b.example")
        page = self.admin.get(bob)
        self.assertIn("2023-11-14. Logins at followers aren\u2019t counted: b.example", page.text)
        self.assertNotIn("Last login", self.admin.get("/ui/roles/acme:group:ops").text)

    def test_revoke(self) -> None:
        """Who may revoke a role's tokens does so by a press; the page says when that was last, to who may know (CON-47,
        CON-48).
        """
        path = "/ui/roles/acme:user:bob"
        self.load("- !permit { role: !user alice, privileges: [ read ], resource: !user bob }\n")
        page = self.alice.get(path)
        self.assertNotIn("Revoke its tokens", page.forms)
        self.assertNotIn("Tokens revoked", page.text)
        self.assertIn("not in the last year", self.admin.get(path).text)
        own, (target, _, fields) = self.alice.page.forms["Sign out"][2], self.admin.page.forms["Revoke its tokens"]
        self.assertEqual(self.alice.send(target, {**fields, "token": own["token"]}).answer.status, 403)
        self.assertEqual(self.bob.ask("GET", "/ui").status, 200)
        self.admin.get(path)
        self.journal.told()
        page = self.admin.press("Revoke its tokens")
        self.assertIn("are revoked", page.text)
        self.assertEqual(self.journal.told(), [("token", "revoke", {"role": "acme:user:bob"}, None)])
        self.assertEqual(self.bob.ask("GET", "/ui").status, 303)
        text = self.admin.get(path).text
        self.assertIn("2023-11-14 22:13:20 UTC, by user admin", text)
        self.load("- !permit { role: !user alice, privileges: [ update ], resource: !user bob }\n")
        page = self.alice.get(path)
        self.assertIn("Revoke its tokens", page.forms)
        self.assertNotIn("Tokens revoked", page.text)

    def test_revoke_own(self) -> None:
        """One's own page leads to signing out everywhere, which that press also does (CON-48)."""
        page = self.admin.get("/ui/roles/acme:user:admin")
        self.assertNotIn("Revoke its tokens", page.forms)
        self.assertIn("/ui#sessions", page.links)
        page = self.admin.send("/ui/roles/acme:user:admin", {"token": page.forms["Sign out"][2]["token"]})
        self.assertEqual(page.path, "/ui/sign-in?out")
        self.assertEqual(self.admin.ask("GET", "/ui").status, 303)

    def test_revoke_none(self) -> None:
        """Of what doesn't log in nothing is revoked, and what isn't seen isn't there (CON-17, CON-48)."""
        token = self.admin.get("/ui").forms["Sign out"][2]["token"]
        self.assertEqual(self.admin.send("/ui/roles/acme:group:ops", {"token": token}).answer.status, 405)
        self.assertIn("don't log in", self.admin.page.text)
        token = self.alice.get("/ui").forms["Sign out"][2]["token"]
        told = {self.alice.send(f"/ui/roles/acme:user:{name}", {"token": token}).words for name in ("bob", "nobody")}
        self.assertEqual((len(told), self.alice.page.answer.status), (1, 404))

    def test_reach(self) -> None:
        """It shows what the role can read, execute or update, with the way, as far as the reader sees it (CON-26)."""
        page = self.admin.get("/ui/roles/acme:user:alice")
        self.assertIn(f"/ui/resources/{PASSWORD}", page.links)
        self.assertIn("read, execute", page.text)
        self.assertNotIn("hidden", page.text)
        self.load(
            "- !permit { role: !group ops, privileges: [ update ], resources: [ !variable hidden, !variable prod/url ] }\n"
        )
        page = self.alice.get("/ui/roles/acme:group:ops")
        self.assertIn("/ui/resources/acme:variable:prod/url", page.links)
        self.assertNotIn("hidden", page.text)
        self.assertIn("is permitted it", page.text)

    def test_reach_long(self) -> None:
        """What a role reaches is in pages (CON-22, CON-26)."""
        self.load("\n".join(f"- !variable {{ id: many/{number:03}, owner: !group ops }}" for number in range(250)))
        page, found = self.admin.get("/ui/roles/acme:group:ops"), list[str]()
        while True:
            rows = [link for link in page.links if link.startswith("/ui/resources/acme:variable:many")]
            found += rows
            more = [link for link in page.links if "after=" in link]
            if not more:
                break
            self.assertLessEqual(len(rows), 100)
            page = self.admin.get(more[0].partition("#")[0])
            self.assertIn("What it can reach, continued", page.text)
        self.assertEqual(found, [f"/ui/resources/acme:variable:many/{number:03}" for number in range(250)])
        self.assertEqual(self.admin.get("/ui/roles/acme:group:ops?after=x").answer.status, 422)
