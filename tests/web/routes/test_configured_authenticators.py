"""Tests of ``svc.web.routes.configured_authenticators``."""

from __future__ import annotations

from typing import Any, ClassVar

from svc.authn.oidc_settings import OidcConfiguration, parse_oidc_values
from svc.model.dialect import CONJUR
from svc.services.authenticator_types import MASKED
from tests.web.support import Answer
from tests.web.v2 import ALICE, BOB, V2Case
from tests.web.world import ADMIN

POLICY = """
- !user alice
- !user bob
- !group team
- !policy PREFIX/authn-jwt
- !policy PREFIX/authn-oidc
- !policy PREFIX/authn-iam
- !policy PREFIX/authn-ldap
- !policy PREFIX/authn-k8s
- !policy PREFIX/authn-gcp
- !policy PREFIX/CLOUD
- !permit { role: !user alice, privileges: [ read, create ], resource: !policy PREFIX/authn-jwt }
- !permit { role: !user bob, privilege: execute, resource: !policy PREFIX/authn-jwt }
- !policy
  id: PREFIX/authn-jwt/old
  body:
    - !webservice
    - !webservice status
    - !variable jwks-uri
    - !variable issuer
    - !variable audience
    - !variable enforced-claims
    - !variable claim-aliases
    - !permit { role: !user /bob, privileges: [ read ], resource: !webservice }
    - !permit { role: !user /bob, privileges: [ read ], resource: !variable jwks-uri }
    - !permit { role: !user /bob, privileges: [ read, execute ], resource: !variable issuer }
- !webservice PREFIX/authn-other/x
"""

WRONG = "It has characters that are not allowed."
OWNERS = "It is one of user, host, group."
NO_ALIAS = "An alias has letters, numbers, - and _, and is none of aud, exp, iat, iss, jti, nbf."
NO_CLAIM = "Claims may not have blanks, commas, colons, < or >."

PATH = "/authenticators/acme"


