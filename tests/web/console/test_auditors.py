"""The console for auditors (INS): its pages show them what they inspect, and no value, and change nothing for them."""

from __future__ import annotations

from typing import Final

from svc.model.names import ROLE_KINDS
from svc.web.console import links
from tests.web.console.world import ConsoleCase
from tests.web.declared import declared_pages

POLICY: Final = """
- !user auditor
- !permit { role: !user auditor, privilege: inspect, resource: !policy root }
- !policy { id: prod, body: [ !variable db/password, !host web, !group staff, !layer l ] }
- !variable token
"""
#: What a browser ends with by its own press.
OF_ONESELF: Final = frozenset({"Sign out", "Sign out everywhere"})


class AuditorsTests(ConsoleCase):
    """An auditor of the account, in a browser."""

    def test_every_page(self) -> None:
        """On every page, by every press, an auditor sees what there is, gets no value, changes nothing (INS-5, INS-6)."""
        loaded = self.load(POLICY)
        for variable in ("prod/db/password", "token"):
            self.set_value(variable, b"planted")
        browser = self.signed_in("auditor", self.api_key(loaded, "acme:user:auditor"))
        before, ids = self.memory.copied(), sorted(self.memory.resources)
        paths = [
            links.HOME,
            links.SEARCH,
            f"{links.SEARCH}?search=token",
            links.POLICIES,
            links.AUTHENTICATORS,
            links.CHANGE,
        ]
        paths += [
            links.EXPIRING,
            links.REFUSALS,
            links.UNUSED,
            links.LOGIN_EXPLAINED,
            links.AUDIT,
            links.audit({"what": "acme:variable:token"}),
        ]
        paths += map(links.resource, ids)
        paths += [links.role(full) for full in ids if full.split(":", 2)[1] in ROLE_KINDS]
        paths += [links.policy(full) for full in ids if full.split(":", 2)[1] == "policy"]
        pressed = 0
        for path in paths:
            page = browser.get(path)
            self.assertEqual(page.answer.status, 200, (path, page.text))
            self.assertNotIn(b"planted", page.answer.body, path)
            for button in page.forms.keys() - OF_ONESELF:
                browser.get(path)
                page = browser.press(button)
                self.assertNotIn(b"planted", page.answer.body, (path, button))
                pressed += 1
            self.assertEqual(self.memory.copied(), before, path)
        self.assertGreater(pressed, 0)
        first = [route.pattern.text.partition("<")[0].rstrip("/") for _, route in declared_pages() if route.method == "GET"]
        opened = [path for path in first if not path.startswith("/ui/sign")]
        self.assertEqual([path for path in opened if not any(each.startswith(path) for each in paths)], [])

    def test_value(self) -> None:
        """A value is refused to an auditor, whatever is sent (INS-5)."""
        loaded = self.load(POLICY)
        self.set_value("token", b"planted")
        browser = self.signed_in("auditor", self.api_key(loaded, "acme:user:auditor"))
        admin = self.signed_in("admin", "1admin")
        path = links.resource("acme:variable:token")
        shown = admin.get(path).forms
        target, _, fields = next(form for name, form in shown.items() if name.startswith("Show"))
        browser.get(path)
        given = {**fields, **{name: text for form in browser.page.forms.values() for name, text in form[2].items()}}
        page = browser.send(target, given)
        self.assertEqual(page.answer.status, 403, page.text)
        self.assertNotIn("planted", page.text)
