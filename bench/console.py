"""The cost of each page of the console, where there are many resources: CPU time of the server and of its database."""

from __future__ import annotations

import re
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import attrs

from bench import settings
from bench.processes import cpu_seconds
from bench.report import Figure, Part
from bench.server import ACCOUNT, Server, say

#: The policies of the account, and what each has: variables with a permission and an annotation, a layer, hosts.
POLICIES: Final = 100
_LOADED_AT_ONCE: Final = 10

_PASSWORD: Final = f"{ACCOUNT}:variable:app-050/secret-00050"

#: Pages by name, with the text of each that shows that it is the one.
PAGES: Final = {
    "home": ("/ui", "Last changes"),
    "policies": ("/ui/policies", "app-050"),
    "policies, on": (f"/ui/policies?kind=variable&after={_PASSWORD}", "secret-00051"),
    "beneath a policy": (f"/ui/policies/{ACCOUNT}:policy:app-050?kind=variable", "secret-00001"),
    "search for few": ("/ui/resources?search=secret-00050", "app-050/secret-00050"),
    "search for all": ("/ui/resources?search=app", "The list goes on|There is more"),
    "variable": (f"/ui/resources/{_PASSWORD}", "Permissions"),
    "policy": (f"/ui/resources/{ACCOUNT}:policy:app-050", "Permissions"),
    "role": (f"/ui/roles/{ACCOUNT}:layer:app-050/hosts", "What it can reach"),
    "host": (f"/ui/roles/{ACCOUNT}:host:app-050/node-5", "Last login"),
    "holders of one privilege": (f"/ui/resources/{_PASSWORD}?privilege=execute", "Who can"),
    "audit": ("/ui/audit", "app-050"),
    "audit of a resource": (f"/ui/audit?what={_PASSWORD}", "updated"),
    "audit of a role": (f"/ui/audit?what={ACCOUNT}:layer:app-050/hosts", "app-050"),
    "audit by operation": ("/ui/audit?operation=update", "updated"),
    "audit by nobody": (f"/ui/audit?who={ACCOUNT}:user:nobody", "no event"),
    "what ends": ("/ui/expiring?within=31536000", "The list goes on"),
    "refusals": ("/ui/refusals", "credentials-wrong"),
    "who hasn't logged in": ("/ui/unused?since=0", "The list goes on"),
    "authenticators": ("/ui/authenticators", "Ways to log in"),
    "change": ("/ui/change", "Try it"),
}

#: Changes that are tried: the hundred hosts of a layer, itself or in a group, gain something on one variable or a hundred.
_GROUP: Final = "- !group all\n- !grant { role: !group all, member: !layer app-050/hosts }\n"
_PERMIT: Final = "- !permit {{ role: !{}, privileges: [ update ], resource: !variable app-051/secret-{:05} }}\n"
_CHANGES: Final = {
    "change, tried": _PERMIT.format("layer app-050/hosts", 7),
    "change of 100 permissions, tried": "".join(_PERMIT.format("group all", number) for number in range(100)),
}

#: The most CPU time of server and database that a page may cost, in milliseconds.
CPU_MOST: Final = 60.0


class _Browser:
    """A browser in which the admin has signed in, on one connection; it keeps the one cookie that was set last."""

    def __init__(self, url: str, api_key: str) -> None:
        self._connection = HTTPConnection(url.partition("//")[2], timeout=60)
        self._cookie = ""
        for evidence in ("wrong", api_key):
            form = {"account": ACCOUNT, "login": "admin", "evidence": evidence, "to": "/ui"}
            self.ask("/ui/sign-in", token=self.token("/ui/sign-in"), **form)

    def token(self, path: str) -> str:
        """The token of a page's forms."""
        token = re.search('name="token" value="([0-9a-f]+)"', self.ask(path))
        assert token is not None
        return token[1]

    def ask(self, path: str, **form: str) -> str:
        """A page, or the answer to a form."""
        headers = {"Sec-Fetch-Site": "same-origin", "Cookie": self._cookie}
        self._connection.request("POST" if form else "GET", path, urlencode(form), headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        assert answer.status in ({200, 303, 401} if form else {200}), (path, answer.status, text)
        self._cookie = (answer.headers["Set-Cookie"] or self._cookie).partition(";")[0]
        return text


def measure(folder: Path) -> Part:
    """Measure every page."""
    each = settings.CONSOLE_RESOURCES // POLICIES
    with Server.running(folder / "server", "--console") as server:
        admin = server.admin()
        say(f"loading {settings.CONSOLE_RESOURCES} resources")
        for start in range(0, POLICIES, _LOADED_AT_ONCE):
            text = "".join(_policy(number, each) for number in range(start, start + _LOADED_AT_ONCE))
            admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", text.encode())
        admin.ask("POST", f"/secrets/{ACCOUNT}/variable/app-050%2Fsecret-00050", b"value")
        browser = _Browser(server.url, server.api_key)
        figures = []
        admin.ask("POST", f"/policies/{ACCOUNT}/policy/root", _GROUP.encode())
        form = {"policy": "root", "mode": "append", "token": browser.token("/ui/change")}
        tried = {name: ("/ui/change", "Who gains", {**form, "text": text}) for name, text in _CHANGES.items()}
        for name, (path, text, form) in {**{name: (*page, {}) for name, page in PAGES.items()}, **tried}.items():
            page = browser.ask(path, **form)
            assert re.search(text, page), (name, page[:2000])
            for _ in range(settings.CONSOLE_VIEWS):
                browser.ask(path, **form)
            before = cpu_seconds(server.process.pid)
            for _ in range(settings.CONSOLE_VIEWS):
                browser.ask(path, **form)
            ours, database = (
                1000 * (after - earlier) / settings.CONSOLE_VIEWS
                for after, earlier in zip(cpu_seconds(server.process.pid), before, strict=True)
            )
            origin = f"{ours:.1f} ms of the server, {database:.1f} ms of the database; {len(page) / 1024:.0f} KB"
            figures.append(Figure(f"{name}, CPU", ours + database, "ms", CPU_MOST, origin))
    return Part.of(figures, {"pages": [attrs.asdict(figure) for figure in figures]})


def _policy(number: int, each: int) -> str:
    name, hosts = f"app-{number:03}", each // 10
    variables = "".join(
        f"  - !variable {{ id: secret-{index:05}, annotations: {{ description: of {name} }} }}\n"
        f"  - !permit {{ role: !layer hosts, privileges: [ read, execute ], resource: !variable secret-{index:05} }}\n"
        for index in range(each - hosts - 2)
    )
    members = "".join(
        f"  - !host node-{index}\n  - !grant {{ role: !layer hosts, member: !host node-{index} }}\n"
        for index in range(hosts)
    )
    return f"- !policy\n  id: {name}\n  body:\n  - !layer hosts\n{variables}{members}"
