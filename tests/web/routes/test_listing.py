"""Tests of ``svc.web.routes.listing``: pages, cursors, searches and lists of any length, of members."""

from __future__ import annotations

import re
from itertools import product

from svc.model.dialect import CONJUR, NATIVE
from svc.model.names import ROLE_KINDS
from svc.model.query_results import ListingKey
from svc.services.membership_lists import BATCH, SEARCH_BATCH
from svc.web.routes.cursors import encode_cursor
from svc.web.routes.listing import SEARCH_LIMIT
from tests.web.world import ADMIN, WorldCase

POLICY = """
- !group ops
- !host web/blue
- !host mail
- !host
  id: bare
  annotations: { name: Blue lagoon, site: web.example.com }
- !layer blue
- !user zoe@web
- !grant { role: !group ops, members: [ !host web/blue, !host mail, !host bare, !layer blue, !user zoe@web ] }
- !permit { role: !user zoe@web, privilege: read, resource: !group ops }
"""

OPS = "/roles/acme/group/ops?members"
MEMBERS = ["host:bare", "host:mail", "host:web/blue", "layer:blue", "user:admin", "user:zoe@web"]


class ListingTests(WorldCase):
    """What both dialects have in common."""

    def setUp(self) -> None:
        """Load a policy with a group."""
        super().setUp()
        self.load(POLICY)

    def page(self, path: str) -> tuple[list[str], str | None]:
        """The members in an answer, without their account, and the path of the next page."""
        answer = self.client.get(path, role=ADMIN)
        self.assertEqual(answer.status, 200, answer.body)
        following = re.fullmatch('<(.+)>; rel="next"', answer.headers.get("link", ""))
        return [row["member"][5:] for row in answer.json()], following and following[1]

    def pages(self, path: str) -> list[list[str]]:
        """The members in each page, from this one to the last."""
        pages: list[list[str]] = []
        following: str | None = path
        while following is not None:
            members, following = self.page(following)
            pages.append(members)
        return pages

    def refused(self, query: str, parameter: str, path: str = OPS) -> None:
        """The answer is 422 and names the parameter."""
        answer = self.client.get(path + query, role=ADMIN)
        self.assertEqual(answer.status, 422, query)
        self.assertIn(parameter, answer.json()["error"]["message"])

    def test_cursors(self) -> None:
        """A page that ``limit`` cut short links to the next, and so to the end; the last one links to none (ROLE-24)."""
        for size in (1, 2, 4, 5):
            pages = self.pages(f"{OPS}&limit={size}")
            self.assertEqual([len(page) for page in pages[:-1]], [size] * (len(pages) - 1))
            self.assertEqual([member for page in pages for member in page], MEMBERS)
        for query in ("", "&limit=6", "&limit=7", "&offset=1", "&limit=2&offset=4", "&limit=2&offset=9"):
            self.assertIsNone(self.page(OPS + query)[1], query)

    def test_cursor_after_offset(self) -> None:
        """The page after one with an offset begins where that ended, and the link keeps all else that was asked
        (ROLE-24).
        """
        members, following = self.page(f"{OPS}&offset=1&limit=1&kind[]=host;kind=user")
        self.assertEqual(members, ["host:mail"])
        assert following is not None
        self.assertRegex(
            following, r"\A/roles/acme/group/ops\?members&kind\[\]=host&kind=user&limit=1&cursor=[A-Za-z0-9_-]+\Z"
        )
        self.assertEqual(self.pages(following), [["host:web/blue"], ["user:admin"], ["user:zoe@web"]])

    def test_links_are_encoded(self) -> None:
        """A link is a path that leads to the page, whatever stands in it (ROLE-24)."""
        self.load('- !group "a/b&c?>; x"\n- !grant { role: !group "a/b&c?>; x", member: !host mail }\n')
        path = "/roles/acme/group/a%2Fb%26c%3F%3E%3B%20x?members&limit=1&search=host%20%3E%26&odd%3D=%3B"
        answer = self.client.get(path.replace("&search=host%20%3E%26", ""), role=ADMIN)
        self.assertIn("/roles/acme/group/a%2Fb%26c%3F%3E%3B%20x?members&odd%3D=%3B&limit=1&cursor=", answer.headers["link"])
        self.assertEqual(self.pages(path.replace("&search=host%20%3E%26", "")), [["host:mail"], ["user:admin"]])

    def test_stable_while_members_change(self) -> None:
        """Who comes or goes meanwhile, be it the row where a page ended, makes no other be told twice or not at all
        (ROLE-25).
        """
        first, following = self.page(f"{OPS}&limit=3")
        self.assertEqual(first, MEMBERS[:3])
        for member in ("host:bare", "host:web/blue"):
            answer = self.client.request("DELETE", f"{OPS}&member=acme:{member}", role=ADMIN)
            self.assertEqual(answer.status, 204)
        self.load("- !host aa\n- !host zz\n- !grant { role: !group ops, members: [ !host aa, !host zz ] }\n")
        assert following is not None
        self.assertEqual([m for page in self.pages(following) for m in page], ["host:zz", *MEMBERS[3:]])

    def test_bad_cursors(self) -> None:
        """A cursor that isn't one of this listing's, or stands beside an offset, is 422 (ROLE-26)."""
        plain, ranked = (encode_cursor(ListingKey("acme:host:mail", rank=rank)) for rank in (None, 1))
        for cursor in ("", "x", "%00", "%FF", plain + "=", plain[:-2], ranked, f"{plain}&cursor={plain}", "A" * 3000):
            self.refused(f"&limit=1&cursor={cursor}", "cursor")
            self.refused(f"&count=true&cursor={cursor}", "cursor")
        self.refused("&cursor", "cursor")
        self.refused(f"&cursor={plain}&offset=0", "cursor")
        self.refused(f"&cursor={plain}&offset=x", "offset")
        self.refused(f"&search=a&cursor={plain if self.dialect.search_by_class else ranked}", "cursor")
        self.assertEqual(self.page(f"{OPS}&cursor={plain}")[0], MEMBERS[2:])
        self.assertEqual(self.client.get(f"{OPS}&cursor={plain}&count=true", role=ADMIN).json(), {"count": 6})

    def test_search(self) -> None:
        """A search finds whole words of identifiers, annotations and kinds; of no word, nothing; bare, it is none (ROLE-22,
        RES-12).
        """
        for query, expected in (
            ("lagoon", ["host:bare"]),
            ("LAGOON%20blue", ["host:bare"]),
            ("lagoon+mail", []),
            ("lago", []),
            ("layer", ["layer:blue"]),
            ("", []),
            ("%20", []),
            ("./-", []),
            ("'", []),
            ("%26%20!%20(%7C)%3A*", []),
            ("mail'%20%26%20!(%5C", ["host:mail"]),
            ("acme", []),
        ):
            self.assertEqual(self.page(f"{OPS}&search={query}")[0], expected, query)
            count = self.client.get(f"{OPS}&search={query}&count=true", role=ADMIN).json()
            self.assertEqual(count, {"count": len(expected)}, query)
        self.assertEqual(self.page(f"{OPS}&search")[0], MEMBERS)

    def test_bad_searches(self) -> None:
        """A search that is too long, repeated, or no text is 422; one of any words is not (ROLE-22, RES-12, LIM-6)."""
        self.assertEqual(self.page(f"{OPS}&search={'a+' * (SEARCH_LIMIT // 2)}")[0], [])
        for bad in ("x" * (SEARCH_LIMIT + 1), "%C3%BC" * (SEARCH_LIMIT // 2 + 1), "x+" * 5120, "%00", "%FF", "a&search=b"):
            self.refused(f"&search={bad}", "search")

    def test_combined(self) -> None:
        """Kinds, search, limit and offset, in every combination, are a page of what kinds and search leave (ROLE-22)."""
        kinds = {"": ROLE_KINDS, "&kind=host": {"host"}, "&kind[]=layer&kind=host": {"layer", "host"}, "&kind=x": set()}
        for (kind, among), search in product(kinds.items(), ("", "&search=blue", "&search=host")):
            whole = self.page(OPS + kind + search)[0]
            unkinded = self.page(OPS + search)[0]
            self.assertEqual(whole, [member for member in unkinded if member.partition(":")[0] in among])
            count = self.client.get(f"{OPS}{kind}{search}&count=true&limit=1&offset=2", role=ADMIN).json()
            self.assertEqual(count, {"count": len(whole)})
            for limit, offset in product(range(1, 5), range(4)):
                page = self.page(f"{OPS}{kind}{search}&limit={limit}&offset={offset}")[0]
                self.assertEqual(page, whole[offset : offset + limit])
            self.assertEqual([m for page in self.pages(f"{OPS}{kind}{search}&limit=1") for m in page], whole)

    def _populate(self, count: int) -> list[str]:
        members = [f"acme:host:n{number:05}" for number in range(count)]
        self.memory.roles |= dict.fromkeys(members)
        self.memory.resources |= dict.fromkeys(members, (str(ADMIN), None))
        self.memory.memberships |= {("acme:group:ops", member, False): (False, None) for member in members}
        return [*MEMBERS[:2], *(member[5:] for member in members), *MEMBERS[2:]]

    def test_any_length(self) -> None:
        """A list of any length is told whole, and so is a page of any length, with its link (ROLE-19, LIM-16)."""
        members = self._populate(2 * BATCH + 7)
        answer = self.client.get(OPS, role=ADMIN)
        self.assertEqual(answer.headers["transfer-encoding"], "chunked")
        self.assertEqual([row["member"][5:] for row in answer.json()], members)
        for limit in (BATCH - 1, BATCH, BATCH + 1, 2 * BATCH, len(members) - 1):
            page, following = self.page(f"{OPS}&limit={limit}")
            self.assertEqual(page, members[:limit])
            assert following is not None
            self.assertEqual(self.page(following)[0], members[limit : 2 * limit])
            self.assertEqual(self.page(f"{OPS}&limit={limit}&offset=5")[0], members[5 : 5 + limit])
        for limit in (len(members), len(members) + 1, 2**63 - 1):
            self.assertEqual(self.page(f"{OPS}&limit={limit}"), (members, None))
        self.assertEqual(self.page(f"{OPS}&limit={2**63 - 1}&offset={2**63 - 1}"), ([], None))
        shown = self.client.get(OPS.partition("?")[0], role=ADMIN).json()["members"]
        self.assertEqual([row["member"][5:] for row in shown], ["user:admin", *(m for m in members if m != "user:admin")])

    def test_long_search(self) -> None:
        """What a search finds may be of any length, too."""
        self._populate(SEARCH_BATCH + 3)
        found = self.page(f"{OPS}&search=host")[0]
        self.assertEqual(len(found), SEARCH_BATCH + 6)
        self.assertEqual(self.page(f"{OPS}&search=host&limit={SEARCH_BATCH + 1}")[0], found[: SEARCH_BATCH + 1])

    def test_transitive(self) -> None:
        """``transitive`` tells each effective member once, with a way to it from the role, in pages like any list
        (ROLE-27).
        """
        self.load(
            "- !group inner\n- !user una\n- !grant { role: !group ops, member: !group inner }\n"
            "- !grant { role: !group inner, members: [ !user una, !host mail ] }\n"
        )
        rows = self.client.get(f"{OPS}&transitive=true", role=ADMIN).json()
        self.assertEqual([row["member"][5:] for row in rows], sorted([*MEMBERS, "group:inner", "user:una"]))
        [una] = [row for row in rows if row["member"] == "acme:user:una"]
        path = ["acme:group:ops", "acme:group:inner", "acme:user:una"]
        self.assertEqual(una, {"role": "acme:group:ops", "member": "acme:user:una", "path": path})
        for query, expected in (("&kind=user", 3), ("&search=una", 1), ("&kind=host&search=blue", 2), ("", 8)):
            whole = self.page(f"{OPS}&transitive=true{query}")[0]
            self.assertEqual(len(whole), expected)
            self.assertEqual([m for page in self.pages(f"{OPS}&transitive&limit=1{query}") for m in page], whole)
            count = self.client.get(f"{OPS}&transitive=true&count{query}", role=ADMIN).json()
            self.assertEqual(count, {"count": expected})
        self.assertEqual(self.page(f"{OPS}&transitive=false")[0], sorted([*MEMBERS, "group:inner"]))
        self.refused("&transitive=maybe", "transitive")
        self._populate(BATCH + 5)
        self.assertEqual(len(self.page(f"{OPS}&transitive=true")[0]), BATCH + 13)
        self.assertEqual(len(self.page(f"{OPS}&transitive=true&limit={BATCH + 2}")[0]), BATCH + 2)

    def test_bad_parameters_of_memberships(self) -> None:
        """Memberships have no pages, and yet a bad ``limit`` or ``offset`` is told (ROLE-20)."""
        for query, parameter in (("&limit=0", "limit"), ("&offset=-1", "offset"), (f"&search={'x' * 5000}", "search")):
            self.refused(query, parameter, "/roles/acme/group/ops?memberships")


class NativeListingTests(ListingTests):
    """What is native."""

    dialect = NATIVE

    def test_order_of_a_search(self) -> None:
        """Identifiers and names come first, then other annotations, then kinds, by id each; values are split (ROLE-23)."""
        self.assertEqual(self.page(f"{OPS}&search=blue")[0], ["host:bare", "host:web/blue", "layer:blue"])
        self.assertEqual(self.page(f"{OPS}&search=web")[0], ["host:web/blue", "user:zoe@web", "host:bare"])
        self.assertEqual(self.page(f"{OPS}&search=host+blue")[0], ["host:bare", "host:web/blue"])
        self.load("- !host x/layer\n- !grant { role: !group ops, member: !host x/layer }\n")
        self.assertEqual(self.page(f"{OPS}&search=layer")[0], ["host:x/layer", "layer:blue"])
        self.assertEqual(self.pages(f"{OPS}&search=layer&limit=1"), [["host:x/layer"], ["layer:blue"]])


class ConjurListingTests(ListingTests):
    """What the installed base does."""

    dialect = CONJUR

    def test_order_of_a_search(self) -> None:
        """What is found comes by id; values are whole (ROLE-23)."""
        self.assertEqual(self.page(f"{OPS}&search=web")[0], ["host:web/blue", "user:zoe@web"])
        self.load(
            "- !host x/layer\n- !grant { role: !group ops, member: !host x/layer }\n- !layer a\n"
            "- !grant { role: !group ops, member: !layer a }\n"
        )
        self.assertEqual(self.page(f"{OPS}&search=layer")[0], ["host:x/layer", "layer:a", "layer:blue"])
        self.assertEqual(self.pages(f"{OPS}&search=layer&limit=2"), [["host:x/layer", "layer:a"], ["layer:blue"]])
