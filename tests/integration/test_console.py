"""The console in a real browser: every page and every press, by the keyboard too, at all widths, in light and dark."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from svc.model.clocks import iso_seconds
from svc.web.console.links import resource, role
from tests.integration.axe import axe_script, violations
from tests.integration.browser import Browser
from tests.integration.client import Api
from tests.integration.postgres import PostgresTestCase
from tests.integration.process import ServerTestCase, beat
from tests.web.console.test_names import CLIMBING, ODD, SLASHED, in_policy, told

#: The id of a variable that has everything in it that a page could take for markup, and that a reader could be deceived by.
EVIL: Final = "<img src=x onerror=document.title='run'>\"'&amp;{{7*7}}\u202egnp.exe"

POLICY: Final = f"""
- !policy
  id: prod
  annotations: {{ description: "The shop, as customers see it" }}
  body:
  - !user alice
  - !group operators
  - !layer web
  - !host web/1
  - !grant {{ role: !layer web, member: !host web/1 }}
  - !host-factory {{ id: hosts, layers: [ !layer web ] }}
  - !grant {{ role: !group operators, member: !user alice }}
  - !policy
    id: db
    body:
    - &variables
      - !variable {{ id: password, annotations: {{ description: "of the database", "rotation": "<b>by hand</b>" }} }}
      - !variable url
    - !permit {{ role: !layer /prod/web, privileges: [ read, execute ], resources: *variables }}
- !policy {{ id: svc/authn-jwt/ci, body: [ !webservice , !webservice status , !variable jwks-uri ] }}
- !user olivia
- !user {{ id: guest, annotations: {{ description: "from elsewhere" }} }}
- !group {json.dumps(EVIL)}
- !grant {{ role: !group {json.dumps(EVIL)}, member: !user olivia }}
- !permit {{ role: !group {json.dumps(EVIL)}, privileges: [ read ], resource: !variable {json.dumps(EVIL)} }}
- !permit {{ role: !user olivia, privileges: [ read ], resource: !policy prod }}
- !variable
  id: {json.dumps(EVIL)}
  annotations: {{ "</title><script>document.title='run'</script>": "<script>document.title='run'</script>" }}
