"""Workloads of Google Cloud, AWS and Kubernetes, from their platform's evidence to a secret: a server, ``svc`` as a process,
and between them stand-ins for the platforms, to which ``--google-issuer``, ``--aws-sts-url`` and ``jwks-uri`` lead.

The policies are those of the pages. The stand-in for AWS verifies signatures; a cluster shows its keys over TLS with an
authority of its own, and to who shows a token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from klein import Klein
from twisted.internet import reactor as installed_reactor
from twisted.internet.task import deferLater
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from tests import aws
from tests.authn.providers.authority import Authority
from tests.integration.client import Answer, Api, now
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.test_cli import CommandTestCase
from tests.integration.test_providers import Guarded
from tests.signing import jwks, token
from tests.test_docs import policies

reactor: Any = installed_reactor

HOSTS: Final = {
    "google": "google/billing",
    "aws": "aws/123456789012/billing",
    "kubernetes": "k8s/system:serviceaccount:shop:billing",
}

#: What the workloads of all three may read.
SECRET: Final = "- !variable for-all\n" + "".join(
    f"- !permit {{ role: !host {host}, privileges: [ read, execute ], resource: !variable for-all }}\n"
    for host in HOSTS.values()
)

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
ROLE: Final = aws.Keys(arn="arn:aws:sts::123456789012:assumed-role/billing/i-1")


class Clouds:
    """Google's issuer and metadata server, and AWS's Security Token Service, at one address.

    ``subject`` is the service account of the machine; ``trouble`` is the answer of AWS in the place of its own, a status and
    headers.
    """

    def __init__(self) -> None:
        self.app = app = Klein()
        self.base = ""
        self.subject = "107517467455664443765"
        self.keys = ROLE
        self.trouble: tuple[int, dict[str, str]] | None = None
        self.asked: list[str] = []
        app.route("/issuer/.well-known/openid-configuration")(self.about)
        app.route("/issuer/keys")(lambda _: jwks())
        app.route("/computeMetadata/v1/instance/service-accounts/default/identity")(self.identity)
        app.route("/")(self.caller)

    def about(self, _: Request) -> bytes:
        """The discovery document."""
        return json.dumps({"issuer": f"{self.base}/issuer", "jwks_uri": f"{self.base}/issuer/keys"}).encode()

    def identity(self, request: Any) -> bytes:
        """An identity token of the machine, for who asks as Google says."""
        assert request.getHeader("metadata-flavor") == "Google"
        request.setHeader("Metadata-Flavor", "Google")
        moment = int(now())
        claims = {"iss": f"{self.base}/issuer", "sub": self.subject, "aud": request.args[b"audience"][0].decode()}
        return token({**claims, "iat": moment, "exp": moment + 3600})

    def caller(self, request: Any) -> bytes:
        """Who has signed, if the signature is right."""
        headers = {name.decode().lower(): values[0].decode() for name, values in request.requestHeaders.getAllRawHeaders()}
        self.asked.append(headers["host"])
        if self.trouble is not None:
            status, more = self.trouble
            request.setResponseCode(status)
            for name, value in more.items():
                request.setHeader(name, value)
            return b""
        if "authorization" in headers and aws.verified(headers, self.keys):
            return aws.answer(self.keys.arn)
        request.setResponseCode(403)
        return aws.error("SignatureDoesNotMatch")


class CloudsTests(CommandTestCase, PostgresTestCase):
    """A server with one authenticator for each platform."""

    skip = unavailable()

    def serve_site(self, resource: Any, certificate: Any = None) -> int:
        """Serve until the test ends; return the port."""
        site: Any = Site(resource)
        site.noisy, site.log = False, lambda request: None
        options = () if certificate is None else (certificate.options(),)
        port = (reactor.listenSSL if options else reactor.listenTCP)(0, site, *options, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def prepare(self) -> None:
        """Start it all, and load what the pages say."""
        await super().prepare()
        self.clouds, self.cluster = Clouds(), Guarded(jwks(), "of.svc.keys")
        self.clouds.base = f"http://127.0.0.1:{self.serve_site(self.clouds.app.resource())}"
        authority, root, self.token_file = Authority(), Resource(), Path(self.mktemp()).resolve()
        root.putChild(b"jwks", self.cluster)
        cluster = self.serve_site(root, authority.issue("127.0.0.1"))
        server = self.serve(
            "--account=acme",
            "--authenticators=authn,authn-gcp,authn-iam/prod,authn-jwt/k8s",
            f"--google-issuer={self.clouds.base}/issuer",
            f"--aws-sts-url={self.clouds.base}",
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            "--jwks-refetch-interval=0",
            f"--jwks-token-files=https://127.0.0.1:{cluster}={self.token_file}",
            database_url=await self.create_database(migrated=False),
        )
        self.url = await server.ready()
        self.api = Api.of(self, self.url)
        self.admin = await self.api.authenticate("admin", server.admin_key())
        *kubernetes, keys, _, _ = policies("docs/guides/kubernetes.md")
        loads = [*policies("docs/guides/google.md"), *policies("docs/guides/aws.md"), *kubernetes, SECRET]
        for policy in loads:
            await self.change("POST", "/policies/acme/policy/root", policy.encode())
        branch = "svc/authn-jwt/k8s"
        await self.change("PATCH", "/policies/acme/policy/root", keys.encode())
        for name, value in {
            "for-all": "s3cret",
            "svc/authn-iam/prod/server-id": "127.0.0.1",
            f"{branch}/jwks-uri": f"https://127.0.0.1:{cluster}/jwks",
            f"{branch}/issuer": ISSUER,
            f"{branch}/ca-cert": authority.pem,
            f"{branch}/jwks-token": "of.svc.keys",
            f"{branch}/audience": "https://svc.example.org",
            f"{branch}/token-app-property": "sub",
            f"{branch}/identity-path": "k8s",
            f"{branch}/enforced-claims": "sub",
        }.items():
            await self.change("POST", self.api.variable(name), value.encode())
        self.mapping = Path(self.mktemp()).resolve()
        self.mapping.write_text("PASSWORD: for-all\n")
        self.environ = {
            "SVC_URL": self.url,
            "SVC_ACCOUNT": "acme",
            "GCE_METADATA_HOST": self.clouds.base.removeprefix("http://"),
            "AWS_ACCESS_KEY_ID": ROLE.key_id,
            "AWS_SECRET_ACCESS_KEY": ROLE.secret,
            "AWS_SESSION_TOKEN": str(ROLE.session),
            "AWS_REGION": "eu-west-1",
        }

    async def change(self, method: str, path: str, body: bytes) -> None:
        """Change something as the administrator."""
        answer = await self.api.ask(method, path, body, self.admin)
        self.assertEqual(answer.status, 201, answer)

    async def run_svc(self, platform: str, *more: str, code: int = 0) -> str:
        """Start a command by ``svc run`` as a workload of the platform; return what it or ``svc`` says."""
        login = ("--cloud", "--platform", platform, *more)
        done = await self.svc(
            "run", "-f", str(self.mapping), *login, "--", "printenv", "PASSWORD", environ=self.environ, code=code
        )
        return done.stderr if code else done.stdout

    async def status(self, name: str) -> Any:
        """How an authenticator stands."""
        return (await self.api.ask("GET", f"/{name}/acme/status", token=self.admin)).json()

    async def test_workloads(self) -> None:
        """A workload of each platform gets the secret with the platform's evidence alone, and nobody else does."""
        await self._google()
        await self._aws()
        await self._kubernetes()

    async def _google(self) -> None:
        """With the machine's identity token; another service account, and a token for another host, are refused."""
        host = ("--host", f"host/{HOSTS['google']}")
        self.assertEqual(await self.run_svc("google", *host), "s3cret\n")
        self.assertEqual((await self.status("authn-gcp"))["problems"], [])
        self.clouds.subject = "1"
        self.assertIn("the server refused", await self.run_svc("google", *host, code=1))
        inspected = await self.svc("cloud", "inspect", "--platform", "google", environ=self.environ)
        self.assertIn("authn-gcp/service-account-id: '1'", inspected.stdout)

    async def _aws(self) -> None:
        """With a request that its role has signed, which this server shows AWS once; what AWS doesn't say is no login."""
        login = ("--service-id", "prod", "--host", f"host/{HOSTS['aws']}")
        self.assertEqual(await self.run_svc("aws", *login), "s3cret\n")
        self.assertEqual(self.clouds.asked, ["sts.eu-west-1.amazonaws.com"])
        self.assertIn("refused", await self.run_svc("aws", *login, "--server-id", "other.example", code=1))
        self.assertEqual(len(self.clouds.asked), 1, "a request for another server isn't shown to AWS")
        headers = aws.signed(now(), ROLE, x_svc_server_id="127.0.0.1/acme/once")
        self.assertEqual([(await self.present(headers)).status for _ in range(2)], [200, 401])
        stolen = aws.Keys(secret="guessed", arn=ROLE.arn)
        forged = aws.signed(now(), stolen, x_svc_server_id="127.0.0.1/acme/forged")
        self.assertEqual((await self.present(forged)).status, 401)
        for number, trouble in enumerate(((302, {"Location": f"{self.clouds.base}/elsewhere"}), (500, {}), (200, {}))):
            self.clouds.trouble = trouble
            answer = await self.present(aws.signed(now(), ROLE, x_svc_server_id=f"127.0.0.1/acme/{number}"))
            self.assertEqual(answer.status, 503, trouble)
        self.assertTrue((await self.status("authn-iam/prod"))["problems"])
        self.clouds.trouble, self.clouds.keys = None, aws.Keys(arn="arn:aws:iam::123456789012:user/billing")
        self.assertIn("refused", await self.run_svc("aws", *login, code=1))

    async def present(self, headers: dict[str, str]) -> Answer:
        """Present a signed request as a workload on AWS."""
        path = f"/authn-iam/prod/acme/{'host%2F' + HOSTS['aws'].replace('/', '%2F')}/authenticate"
        return await self.api.ask("POST", path, aws.body(headers))

    async def _kubernetes(self) -> None:
        """With the token in the pod's file, as it is at each login; keys come to the server's own token, and a cluster that
        refuses this is told of (AUTH-70).
        """
        file = Path(self.mktemp()).resolve()
        login = ("--service-id", "k8s", "--token-file", str(file))
        self.write_token(file, "billing")
        self.assertEqual(await self.run_svc("kubernetes", *login), "s3cret\n")
        self.assertEqual(self.cluster.shown, ["Bearer of.svc.keys"])
        inspected = await self.svc(
            "cloud", "inspect", "--platform", "kubernetes", "--token-file", str(file), environ=self.environ
        )
        self.assertIn("authn-jwt/k8s/sub: system:serviceaccount:shop:billing", inspected.stdout)
        self.write_token(file, "default")
        self.assertIn("the server refused", await self.run_svc("kubernetes", *login, code=1))
        self.cluster.token = "another"
        await self.refresh()
        told = str(await self.status("authn-jwt/k8s"))
        self.assertIn("the answer has status 403: the token that was shown is not accepted", told)
        self.assertNotIn("of.svc.keys", told)
        self.write_token(file, "billing")
        self.assertEqual(await self.run_svc("kubernetes", *login), "s3cret\n")
        await self._token_in_a_file(login)

    async def refresh(self) -> None:
        """Have the cluster's keys fetched now; an operator may ask so once a second (AUTH-63)."""
        while (await self.api.ask("POST", "/authn-jwt/k8s/acme/refresh-keys", token=self.admin)).status == 429:
            await deferLater(reactor, 0.1)

    async def _token_in_a_file(self, login: tuple[str, ...]) -> None:
        """Without the variable, the token is that of the server's file, as it is at each fetch (AUTH-68)."""
        deleted = b"- !delete { record: !variable svc/authn-jwt/k8s/jwks-token }"
        await self.change("PATCH", "/policies/acme/policy/root", deleted)
        self.assertIn("jwks-token-files for it cannot be read", str(await self.status("authn-jwt/k8s")))
        self.token_file.write_text("another\n")
        self.assertEqual(await self.run_svc("kubernetes", *login), "s3cret\n")
        self.assertEqual(self.cluster.shown[-1], "Bearer another")
        self.token_file.write_text("a.third")
        await self.refresh()
        self.assertEqual(self.cluster.shown[-1], "Bearer a.third")

    def write_token(self, file: Path, account: str) -> None:
        """Have the file hold a token of that service account, as the kubelet writes it."""
        moment = int(now())
        claims = {
            "iss": ISSUER,
            "aud": ["https://svc.example.org"],
            "sub": f"system:serviceaccount:shop:{account}",
            "kubernetes.io": {"namespace": "shop", "serviceaccount": {"name": account}},
        }
        file.write_bytes(token({**claims, "iat": moment, "nbf": moment, "exp": moment + 600}, typ=None))
