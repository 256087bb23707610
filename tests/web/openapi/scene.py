"""The server that examples of requests are sent to, and how they are sent.

What an example says in place of a key or a token, which differ from run to run, is in ``REAL``, with what is sent instead.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from svc.cluster.members import Members
from svc.cluster.overview import ClusterOverview
from svc.cluster.peer_claims import PeerClaims
from svc.cluster.record_questions import RecordQuestions
from svc.cluster.reports import ProbeReply, parse_reply
from svc.crypto.vault import Vault
from svc.health.checks_loop import ChecksLoop
from svc.health.probes import AuthzProbe, DatabaseProbe
from svc.model.databases import DatabaseIdentity
from svc.model.names import RESERVED_ACCOUNT, RoleName
from svc.web.routes.audit_records import PeerRecords
from svc.web.routes.cluster import Cluster
from svc.web.routes.health import Health
from tests.authn.ldap.test_authenticator import CA, PASSWORD
from tests.authn.ldap.test_authenticator import POLICY as LDAP_POLICY
from tests.aws import ACCOUNT as AWS_ACCOUNT
from tests.aws import body as signed_body
from tests.aws import signed
from tests.memory import MemoryState
from tests.signing import token
from tests.web.routes.test_authn import POLICY as JWT_POLICY
from tests.web.routes.test_iam import POLICY as IAM_POLICY
from tests.web.routes.test_oidc import OidcRouteCase
from tests.web.support import NOW, Answer, Client, read_answers

POLICY: Final = """
- !policy
  id: app
  body:
    - !user carol
    - !host web
    - !variable password
    - !variable url
    - !variable old
    - !group { id: readers, annotations: { note: reads } }
    - !layer machines
    - !host-factory { id: machines, layers: [ !layer machines ] }
    - !permit { role: !group readers, privileges: [ read, execute ], resources: [ !variable password, !variable url ] }
    - !grant { role: !group readers, member: !host web }
- !policy { id: team, annotations: { owner: red } }
- !policy svc/authn-jwt
- !policy { id: svc/authn-jwt/new, body: [ !webservice ] }
- !webservice svc/authn-gcp
- !webservice svc/authn-jwt/ci/status
- !webservice svc/authn-ldap/corp/status
- !grant { role: !group app/readers, members: [ !user alice, !host shop, !host aws/{account}/web ] }
- !user operator
- !user
  id: erin
  public_keys: [ ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ55cmzk0rRQ8xjcYZsfg2j3PjKZ3yIfaVLfqGZkqvA5 laptop ]
