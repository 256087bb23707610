"""Tests of ``svc.web.routes.host_factories``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs

from svc.model.dialect import CONJUR
from svc.model.host_factories import digest_token, name_token
from svc.model.names import ResourceName, RoleName
from svc.model.query_results import AccessFacts, CallerOrRole
from tests.memory import MemoryRoles
from tests.web.support import NOW, PEER, Answer, Client
from tests.web.world import ACCOUNT, ADMIN, WorldCase, user

POLICY = """
- !user maker
- !user reader
- !user remover
- !user eve
- !layer web
- !layer db
- !group ops
- !host-factory { id: fleet, layers: [ !layer web, !layer db ] }
- !host-factory { id: other, layers: [ !layer web ] }
- !host declared
- !permit { role: !user maker, privileges: [ execute ], resource: !host-factory fleet }
- !permit { role: !user maker, privileges: [ execute ], resource: !group ops }
- !permit { role: !user reader, privileges: [ read ], resource: !host-factory fleet }
- !permit { role: !user remover, privileges: [ update ], resource: !host-factory fleet }
"""

MAKER, READER, REMOVER, EVE = map(user, ("maker", "reader", "remover", "eve"))
FLEET = "acme:host_factory:fleet"
TOKENS, HOSTS = "/host_factory_tokens", "/host_factories/hosts"
JSON = [("Content-Type", "application/json")]

#: An hour after what the clock shows.
EXPIRATION = "2023-11-14T23:13:20Z"


class FactoryCase(WorldCase):
    """A server with two host factories."""

    def setUp(self) -> None:
        """Load the policy."""
        super().setUp()
        self.load(POLICY)

    def ask(self, role: RoleName | None = MAKER, fields: Mapping[str, Any] | None = None, **more: Any) -> Answer:
        """Ask for tokens, with a form."""
        given = {"host_factory": FLEET, "expiration": EXPIRATION, **(fields or {}), **more}
        form = urlencode([(key, value) for key, value in given.items() if value is not None], doseq=True)
        return self.client.post(TOKENS, form.encode(), role=role)

    def token(self, **fields: Any) -> str:
        """A token of a factory."""
        [made] = self.ask(ADMIN, **fields).json()
        return str(made["token"])

    def make(self, token: str, fields: Mapping[str, str] | None = None, **more: Any) -> Answer:
        """Make a host with a token and a form."""
        headers = [("Authorization", f'Token token="{token}"')]
        return self.client.post(HOSTS, urlencode(fields or {"id": "web-1"}).encode(), headers=headers, **more)


class TokenTests(FactoryCase):
    """Tokens, HF-3 to HF-10."""

    def test_made(self) -> None:
        """A token is told with its expiration and networks, once; it is kept as its SHA-256 (HF-3)."""
        answer = self.ask(fields={"cidr[]": ["192.0.2.0/24", "2001:db8::1"]})
        self.assertEqual(answer.status, 200)
        [made] = answer.json()
        self.assertEqual(made["expiration"], EXPIRATION)
        self.assertEqual(made["cidr"], ["192.0.2.0/24", "2001:db8::1/128"])
        self.assertRegex(made["token"], r"\A[0-9a-hjkmnp-tv-z]{45,56}\Z")
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.assertEqual(list(self.memory.factory_tokens), [digest_token(made["token"])])
        self.assertNotIn(made["token"], repr(self.memory))
        [told] = self.client.get("/resources/acme/host_factory/fleet", role=ADMIN).json()["tokens"]
        name = name_token(digest_token(made["token"]))
        self.assertEqual(told, {"id": name, "expiration": EXPIRATION, "cidr": made["cidr"]})

    def test_count(self) -> None:
        """So many tokens are made as ``count`` says, each another; without it one (HF-3)."""
        self.assertEqual(len({made["token"] for made in self.ask(count=1000).json()}), 1000)
        self.assertEqual(len(self.ask(count="").json()), 1)

    def test_from_json_and_query(self) -> None:
        """The parameters may come in JSON or in the query too; what the body says counts first (HF-4, WIRE-25)."""
        said = {"host_factory": FLEET, "expiration": EXPIRATION, "count": 2, "cidr": ["10.0.0.0/8"]}
        answer = self.client.post(TOKENS, json.dumps(said).encode(), headers=JSON, role=MAKER)
        self.assertEqual([made["cidr"] for made in answer.json()], [["10.0.0.0/8"]] * 2)
        query = urlencode({"host_factory": FLEET, "expiration": EXPIRATION, "count": "3", "cidr": "::1"})
        answer = self.client.post(f"{TOKENS}?{query}", role=MAKER)
        self.assertEqual([made["cidr"] for made in answer.json()], [["::1/128"]] * 3)
        self.assertEqual(len(self.client.post(f"{TOKENS}?{query}", b"count=1", role=MAKER).json()), 1)

    def test_forms_of_expiration(self) -> None:
        """ISO 8601 is read as clients write it; without an offset it is UTC (HF-6)."""
        for text, told in (
            ("2023-11-15", "2023-11-15T00:00:00Z"),
            ("2023-11-15T01:02:03.456789", "2023-11-15T01:02:03Z"),
            ("2023-11-15T01:02:03+01:00", "2023-11-15T00:02:03Z"),
            ("20231115T010203Z", "2023-11-15T01:02:03Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:59:58.9-00:00:01.099999", "9999-12-31T23:59:59Z"),
        ):
            self.assertEqual(self.ask(expiration=text).json()[0]["expiration"], told)
        self.assertEqual(self.client.get("/resources/acme/host_factory/fleet", role=ADMIN).status, 200)

    def test_order_of_checks(self) -> None:
        """No factory, an unseen one, another kind, no privilege, then what is wrong with the rest, one after the other
        (HF-5, FAIL-20).
        """
        wrong: dict[str, Any] = {"expiration": None, "count": "x", "cidr": "x"}
        self.assertEqual(self.error(self.ask(**wrong, host_factory=None), 422, "argument_error"), "host_factory")
        for role, factory in ((EVE, FLEET), (MAKER, "acme:host_factory:none"), (MAKER, "other:host_factory:fleet")):
            message = self.error(self.ask(role, **wrong, host_factory=factory), 404, "not_found")
            account, _, name = factory.split(":")
            self.assertEqual(message, f"Host_factory '{name}' not found in account '{account}'")
        message = self.error(self.ask(**wrong, host_factory="acme:group:ops"), 422, "argument_error")
        self.assertIn("Invalid resource kind: group", message)
        answer = self.ask(READER, **wrong)
        self.assertEqual((answer.status, answer.body), (403, b""))
        self.assertEqual(self.error(self.ask(**wrong), 422, "argument_error"), "expiration")
        wrong["expiration"] = "soon"
        self.assertIn("Invalid value for parameter 'count': x", self.error(self.ask(**wrong), 422, "argument_error"))
        wrong["count"] = "1"
        message = self.error(self.ask(**wrong), 422, "argument_error")
        self.assertIn("Input is invalid ISO8601 datetime string: soon", message)
        wrong["expiration"] = "2023-11-14T22:13:20Z"
        message = self.error(self.ask(**wrong), 422, "argument_error")
        self.assertEqual(message, "Value for parameter expiration must be in the future: 2023-11-14T22:13:20Z")
        wrong["expiration"] = EXPIRATION
        message = self.error(self.ask(**wrong), 422, "unprocessable_entity")
        self.assertEqual(message, "Invalid IP address or CIDR range 'x'")
        self.assertEqual(self.memory.factory_tokens, {})

    def test_bad_factories(self) -> None:
        """What is no full id of a resource is 422, and named (HF-5)."""
        for text in (
            "fleet",
            "host_factory:fleet",
            "acme:hostfactory:fleet",
            "a b:host_factory:fleet",
            "acme:host_factory:",
        ):
            self.assertIn("host_factory", self.error(self.ask(host_factory=text), 422, "argument_error"))

    def test_bad_counts(self) -> None:
        """A count is a number from 1 to 1000 and nothing else (HF-4, LIM-19)."""
        for text in ("0", "-1", "1.5", "1001", "01", "+1", " 1", "1e2", "\uff19", "9" * 50):
            self.assertIn("count", self.error(self.ask(count=text), 422, "argument_error"))

    def test_bad_expirations(self) -> None:
        """What is no date is 422, and so is what no calendar has (HF-6)."""
        for text in ("tomorrow", "2023-02-30", "2050-12-31T25:00:00Z", "9999-12-31T23:59:59-23:59", "1700003600", "-1"):
            self.assertIn("ISO8601", self.error(self.ask(expiration=text), 422, "argument_error"), text)

    def test_bad_networks(self) -> None:
        """What is no network is 422, and one with bits beyond its mask is told which was meant (HF-4, HF-7, LIM-19)."""
        for text, more in (
            ("10.0.0.0/33", ""),
            ("10.0.0.0/255.0.0.0", ""),
            ("fe80::1%eth0", ": An address has no zone here"),
            ("10.0.0", ""),
            ("0x7f.1", ""),
        ):
            message = self.error(self.ask(cidr=text), 422, "unprocessable_entity")
            self.assertEqual(message, f"Invalid IP address or CIDR range '{text}'{more}")
        message = self.error(self.ask(cidr=["::1", "10.0.0.1/24"]), 422, "unprocessable_entity")
        self.assertIn("Did you mean '10.0.0.0/24'?", message)

    def test_networks_with_keys(self) -> None:
        """Networks with a key in brackets are 422, wherever they are written: no token is made that works from everywhere
        (WIRE-21).
        """
        plain = {"host_factory": FLEET, "expiration": EXPIRATION}
        for name in ("cidr[0]", "cidr[a]", "cidr[][]", "cidr[", "cidr[ ]"):
            asked = urlencode({**plain, name: "10.0.0.0/8"})
            for answer in (self.ask(fields={name: "10.0.0.0/8"}), self.client.post(f"{TOKENS}?{asked}", role=MAKER)):
                self.assertIn("cidr", self.error(answer, 422, "argument_error"))
            both = self.client.post(f"{TOKENS}?{asked}", b"cidr=10.0.0.0/8", role=MAKER)
            self.assertIn("cidr", self.error(both, 422, "argument_error"))
        for more in (
            {"cidr": {"0": "10.0.0.0/8"}},
            {"cidr[]": ["10.0.0.0/8"]},
            {"cidr[0]": "10.0.0.0/8"},
            {"cidr": [["::1"]]},
        ):
            answer = self.client.post(TOKENS, json.dumps({**plain, **more}).encode(), headers=JSON, role=MAKER)
            self.assertIn("cidr", self.error(answer, 422, "argument_error"))
        self.assertEqual(self.memory.factory_tokens, {})

    def test_networks_in_other_bodies(self) -> None:
        """A body that is neither a form nor JSON by its content type is 400, beside parameters in the query: the networks in
        it aren't ignored (WIRE-59).
        """
        target = f"{TOKENS}?{urlencode({'host_factory': FLEET, 'expiration': EXPIRATION})}"
        many = b'--x\r\nContent-Disposition: form-data; name="cidr"\r\n\r\n10.0.0.0/8\r\n--x--\r\n'
        for body in (
            b'{"cidr": ["10.0.0.0/8"]}',
            b'{"cidr": "10.0.0.0/8", "a": "="}',
            many,
            b"cidr: 10.0.0.0/8\n",
            b"<cidr/>",
        ):
            for content_type in (None, "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"):
                headers = [] if content_type is None else [("Content-Type", content_type)]
                self.error(self.client.post(target, body, headers=headers, role=MAKER), 400, "bad_request")
        self.assertEqual(self.memory.factory_tokens, {})
        for other in ("text/plain", "application/octet-stream"):
            sent = [("Content-Type", other)]
            [made] = self.client.post(target, b"cidr=10.0.0.0/8", headers=sent, role=MAKER).json()
            self.assertEqual(made["cidr"], ["10.0.0.0/8"])

    def test_bad_bodies(self) -> None:
        """A body that can't be read is 400 or 413, and a value of another type 422; repeated single values are 422 (HF-10,
        LIM-4).
        """
        for body in (b"{", b"[]", b'{"a": 1, "a": 2}', b"\xff", b'{"count": NaN}', b"[" * 60_000):
            self.error(self.client.post(TOKENS, body, headers=JSON, role=MAKER), 400, "bad_request")
        self.error(self.client.post(TOKENS, b"a=%zz", role=MAKER), 400, "bad_request")
        self.error(self.client.post(TOKENS, b"a=" + b"x" * 70_000, role=MAKER), 413, "too_large")
        self.error(self.client.post(TOKENS, b'{"a":"' + b"x" * 70_000 + b'"}', headers=JSON, role=MAKER), 413, "too_large")
        many = json.dumps({"cidr": ["::1"] * 1001}).encode()
        self.error(self.client.post(TOKENS, many, headers=JSON, role=MAKER), 400, "bad_request")
        values: tuple[object, ...] = (True, 1.5, [["x"]], {"a": {}}, "\ud800", "\x00")
        for value in values:
            body = json.dumps({"host_factory": value}).encode()
            message = self.error(self.client.post(TOKENS, body, headers=JSON, role=MAKER), 422, "argument_error")
            self.assertIn("host_factory", message)
        for value in (1.5, [1.5], {"a": [1]}):
            body = json.dumps({"host_factory": FLEET, "count": value}).encode()
            message = self.error(self.client.post(TOKENS, body, headers=JSON, role=MAKER), 422, "argument_error")
            self.assertEqual(message, "'count' must be a text, a whole number, true or false")
        self.assertIn("given once", self.error(self.ask(count=["1", "2"]), 422, "argument_error"))
        self.assertIn("given once", self.error(self.ask(fields={"count[]": "1"}), 422, "argument_error"))

    def test_encoded_bodies(self) -> None:
        """A body that is compressed, or in an unknown encoding, is 415, and the header named; with a charset there, or
        without a body, it is as without the header (WIRE-60).
        """
        target = f"{TOKENS}?{urlencode({'host_factory': FLEET, 'expiration': EXPIRATION})}"
        for encoding in ("gzip", "identity, br", "ZSTD", "xz", "gzip;q=1", "utf-8,lz4"):
            answer = self.client.post(target, b"\x1f\x8b", headers=[("Content-Encoding", encoding)], role=MAKER)
            self.assertIn("Content-Encoding", self.error(answer, 415, "unsupported_media_type"))
        for body, encoding in ((b"count=1", "Identity"), (b"count=1", "UTF-8, iso-8859-15,"), (b"", "gzip")):
            answer = self.client.post(target, body, headers=[("Content-Encoding", encoding)], role=MAKER)
            self.assertEqual(len(answer.json()), 1)

    def test_callers(self) -> None:
        """Without a token it is 401, with the token of a role that is gone 403; a standby answers 405."""
        self.assertEqual(self.ask(None).status, 401)
        self.assertEqual(self.ask(user("gone")).status, 403)
        self.memory.standby = True
        self.assertEqual(self.ask().status, 405)

    def test_revoked(self) -> None:
        """A revoked token makes no host any more; who has ``update`` on its factory may revoke it (HF-9)."""
        token = self.token()
        self.assertEqual(self.client.delete(f"{TOKENS}/{token}", role=REMOVER).status, 204)
        self.assertEqual(self.make(token).status, 401)
        self.assertEqual(self.client.delete(f"{TOKENS}/{token}", role=REMOVER).status, 404)

    def listed(self, query: str = "", role: RoleName | None = READER, factory: str = FLEET) -> Answer:
        """List tokens."""
        return self.client.get(f"{TOKENS}?host_factory={factory}{query}", role=role)

    def test_listed(self) -> None:
        """The tokens of a factory are listed for who sees it, without their texts, by ids; those that expire first come
        first, up to 1,000 of them (HF-28).
        """
        later = self.token(expiration="2023-11-15T00:00:00Z", **{"cidr[]": "10.0.0.0/8"})
        soon = {self.token() for _ in range(3)}
        names = sorted(name_token(digest_token(text)) for text in soon)
        answer = self.listed()
        expected = [{"id": name, "expiration": EXPIRATION, "cidr": []} for name in names]
        last = {"id": name_token(digest_token(later)), "expiration": "2023-11-15T00:00:00Z", "cidr": ["10.0.0.0/8"]}
        self.assertEqual((answer.status, answer.json()), (200, [*expected, last]))
        for text in (later, *soon):
            self.assertNotIn(text, answer.body.decode())
        self.assertEqual(self.listed("&limit=2&offset=1").json(), expected[1:3])
        self.assertEqual(self.listed("&offset=4").json(), [])
        self.ask(ADMIN, count=1000)
        self.assertEqual(len(self.listed().json()), 1000)
        self.assertEqual(len(self.listed("&offset=1000").json()), 4)
        self.assertEqual(self.listed(factory="acme:host_factory:other", role=ADMIN).json(), [])

    def test_not_listed(self) -> None:
        """A factory that isn't seen is 404 like a missing one; what is no factory, or no page, is 422 (HF-28)."""
        self.token()
        self.assertEqual(self.listed(role=None).status, 401)
        self.assertEqual(self.listed(role=user("gone")).status, 403)
        hidden = self.error(self.listed(role=EVE), 404, "not_found")
        missing = self.error(self.listed(factory="acme:host_factory:none"), 404, "not_found")
        self.assertEqual(hidden.replace("fleet", "none"), missing)
        self.assertIn("group", self.error(self.listed(factory="acme:group:ops", role=MAKER), 422, "argument_error"))
        for factory in ("", "fleet", "acme:dragon:x"):
            self.assertIn("host_factory", self.error(self.listed(factory=factory), 422, "argument_error"))
        for query in ("&limit=0", "&limit=1001", "&limit=x", "&offset=-1"):
            self.error(self.listed(query), 422, "unprocessable_entity")

    def test_revoked_by_id(self) -> None:
        """A token is revoked by its id, too, by who has ``update`` on its factory; others get what they get for a token, and
        an id makes no host (HF-29).
        """
        token, kept = self.token(), self.token()
        name = name_token(digest_token(token))
        self.assertEqual(self.make(name).status, 401)
        for role, asked in ((EVE, name), (REMOVER, "sha256:0123456789ab"), (REMOVER, name.upper()), (REMOVER, name[:-1])):
            self.assertEqual(self.client.delete(f"{TOKENS}/{asked}", role=role).status, 404, asked)
        message = self.error(self.client.delete(f"{TOKENS}/{name}", role=EVE), 404, "not_found")
        self.assertEqual(message, f"Host_factory_token '{name}' not found in account 'acme'")
        self.assertEqual(self.client.delete(f"{TOKENS}/{name}", role=READER).status, 403)
        self.assertEqual(self.client.delete(f"{TOKENS}/{name}", role=user("gone")).status, 403)
        self.assertEqual(self.client.delete(f"{TOKENS}/{name}", role=REMOVER).status, 204)
        self.assertEqual(self.client.delete(f"{TOKENS}/{name}", role=REMOVER).status, 404)
        self.assertEqual((self.make(token).status, self.make(kept).status), (401, 201))

    def test_questions(self) -> None:
        """Of a token that isn't there the same is asked as of one that the caller doesn't see (FAIL-18, HF-29)."""
        asked: list[str] = []

        async def counted(roles: MemoryRoles, caller: CallerOrRole, resource: ResourceName) -> AccessFacts:
            asked.append(str(resource))
            return await original(roles, caller, resource)

        original = MemoryRoles.access_facts
        token = self.token()
        self.patch(MemoryRoles, "access_facts", counted)
        for text in (token, name_token(digest_token(token)), "unknown", "sha256:0123456789ab"):
            asked.clear()
            self.assertEqual(self.client.delete(f"{TOKENS}/{text}", role=EVE).status, 404)
            self.assertEqual(len(asked), 1, text)

    def test_not_revoked(self) -> None:
        """An unknown token, and one whose factory isn't seen, are 404 in the same words, which don't tell it; else 403
        (HF-9).
        """
        token = self.token()
        for role, text in ((EVE, token), (REMOVER, "unknown"), (MAKER, "%2F"), (MAKER, "x" * 1000)):
            answer = self.client.delete(f"{TOKENS}/{text}", role=role)
            message = self.error(answer, 404, "not_found")
            self.assertRegex(message, r"\AHost_factory_token 'sha256:[0-9a-f]{12}' not found in account 'acme'\Z")
            self.assertNotIn(text, message)
            self.assertNotIn("fleet", answer.body.decode())
        self.assertEqual(self.client.delete(f"{TOKENS}/{token}", role=READER).status, 403)
        self.assertEqual(self.client.delete(f"{TOKENS}/{token}").status, 401)
        self.assertEqual(self.client.delete(f"{TOKENS}/{token}", role=user("gone")).status, 403)
        self.assertEqual(self.make(token).status, 201)