"""
#: What is tried, and then loaded.
CHANGE: Final = """
- !user carol
- !permit { role: !group prod/operators, privileges: [ read, update ], resource: !variable prod/db/password }
- !deny { role: !layer prod/web, privileges: [ execute ], resource: !variable prod/db/url }
"""
#: The folder that gets a picture of each page, where one is wanted.
PICTURES: Final = Path(os.environ["SVC_PICTURES"]) if "SVC_PICTURES" in os.environ else None
#: The most pixels that a picture of a page is high.
HEIGHT_MOST: Final = 1200
WIDTHS: Final = ((1180, False), (1180, True), (360, False), (360, True))


class ConsoleTests(PostgresTestCase, ServerTestCase):
    """A server with a console, and a browser."""

    timeout = 300

    async def start(self, *options: str) -> str:
        """A server with policy and values; returns its address."""
        server = self.serve(
            "--account", "acme", "--console", *options, database_url=await self.create_database(migrated=False)
        )
        url = await server.ready()
        self.admin_key = server.admin_key()
        self.api = Api.of(self, url)
        admin = self.admin = await self.api.authenticate("admin", self.admin_key)
        loaded = await self.api.ask("POST", "/policies/acme/policy/root", POLICY.encode(), admin)
        self.assertEqual(loaded.status, 201, loaded)
        self.olivia_key = loaded.json()["created_roles"]["acme:user:olivia"]["api_key"]
        for name in ("prod/db/password", EVIL):
            for value in (b"first", b"s3cret & <b>bold</b>"):
                path = f"/secrets/acme/variable/{quote(name, safe='')}"
                self.assertEqual((await self.api.ask("POST", path, value, admin)).status, 201)
        wanted = {"host_factory": "acme:host_factory:prod/hosts", "expiration": iso_seconds(time.time() + 10 * 86_400)}
        await self.api.ask("POST", "/host_factory_tokens", urlencode(wanted).encode(), admin)
        return url

    async def sign_in(self, browser: Browser, login: str, evidence: str) -> None:
        """Fill in the form."""
        await browser.fill("#account", "acme")
        await browser.fill("#login", login)
        await browser.fill("#evidence", evidence)
        await self.press(
            browser,
            'form[action="/ui/sign-in"][method="post"] button',
            "Signed in as" if evidence != "wrong" else "don't fit together",
        )

    async def press(self, browser: Browser, selector: str, told: str) -> None:
        """Click on something, and wait until the page says this."""
        await browser.click(selector)
        while told not in await self.text(browser):
            await beat()

    async def text(self, browser: Browser) -> str:
        """The text of the page."""
        text: str = await browser.evaluate("return document.body.innerText")
        return text

    async def test_pages(self) -> None:
        """Each page is shown to people and to screen readers, in the light and the dark, on a phone, and names are what they
        are (CON-14, CON-15, CON-16).
        """
        browser, script, url = await Browser.start(self), await axe_script(self), await self.start()
        await browser.open(f"{url}/")
        await browser.click('a[href="/ui"]')
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui/sign-in")
        await self.seen(browser, script, "sign-in")
        await self.sign_in(browser, "admin", "wrong")
        self.assertIn("don't fit together", await self.text(browser))
        await self.seen(browser, script, "sign-in-failed")
        await browser.fill("#evidence", self.admin_key)
        await self.press(browser, 'form[action="/ui/sign-in"][method="post"] button', "Signed in as admin")
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui")
        self.assertIn("Signed in as admin", await self.text(browser))
        for name, path in (
            ("home", "/ui"),
            ("policies", "/ui/policies"),
            ("policy-below", "/ui/policies/acme:policy:prod?kind=variable"),
            ("search", "/ui/resources?search=password"),
            ("search-nothing", "/ui/resources?search=nowhere"),
            ("policy", "/ui/resources/acme:policy:prod"),
            ("variable", "/ui/resources/acme:variable:prod/db/password"),
            ("odd", resource(f"acme:variable:{EVIL}")),
            ("role", "/ui/roles/acme:layer:prod/web"),
            ("user", "/ui/roles/acme:user:olivia"),
            ("own-role", "/ui/roles/acme:user:admin"),
            ("odd-role", role(f"acme:group:{EVIL}")),
            ("expiring", "/ui/expiring?within=31536000"),
            ("refusals", "/ui/refusals"),
            ("unused", "/ui/unused?since=0"),
            ("explain-login", "/ui/explain-login?login=olivia"),
            ("who-can", "/ui/resources/acme:variable:prod/db/password?privilege=execute"),
            ("audit", "/ui/audit"),
            ("audit-of", "/ui/audit?what=acme:variable:prod/db/password&operation=update"),
            ("authenticators", "/ui/authenticators"),
            ("change", "/ui/change"),
            ("authenticator", "/ui/authenticators/authn-jwt/ci"),
            ("not-found", "/ui/resources/acme:variable:none"),
        ):
            await browser.open(f"{url}{path}")
            await self.seen(browser, script, name)
            await browser.command("Emulation.setEmulatedMedia", {"media": "print"})
            hidden = "return getComputedStyle(document.querySelector('header')).display"
            self.assertEqual(await browser.evaluate(hidden), "none")
            await browser.command("Emulation.setEmulatedMedia", {"media": ""})
            self.assertNotEqual(await browser.evaluate("return document.title"), "run", path)
        await browser.open(f"{url}/ui/resources/acme:variable:prod/db/password")
        self.assertNotIn("s3cret", await self.text(browser))
        await self.press(browser, 'button[aria-label="Show the value of version 2"]', "This reading is in the audit")
        self.assertIn("s3cret & <b>bold</b>", await self.text(browser))
        await self.seen(browser, script, "value")
        await browser.open(f"{url}/ui/authenticators/authn-jwt/ci")
        await browser.fill("#jwt", "a.b.c")
        await self.press(browser, "main form button", "It would be refused")
        await self.seen(browser, script, "explained")
        await browser.open(f"{url}/ui/change")
        await browser.fill("#text", "- !usr x")
        await self.press(browser, 'form[action="/ui/change"] button', "It has faults")
        await self.seen(browser, script, "change-faults")
        await browser.open(f"{url}/ui/change")
        await browser.fill("#text", CHANGE)
        await browser.fill("#mode", "update")
        await self.press(browser, 'form[action="/ui/change"] button', "Created: 1")
        self.assertIn("is a member of group:prod/operators, which is permitted it", await self.text(browser))
        await self.seen(browser, script, "change-tried")
        await self.press(browser, 'form[action="/ui/change/load"] button', "They are shown here and nowhere again")
        await self.seen(browser, script, "loaded")
        await browser.open(f"{url}/ui/refusals")
        await browser.fill("#request", "nothing")
        await self.press(browser, "main form button", "There are none of this kind")
        await self.seen(browser, script, "refusals-none")
        await browser.open(f"{url}/ui/roles/acme:user:olivia")
        await self.press(browser, "main form button", "are revoked")
        await self.seen(browser, script, "revoked")
        await browser.open(f"{url}{resource(f'acme:variable:{EVIL}')}")
        shown = await browser.evaluate("return document.querySelector('h1 bdi').textContent")
        self.assertEqual(shown, EVIL.replace("\u202e", "U+202E"))
        self.assertEqual(await browser.evaluate("return document.images.length + document.scripts.length"), 0)
        # What a browser could take for another address leads to its thing.
        names = [*ODD, *SLASHED, *CLIMBING]
        text = "".join(f"- !variable {in_policy(f'odd/{name}')}\n" for name in names)
        self.assertEqual((await self.api.ask("POST", "/policies/acme/policy/root", text.encode(), self.admin)).status, 201)
        await browser.open(f"{url}/ui/policies?kind=variable")
        wanted = (
            "return [...document.querySelectorAll('.tree a')].filter(a => a.textContent.startsWith('odd/')).map(a => a.href)"
        )
        led = await browser.evaluate(wanted)
        self.assertEqual(len(led), len(names))
        shown = set[str]()
        for link in led:
            await browser.open(link)
            shown.add(await browser.evaluate("return document.querySelector('h1 bdi').textContent"))
        self.assertEqual(shown, {told(f"odd/{name}").replace("\r\n", "\n") for name in names})

    async def test_presses(self) -> None:
        """Search, sign-out and sign-out everywhere work, by the keyboard too; a session isn't shared with another site,
        nor read by a script (CON-4, CON-8, CON-12).
        """
        browser, url = await Browser.start(self), await self.start()
        await browser.open(f"{url}/ui/resources/acme:policy:prod")
        await self.sign_in(browser, "olivia", self.olivia_key)
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui/resources/acme:policy:prod")
        self.assertEqual(await browser.evaluate("return document.cookie"), "")
        await browser.fill("#search", "prod\ue007")
        while "Nothing is found" not in await self.text(browser) and "1 to" not in await self.text(browser):
            await beat()
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui/resources")
        text = await self.text(browser)
        self.assertIn("policy prod", text)
        self.assertNotIn("password", text)
        # The first stop is the link that leaves out the head.
        await browser.open(f"{url}/ui/policies")
        await browser.fill("body", "\ue004")
        self.assertEqual(await browser.evaluate("return document.activeElement.className"), "skip")
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        self.assertEqual(await browser.evaluate(outline), "solid")
        # The same server is another site under its other name.
        await browser.open(url.replace("127.0.0.1", "localhost") + "/ui")
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui/sign-in")
        # A link from there comes without the session, which is there still.
        await browser.evaluate(f"location.href = '{url}/ui/policies'")
        while "You came by a link" not in await self.text(browser):
            await beat()
        await self.press(browser, 'main a[href="/ui/policies"]', "Signed in as olivia")
        await browser.open(f"{url}/ui")
        await self.press(browser, 'form[action="/ui/sign-out"] button', "You are signed out")
        # The way back leads to no page that was kept.
        await browser.evaluate("history.back()")
        while await browser.evaluate("return location.search") == "?out":
            await beat()
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui/sign-in")
        await browser.open(f"{url}/ui")
        await self.sign_in(browser, "olivia", self.olivia_key)
        await self.press(browser, 'form[action="/ui/sign-out-everywhere"] button', "You are signed out")
        await browser.open(f"{url}/ui/policies")
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui/sign-in")
        await self.sign_in(browser, "olivia", self.olivia_key)
        answer = await self.api.ask("DELETE", "/authn/acme/tokens?role=user:olivia", None, self.admin)
        self.assertEqual(answer.status, 204)
        await browser.open(f"{url}/ui/policies")
        self.assertEqual(await browser.evaluate("return location.pathname"), "/ui/sign-in")

    async def test_processes(self) -> None:
        """A session that one process of a server began is one of all of them (CON-10)."""
        url = await self.start("--processes", "2")
        browser = await Browser.start(self)
        await browser.open(f"{url}/ui")
        await self.sign_in(browser, "admin", self.admin_key)
        for _ in range(8):
            await browser.open(f"{url}/ui/policies")
            self.assertIn("Signed in as admin", await self.text(browser))

    async def test_questions(self) -> None:
        """Six questions of a security officer are answered by the pages alone, each in a few presses, as the API answers
        (CON-19, CON-25, CON-26, CON-27, CON-45, CON-46).
        """
        url, browser = await self.start(), await Browser.start(self)
        load = "- !grant { role: !layer prod/web, member: !host prod/web/2 }\n"
        made = await self.api.ask("POST", "/policies/acme/policy/root", f"- !host prod/web/2\n{load}".encode(), self.admin)
        self.assertEqual(made.status, 201)
        asked = made.headers["x-request-id"]
        refused = await self.api.ask("POST", "/authn/acme/host%2Fprod%2Fweb%2F2/authenticate", b"wrong")
        password, began = "acme:variable:prod/db/password", time.monotonic()
        took = dict[str, float]()

        def done(question: str) -> None:
            nonlocal began
            took[question], began = time.monotonic() - began, time.monotonic()

        async def find(words: str, path: str) -> str:
            await browser.fill("#search", f"{words}\ue007")
            while words not in await browser.evaluate("return document.title"):
                await beat()
            await self.press(browser, f'main a[href="{path}"]', "Permissions")
            return await self.text(browser)

        await browser.open(f"{url}/ui")
        await self.sign_in(browser, "admin", self.admin_key)
        # Who can read this?
        await find("password", resource(password))
        shown = await browser.evaluate(
            "return [...document.querySelectorAll('#can-1 + table th a')].map(a => a.textContent)"
        )
        answer = await self.api.ask(
            "GET",
            f"/resources/acme/variable/{quote('prod/db/password', safe='')}?permitted_roles&privilege=read",
            None,
            self.admin,
        )
        self.assertEqual(sorted(shown), sorted(each.split(":", 2)[2] for each in answer.json()))
        done("who can read this")
        # How did that host get access?
        await self.press(browser, f'#can-1 + table a[href="{role("acme:host:prod/web/2")}"]', "What it can reach")
        text = await self.text(browser)
        self.assertIn("is a member of layer:prod/web, which is permitted it", text)
        answer = await self.api.ask(
            "GET",
            f"/resources/acme/variable/{quote('prod/db/password', safe='')}?can&privilege=read&role=acme:host:prod/web/2",
            None,
            self.admin,
        )
        self.assertEqual([each["role"] for each in answer.json()["way"]], ["acme:host:prod/web/2", "acme:layer:prod/web"])
        done("how did that host get access")
        # What did this load change?
        await self.press(browser, 'nav a[href="/ui"]', "Last changes")
        await self.press(browser, f'a[href="/ui/audit?request={asked}"]', "all, whatever the request")
        answer = await self.api.ask("GET", f"/audit?procid={asked}", None, self.admin)
        text = await self.text(browser)
        events = [event["message"] for event in answer.json()]
        self.assertEqual([each for each in events if each not in text], [])
        self.assertEqual(await browser.evaluate("return document.querySelectorAll('.events li').length"), len(events))
        done("what did this load change")
        # Who changed it?
        await find("password", resource(password))
        await self.press(browser, 'a[href^="/ui/audit?what="]', "Only")
        self.assertIn("acme:user:admin updated acme:variable:prod/db/password", await self.text(browser))
        done("who changed it")
        # What ends within a month?
        await self.press(browser, 'nav a[href="/ui"]', "What ends within 30 days")
        answer = await self.api.ask("GET", "/expiring?within=2592000", None, self.admin)
        ends = [each["id"].split(":", 2)[2] for each in answer.json()["expiring"]]
        shown = await browser.evaluate(
            "return [...document.querySelectorAll('[aria-labelledby=ends] th a')].map(a => a.textContent)"
        )
        self.assertEqual((shown, len(shown)), (ends, 1))
        done("what ends within a month")
        # Why was this refused?
        await self.press(browser, 'a[href="/ui/refusals"]', "Refusals of the last hour")
        await browser.fill("#request", refused.headers["x-request-id"])
        await self.press(browser, "main form button", "What credentials-wrong means")
        self.assertIn("host prod/web/2 from 127.0.0.1", await self.text(browser))
        answer = await self.api.ask("GET", f"/refusals?request={refused.headers['x-request-id']}", None, self.admin)
        self.assertEqual([each["reason"] for each in answer.json()["refusals"]], ["credentials-wrong"])
        done("why was this refused")
        self.assertLess(max(took.values()), 60)

    async def test_off(self) -> None:
        """Without the setting there is no console, and nothing leads to it (CON-1)."""
        server = self.serve("--account", "acme", database_url=await self.create_database(migrated=False))
        api = Api.of(self, await server.ready())
        for path in ("/ui", "/ui/sign-in", "/ui/policies"):
            self.assertEqual((await api.ask("GET", path)).status, 404)
        self.assertEqual((await api.ask("GET", "/ui/health")).status, 200)
        self.assertNotIn(b"/ui", (await api.ask("GET", "/")).body)

    async def seen(self, browser: Browser, script: str, name: str) -> None:
        """Look at the page that is shown in all ways: nothing is wider than the window, or violates accessibility."""
        for width, dark in WIDTHS:
            await browser.look(width=width, dark=dark)
            where = (name, width, dark)
            self.assertEqual(await violations(browser, script), [], where)
            wide = await browser.evaluate("return [document.documentElement.scrollWidth, innerWidth]")
            self.assertLessEqual(wide[0], wide[1], where)
            if PICTURES is not None:
                tall = await browser.evaluate("return document.documentElement.scrollHeight")
                await browser.look(width=width, height=min(tall, HEIGHT_MOST), dark=dark)
                picture = PICTURES / f"console-{name}-{width}-{'dark' if dark else 'light'}.png"
                picture.write_bytes(await browser.screenshot())
        await browser.look(width=1180)