- !permit { role: !user operator, privilege: read, resource: !webservice svc/authn-jwt/ci }
"""


class SceneCase(OidcRouteCase):
    """A server with all that examples speak of."""

    def setUp(self) -> None:
        """Load the policies, and set values."""
        super().setUp()
        made: dict[str, Any] = {}
        for text in ("- !user olivia", JWT_POLICY, LDAP_POLICY, IAM_POLICY, POLICY):
            filled = text.replace("{{", "{").replace("}}", "}").replace("{prefix}", "svc").replace("{account}", AWS_ACCOUNT)
            made |= self.load(filled).json()["created_roles"]
        for name, value in {
            "svc/authn-jwt/ci/jwks-uri": b"https://ci.example/keys",
            "svc/authn-jwt/ci/token-app-property": b"app",
            "svc/authn-jwt/ci/issuer": b"idp",
            "svc/authn-ldap/corp/bind-password": b"service password",
            "svc/authn-ldap/corp/tls-ca-cert": CA.encode(),
            "svc/authn-iam/prod/server-id": b"svc.example.org",
            "app/password": b"s3cret",
            "app/url": b"postgresql://db.example.org/app",
            "app/old": b"gone",
        }.items():
            self.set_value(name, value)
        self.load("- !delete { record: !variable old }", "app", method="PATCH")
        self.result_of(self.create_account(RESERVED_ACCOUNT, "1operator"))
        self.directory.passwords = {"alice": PASSWORD}
        self.memory.annotations["acme:webservice:svc/authn-ldap/corp", "ldap-authn/group_base_dn"] = (
            "ou=groups,dc=example",
            None,
        )
        self.scene = self._served()
        self.scene.put("/authn-jwt/ci/acme/distrusted-keys/k9", role=ROLES["admin"])
        for name in ("groups/developers", "users/alice"):
            self.scene.post(f"/authn-ldap/corp/acme/{name}", b'{"roles":["group:app/readers"]}', role=ROLES["admin"])
        self.api_keys = {name.removeprefix("acme:"): each["api_key"] for name, each in made.items()}
        self.api_keys["user:alice"] = self._rotated("user:alice")
        opened = self.client.post("/authn/acme/alice/sessions", self.api_keys["user:alice"].encode()).json()
        factory = self.client.post(
            "/host_factory_tokens",
            b"host_factory=acme:host_factory:app/machines&expiration=2999-01-01T00:00:00Z",
            role=ROLES["admin"],
        ).json()
        begun = self.begun()
        challenge, code = PeerClaims(Vault(bytes(32))).new_challenge()
        key_id = json.loads(base64.urlsafe_b64decode(token({}).split(b".")[0] + b"=="))["kid"]
        #: What is sent in place of what an example says.
        self.real: Mapping[str, str] = {
            "3mk9b1z2x7n4w8q5v6c0": self.api_keys["user:alice"],
            "5nk1x8w3q7z2": self.api_keys["host:app/web"],
            "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl": self._jwt(),
            "eyJpZCI6dG9rZW59.e30.c2lnbmF0dXJl": token(self.oidc_provider.claims("n")).decode(),
            '{"signed": "headers"}': signed_body(signed(NOW, x_svc_server_id="svc.example.org/acme/1")).decode(),
            "svcr_refresh": opened["refresh_token"],
            "0f1e2d3c4b5a69788796a5b4c3d2e1f0": self._session(),
            "1cv3rn2m8t0kq5": factory[0]["token"],
            "the-code": begun["code"],
            "the-nonce": begun["nonce"],
            "the-verifier": begun["code_verifier"],
            "the-challenge": challenge,
            "the-answer": code,
            "the-key": key_id,
        }

    def _jwt(self) -> str:
        return token({"iss": "idp", "app": "shop", "project": "acme/shop", "exp": NOW + 60}).decode()

    def _rotated(self, role: str) -> str:
        return self.client.request("PUT", f"/authn/acme/api_key?role={role}", role=ROLES["admin"]).body.decode()

    def _session(self) -> str:
        listed = self.client.get("/authn/acme/sessions", role=ROLES["alice"]).json()
        return str((listed["sessions"] if isinstance(listed, dict) else listed)[0]["id"])

    def _served(self) -> Client:
        rounds = ChecksLoop(
            self.clock, self.clock, [AuthzProbe(MemoryState(self.memory))], DatabaseProbe(MemoryState(self.memory)), 5.0
        )
        rounds.startService()
        self.addCleanup(rounds.stopService)

        async def other() -> ProbeReply:
            return parse_reply(200, b'{"ok": true, "services": {"ok": true}}')

        async def identity(_: str) -> DatabaseIdentity:
            return DatabaseIdentity(7_711_051_369_545_791_476, 3, 1_795_369_055_073_057, False)

        members = Members(self.clock, self.clock, {"b.example": other})
        overview = ClusterOverview(rounds, self.dialect, members, frozenset)
        return Client(
            *self.client.router._resources,
            Health(rounds, self.dialect, lambda: True, lambda: True),
            Cluster(overview, PeerClaims(Vault(bytes(32))), identity),
            PeerRecords(RecordQuestions(Vault(bytes(32)), self.clock), self.server.record_searcher.search_records),
            ensure_writable=self.memory.ensure_writable,
            journal=self.journal,
            dialect=self.dialect,
        )

    def ask(self, example: Mapping[str, Any], method: str, target: str, *, as_method: str | None = None) -> Answer:
        """Send the request of an example, and return the answer; of one that doesn't end, its beginning."""
        headers = [(name, self._filled(value)) for name, value in example.get("headers", {}).items()]
        proof, role = example.get("as", ""), None
        scheme, _, name = proof.partition(" ")
        if scheme == "token":
            role = ROLES.get(name) or RoleName.parse(name)
        elif scheme == "basic":
            login = "admin" if name == "user:admin" else name.partition(":")[2]
            secret = PASSWORD.decode() if name == "ldap:alice" else self.api_keys[name]
            headers.append(("Authorization", "Basic " + base64.b64encode(f"{login}:{secret}".encode()).decode()))
        elif scheme == "factory":
            headers.append(("Authorization", f'Token token="{self._filled(name)}"'))
        body = self._filled(written_body(example)).encode()
        connection = self.scene.begin(
            as_method or method, self._filled(target), body=body if as_method is None else b"", headers=headers, role=role
        )
        raw = connection.received()
        head = raw.partition(b"\r\n\r\n")[0]
        if b"text/event-stream" in head:
            lines = head.decode("ascii").split("\r\n")[1:]
            connection.leave()
            # Its pieces are chunks, of which the first is enough.
            _, _, text = raw.partition(b"\r\n\r\n")[2].partition(b"\r\n")
            text = text.partition(b"\r\n")[0]
            return Answer(200, {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, text)
        [answer] = read_answers(raw, head=as_method == "HEAD")
        return answer

    def _filled(self, text: str) -> str:
        for said, meant in self.real.items():
            text = text.replace(said, meant).replace(quote(said, safe=""), quote(meant, safe=""))
        return text


#: The roles that examples are sent as.
ROLES: Final[Mapping[str, RoleName]] = {
    name: RoleName.parse(f"acme:user:{name}") for name in ("admin", "alice", "bob", "operator")
}


def written_body(example: Mapping[str, Any]) -> str:
    """The body of an example as text: a form, JSON, or the text itself."""
    body = example.get("body", "")
    if isinstance(body, str):
        return body
    if example.get("type") == "application/x-www-form-urlencoded":
        return urlencode(body, doseq=True)
    return json.dumps(body)


def target_of(path: str, example: Mapping[str, Any]) -> str:
    """The target of an example, on a path of the document."""
    for name, value in example.get("path", {}).items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    query = urlencode(example.get("query", {}), doseq=True)
    return f"{path}?{query}" if query else path