class HostTests(FactoryCase):
    """Hosts, HF-11 to HF-24."""

    def test_new(self) -> None:
        """A new host is told as its resource is, with its API key; it belongs to the factory's layers and can log in (HF-11,
        HF-15).
        """
        answer = self.make(self.token(), {"id": "web-1", "annotations[size]": "small", "annotations[it's]": "ü"})
        self.assertEqual(answer.status, 201)
        host = answer.json()
        self.assertEqual((host["id"], host["owner"], host["permissions"]), ("acme:host:web-1", FLEET, []))
        self.assertEqual(host["annotations"], [{"name": "it's", "value": "ü"}, {"name": "size", "value": "small"}])
        self.assertEqual(host["restricted_to"], [])
        self.assertNotIn("policy", host)
        self.assertEqual(self.client.post("/authn/acme/host%2Fweb-1/authenticate", host["api_key"].encode()).status, 200)
        for layer in ("web", "db"):
            self.assertIn((f"acme:layer:{layer}", "acme:host:web-1", False), self.memory.memberships)

    def test_again(self) -> None:
        """The same host again has another API key, in place of the first (HF-16)."""
        first = self.make(self.token()).json()["api_key"]
        answer = self.make(self.token())
        self.assertEqual(answer.status, 201)
        self.assertNotEqual(answer.json()["api_key"], first)
        self.assertEqual(self.client.post("/authn/acme/host%2Fweb-1/authenticate", first.encode()).status, 401)

    def test_others(self) -> None:
        """A host that policy declared or that another factory made is 403, without a body, and keeps its key (HF-17)."""
        self.make(self.token(host_factory="acme:host_factory:other"), {"id": "its"})
        before = dict(self.memory.credentials)
        for name in ("declared", "its"):
            answer = self.make(self.token(), {"id": name})
            self.assertEqual((answer.status, answer.body), (403, b""))
        self.assertEqual(self.memory.credentials, before)

    def test_ids(self) -> None:
        """An id is absolute; the reserved prefix, ids that begin with a slash, none and impossible ones are 422 (HF-18)."""
        token, prefix = self.token(), self.dialect.prefix
        self.assertEqual(self.make(token, {"id": f"{prefix}-x"}).json()["id"], f"acme:host:{prefix}-x")
        self.assertEqual(self.make(token, {"id": "a/b c"}).json()["id"], "acme:host:a/b c")
        for name in (f"{prefix}/x", f"/{prefix}/x", "/x", "/"):
            self.assertEqual(self.error(self.make(token, {"id": name}), 422, "argument_error"), f"Invalid id: {name}")
        self.assertEqual(self.error(self.make(token, {"x": "y"}), 422, "parameter_missing"), "id")
        self.assertIn("id", self.error(self.make(token, {"id": ""}), 422, "parameter_missing"))
        self.assertIn("1024 bytes", self.error(self.make(token, {"id": "ü" * 513}), 422, "argument_error"))

    def test_bad_annotations(self) -> None:
        """Annotations have the bounds that policy sets them, and keys (HF-22)."""
        token = self.token()
        for key, value in (
            ("annotations", "x"),
            ("annotations[a", "x"),
            ("annotations[a][b]", "x"),
            ("annotations[]", "x"),
            ("annotations[ ]", "x"),
            (f"annotations[{'x' * 1025}]", "x"),
        ):
            message = self.error(self.make(token, {"id": "h", key: value}), 422, "argument_error")
            self.assertIn("annotations", message)
        self.assertEqual(self.make(token, {"id": "h", "annotations[a]": ""}).json()["annotations"][0]["value"], "")

    def test_from_json_and_query(self) -> None:
        """Parameters may come in JSON, or in the query with an empty body (HF-11, WIRE-25)."""
        headers = [("Authorization", f"Token token={self.token()}")]
        body = json.dumps({"id": "j", "annotations": {"a/b": "c", "n": 5, "on": True, "off": False}}).encode()
        answer = self.client.post(HOSTS, body, headers=[*headers, ("Content-Type", "application/json; charset=utf-8")])
        made = {each["name"]: each["value"] for each in answer.json()["annotations"]}
        self.assertEqual(made, {"a/b": "c", "n": "5", "on": "true", "off": "false"})
        for value in (1.5, None, [], ["x"], {"x": "y"}):
            body = json.dumps({"id": "k", "annotations": {"a": value}}).encode()
            answer = self.client.post(HOSTS, body, headers=[*headers, ("Content-Type", "application/json")])
            self.assertIn("annotations", self.error(answer, 422, "argument_error"))
        answer = self.client.post(f"{HOSTS}?id=q&annotations%5Ba%5D=b", headers=headers)
        self.assertEqual((answer.json()["id"], len(answer.json()["annotations"])), ("acme:host:q", 1))

    def test_refused(self) -> None:
        """Without a good token it is 401 with nothing in it, before anything else is looked at; the log has the reason
        (HF-12).
        """
        token, here = self.token(), self.token(cidr="198.51.100.0/24")
        expired = self.token(expiration="2023-11-14T22:13:21Z")
        family = self.token(cidr=["2001:db8::/32", "::192.0.2.0/120"])
        self.clock.advance(1)
        for header, reason in (
            (None, "credentials-missing"),
            ("Basic YTpi", "credentials-missing"),
            ('Token token=""', "credentials-missing"),
            (f'Token token="{token}', "credentials-missing"),
            (f"token token={token}", "credentials-missing"),
            (f"Token token={token}x", "credentials-wrong"),
            (f"Token token={token.upper()}", "credentials-wrong"),
            (f"Token token={expired}", "token-expired"),
            (f"Token token={here}", "origin-refused"),
            (f"Token token={family}", "origin-refused"),
        ):
            headers = [] if header is None else [("Authorization", header)]
            with capturedLogs() as events:
                answer = self.client.post(HOSTS, b"annotations=x", headers=headers)
            self.assertEqual((answer.status, answer.body), (401, b""), header)
            [event] = [event for event in events if "reason" in event]
            self.assertEqual((event["reason"], event["client_ip"]), (reason, PEER))
        self.assertEqual(self.client.post(HOSTS, b"id=h", role=ADMIN).status, 401)

    def test_origins(self) -> None:
        """A token works from its networks, which a trusted proxy tells; a forged header is not believed (HF-12, HF-14)."""
        token = self.token(cidr=["::ffff:198.51.100.0/120", "2001:db8::/32"])
        for peer, forwarded, status in (
            ("::ffff:198.51.100.7", "", 201),
            ("198.51.100.7", "", 201),
            ("2001:db8::7", "", 201),
            ("127.0.0.1", "198.51.100.7", 201),
            ("127.0.0.1", "198.51.100.7, 192.0.2.1", 401),
            (PEER, "198.51.100.7", 401),
            ("127.0.0.1", "", 401),
        ):
            headers = [("Authorization", f"Token token={token}"), ("X-Forwarded-For", forwarded)]
            answer = self.client.post(HOSTS, b"id=h", headers=headers, peer=peer)
            self.assertEqual(answer.status, status, (peer, forwarded))

    def test_expires(self) -> None:
        """A token is good up to its expiration, and not at it (HF-13)."""
        token = self.token()
        self.clock.advance(3599.9)
        self.assertEqual(self.make(token).status, 201)
        self.clock.advance(0.1)
        self.assertEqual(self.make(token).status, 401)

    def test_tokens_are_not_told(self) -> None:
        """No log event has the text of a token or an API key, whatever is done with them (HF-8)."""
        with capturedLogs() as events:
            token = self.token()
            key = self.make(token).json()["api_key"]
            self.make(token, {"id": "declared"})
            self.make(token, {"id": "/"})
            self.client.delete(f"{TOKENS}/{token}", role=EVE)
            self.client.delete(f"{TOKENS}/{token}", role=ADMIN)
            self.make(token)
        self.assertGreaterEqual(len(events), 4)
        for event in events:
            text = repr({name: value for name, value in event.items() if name != "log_logger"})
            self.assertNotIn(token, text)
            self.assertNotIn(key, text)

    def test_standby(self) -> None:
        """A standby, which can make none, answers 405; while the store is away, it is 503 (HF-27)."""
        token = self.token()
        self.memory.standby = True
        self.assertEqual(self.make(token).status, 405)
        self.memory.standby, self.memory.down = False, True
        self.assertEqual(self.make(token).status, 503)

    def test_other_methods(self) -> None:
        """What has no route is 404."""
        self.assertEqual(self.client.get(HOSTS).status, 404)
        self.assertEqual(self.client.put(TOKENS, role=ADMIN).status, 404)
        self.assertEqual(self.client.delete(TOKENS, role=ADMIN).status, 404)

    def test_in_no_other_account(self) -> None:
        """A token makes hosts in its factory's own account, for any client (HF-21)."""
        self.assertEqual(self.make(self.token()).json()["id"].split(":")[0], ACCOUNT)


