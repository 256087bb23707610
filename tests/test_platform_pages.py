"""The pages of platforms are true: each one's policy loads, the token that it shows logs in with the values that it sets, by
the command that it gives, and whom it names as refused is refused for the reason that it names.

What the pages say is read from them; the authenticators are the real ones, in memory. The names of claims are those that the
platforms document.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import attrs
import yaml

from svc.cli.main import main
from svc.model.authentication import LoginRequest
from svc.model.credentials import API_KEY_ANNOTATION
from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from tests.authn.providers.authority import Authority
from tests.signing import jwk_for, jwks, token
from tests.test_docs import commands, read_command
from tests.web.support import NOW, PEER
from tests.web.world import LISTED, WorldCase

GUIDES: Final = Path(__file__).resolve().parent.parent / "docs" / "guides"

#: Whose token it must be for: this server's address, or an application's of Azure.
AUDIENCES: Final = ("https://svc.example.org", "https://management.azure.com/")

#: What a page's workload reads.
_SECRET: Final = "shop/database/password"

_VALUE: Final = re.compile(r"(?m)^printf %s (\S+) +\| svc variable set (\S+)$")


def only(pattern: str, text: str) -> str:
    """The one thing that a pattern finds."""
    [found] = set(re.findall(pattern, text))
    return str(found)


_ROW: Final = re.compile(r"(?m)^\| ([^|]+) \| `(\"[^`]+)` \| `([a-z-]+)` \|$")
_OTHER_DIALECT: Final = "## In the conjur dialect\n"


@attrs.frozen
class Guide:
    """A page of a platform: its authenticator, the host that its token logs in as, and whether the request names that."""

    name: str
    service: str
    host: str
    named: bool = False

    @property
    def kind(self) -> str:
        """The type of its authenticator."""
        return self.service.partition("/")[0]

    @property
    def text(self) -> str:
        """All of it."""
        return (GUIDES / f"{self.name}.md").read_text(encoding="utf-8")

    def parts(self) -> tuple[str, str]:
        """The page for the native dialect, and what it says of the other."""
        native, _, other = self.text.partition(_OTHER_DIALECT)
        return native, other

    def blocks(self, language: str, text: str | None = None) -> list[str]:
        """The blocks in a language."""
        return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", self.text if text is None else text)

    def claims(self) -> dict[str, Any]:
        """What its token says."""
        [text] = self.blocks("json")
        claims: dict[str, Any] = json.loads(text)
        return claims


PAGES: Final = (
    Guide("github", "authn-jwt/github", "github/acme/shop"),
    Guide("gitlab", "authn-jwt/gitlab", "gitlab/acme/shop"),
    Guide("buildkite", "authn-jwt/buildkite", "buildkite/shop"),
    Guide("circleci", "authn-jwt/circleci", "circleci/shop", named=True),
    Guide("terraform", "authn-jwt/terraform", "terraform/ws-mbsd5E3Ktt5Rg2Xm"),
    Guide("kubernetes", "authn-jwt/k8s", "k8s/system:serviceaccount:shop:billing"),
    Guide("spiffe", "authn-jwt/spiffe", "spiffe/billing", named=True),
    Guide("azure", "authn-cloud/prod", "azure/billing", named=True),
)


class GuideCase(WorldCase):
    """What the tests of pages have in common."""

    authenticators_listed = LISTED | {page.service for page in PAGES} | {"authn-azure/prod"}

    def set_up(self, page: Guide, text: str) -> dict[str, str]:
        """Load the first two policies of a page's text, as one file, set the values, and return these by the names of their
        variables.
        """
        prefix = self.dialect.prefix
        policy = "\n".join(page.blocks("yaml", text)[:2])
        self.load(policy.replace("svc/authn", f"{prefix}/authn"))
        found = {}
        for value, variable in _VALUE.findall(text.partition("\n## Keys behind")[0]):
            name = variable.removeprefix("svc/").removeprefix("conjur/")
            self.set_value(f"{prefix}/{name}", value.encode())
            found[name.rpartition("/")[2]] = value
        self.algorithm = found.get("algorithms", "RS256")
        self.provider.document = jwks(jwk_for(self.algorithm))
        return found

    def evidence(self, claims: Mapping[str, Any], **changes: Any) -> bytes:
        """A token with a page's claims, and the times of now; a claim that is ``None`` among the changes is left out."""
        times = {"iat": NOW, "nbf": NOW, "exp": NOW + 300}
        left = {name: value for name, value in {**claims, **times, **changes}.items() if changes.get(name, ...) is not None}
        return token(left, algorithm=self.algorithm)

    def path(self, page: Guide) -> str:
        """Where a workload logs in."""
        host = "/" + quote(f"host/{page.host}", safe="") if page.named else ""
        return f"/{page.service}/acme{host}/authenticate"

    def assert_admitted(self, page: Guide, evidence: bytes) -> None:
        """It logs in as the page's host."""
        answer = self.client.post(self.path(page), b"jwt=" + evidence)
        self.assertEqual(answer.status, 200, f"{page.name}: {self.explained(page, evidence)}")
        subject = json.loads(base64.urlsafe_b64decode(answer.json()["payload"] + "=="))["sub"]
        self.assertEqual(subject, f"host/{page.host}")

    def explained(self, page: Guide, evidence: bytes) -> list[str]:
        """The reasons of a refusal, as an operator is told them."""
        service = page.service.partition("/")[2]
        request = LoginRequest("acme", f"host/{page.host}" if page.named else None, evidence, PEER, service)
        explanation = self.result_of(self.explainers[page.kind].explain(request))
        return [str(step.reason.value) for step in explanation.steps if step.outcome == "failed"]

    def assert_refused(self, page: Guide, text: str) -> int:
        """Everyone whom the page's table names is refused, for that reason alone; return how many there are."""
        rows = _ROW.findall(text)
        for who, members, reason in rows:
            evidence = self.evidence(page.claims(), **json.loads("{" + members + "}"))
            answer = self.client.post(self.path(page), b"jwt=" + evidence)
            self.assertIn(answer.status, {401, 403}, f"{page.name}: {who}")
            self.assertEqual(self.explained(page, evidence), [reason], f"{page.name}: {who}")
        return len(rows)