class ConfiguredAuthenticatorsTests(V2Case):
    """Authenticators in the native dialect."""

    cloud: ClassVar[str] = "cloud"

    def setUp(self) -> None:
        """Load policy, and set some values."""
        super().setUp()
        self.prefix = self.dialect.prefix
        self.load(POLICY.replace("PREFIX", self.prefix).replace("CLOUD", self.dialect.cloud))
        for name, value in (
            ("jwks-uri", b"https://keys.example.org"),
            ("issuer", b"https://issuer.example.org"),
            ("enforced-claims", b"ref, actor"),
            ("claim-aliases", b"branch:ref,who:sub"),
        ):
            self.set_value(f"{self.prefix}/authn-jwt/old/{name}", value)

    def new(self, kind: str = "jwt", name: str = "new", data: object = None, **more: object) -> dict[str, Any]:
        """The body of a request that makes an authenticator."""
        given = {"jwks_uri": "https://keys.example.org"} if data is None and kind == "jwt" else data
        return {"type": kind, "name": name, **({} if given is None else {"data": given}), **more}

    def make(self, *args: Any, role: Any = ADMIN, **more: Any) -> Any:
        """Make an authenticator, and return what is told of it."""
        return self.told("POST", PATH, self.new(*args, **more), role=role, status=201)

    # -- reading ------------------------------------------------------------------------------------------------------

    def test_show(self) -> None:
        """An authenticator has its type, policy, name, state, owner, and values of its variables (NEWER-30, NEWER-32)."""
        shown = self.told("GET", f"{PATH}/jwt/old")
        self.assertEqual(
            shown,
            {
                "type": "jwt",
                "branch": f"{self.prefix}/authn-jwt",
                "name": "old",
                "enabled": not self.dialect.switch_enables,
                "owner": {"kind": "policy", "id": f"{self.prefix}/authn-jwt/old"},
                "data": {
                    "jwks_uri": "https://keys.example.org",
                    "issuer": "https://issuer.example.org",
                    "identity": {"enforced_claims": ["ref", "actor"], "claim_aliases": {"branch": "ref", "who": "sub"}},
                },
            },
        )

    def test_masked(self) -> None:
        """A value is told to a caller with ``execute`` on its variable; it is masked where the caller only sees that, and
        left out where it doesn't (NEWER-32).
        """
        data = self.told("GET", f"{PATH}/jwt/old", role=BOB)["data"]
        self.assertEqual(data, {"jwks_uri": MASKED, "issuer": "https://issuer.example.org"})
        self.load("- !permit { role: !user alice, privilege: inspect, resource: !policy root }")
        data = self.told("GET", f"{PATH}/jwt/old", role=ALICE)["data"]
        masked = {"enforced_claims": MASKED, "claim_aliases": MASKED}
        self.assertEqual(data, {"jwks_uri": MASKED, "issuer": MASKED, "identity": masked})
        listed = self.told("GET", PATH, role=ALICE)["authenticators"]
        self.assertEqual([item["data"] for item in listed], [data])

    def test_values_are_recorded(self) -> None:
        """Each value that is told is recorded as read, and no other (NEWER-38)."""
        self.journal.told()
        self.told("GET", f"{PATH}/jwt/old", role=BOB)
        service = {"account": "acme", "authenticator": "authn-jwt/old"}
        issuer = {"resource": f"acme:variable:{self.prefix}/authn-jwt/old/issuer"}
        expected = [("authenticator", "get", service, None), ("fetch", "fetch", issuer, None)]
        self.assertEqual(self.journal.told(), expected)

    def test_hidden(self) -> None:
        """What is missing or hidden, of a type that there isn't, and a webservice of another form, are 404 (NEWER-32)."""
        for path, role, name in (
            ("jwt/absent", ADMIN, "absent"),
            ("jwt/old", ALICE, "old"),
            ("jwt/old%2Fstatus", ADMIN, "old/status"),
            ("other/x", ADMIN, "x"),
            ("jwt", ADMIN, ""),
        ):
            message = f"Authenticator: {name} not found in account 'acme'"
            self.assertEqual(self.refusal(404, "GET", f"{PATH}/{path}", role=role), message)

    def test_list(self) -> None:
        """A list has the authenticators whose webservices the caller sees; ``count`` is of all of the type (NEWER-31)."""
        self.make("jwt", "a.b:c")
        self.make("ldap", "corp")

        def listed(query: str = "", **more: Any) -> tuple[list[str], int]:
            found = self.told("GET", f"{PATH}{query}", **more)
            return [f"{item['type']}/{item['name']}" for item in found["authenticators"]], found["count"]

        self.assertEqual(listed(), (["jwt/a.b:c", "jwt/old", "ldap/corp"], 3))
        self.assertEqual(listed("?type=jwt&limit=1&foo=bar"), (["jwt/a.b:c"], 2))
        self.assertEqual(listed("?offset=2"), (["ldap/corp"], 3))
        self.assertEqual(listed("?type=x"), ([], 0))
        self.assertEqual(listed(role=BOB), (["jwt/old"], 1))
        for query in ("limit=0", "limit=x", "offset=-1"):
            answer = self.ask("GET", f"{PATH}?{query}", status=422)
            self.assertEqual(answer.json()["error"]["code"], "argument_error")

    # -- switching ----------------------------------------------------------------------------------------------------

    def test_switch(self) -> None:
        """An authenticator is switched for its account, which the older request shows and changes as well (NEWER-36)."""
        self.assertTrue(self.told("PATCH", f"{PATH}/jwt/old", {"enabled": True})["enabled"])
        self.assertFalse(self.told("PATCH", f"{PATH}/jwt/old", {"enabled": False})["enabled"])
        headers = [("Content-Type", "application/x-www-form-urlencoded")]
        answer = self.client.patch("/authn-jwt/old/acme", b"enabled=true", role=ADMIN, headers=headers)
        self.assertEqual(answer.status, 204)
        self.assertTrue(self.told("GET", f"{PATH}/jwt/old")["enabled"])

    def test_switch_refused(self) -> None:
        """The body is ``enabled`` alone; without ``update`` the webservice that one sees is 403, another 404 (NEWER-36)."""
        for body, status, message in (
            (b"", 400, "Request body is empty"),
            (b"{", 400, "Request JSON is malformed"),
            (b"{}", 422, self.worded("CONJ00190W Missing required parameter: enabled")),
            ({"enabled": True, "a": 1, "b": 2}, 422, "The following parameters were not expected: 'a, b'"),
            ({"enabled": "true"}, 422, "The enabled parameter must be of type=boolean"),
        ):
            self.assertEqual(self.refusal(status, "PATCH", f"{PATH}/jwt/old", body), message)
        on = {"enabled": True}
        webservice = f"acme:webservice:{self.prefix}/authn-jwt/old"
        self.assertEqual(
            self.refusal(403, "PATCH", f"{PATH}/jwt/old", on, role=BOB),
            self.worded(f"CONJ00006E 'bob' does not have 'update' privilege on {webservice}"),
        )
        for name, role in (("old", ALICE), ("foo", ADMIN)):
            message = f"Authenticator: authn-jwt/{name} not found in account 'acme'"
            self.assertEqual(self.refusal(404, "PATCH", f"{PATH}/jwt/{name}", on, role=role), message)

    # -- making -------------------------------------------------------------------------------------------------------

    def test_create(self) -> None:
        """An authenticator is made with its policy, groups, permissions, webservices and values, as a load into the policy
        of its type would; all interfaces show it (NEWER-35).
        """
        data = {
            "jwks_uri": "https://keys.example.org",
            "issuer": "https://issuer.example.org",
            "ca_cert": "-----BEGIN CERTIFICATE-----\nx",
            "identity": {
                "token_app_property": "sub",
                "identity_path": "apps",
                "enforced_claims": ["ref", "actor"],
                "claim_aliases": {"branch": "ref"},
            },
        }
        made = self.make(data=data, annotations={"team/x": "red"}, owner={"kind": "group", "id": "team"}, enabled=False)
        base = f"{self.prefix}/authn-jwt"
        expected = {
            "type": "jwt",
            "branch": base,
            "name": "new",
            "enabled": False,
            "owner": {"kind": "policy", "id": f"{base}/new"},
            "data": data,
            "annotations": {"team/x": "red"},
        }
        self.assertEqual(made, expected)
        self.assertEqual(self.told("GET", f"{PATH}/jwt/new"), expected)
        self.assertEqual(self.memory.resources[f"acme:policy:{base}/new"], ("acme:group:team", f"acme:policy:{base}"))
        webservice, apps = f"acme:webservice:{base}/new", f"acme:group:{base}/new/apps"
        permitted = sorted(key for key in self.memory.permissions if f"{base}/new" in key[0])
        self.assertEqual(
            permitted,
            sorted(
                [
                    (webservice, "authenticate", apps),
                    (webservice, "read", apps),
                    (webservice, "read", f"acme:group:{base}/new/operators"),
                    (f"{webservice}/status", "read", f"acme:group:{base}/new/operators"),
                ]
            ),
        )
        value = self.client.get(f"/secrets/acme/variable/{base}/new/enforced-claims", role=ADMIN).body
        self.assertEqual(value, b"ref,actor")
        self.assert_loads_back()

    def test_create_as_a_load(self) -> None:
        """The statement in the history of the policy makes the same rows (NEWER-6)."""
        self.make(owner={"kind": "user", "id": "bob"}, annotations={"a": "b"})
        tables = ("resources", "memberships", "permissions", "annotations")
        rows = {table: dict(getattr(self.memory, table)) for table in tables}
        base = f"{self.prefix}/authn-jwt"
        text = self.memory.versions[f"acme:policy:{base}"][1].text
        self.ask("DELETE", f"{PATH}/jwt/new", status=204)
        self.assertNotEqual(rows["resources"], self.memory.resources)
        self.load(text, base)
        for table in tables:
            self.assertEqual(getattr(self.memory, table), rows[table], table)

    def test_create_refused(self) -> None:
        """The type comes before the policy of the type, its privilege, the owner, and what is there (NEWER-35)."""
        base = f"{self.prefix}/authn-jwt"
        self.assertEqual(self.refusal(422, "POST", PATH, self.new("x")), "'authn-x' authenticators are not supported.")
        k8s = self.new("k8s", data={"ca/cert": "x", "ca/key": "y"})
        self.assertEqual(self.refusal(422, "POST", PATH, k8s), "'authn-k8s' authenticators are not supported.")
        self.assertEqual(self.ask("POST", PATH, self.new(), role=BOB, status=403).body, b"")
        self.load(f"- !deny {{ role: !user bob, privilege: execute, resource: !policy {base} }}", method="PATCH")
        message = self.refusal(404, "POST", PATH, self.new(), role=BOB)
        self.assertEqual(message, f"Policy '{base}' not found in account 'acme'")
        absent = self.new(owner={"kind": "user", "id": "bob"})
        self.assertEqual(self.refusal(404, "POST", PATH, absent, role=ALICE), "User 'bob' not found in account 'acme'")
        self.assertEqual(self.refusal(409, "POST", PATH, self.new(name="old")), "The authenticator already exists.")
        self.make(role=ALICE)
        self.assertEqual(self.refusal(409, "POST", PATH, self.new(), role=ALICE), "The authenticator already exists.")

    def test_bodies(self) -> None:
        """The members of a body have types, lengths and characters (NEWER-33)."""
        expected = "The following parameters were not expected: subtype"
        for body, status, message in (
            (b" ", 400, "Request body is empty"),
            (b"[]", 400, "Request JSON is malformed"),
            (b"{}", 422, self.worded("CONJ00190W Missing required parameter: type")),
            (self.new(name=""), 422, self.worded("CONJ00190W Missing required parameter: name")),
            (self.new(subtype="x"), 422, expected),
            (self.new(enabled="yes"), 422, self.worded("CONJ00192W The 'enabled' parameter must be of 'type=true, false'")),
            ({**self.new(), "name": 7}, 422, self.worded("CONJ00192W The 'name' parameter must be of 'type=string'")),
            (self.new(data=[]), 422, self.worded("CONJ00192W The 'data' parameter must be of 'type=object'")),
            (self.new(name="x" * 61), 422, "'name' parameter length exceeded. Limit the length to 60 characters"),
            (self.new(name="a/b"), 422, "Invalid 'name' parameter. It has characters that are not allowed."),
            (self.new(owner={"id": "x"}), 422, self.worded("CONJ00190W Missing required parameter: kind")),
            (
                self.new(owner={"id": "x", "kind": "policy"}),
                422,
                "Invalid 'kind' parameter. It is one of user, host, group.",
            ),
            (
                self.new(annotations={"a b": "x"}),
                422,
                "Invalid 'annotations' parameter. It has characters that are not allowed.",
            ),
            (self.new(annotations={"a": 1}), 422, self.worded("CONJ00192W The 'a' parameter must be of 'type=string'")),
            (self.new(annotations={"a": "<"}), 422, "Invalid 'a' parameter. It has characters that are not allowed."),
        ):
            self.assertEqual(self.refusal(status, "POST", PATH, body), message)

    def test_data(self) -> None:
        """Each type has keys of its own, and rules for them (NEWER-34)."""
        uri, claims = {"jwks_uri": "x"}, ("client_id", "client_secret", "redirect_uri", "claim_mapping")
        either = "The data object must contain either ['jwks_uri'] or ['public_keys'] keys."
        oidc = 'The data object must contain either ["id_token_user_property"] or ['
        oidc += ", ".join(f'"{claim}"' for claim in claims) + "] keys."
        needed = "The 'data' object must be specified for {} authenticators and it must be a non-empty JSON object."
        long = "'{}' parameter length exceeded. Limit the length to {} characters"
        missing = self.worded("CONJ00190W Missing required parameter: {}")
        wrong = self.worded("CONJ00192W The '{}' parameter must be of 'type={}'")
        plain = "Invalid 'jwks_uri' parameter. It may not have blanks, < or >."
        for kind, data, message in (
            ("jwt", {}, needed.format("jwt")),
            ("jwt", {"issuer": "x"}, either),
            ("jwt", {**uri, "public_keys": {"a": 1}}, either),
            ("jwt", {"public_keys": {"a": 1}}, self.worded("CONJ00190W Missing required parameter: issuer")),
            ("jwt", {"public_keys": {"a": "x" * 10_000}, "issuer": "x"}, long.format("public_keys", 10_000)),
            ("jwt", {"jwks_uri": "a b"}, plain),
            ("jwt", {"jwks_uri": "x" * 256}, long.format("jwks_uri", 255)),
            ("jwt", {"jwks_uri": ""}, self.worded("CONJ00190W Missing required parameter: jwks_uri")),
            ("jwt", {"jwks_uri": 7}, self.worded("CONJ00192W The 'jwks_uri' parameter must be of 'type=string'")),
            ("jwt", {**uri, "provider_uri": "x"}, "The following parameters were not expected: provider_uri"),
            ("jwt", {**uri, "identity": []}, self.worded("CONJ00192W The 'identity' parameter must be of 'type=object'")),
            ("jwt", {**uri, "identity": {"x": 1}}, "The following parameters were not expected: x"),
            ("jwt", {**uri, "identity": {"identity_path": "x"}}, missing.format("token_app_property")),
            ("jwt", {**uri, "identity": {"enforced_claims": "x"}}, wrong.format("enforced_claims", "array")),
            ("jwt", {**uri, "identity": {"enforced_claims": ["a,b"]}}, f"Invalid 'enforced_claims' parameter. {NO_CLAIM}"),
            ("jwt", {**uri, "identity": {"claim_aliases": {"iss": "x"}}}, f"Invalid 'claim_aliases' parameter. {NO_ALIAS}"),
            (self.cloud, None, needed.format(self.cloud)),
            (self.cloud, {"provider_uri": ""}, self.worded("CONJ00190W Missing required parameter: provider_uri")),
            ("oidc", {"provider_uri": "x"}, oidc),
            ("oidc", {"provider_uri": "x", "id_token_user_property": "x", "client_id": "y"}, oidc),
            ("oidc", {"provider_uri": "x", "client_id": "y"}, oidc),
            ("oidc", {"id_token_user_property": "x"}, self.worded("CONJ00190W Missing required parameter: provider_uri")),
            ("oidc", {"response_type": "x"}, "The following parameters were not expected: response_type"),
            ("ldap", {"tls_ca_cert": "x"}, self.worded("CONJ00190W Missing required parameter: bind_password")),
            ("k8s", {"ca/cert": "x"}, self.worded("CONJ00190W Missing required parameter: ca/key")),
            ("aws", {}, "The 'data' object cannot be specified for aws authenticators."),
            ("gcp", {"a": 1}, "The 'data' object cannot be specified for gcp authenticators."),
        ):
            body = {"type": kind, "name": "new", **({} if data is None else {"data": data})}
            self.assertEqual(self.refusal(422, "POST", PATH, body), message)

    def test_types(self) -> None:
        """Authenticators of every type that the server has are made, told and deleted, under each name of the type; a type
        with one authenticator calls it ``default`` (NEWER-30, NEWER-34).
        """
        self.install("authn-oidc", "authn-iam", "authn-gcp", "authn-k8s")
        code = {"provider_uri": "p", "client_id": "c", "client_secret": "s", "redirect_uri": "r", "claim_mapping": "m"}
        for kind, name, data in (
            (self.cloud, "prod", {"provider_uri": "https://x"}),
            ("oidc", "code", {**code, "token_ttl": "PT1H"}),
            ("oidc", "id", {"provider_uri": "p", "id_token_user_property": "email"}),
            ("ldap", "corp", {"bind_password": "x y"}),
            ("ldap", "open", None),
            ("k8s", "cluster", {"ca/cert": "c", "ca/key": "k", "kubernetes/api_url": "u"}),
            ("jwt", "keys", {"public_keys": {"type": "jwks", "value": {"n": 1.5}}, "issuer": "i"}),
            ("aws", "prod", None),
            ("gcp", "default", None),
        ):
            made = self.make(kind, name, data)
            self.assertEqual(made.get("data"), data, kind)
            self.assertEqual((made["type"], made["name"], made["enabled"]), (kind, name, True))
            self.assertEqual(self.told("GET", f"{PATH}/{kind}/{name}"), made)
        self.assertEqual(self.told("GET", f"{PATH}/iam/prod"), self.told("GET", f"{PATH}/aws/prod"))
        self.assertEqual(self.told("GET", f"{PATH}/gcp"), self.told("GET", f"{PATH}/gcp/default"))
        self.assertEqual(self.told("PATCH", f"{PATH}/gcp", {"enabled": False})["enabled"], False)
        self.refusal(409, "POST", PATH, self.new("gcp", "default"))
        self.refusal(404, "POST", PATH, self.new("gcp", "other"))
        self.assert_loads_back()
        self.ask("DELETE", f"{PATH}/gcp/default", status=204)
        self.refusal(404, "GET", f"{PATH}/gcp")
        left = [name for name in self.memory.resources if "authn-gcp" in name]
        self.assertEqual(left, [f"acme:policy:{self.prefix}/authn-gcp"])

    def test_id_tokens_take_a_client(self) -> None:
        """One that takes id tokens has no client yet and admits nobody; all that it lacks is what policy adds (NEWER-34)."""
        self.install("authn-oidc")
        self.make("oidc", "id", {"provider_uri": "https://idp.example", "id_token_user_property": "email"})
        branch = f"{self.prefix}/authn-oidc/id"

        def meaning() -> Any:
            start = f"acme:variable:{branch}/"
            names = [name.removeprefix(start) for name in self.memory.resources if name.startswith(start)]
            return parse_oidc_values(dict.fromkeys(names, "https://idp.example"), self.dialect)

        self.assertEqual([problem.what for problem in meaning().problems], ["The variable client-id is not declared."])
        self.load(f"- !policy {{ id: {branch}, body: [ !variable client-id ] }}")
        self.assertIsInstance(meaning(), OidcConfiguration)

    # -- deleting -----------------------------------------------------------------------------------------------------

    def test_delete(self) -> None:
        """With an authenticator goes its policy, with what that owns; it takes ``delete`` on that policy; the policy of the
        type stays, and values can be had back (NEWER-37).
        """
        self.assertEqual(self.refusal(404, "DELETE", f"{PATH}/jwt/old", role=ALICE)[:19], "Authenticator: old ")
        self.assertEqual(self.refusal(403, "DELETE", f"{PATH}/jwt/old", role=BOB), "Unauthorized")
        base = f"{self.prefix}/authn-jwt"
        self.load(f"- !permit {{ role: !user bob, privilege: delete, resource: !policy {base}/old }}")
        self.ask("DELETE", f"{PATH}/jwt/old", role=BOB, status=204)
        left = [name for name in self.memory.resources if "authn-jwt" in name]
        self.assertEqual(left, [f"acme:policy:{base}"])
        kept = self.client.get("/deleted/acme/policy/root", role=ADMIN).json()
        self.assertIn(f"acme:variable:{base}/old/issuer", [record["id"] for record in kept])

    def test_delete_what_others_own(self) -> None:
        """What somebody else owns beneath the policy takes ``update`` as well (NEWER-37)."""
        base = f"{self.prefix}/authn-jwt"
        self.load(f"- !variable {{ id: {base}/old/foreign, owner: !user alice }}")
        self.load(f"- !permit {{ role: !user bob, privilege: delete, resource: !policy {base}/old }}")
        self.assertEqual(self.refusal(403, "DELETE", f"{PATH}/jwt/old", role=BOB), "Unauthorized")
        self.told("GET", f"{PATH}/jwt/old")

    # -- what is kept -------------------------------------------------------------------------------------------------

    def test_audit(self) -> None:
        """Events have no value of ``data``, and no refusal repeats one (NEWER-38)."""
        self.install("authn-oidc")
        self.journal.told()
        secret = "s3cr3t-value"
        data = {"provider_uri": "p", "client_id": "c", "client_secret": secret, "redirect_uri": "r", "claim_mapping": "m"}
        self.make("oidc", "new", data)
        self.refusal(409, "POST", PATH, self.new("oidc", "new", data))
        self.refusal(422, "POST", PATH, self.new("oidc", "x y", data))
        self.refusal(422, "POST", PATH, self.new("ldap", "x", {"tls_ca_cert": secret}))
        recorded = repr(self.journal.taken) + repr(self.memory.events) + repr(self.memory.versions)
        self.assertNotIn(secret, recorded)
        told = self.journal.told()
        service = {"account": "acme", "authenticator": "authn-oidc/new"}
        self.assertEqual(told[0], ("authenticator", "create", service, None))
        variable = {"resource": f"acme:variable:{self.prefix}/authn-oidc/new/client-secret"}
        self.assertIn(("update", "update", variable, None), told)
        self.assertIn(("fetch", "fetch", variable, None), told)
        self.assertIn(("authenticator", "create", service, "conflict"), told)

    def test_order(self) -> None:
        """The role comes first, then the media type, the body, its fields, and what is there (NEWER-3)."""
        bad = b"{"
        self.ask("POST", PATH, bad, role=None, status=401)
        self.refusal(400, "POST", PATH, bad, accept=None, role=BOB)
        self.refusal(400, "POST", PATH, bad, role=BOB)
        self.refusal(422, "POST", PATH, {"type": "jwt", "name": "x"}, role=BOB)
        self.ask("POST", PATH, self.new(name="old"), role=BOB, status=403)

    def install(self, *names: str) -> None:
        """Let the server have more types."""
        self.authenticator_types[:] = [*self.authenticator_types, *names]

    def assert_loads_back(self) -> None:
        """What the effective policy says can be loaded in place of everything, and changes nothing."""
        before = {table: dict(getattr(self.memory, table)) for table in ("resources", "permissions", "annotations")}
        effective: Answer = self.client.get("/policies/acme/policy/root", role=ADMIN)
        self.load(effective.body.decode(), method="PATCH")
        for table, rows in before.items():
            self.assertEqual(getattr(self.memory, table), rows, table)


class ConjurConfiguredAuthenticatorsTests(ConfiguredAuthenticatorsTests):
    """Authenticators in the other dialect."""

    dialect = CONJUR
    cloud = "azure"