class ConjurTokenTests(TokenTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class ConjurHostTests(HostTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR


class AnyTextTests(FactoryCase):
    """Whatever a stranger says."""

    @settings(deadline=None, max_examples=60)
    @given(st.dictionaries(st.sampled_from(["id", "annotations", "annotations[a]", "x"]), st.text()), st.binary(max_size=60))
    def test_any(self, fields: Mapping[str, str], junk: bytes) -> None:
        """Any form, and any junk, makes a host or is refused with a status of the contract."""
        token = getattr(self, "kept", None) or self.token()
        self.kept = token
        form = urlencode({name: value.encode("utf-8", "replace") for name, value in fields.items()}).encode()
        client: Client = self.client
        for body in (form, junk):
            for headers in ([], JSON):
                answer = client.post(HOSTS, body, headers=[*headers, ("Authorization", f"Token token={token}")])
                self.assertIn(answer.status, {201, 400, 403, 422}, answer.body)

    @settings(deadline=None, max_examples=60)
    @given(st.text(alphabet="0123456789-:TZW+. ", max_size=30), st.text(alphabet="0123456789abcdef:./%", max_size=20))
    def test_any_token(self, expiration: str, network: str) -> None:
        """Any expiration and network makes a token that is good after now, or is 422."""
        answer = self.ask(expiration=expiration, cidr=network)
        self.assertIn(answer.status, {200, 422}, answer.body)
        self.assertTrue(all(token.expires_at > NOW for token in self.memory.factory_tokens.values()))
