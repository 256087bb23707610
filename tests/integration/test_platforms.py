"""What the pages of three platforms tell operators to do is done on a server, and their workloads log in.

Policies, values, paths, audiences and tokens' claims are read from the pages. The test's own are providers of the platforms,
on loopback addresses. All pages are tried in memory (``tests/test_platform_pages.py``).
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlencode

import attrs
from klein import Klein
from twisted.internet import reactor as installed_reactor
from twisted.trial.unittest import TestCase
from twisted.web.server import Request, Site

from tests.integration.client import Api, now
from tests.integration.postgres import PostgresTestCase, unavailable
from tests.integration.process import ServerTestCase
from tests.signing import jwk, jwks, token

reactor: Any = installed_reactor

GUIDES: Final = Path(__file__).resolve().parents[2] / "docs" / "guides"

#: The address that the document gives to the server.
SERVER: Final = "https://svc.example.org"

_VALUE: Final = re.compile(r"(?m)^ *printf %s (\S+) +\| svc variable set (\S+)$")
_KEYS: Final = re.compile(r"(?m)^ *printf '(\S+)' \"\$\(kubectl get --raw /openid/v1/jwks\)\" \| svc variable set (\S+)$")
_ISSUER: Final = re.compile(
    r"(?m)^ *kubectl get --raw /.well-known/openid-configuration \| jq --join-output .issuer \| svc variable set (\S+)$"
)


@attrs.frozen
class Platform:
    """A platform with a page of that name. ``others`` change some claims of its token, so that it is another workload's."""

    page: str
    service: str
    header: Mapping[str, object]
    others: tuple[Mapping[str, object], ...]

    @property
    def text(self) -> str:
        """The page, as far as it is about what this test does."""
        return (GUIDES / f"{self.page}.md").read_text(encoding="utf-8").partition("\n## In the conjur dialect")[0]

    @property
    def claims(self) -> dict[str, object]:
        """What the page's token says."""
        [claims] = blocks(self.text, "json")
        return dict(json.loads(claims))


GITHUB: Final = Platform(
    "github",
    "github",
    {"x5t": "bm90LWEtY2VydGlmaWNhdGU"},
    ({"repository_id": "987654321"}, {"repository": "evil/shop"}, {"environment": "staging"}, {"environment": None}),
)

GITLAB: Final = Platform(
    "gitlab",
    "gitlab",
    {},
    (
        {"project_id": "4712"},
        {"project_path": "evil/shop"},
        {"ref": "feature"},
        {"ref_type": "tag"},
        {"ref_protected": "false"},
        {"ref_protected": True},
    ),
)

KUBERNETES: Final = Platform(
    "kubernetes",
    "k8s",
    {"typ": None},
    ({"sub": "system:serviceaccount:other:billing"}, {"sub": "system:serviceaccount:shop:default"}),
)

PLATFORMS: Final = (GITHUB, GITLAB, KUBERNETES)


def blocks(section: str, language: str) -> list[str]:
    """The fenced blocks of a section that are in a language."""
    found = re.findall(rf"(?ms)^( *)```{language}\n(.*?)^\1```$", section)
    return [textwrap.dedent(block) for _, block in found]


def only(pattern: str, text: str) -> str:
    """The one thing that a pattern finds in a text, which may be there more than once."""
    [found] = set(re.findall(pattern, text))
    return str(found)


class Issuers:
    """A web site with a provider for each platform, whose keys a discovery document names."""

    def __init__(self, case: TestCase) -> None:
        app = Klein()

        @app.route("/<service>/.well-known/openid-configuration")
        def about(_: Request, service: str) -> bytes:
            return json.dumps({"issuer": self.uri(service), "jwks_uri": f"{self.uri(service)}/jwks"}).encode()

        @app.route("/<service>/jwks")
        def keys(_: Request, service: str) -> bytes:
            return jwks(jwk(service, kid=f"{service}-1", alg="RS256", use="sig"))

        site: Any = Site(app.resource())
        site.noisy = False
        site.log = lambda _: None
        self._port: Any = reactor.listenTCP(0, site, interface="127.0.0.1")
        case.addCleanup(self._port.stopListening)

    def uri(self, service: str) -> str:
        """The address of a provider."""
        return f"http://127.0.0.1:{self._port.getHost().port}/{service}"


