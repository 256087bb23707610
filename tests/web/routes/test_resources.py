"""Tests of ``svc.web.routes.resources``."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from svc.model.dialect import CONJUR
from svc.model.names import ResourceName, RoleName, admin_of
from svc.model.policy_loads import MembershipRow, PermissionRow, ResourceRow, Rows
from svc.model.query_results import AccessFacts, CallerOrRole, Sealed
from svc.services import resources
from svc.services.resources import TEXTS_MOST
from tests.contracts.base import signing_key
from tests.memory import MemoryAccounts, MemoryRoles
from tests.web.world import ADMIN, WorldCase, user

POLICY = """
- !policy
  id: app
  body:
  - !host web
  - !group deployers
  - !variable db/password
  - !variable
    id: api-key
    annotations: { name: the token of prod, description: made by hand }
  - !webservice
  - !permit { role: !host web, privileges: [ read, execute ], resource: !variable db/password }
- !user alice
- !user bob
- !layer prod
- !grant { role: !group app/deployers, member: !user alice }
- !permit { role: !group app/deployers, privilege: update, resource: !variable app/api-key }
"""

HOST = RoleName("acme", "host", "app/web")
PASSWORD = "/resources/acme/variable/app%2Fdb%2Fpassword"
EVERYTHING = [
    "acme:group:app/deployers",
    "acme:host:app/web",
    "acme:layer:prod",
    "acme:policy:app",
    "acme:policy:root",
    "acme:user:admin",
    "acme:user:alice",
    "acme:user:bob",
    "acme:variable:app/api-key",
    "acme:variable:app/db/password",
    "acme:webservice:app",
]


class ResourcesCase(WorldCase):
    """A policy with a resource of each sort."""

    def setUp(self) -> None:
        """Load it."""
        super().setUp()
        self.load(POLICY)

    def ids(self, path: str, role: RoleName = ADMIN) -> list[str]:
        """The ids in a list."""
        answer = self.client.get(path, role=role)
        self.assertEqual(answer.status, 200, answer.body)
        return [found["id"] for found in answer.json()]

    def refused(self, path: str, status: int, role: RoleName = ADMIN) -> Any:
        """The error of an answer that must have this status; ``None`` when its body is empty."""
        answer = self.client.get(path, role=role)
        self.assertEqual(answer.status, status, (path, answer.body))
        return answer.json()["error"] if answer.body else None

    def other_account(self) -> None:
        """Make the account ``other`` with a user ``eve``, who may read one variable of ``acme``, and a variable."""
        made = MemoryAccounts(self.memory).create_account("other", Sealed(b"key"), signing_key("other", "k"))
        self.result_of(made)
        text = b"- !user eve\n- !variable hidden\n- !permit { role: !user eve, privilege: read, resource: !variable hidden }"
        self.assertEqual(self.client.post("/policies/other/policy/root", text, role=admin_of("other")).status, 201)
        self.memory.add(Rows(permissions=(PermissionRow("acme:variable:app/api-key", "read", "other:user:eve"),)))


class ListTests(ResourcesCase):
    """What both dialects have in common: lists."""

    def test_visible(self) -> None:
        """Each caller is told, in the order of the ids, what it owns and what it has any privilege on (RES-1)."""
        for path in ("/resources", "/resources/acme", "/resources/acme/", "/resources?account=acme"):
            self.assertEqual(self.ids(path), EVERYTHING, path)
            self.assertEqual(self.ids(path, HOST), ["acme:variable:app/db/password"], path)
            self.assertEqual(self.ids(path, user("alice")), ["acme:variable:app/api-key"], path)
            self.assertEqual(self.ids(path, user("bob")), [], path)

    def test_kinds(self) -> None:
        """A kind in the path or the query narrows the list, the former before the latter; an unknown one has none
        (RES-3).
        """
        variables = EVERYTHING[8:10]
        for path in (
            "/acme/variable",
            "/acme/variable/",
            "/acme?kind=variable",
            "?kind=variable",
            "/acme/variable?kind=host",
        ):
            self.assertEqual(self.ids(f"/resources{path}"), variables, path)
        self.assertEqual(self.ids("/resources/acme?kind[]=layer&kind=host"), ["acme:host:app/web", "acme:layer:prod"])
        for kind in ("dragon", "Variable", "", "variable,host"):
            self.assertEqual(self.ids(f"/resources/acme?kind={kind}"), [], kind)
        for kind in (
            "variable",
            "public_key",
            "user",
            "host",
            "layer",
            "group",
            "policy",
            "webservice",
            "host_factory",
            "configuration",
        ):
            self.assertEqual(self.client.get(f"/resources/acme/{kind}", role=ADMIN).status, 200, kind)

    def test_pages(self) -> None:
        """``limit`` and ``offset`` page; an ``offset`` alone has pages of ten (RES-4)."""
        self.assertEqual(self.ids("/resources/acme?limit=2"), EVERYTHING[:2])
        self.assertEqual(self.ids("/resources/acme?limit=2&offset=9"), EVERYTHING[9:])
        self.assertEqual(self.ids("/resources/acme?offset=0"), EVERYTHING[:10])
        self.assertEqual(self.ids("/resources/acme?offset=11"), [])
        self.assertEqual(self.ids(f"/resources/acme?offset={2**63 - 1}"), [])

    def test_cap(self) -> None:
        """A list has at most 1000 resources, or, when asked for exactly so many, 10000; a count has no such limit (RES-5,
        LIM-16).
        """
        self.load("".join(f"- !variable v{number:04}\n" for number in range(1001)))
        self.assertEqual(len(self.ids("/resources/acme/variable")), 1000)
        self.assertEqual(len(self.ids("/resources/acme/variable?limit=1000")), 1000)
        self.assertEqual(len(self.ids("/resources/acme/variable?limit=10000")), 1003)
        for limit in (1001, 9999, 10001, 2**63 - 1):
            error = self.refused(f"/resources/acme/variable?limit={limit}", 422)
            self.assertEqual(error, {"code": "unprocessable_entity", "message": "'Limit' parameter must not exceed 1000"})
            counted = self.client.get(f"/resources/acme/variable?limit={limit}&count=true", role=ADMIN).json()
            self.assertEqual(counted, {"count": min(limit, 1003) if self.dialect.count_of_page else 1003})

    def test_batches(self) -> None:
        """A list that is written in several pieces is one list."""
        self.load("".join(f"- !variable v{number:04}\n" for number in range(6)))
        for limit in range(1, 8):
            self.assertEqual(len(self.ids(f"/resources/acme/variable?limit={limit}")), limit)

    def test_counts(self) -> None:
        """``count`` tells how many there are, after ``kind`` and ``search`` (RES-6)."""
        for query, expected in (
            ("count=true", 11),
            ("count=true&kind=variable", 2),
            ("count=true&search=prod", 2),
        ):
            self.assertEqual(self.client.get(f"/resources/acme?{query}", role=ADMIN).json(), {"count": expected}, query)
        self.assertEqual(len(self.ids("/resources/acme?count=false")), 11)
        self.refused("/resources/acme?count=maybe", 422)
        self.refused("/resources/acme?count=true&count=true", 422)

    def test_counts_of_pages(self) -> None:
        """In ``conjur`` a count beside ``limit`` or ``offset`` is that of the page, in ``native`` that of all (RES-6)."""
        for query, of_page, of_all in (
            ("limit=1", 1, 11),
            ("limit=1&offset=3", 1, 11),
            ("limit=10001", 11, 11),
            ("limit=5&offset=9", 2, 11),
            ("limit=5&offset=11", 0, 11),
            (f"limit=5&offset={2**63 - 1}", 0, 11),
            ("offset=0", 10, 11),
            ("offset=2", 9, 11),
            ("kind=variable&limit=1", 1, 2),
            ("search=prod&offset=1", 1, 2),
            ("", 11, 11),
        ):
            answer = self.client.get(f"/resources/acme?count=true&{query}", role=ADMIN)
            expected = of_page if self.dialect is CONJUR else of_all
            self.assertEqual(answer.json(), {"count": expected}, query)
        self.refused("/resources/acme?count=true&limit=0", 422)

    def test_bad_numbers(self) -> None:
        """A ``limit`` that isn't positive, an ``offset`` that is negative, and either repeated or no number, is 422
        (RES-4).
        """
        for values, message in (
            (
                [f"limit={value}" for value in ("0", "-1", "-10", "abc", "1e9", "01", "", "%2B1", str(2**64), "1&limit=1")],
                "'limit' contains an invalid value. 'limit' must be a positive integer.",
            ),
            (
                [f"offset={value}" for value in ("-1", "abc", "1.0", "", "00", "%2B1")],
                "'offset' contains an invalid value. 'offset' must be an integer greater than or equal to 0.",
            ),
        ):
            for value in values:
                for more in ("", "&count=true", "&role=nonsense"):
                    error = self.refused(f"/resources/acme?{value}{more}", 422)
                    if "&limit" not in value:
                        self.assertEqual(error, {"code": "unprocessable_entity", "message": message}, value)
        # The limit is looked at first.
        self.assertIn("'limit'", self.refused("/resources/acme?offset=x&limit=x", 422)["message"])
        for query in ("limit", "offset", "limit=%00", "limit[]=1", "kind[a]=host", "search=a&search=b", "account[]=acme"):
            self.refused(f"/resources?{query}", 422)

    def test_bad_texts(self) -> None:
        """An account that can't be one, text that doesn't decode, and a search that is too long, is 422 (RES-2, RES-12,
        LIM-6).
        """
        for path in (
            "/resources/a%20b",
            "/resources/%00",
            "/resources/acme%FF",
            "/resources/acme%3Auser",
            "/resources?account=",
            "/resources?account=a%3Ab",
            "/resources/acme?search=%00",
            "/resources/acme?search=%ff",
            "/resources/acme?search=%",
            "/resources/acme?search=" + "x" * 10240,
        ):
            self.refused(path, 422)
        for query in ("search=%27%20OR%201=1", "search=!", "search=a%26%7C", "search=" + "x" * 4096):
            self.assertEqual(self.ids(f"/resources/acme?{query}"), [], query)

    def test_search(self) -> None:
        """``search`` narrows to what has all its words; empty or of stop words it finds nothing; bare it is ignored
        (RES-10).
        """
        self.assertEqual(self.ids("/resources/acme?search=password+variable"), ["acme:variable:app/db/password"])
        self.assertEqual(self.ids("/resources/acme?search=db%2Fpassword"), ["acme:variable:app/db/password"])
        self.assertEqual(self.ids("/resources/acme?search="), [])
        self.assertEqual(self.ids("/resources/acme?search=the"), [])
        self.assertEqual(self.ids("/resources/acme?search"), EVERYTHING)
        self.assertEqual(self.ids("/resources/acme?search=variable", HOST), ["acme:variable:app/db/password"])

    def test_owners(self) -> None:
        """``owner`` narrows to what that role owns, or one that it holds, as far as the caller sees it (RES-8)."""
        owned = ["acme:group:app/deployers", "acme:host:app/web", *EVERYTHING[8:]]
        for owner in ("policy:app", "acme:policy:app"):
            self.assertEqual(self.ids(f"/resources/acme?owner={owner}"), owned)
            self.assertEqual(self.ids(f"/resources?owner={owner}"), owned)
            self.assertEqual(self.ids(f"/resources/acme/host?owner={owner}"), ["acme:host:app/web"])
            self.assertEqual(self.client.get(f"/resources/acme?owner={owner}&count=true", role=ADMIN).json(), {"count": 5})
        self.load("- !permit { role: !host app/web, privilege: read, resource: !policy app }")
        self.assertEqual(self.ids("/resources/acme?owner=policy:app", HOST)[-1], "acme:variable:app/db/password")
        self.assertEqual(self.ids("/resources/acme?owner=user:admin"), EVERYTHING)
        self.assertEqual(self.ids("/resources/acme?owner=user:bob"), [])

    def test_bad_owners(self) -> None:
        """An ``owner`` that isn't there is 404; one that is no id is 422 (RES-8)."""
        error = self.refused("/resources/acme?owner=policy:none", 404)
        self.assertEqual(
            error,
            {
                "code": "not_found",
                "message": "Policy 'none' not found in account 'acme'",
                "target": "policy",
                "details": {"code": "not_found", "target": "id", "message": "acme:policy:none"},
            },
        )
        for owner in ("dragon:x", "variable:app/api-key", "acme:policy:", "none:policy:app", "policy:", "a:b:c"):
            self.refused(f"/resources/acme?owner={owner}", 404)
        for owner in ("owner=app", "owner=", "owner", "owner=policy:app&owner=policy:app", "owner=%00"):
            error = self.refused(f"/resources/acme?{owner}", 422)
            self.assertEqual(error["code"], "argument_error")
            self.assertIn("owner", error["message"])

    def test_owners_unseen(self) -> None:
        """A role that the caller neither sees nor holds is as one that isn't there, in all that is told, and asked
        (RES-8).
        """
        asked: list[RoleName] = []
        access_facts = MemoryRoles.access_facts

        async def counted(roles: MemoryRoles, caller: CallerOrRole, resource: ResourceName) -> AccessFacts:
            asked.append(resource.role)
            return await access_facts(roles, caller, resource)

        self.patch(MemoryRoles, "access_facts", counted)
        told = []
        for owner in ("user:bob", "user:bib", "policy:app", "policy:ape"):
            for more in ("", "&count=true", "&search=x&limit=1&offset=3"):
                asked.clear()
                answer = self.client.get(f"/resources/acme?owner={owner}{more}", role=HOST)
                body = answer.body.decode().replace(owner.partition(":")[2], "?")
                headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
                told.append((owner.partition(":")[0], answer.status, body, headers, len(asked)))
        for kind in ("user", "policy"):
            first, *others = [each for each in told if each[0] == kind]
            self.assertEqual((first[1], others), (404, [first] * 5))
        self.assertEqual(self.ids("/resources/acme?owner=group:app/deployers", user("alice")), [])

    def test_owners_elsewhere(self) -> None:
        """That a role exists in another account is not told by ``owner`` (RES-8)."""
        self.other_account()
        self.refused("/resources?owner=other:user:admin", 404)
        self.refused("/resources?owner=other:user:none", 404)
        self.assertEqual(self.ids("/resources?owner=acme:user:admin"), EVERYTHING)

    def test_accounts(self) -> None:
        """Without an account, what is seen in any of them is listed; of a strange account nothing is seen (RES-2)."""
        self.other_account()
        eve = RoleName("other", "user", "eve")
        self.assertEqual(self.ids("/resources", eve), ["acme:variable:app/api-key", "other:variable:hidden"])
        self.assertEqual(self.ids("/resources/acme", eve), ["acme:variable:app/api-key"])
        self.assertEqual(self.ids("/resources/other", eve), ["other:variable:hidden"])
        self.assertEqual(self.ids("/resources/other?account=acme", eve), ["other:variable:hidden"])
        self.assertEqual(self.ids("/resources/other"), [])
        self.assertEqual(self.ids("/resources/none"), [])

    def test_acting_as(self) -> None:
        """``role``, else ``acting_as``, lists what that role sees; an empty one is the caller itself (RES-9)."""
        for query in (
            "role=acme:host:app/web",
            "acting_as=acme:host:app/web",
            "role=acme:host:app/web&acting_as=acme:user:bob",
            "role=acme:host:app/web&acting_as=nonsense",
            "role=&acting_as=acme:host:app/web",
        ):
            self.assertEqual(self.ids(f"/resources/acme?{query}"), ["acme:variable:app/db/password"], query)
        self.assertEqual(
            self.client.get("/resources/acme?count=true&role=acme:host:app/web", role=ADMIN).json(), {"count": 1}
        )
        self.assertEqual(self.ids("/resources?role="), EVERYTHING)
        self.assertEqual(self.ids("/resources?role=acme:user:bob", user("bob")), [])
        self.assertEqual(self.ids("/resources?role=acme:group:app/deployers", user("alice")), ["acme:variable:app/api-key"])

    def test_acting_as_others(self) -> None:
        """A role that isn't there, isn't a full id, or isn't held by the caller, is 403 with an empty body (RES-9)."""
        self.other_account()
        for role, caller in (
            ("acme:user:none", ADMIN),
            ("user:alice", ADMIN),
            ("alice", ADMIN),
            ("acme:variable:app/api-key", ADMIN),
            ("acme:dragon:x", ADMIN),
            ("acme:user:", ADMIN),
            ("other:user:eve", ADMIN),
            ("acme:user:bob", user("alice")),
            ("acme:user:admin", HOST),
            ("acme:user:alice", RoleName("other", "user", "eve")),
        ):
            for parameter in ("role", "acting_as"):
                self.assertIsNone(self.refused(f"/resources?{parameter}={role}", 403, caller), role)
        self.refused("/resources?role=acme:user:bob&role=acme:user:bob", 422)

    def test_circles(self) -> None:
        """Who owns itself, or belongs to a circle of roles, is refused a role that it doesn't hold, and not waited for
        (ROLE-1, RES-9).
        """
        own = [("a", "a"), ("b", "c"), ("c", "b")]
        self.memory.add(
            Rows(
                resources=tuple(ResourceRow(f"acme:group:{name}", f"acme:group:{owner}") for name, owner in own),
                memberships=tuple(
                    MembershipRow(f"acme:group:{name}", f"acme:group:{owner}", ownership, True)
                    for name, owner in own
                    for ownership in (True, False)
                ),
            )
        )
        for name, _ in own:
            caller = RoleName("acme", "group", name)
            for query in ("role=acme:user:bob", "acting_as=acme:user:bob"):
                self.assertIsNone(self.refused(f"/resources/acme?{query}", 403, caller))
            self.assertIsNone(self.refused(f"{PASSWORD}?check&privilege=read&role=acme:user:bob", 403, caller))
        self.assertEqual(self.ids("/resources/acme", RoleName("acme", "group", "a")), ["acme:group:a"])
        self.assertEqual(self.ids("/resources/acme", RoleName("acme", "group", "b")), ["acme:group:b", "acme:group:c"])

    def test_callers(self) -> None:
        """Without a token a list is 401; with that of a role that is gone, 403 (RES-1)."""
        for path in ("/resources", "/resources/acme", "/resources/acme/variable"):
            self.assertEqual(self.client.get(path).status, 401)
            self.assertIsNone(self.refused(path, 403, user("gone")))
            self.assertIsNone(self.refused(path + "?count=true", 403, user("gone")))

    def test_no_routes(self) -> None:
        """A kind that no resource has, an account with a slash, and another method, have no route (NAME-6, RES-3)."""
        for path in (
            "/resources/acme/dragon",
            "/resources/acme/Variable",
            "/resources/acme/dragon/x",
            "/resources/acme/variable%2Fx",
            "/resources/ac%2Fme",
            "/resources//variable",
            "/resources/acme//x",
            "/resources/acme/variable//",
        ):
            self.refused(path, 404)
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            self.assertEqual(self.client.request(method, "/resources/acme", role=ADMIN).status, 404)

    def test_head(self) -> None:
        """``HEAD`` answers as ``GET`` does, without the body (RES-7)."""
        self.assertEqual(self.client.head("/resources/acme", role=ADMIN).status, 200)
        self.assertEqual(self.client.head(PASSWORD, role=ADMIN).status, 200)
        self.assertEqual(self.client.head(PASSWORD, role=user("bob")).status, 404)
        self.assertEqual(self.client.head(f"{PASSWORD}?check&privilege=read", role=user("gone")).status, 403)


