"""People sign in at a real provider of OpenID Connect: with the command, in a browser and on another device."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.integration.bed import free_port
from tests.integration.browser import Browser
from tests.integration.client import Api
from tests.integration.oidc import Person, RealProvider
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import beat
from tests.integration.test_cli import CommandTestCase

SECRET = "a secret + 100%"

POLICY = """
- !user alice
- !user carol
- !policy
  id: svc/authn-oidc/corp
  body:
    - !webservice
    - !webservice status
    - !group people
    - !permit { role: !group people, privileges: [ read, authenticate ], resource: !webservice }
    - !variable provider-uri
    - !variable client-id
    - !variable client-secret
    - !variable claim-mapping
    - !variable redirect-uri
- !policy
  id: svc/authn-oidc/device
  body:
    - !webservice
    - !variable provider-uri
    - !variable client-id
    - !variable id-token-user-property
    - !permit { role: !user /alice, privileges: [ read, authenticate ], resource: !webservice }
- !grant { role: !group svc/authn-oidc/corp/people, members: [ !user alice, !user admin ] }
"""


class RealProviderTests(CommandTestCase, PostgresTestCase):
    """A server, its command, and npm's ``oidc-provider``."""

    async def test_people(self) -> None:
        """A person signs in with the command, in a browser or on another device, and to the console; codes and tokens of
        others, of other clients and of other kinds prove nothing (OIDC-11, OIDC-17, OIDC-24, OIDC-25, OIDC-31, OIDC-34,
        CON-62).
        """
        callback = f"http://127.0.0.1:{free_port()}/callback"
        server = self.serve(
            "--account=acme",
            "--authenticators=authn,authn-oidc/corp,authn-oidc/device",
            "--allow-http-providers",
            "--console",
            "--allow-private-providers=127.0.0.0/8",
            database_url=await self.create_database(migrated=False),
        )
        base = await server.ready()
        # Of another host than the provider's, or the way back would not be one from another site.
        console = base.replace("127.0.0.1", "localhost")
        provider = await RealProvider.start(self, callback, f"{console}/ui/sign-in/callback")
        admin = {"SVC_URL": base, "SVC_ACCOUNT": "acme", "SVC_LOGIN": "admin", "SVC_API_KEY": server.admin_key()}
        await self.svc("policy", "load", "root", "-", given=POLICY.encode(), environ=admin)
        usual = {"provider-uri": provider.issuer}
        for service, values in {
            "corp": {
                **usual,
                "client-id": "svc",
                "client-secret": SECRET,
                "claim-mapping": "preferred_username",
                "redirect-uri": callback,
            },
            "device": {**usual, "client-id": "svc-device", "id-token-user-property": "preferred_username"},
        }.items():
            for name, value in values.items():
                named = f"svc/authn-oidc/{service}/{name}"
                await self.svc("variable", "set", named, given=value.encode(), environ=admin)
        status = await self.svc("authenticator", "status", "authn-oidc/corp", environ=admin)
        self.assertIn("first", status.stdout)

        client = {"SVC_URL": base, "SVC_ACCOUNT": "acme"}
        self.assertEqual(await self.in_a_browser("alice", callback, client), "alice")
        self.assertIn(
            "the server refuses the login by corp", (await self.signing_in("carol", callback, client, code=1)).stderr
        )
        self.assertIn(
            "the server refuses the login by corp", (await self.signing_in("admin", callback, client, code=1)).stderr
        )
        await self.faulty_settings(provider, callback, admin)
        await self.on_a_device(provider, client)
        await self.attacks(Api.of(self, base), provider, callback)
        await self.in_the_console(console)

    async def faulty_settings(self, provider: RealProvider, callback: str, admin: dict[str, str]) -> None:
        """Settings that the provider doesn't have so are told by the status, once they have shown (OIDC-30, OIDC-36)."""
        client = {"SVC_URL": admin["SVC_URL"], "SVC_ACCOUNT": admin["SVC_ACCOUNT"]}

        async def given(name: str, value: str) -> None:
            await self.svc("variable", "set", f"svc/authn-oidc/corp/{name}", given=value.encode(), environ=admin)

        async def status(code: int) -> str:
            return (await self.svc("authenticator", "status", "authn-oidc/corp", environ=admin, code=code)).stdout

        async def offers(issuer: str) -> None:
            """Wait until people are offered that: what they are offered is read once a second."""
            api = Api.of(self, admin["SVC_URL"])
            while ("corp", issuer) not in [
                (each["service_id"], each.get("issuer"))
                for each in json.loads((await api.ask("GET", "/authn-oidc/acme/providers")).body)
            ]:
                await beat()

        await given("client-secret", "another")
        await status(0)
        failed = await self.signing_in("alice", callback, client, code=1)
        self.assertIn("or this server's settings for it, are at fault", failed.stderr)
        (request_id,) = re.findall(r"`svc explain-request (\S+)`", failed.stderr)
        explained = await self.svc("explain-request", request_id, environ=admin)
        self.assertIn("refused at authn-oidc/corp, oidc-client-refused", explained.stdout)
        self.assertIn("The provider refused client-id and client-secret at a login", await status(1))
        await given("client-secret", SECRET)
        await status(0)
        await given("provider-uri", f"{provider.issuer}/")
        await status(0)
        self.assertEqual(await self.in_a_browser("alice", callback, client), "alice")
        await given("provider-uri", provider.issuer)
        await offers(provider.issuer)
        self.assertEqual(await self.in_a_browser("alice", callback, client), "alice")

    async def in_the_console(self, url: str) -> None:
        """Sign in to the console: by a browser's rules on cookies a person comes back, and to the page that was wanted."""
        browser = await Browser.start(self)

        async def shows(condition: str) -> None:
            while not await browser.evaluate(f"return Boolean({condition})"):
                await beat()

        await browser.open(f"{url}/ui/policies")
        await browser.fill("#provider-account", "acme")
        await browser.click('form[method="get"] button')
        await shows("document.querySelector('form[action=\"/ui/sign-in/provider\"]')")
        await browser.click('form[action="/ui/sign-in/provider"] button')
        await shows("document.querySelector('input[name=login]')")
        await browser.fill("input[name=login]", "alice")
        await browser.fill("input[name=password]", "any")
        await browser.click("button")
        await shows("document.querySelector('input[name=prompt][value=consent]')")
        await browser.click("button")
        await shows("document.body && document.body.innerText.includes('Signed in as alice')")
        self.assertEqual(await browser.evaluate("return location.href"), f"{url}/ui/policies")

    async def signing_in(self, name: str, callback: str, client: dict[str, str], code: int = 0) -> Any:
        """Begin with the command, and have a person go on in a browser, up to the end."""
        command = self.start("login", "--oidc", "corp", environ=client)
        command.awaited_error = b"&state="
        await command.on_error
        (begin,) = re.findall(r"^http\S+$", command.stderr.decode(), re.MULTILINE)
        person = Person(name)
        url, _ = await person.visit(begin, until=callback)
        stray = await person.visit(url.replace("state=", "state=x"))
        self.assertIn("not the login that was begun here", stray[1])
        await person.visit(url)
        outcome = await command.ended
        self.assertEqual(outcome.exit_code, code, outcome)
        return outcome

    async def in_a_browser(self, name: str, callback: str, client: dict[str, str]) -> str:
        """Whom the server takes a person for who has signed in, by the token that is kept (OIDC-35)."""
        outcome = await self.signing_in(name, callback, client)
        self.assertIn(f"Logged in as {name} for 3600 seconds", outcome.stdout)
        return str(json.loads((await self.svc("whoami", environ=client)).stdout)["username"])

    async def on_a_device(self, provider: RealProvider, client: dict[str, str]) -> None:
        """Sign in with a code that is shown here, in a browser elsewhere."""
        command = self.start("login", "--oidc", "device", environ=client)
        command.awaited_error = b"with the code "
        await command.on_error
        (url, code) = re.findall(r"Sign in at (\S+) on any device, with the code (\S+)", command.stderr.decode())[0]
        _, page = await Person("alice").visit(url, user_code=code)
        self.assertIn("Sign-in Success", page)
        outcome = await command.ended
        self.assertIn("Logged in as alice for 480 seconds", outcome.stdout, outcome)

    async def attacks(self, api: Api, provider: RealProvider, callback: str) -> None:
        """What a hostile client may do with codes and tokens that a real provider has given out."""

        async def code_for(login: dict[str, str], client: str = "svc") -> str:
            """A code of this provider for Alice, in a browser that began at this address."""
            begin = login["redirect_uri"].replace("client_id=svc&", f"client_id={client}&") + "&state=s"
            url, _ = await Person("alice").visit(begin, until=callback)
            return parse_qs(urlsplit(url).query)["code"][0]

        async def finish(login: dict[str, str], **changes: str) -> int:
            """The status for a code."""
            given = {name: login[name] for name in ("nonce", "code_verifier")} | changes
            return (await api.ask("GET", f"/authn-oidc/corp/acme/authenticate?{urlencode(given)}")).status

        async def begun() -> dict[str, str]:
            """A login of its own."""
            listed = (await api.ask("GET", "/authn-oidc/acme/providers")).json()
            (login,) = [each for each in listed if each["service_id"] == "corp"]
            return dict(login)

        mine, yours = await begun(), await begun()
        self.assertEqual(await finish(mine, code=await code_for(yours)), 401)
        self.assertEqual(await finish(await begun(), code=await code_for(await begun(), "other")), 401)
        login = await begun()
        self.assertEqual(await finish(login, code=await code_for(login), code_verifier="v" * 50), 401)
        login = await begun()
        code = await code_for(login)
        self.assertEqual([await finish(login, code=code) for _ in range(3)], [200, 401, 401])
        # Tokens of this provider for another client, and an access token.
        login = await begun()
        tokens = await self.tokens(provider, callback, await code_for(login, "other"), login["code_verifier"])
        for evidence in (tokens["id_token"], tokens["access_token"]):
            body = urlencode({"id_token": evidence}).encode()
            for service in ("device", "corp"):
                path = f"/authn-oidc/{service}/acme/authenticate"
                self.assertEqual((await api.ask("POST", path, body)).status, 401)

    async def tokens(self, provider: RealProvider, callback: str, code: str, verifier: str) -> dict[str, str]:
        """The tokens of a code, for the other client."""
        fields = {"grant_type": "authorization_code", "code": code, "redirect_uri": callback, "code_verifier": verifier}
        pair = base64.b64encode(b"other:another").decode()
        headers = {"Authorization": f"Basic {pair}", "Content_Type": "application/x-www-form-urlencoded"}
        answer = await Api.of(self, provider.issuer).ask("POST", "/token", urlencode(fields).encode(), **headers)
        self.assertEqual(answer.status, 200, answer.body)
        return dict(answer.json())