class PlatformTests(PostgresTestCase, ServerTestCase):
    """A server with the three authenticators of the document."""

    skip = unavailable()

    async def prepare(self) -> None:
        """Start it, with the platforms' providers beside it."""
        await super().prepare()
        self.issuers = Issuers(self)
        process = self.serve(
            "--account=acme",
            "--authenticators=" + ",".join(["authn", *(f"authn-jwt/{platform.service}" for platform in PLATFORMS)]),
            "--allow-http-providers",
            "--allow-private-providers=127.0.0.0/8",
            database_url=await self.create_database(migrated=False),
        )
        self.api = Api.of(self, await process.ready())
        self.admin = await self.api.authenticate("admin", process.admin_key())

    async def test_platforms(self) -> None:
        """With the policies and values of its section a platform's workload reads a secret by the section's steps.

        Other workloads of the platform are refused.
        """
        for platform in PLATFORMS:
            await self._set_up(platform)
            await self._log_in(platform)
        await self._give_keys(KUBERNETES)
        await self._log_in(KUBERNETES, "given")

    async def load(self, text: str, method: str = "POST") -> None:
        """Load policy."""
        answer = await self.api.ask(method, "/policies/acme/policy/root", text.encode(), self.admin)
        self.assertEqual(answer.status, 201, answer)

    async def set(self, variable: str, value: str) -> None:
        """What ``svc variable set`` does."""
        answer = await self.api.ask("POST", self.api.variable(variable), value.encode(), self.admin)
        self.assertEqual(answer.status, 201, f"{variable}: {answer}")

    async def _set_up(self, platform: Platform) -> None:
        """Do what the page says, but that the issuer is at another address."""
        page, service = platform.text, platform.service
        authenticator, hosts = blocks(page, "yaml")[:2]
        await self.load(authenticator)
        values = {variable: value for value, variable in _VALUE.findall(page.partition("\n## Keys behind")[0])}
        self.assertEqual(values.pop(f"svc/authn-jwt/{service}/provider-uri"), platform.claims["iss"])
        for variable, value in values.items():
            await self.set(variable, value)
        await self.set(f"svc/authn-jwt/{service}/provider-uri", self.issuers.uri(service))
        await self.load(hosts)
        await self.set("shop/database/password", f"for {service}")
        status = await self.api.ask("GET", f"/authn-jwt/{service}/acme/status", token=self.admin)
        self.assertEqual((status.status, status.json()["problems"]), (200, []), service)

    async def _give_keys(self, platform: Platform) -> None:
        """Give the keys to the server instead, as the page says of a cluster that can't be reached."""
        page = platform.text
        await self.load(blocks(page, "yaml")[3], "PATCH")
        [(form, keys)] = _KEYS.findall(page)
        [issuer] = _ISSUER.findall(page)
        await self.set(keys, form.replace("%s", jwks(jwk("given")).decode()))
        await self.set(issuer, self.issuers.uri(platform.service))

    async def _log_in(self, platform: Platform, key: str | None = None) -> None:
        """Take the step of the document: a token for the audience that it names, an access token for that, the secret.

        The token is signed with the provider's key, or with another one, and known by its name.
        """
        section, service = platform.text, platform.service
        steps = "".join([*blocks(section, "yml"), *blocks(section, "sh")])
        path = only(rf"{SERVER}(/authn-jwt/{service}/\S+/authenticate)", steps)
        audience = only(r"(?:&audience=|\baud(?:ience)?: )(https://[^\s\"]+)", steps)
        self.assertEqual(only(r"--header '(Accept-[^']+)'", steps), "Accept-Encoding: base64")
        moment = int(now())
        claims = {
            **platform.claims,
            "iss": self.issuers.uri(service),
            "aud": [audience] if service == "k8s" else audience,
            "iat": moment,
            "nbf": moment - 5,
            "exp": moment + 600,
        }
        for other in platform.others:
            changed = {name: value for name, value in {**claims, **other}.items() if value is not None}
            answer = await self._exchange(path, platform, changed, key)
            self.assertEqual((answer.status, answer.body), (401, b""), f"{service}: {other}")
        answer = await self._exchange(path, platform, claims, key)
        self.assertEqual(answer.status, 200, f"{service}: the workload of the document")
        me = await self.api.ask("GET", "/whoami", Authorization=f'Token token="{answer.body.decode()}"')
        host = blocks(section, "yaml")[1]
        self.assertEqual(me.json()["username"], "host/" + only(r"(?m)^  member: !host (.+)$", host))
        for secret in set(re.findall(rf"{SERVER}(/secrets/[^\s\")]+)", steps)):
            read = await self.api.ask("GET", secret, Authorization=f'Token token="{answer.body.decode()}"')
            self.assertEqual((read.status, read.body), (200, f"for {service}".encode()), unquote(secret))

    async def _exchange(self, path: str, platform: Platform, claims: Mapping[str, object], key: str | None) -> Any:
        """Present a token as curl does."""
        name, kid = (key, key) if key else (platform.service, f"{platform.service}-1")
        header: dict[str, Any] = {"kid": kid, **platform.header}
        evidence = token(claims, name, **header)
        return await self.api.ask("POST", path, urlencode({"jwt": evidence}).encode(), Accept_Encoding="base64")