class ShowTests(ResourcesCase):
    """What both dialects have in common: single resources."""

    def show(self, path: str, role: RoleName = ADMIN) -> Any:
        """What a resource is told to be, without the moment of its creation, which must be one."""
        answer = self.client.get(f"/resources/acme/{path}", role=role)
        self.assertEqual(answer.status, 200, answer.body)
        document = answer.json()
        moment = document.pop("created_at")
        self.assertRegex(moment, r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00\Z")
        datetime.fromisoformat(moment)
        return document

    def test_variable(self) -> None:
        """A variable is told with its permissions by role and privilege, its annotations by name, and its versions (RES-16,
        RES-20).
        """
        self.set_value("app/api-key", b"one")
        self.set_value("app/api-key", b"two")
        self.assertEqual(
            self.show("variable/app%2Fapi-key", user("alice")),
            {
                "id": "acme:variable:app/api-key",
                "owner": "acme:policy:app",
                "policy": "acme:policy:root",
                "permissions": [{"privilege": "update", "role": "acme:group:app/deployers", "policy": "acme:policy:root"}],
                "annotations": [
                    {"name": "description", "value": "made by hand", "policy": "acme:policy:root"},
                    {"name": "name", "value": "the token of prod", "policy": "acme:policy:root"},
                ],
                "secrets": [{"version": 1, "expires_at": None}, {"version": 2, "expires_at": None}],
            },
        )
        shown = self.show("variable/app/db/password")
        self.assertEqual([permission["privilege"] for permission in shown["permissions"]], ["execute", "read"])
        self.assertEqual((shown["annotations"], shown["secrets"]), ([], []))

    def test_without_policy(self) -> None:
        """What no policy made has no ``policy`` (RES-16)."""
        shown = self.show("user/admin")
        self.assertEqual((shown["id"], shown["owner"]), ("acme:user:admin", "acme:user:admin"))
        self.assertNotIn("policy", shown)

    def test_policy(self) -> None:
        """A policy is told with its versions; in a list these have their texts in ``conjur`` alone (RES-18, RES-19)."""
        self.load("- !user carol\n", method="PATCH")
        first, second = self.show("policy/root")["policy_versions"]
        self.assertEqual((first["version"], first["policy_text"]), (1, POLICY))
        self.assertEqual(second.pop("created_at"), second.pop("finished_at"))
        self.assertEqual(
            second,
            {
                "version": 2,
                "policy_text": "- !user carol\n",
                "policy_sha256": hashlib.sha256(b"- !user carol\n").hexdigest(),
                "client_ip": "192.0.2.7",
                "id": "acme:policy:root",
                "role": "acme:user:admin",
            },
        )
        [app, root] = self.client.get("/resources/acme/policy", role=ADMIN).json()
        self.assertEqual(app["policy_versions"], [])
        self.assertEqual([version["version"] for version in root["policy_versions"]], [1, 2])
        texts = [version.get("policy_text") for version in root["policy_versions"]]
        self.assertEqual(texts, [POLICY, "- !user carol\n"] if self.dialect is CONJUR else [None, None])
        for page in ("limit=1000", "search=root", "limit=1&offset=1"):
            found = self.client.get(f"/resources/acme/policy?{page}", role=ADMIN).json()[-1]
            self.assertEqual(found["policy_versions"], root["policy_versions"])

    def test_long_texts(self) -> None:
        """Of long texts a policy is told with the newest that together are not too long; it has all versions still
        (RES-19).
        """
        text = "- !user carol\n#" + "x" * (TEXTS_MOST // 2)
        for _ in range(3):
            self.load(text)
        versions = self.show("policy/root")["policy_versions"]
        self.assertEqual([version.get("policy_text") for version in versions], [None, None, None, text])
        # In a list those of all policies count together, in its order.
        self.load("- !variable v\n", policy="app")
        [app, root] = self.client.get("/resources/acme/policy", role=ADMIN).json()
        told = [version.get("policy_text") for policy in (app, root) for version in policy["policy_versions"]]
        self.assertEqual(told, ["- !variable v\n", None, None, None, text] if self.dialect is CONJUR else [None] * 5)

    def test_other_kinds(self) -> None:
        """What is told of one kind only isn't told of another (RES-18, HF-2)."""
        for path in ("group/app%2Fdeployers", "webservice/app", "layer/prod", "user/bob", "host/app%2Fweb"):
            shown = self.show(path)
            self.assertEqual({*shown} & {"secrets", "policy_versions", "layers"}, set(), path)

    def test_same_in_a_list(self) -> None:
        """A resource is told the same in a list (RES-17)."""
        [listed] = self.client.get("/resources/acme/host", role=ADMIN).json()
        self.assertEqual(listed, self.client.get("/resources/acme/host/app%2Fweb", role=ADMIN).json())

    def test_paths(self) -> None:
        """Identifiers are percent-encoded, once; a raw slash and an encoded one mean the same; a plus is a plus."""
        self.load('- !variable a/b@c+d&e\n- !variable "%41/.."\n')
        for path in ("a%2Fb%40c%2Bd%26e", "a/b@c+d&e", "a%2fb@c+d%26e/"):
            self.assertEqual(self.show(f"variable/{path}")["id"], "acme:variable:a/b@c+d&e", path)
        self.assertEqual(self.show("variable/%2541%2F..")["id"], "acme:variable:%41/..")
        for path in ("A%2F..", "a%20b@c%2Bd%26e", "a%252Fb%2540c%252Bd%2526e", "app%2Fapi-key%2F", "app/../app/api-key"):
            self.refused(f"/resources/acme/variable/{path}", 404)

    def test_bad_names(self) -> None:
        """An identifier with NUL, of bytes that are no UTF-8, with a broken escape, or too long, is 422 (NAME-9)."""
        for path in ("%00", "a%00b", "%FF", "%C0%AF", "%", "%zz", "x" * 1025, "%E2%98%83" * 400):
            self.assertEqual(self.refused(f"/resources/acme/variable/{path}", 422)["code"], "argument_error")
        self.refused("/resources/a%20b/variable/x", 422)

    def test_hidden(self) -> None:
        """What the caller may not see is 404 with the words of what is missing; so is all of another account (ROLE-6,
        RES-15).
        """
        self.other_account()
        for path, role in (
            (PASSWORD, user("bob")),
            ("/resources/acme/group/app%2Fdeployers", user("alice")),
            ("/resources/other/variable/hidden", ADMIN),
            ("/resources/acme/variable/none", ADMIN),
            ("/resources/none/variable/x", ADMIN),
        ):
            for query in ("", "?check&privilege=read", "?permitted_roles&privilege=read"):
                account, kind, *rest = path.split("/")[2:]
                identifier = "/".join(rest).replace("%2F", "/")
                self.assertEqual(
                    self.refused(path + query, 404, role),
                    {
                        "code": "not_found",
                        "message": f"{kind.capitalize()} '{identifier}' not found in account '{account}'",
                        "target": kind,
                        "details": {"code": "not_found", "target": "id", "message": f"{account}:{kind}:{identifier}"},
                    },
                )

    def test_callers(self) -> None:
        """Without a token a resource is 401; with that of a role that is gone, 403 (RES-15)."""
        for query in ("", "?check&privilege=read", "?permitted_roles&privilege=read"):
            self.assertEqual(self.client.get(PASSWORD + query).status, 401)
            self.assertIsNone(self.refused(PASSWORD + query, 403, user("gone")))


class PrivilegeTests(ResourcesCase):
    """What both dialects have in common: who has a privilege."""

    def check(self, query: str, role: RoleName = ADMIN, path: str = PASSWORD) -> int:
        """The status of a check, whose body must be empty."""
        answer = self.client.get(f"{path}?{query}", role=role)
        self.assertEqual(answer.body, b"", query)
        return answer.status

    def test_check(self) -> None:
        """Who has the privilege, or owns the resource, is told 204; who sees it without, 404; both with an empty body
        (RES-21).
        """
        for privilege in ("read", "execute"):
            self.assertEqual(self.check(f"check&privilege={privilege}", HOST), 204)
        self.assertEqual(self.check("check=false&privilege=read", HOST), 204)
        for privilege in ("update", "Read", "", "read%20"):
            self.assertEqual(self.check(f"check&privilege={privilege}", HOST), 404, privilege)
            self.assertEqual(self.check(f"check&privilege={privilege}", ADMIN), 204, privilege)

    def test_check_of_roles(self) -> None:
        """``role`` asks for a role that the caller holds; ``acting_as`` has no say; an empty one is the caller (RES-22)."""
        self.assertEqual(self.check("check&privilege=read&role=acme:host:app/web"), 204)
        self.assertEqual(self.check("check&privilege=update&role=acme:host:app/web"), 404)
        self.assertEqual(self.check("check&privilege=read&role=acme:user:bob"), 404)
        self.assertEqual(self.check("check&privilege=update&role="), 204)
        self.assertEqual(self.check("check&privilege=update&acting_as=acme:host:app/web"), 204)
        self.assertEqual(self.check("check&privilege=read&role=acme:host:app/web", HOST), 204)

    def test_check_of_other_roles(self) -> None:
        """A role that isn't there, or isn't held, is 403, whether the caller sees the resource or not (RES-22)."""
        for path in (PASSWORD, "/resources/acme/variable/none"):
            for role, caller in (
                ("acme:user:none", ADMIN),
                ("user:bob", ADMIN),
                ("other:user:admin", ADMIN),
                ("acme:user:admin", HOST),
                ("acme:user:alice", user("bob")),
            ):
                self.assertEqual(self.check(f"check&privilege=read&role={role}", caller, path), 403)

    def test_privilege_is_needed(self) -> None:
        """A question for no privilege is 422, before anything else is looked at (RES-25)."""
        for query in ("check", "check&privilege", "permitted_roles", "permitted_roles&permission", "check&permission=read"):
            for path in (PASSWORD, "/resources/acme/variable/none"):
                error = self.refused(f"{path}?{query}&role=nonsense", 422)
                self.assertEqual(error, {"code": "argument_error", "message": "privilege"}, query)
        self.refused(f"{PASSWORD}?check&privilege=a&privilege=b", 422)
        self.refused(f"{PASSWORD}?check&privilege=%00", 422)

    def test_permitted_roles_have_no_pages(self) -> None:
        """What chooses a part of other lists is 422 there, named in the message (RES-23)."""
        for part in ("limit=1", "offset=0", "count", "count=true", "kind=user", "kind[]=user", "search=alice", "limit"):
            error = self.refused(f"{PASSWORD}?permitted_roles&privilege=read&{part}", 422)
            name = part.partition("=")[0].removesuffix("[]")
            self.assertIn(f"'{name}' has no effect here", error["message"])

    def test_check_comes_first(self) -> None:
        """With both flags, ``check`` counts (RES-25)."""
        self.assertEqual(self.check("permitted_roles&check&privilege=read"), 204)

    def test_permitted_roles(self) -> None:
        """The roles with a privilege are the owner, those permitted, and all that hold one of these, by id (RES-23)."""
        for query in ("privilege=read", "permission=read", "privilege=read&permission=update", "privilege=execute"):
            self.assertEqual(
                self.client.get(f"{PASSWORD}?permitted_roles&{query}", role=HOST).json(),
                ["acme:host:app/web", "acme:policy:app", "acme:user:admin"],
                query,
            )
        updaters = self.client.get("/resources/acme/variable/app%2Fapi-key?permitted_roles&privilege=update", role=ADMIN)
        self.assertEqual(
            updaters.json(), ["acme:group:app/deployers", "acme:policy:app", "acme:user:admin", "acme:user:alice"]
        )

    def test_too_many_permitted(self) -> None:
        """More roles than a request may follow are 422 (ROLE-32, RES-24, LIM-16)."""
        self.patch(resources, "PERMITTED_MOST", 2)
        error = self.refused(f"{PASSWORD}?permitted_roles&privilege=read", 422)
        self.assertEqual(error["code"], "unprocessable_entity")
        self.assertEqual(len(self.client.get(f"{PASSWORD}?permitted_roles&privilege=none", role=ADMIN).json()), 2)


class NativeTests(ResourcesCase):
    """What lists have in the native dialect alone."""

    def test_search_order(self) -> None:
        """What is found by identifier or ``name`` comes first, then by another annotation, then by kind (RES-13)."""
        self.load(
            "- !host { id: a, annotations: { description: my layer } }\n- !user { id: z, annotations: { name: Layer } }\n"
        )
        self.assertEqual(self.ids("/resources/acme?search=layer"), ["acme:user:z", "acme:host:a", "acme:layer:prod"])
        self.assertEqual(self.ids("/resources/acme?search=layer&limit=1&offset=1"), ["acme:host:a"])

    def test_values_in_pieces(self) -> None:
        """Annotation values are searched in pieces, as identifiers are (RES-11)."""
        self.load("- !host { id: a, annotations: { address: ci.example.com } }\n")
        self.assertEqual(self.ids("/resources/acme?search=example"), ["acme:host:a"])

    def test_bare_count(self) -> None:
        """``count`` without a value counts (RES-6)."""
        for query in ("count", "count="):
            self.assertEqual(self.client.get(f"/resources/acme?{query}", role=ADMIN).json(), {"count": 11})


class ConjurTests(ListTests):
    """Lists as the installed base has them."""

    dialect = CONJUR

    def test_search_order(self) -> None:
        """What is found comes by id (RES-13)."""
        self.load(
            "- !host { id: a, annotations: { description: my layer } }\n- !user { id: z, annotations: { name: Layer } }\n"
        )
        self.assertEqual(self.ids("/resources/acme?search=layer"), ["acme:host:a", "acme:layer:prod", "acme:user:z"])

    def test_values_as_they_are(self) -> None:
        """A host name in an annotation is one word, and no text finds it that is cut into pieces (RES-11)."""
        self.load("- !host { id: a, annotations: { address: ci.example.com } }\n")
        self.assertEqual(self.ids("/resources/acme?search=example"), [])
        self.assertEqual(self.ids("/resources/acme?search=ci.example.com"), [])


class ConjurShowTests(ShowTests):
    """Single resources as the installed base has them."""

    dialect = CONJUR


class ConjurPrivilegeTests(PrivilegeTests):
    """Privileges as the installed base has them."""

    dialect = CONJUR