class NativePagesTests(GuideCase):
    """Each page, in the native dialect."""

    def each(self) -> Iterator[Guide]:
        """The pages, each in a world of its own."""
        for page in PAGES:
            self.setUp()
            yield page

    def test_every_page_is_here(self) -> None:
        """Every page that the general one lists is tried here, or in ``test_docs`` and ``integration``."""
        listed = re.findall(r"(?m)^\| \[[^]]+\]\((\w+)\.md\) \|", (GUIDES / "authenticators.md").read_text(encoding="utf-8"))
        self.assertEqual(set(listed), {page.name for page in PAGES} | {"google", "aws"})

    def test_tokens(self) -> None:
        """The token that a page shows logs in as its host, with the policy and the values of that page."""
        for page in self.each():
            self.set_up(page, page.parts()[0])
            self.assert_admitted(page, self.evidence(page.claims()))

    def test_secrets(self) -> None:
        """The host of a page reads the secret that the page declares, sets and asks for, and no other host does."""
        for page in self.each():
            native = page.parts()[0]
            self.set_up(page, native)
            self.load("- !host other")
            self.set_value(_SECRET, page.name.encode())
            path = f"/secrets/acme/variable/{quote(_SECRET, safe='')}"
            answer = self.client.get(path, role=RoleName("acme", "host", page.host))
            self.assertEqual((answer.status, answer.body), (200, page.name.encode()), page.name)
            self.assertEqual(self.client.get(path, role=RoleName("acme", "host", "other")).status, 404)

    def test_in_order(self) -> None:
        """Each page says what its file is, logs in, loads it and sets the secret that its jobs read; none fails silently."""
        for name in (*(page.name for page in PAGES), "google", "aws"):
            text = Guide(name, "", "").text
            file = only(r"(?m)^svc login --for 1h\nsvc policy load root (\S+)$", text)
            self.assertIn(f"`{file}`", text)
            self.assertIn(f"\nopenssl rand -hex 24 | tr -d '\\n' | svc variable set {_SECRET}\n", text)
            if name != "terraform":
                self.assertIn(f"DB_PASSWORD: {_SECRET}", text)
            self.assertIn("../start/first-steps.md", text)
            self.assertIn("workloads.md#where-the-command-comes-from", text)
            self.assertIn("svc explain-request ID", text)
            for options in re.findall(r"\bcurl( (?:--\S+ )*)--", text):
                self.assertRegex(options, r"--fail(-with-body)? --silent --show-error ", name)
            for block in re.findall(r"(?ms)^```(?:sh|yml)\n(.*?)^```$", text):
                if re.search(r"(?:curl|spire-agent)[^|]*\| jq", block):
                    self.assertRegex(block, "shell: bash|set -o pipefail", name)

    def test_refusals(self) -> None:
        """Whom a page names as refused is refused for that reason: other repositories, forks, branches and audiences."""
        for page in self.each():
            native = page.parts()[0]
            self.set_up(page, native)
            self.assertGreater(self.assert_refused(page, native), 4, page.name)

    def test_audiences(self) -> None:
        """Every page has an audience in its policy, its values and its token, and without it nobody logs in."""
        for page in self.each():
            values = self.set_up(page, page.parts()[0])
            self.assertIn(values["audience"], AUDIENCES, page.name)
            claims = page.claims()
            others: tuple[object, ...] = (None, "", [], "https://svc.example.org.evil.example", values["audience"] + "/")
            for audience in others:
                evidence = self.evidence(claims, aud=audience)
                reason = "audience-missing" if audience is None else "audience-wrong"
                self.assertEqual(self.explained(page, evidence), [reason], f"{page.name}: {audience!r}")

    def test_steps(self) -> None:
        """What a page gives to its platform is YAML, and asks for a token for this server."""
        for page in PAGES:
            for block in page.blocks("yml"):
                self.assertTrue(list(yaml.safe_load_all(textwrap.dedent(block))), page.name)
            audience = only(r"(?m)^printf %s (\S+) +\| svc variable set \S+/audience$", page.parts()[0])
            steps = page.text.partition("\n## Log in\n")[2 if page.name != "circleci" else 0]
            self.assertIn(audience, steps.replace(f"SVC_URL: {audience}", ""), page.name)

    def test_hosts(self) -> None:
        """Hosts of pages have no API key, and every claim that is enforced is bound."""
        for page in self.each():
            values = self.set_up(page, page.parts()[0])
            host = f"acme:host:{page.host}"
            self.assertTrue(self.memory.api_key_off(host), page.name)
            names = {name for resource, name in self.memory.annotations if resource == host} - {API_KEY_ANNOTATION}
            if page.kind == "authn-jwt":
                bound = {name.removeprefix(f"{page.service}/") for name in names if name.startswith(page.service)}
                self.assertLessEqual(set(values["enforced-claims"].split(",")), bound, page.name)

    def test_commands(self) -> None:
        """A page's workload logs in by a command that exists, at its authenticator, with the host if the token has none."""
        for page in PAGES:
            shell = "\n".join([*page.blocks("sh"), *re.findall(r"(?m)^ *(?:- )?(svc .*)$", "\n".join(page.blocks("yml")))])
            pods = re.findall(r"command: \[(svc, .*)\]", page.text)
            lines = [words[1:] for words in commands(shell) if words[0] == "svc"]
            lines += [line.split(", ")[1:] for line in pods]
            logins = [words for words in lines if words[0] in {"run", "authenticate"}]
            self.assertTrue(logins, page.name)
            service = page.service.partition("/")[2]
            for words in logins:
                self.patch_server()
                read_command(main, words)
                self.assertIn(service, words, shlex.join(words))
                self.assertEqual(f"host/{page.host}" in words, page.named, shlex.join(words))

    def patch_server(self) -> None:
        """Name a server to commands, which they don't ask."""
        environ = {"SVC_URL": "http://127.0.0.1:8080", "SVC_ACCOUNT": "acme"}
        self.patch(os, "environ", {**os.environ, **environ})

    def test_keys_that_take_a_token(self) -> None:
        """The variables that the page of Kubernetes declares in the place of the issuer lead to the cluster's keys, with its
        authority and its token.
        """
        [page] = [page for page in PAGES if page.name == "kubernetes"]
        native = page.parts()[0]
        self.set_up(page, native)
        self.load(page.blocks("yaml", native)[2], method="PATCH")
        [(uri, _)] = [found for found in _VALUE.findall(native) if found[1].endswith("/jwks-uri")]
        values = {
            "jwks-uri": uri,
            "issuer": page.claims()["iss"],
            "ca-cert": Authority().pem,
            "jwks-token": "of.svc.keys",
        }
        section = native.partition("\n## Keys behind")[2]
        for name, value in values.items():
            self.assertIn(f"| svc variable set svc/authn-jwt/k8s/{name}\n", section)
            self.set_value(f"svc/authn-jwt/k8s/{name}", value.encode())
        self.assert_admitted(page, self.evidence(page.claims()))
        source = self.provider.asked[-1]
        self.assertEqual((source.uri, source.ca_cert, source.token), (uri, values["ca-cert"], "of.svc.keys"))
        self.load(page.blocks("yaml", native)[3], method="PATCH")
        given = {"type": "jwks", "value": json.loads(jwks(jwk_for(self.algorithm)))}
        self.set_value("svc/authn-jwt/k8s/public-keys", json.dumps(given).encode())
        self.assert_admitted(page, self.evidence(page.claims()))
        asked = len(self.provider.asked)
        self.assert_admitted(page, self.evidence(page.claims(), jti="another"))
        self.assertEqual(len(self.provider.asked), asked)


class ConjurPagesTests(GuideCase):
    """What pages say of the other dialect, with the rest of the page as it stands."""

    dialect = CONJUR

    def test_tokens_and_refusals(self) -> None:
        """The page's token logs in there too; with the claims that annotations can name there, others are refused."""
        found = 0
        for page in PAGES:
            native, other = page.parts()
            if page.kind != "authn-jwt":
                continue
            self.setUp()
            self.set_up(page, native)
            self.assert_admitted(page, self.evidence(page.claims()))
            self.assert_refused(page, native)
            if not other:
                continue
            found += 1
            self.setUp()
            [hosts] = page.blocks("yaml", other)
            self.set_up(page, native.replace(page.blocks("yaml", native)[1], hosts) + other)
            self.assert_admitted(page, self.evidence(page.claims()))
            self.assertGreater(self.assert_refused(page, other), 2)
        self.assertEqual(found, 2)
