"""Templates, rendered: all of them are read and compiled when the server starts, and everything in them is escaped.

Note [What a page may]. The Content-Security-Policy forbids everything but the one style, which it names by its hash, and
forms to this server. No page has a script, an image or a font, so that markup that found its way into one would run nothing
and send nothing anywhere. No page is cached, framed, or revealed to other sites as a referrer.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from svc._version import VERSION
from svc.crypto.console_cookies import ConsoleCookies
from svc.model.access import describe_path, pluralize_kind
from svc.model.authentication import iso_day
from svc.model.clocks import iso_seconds
from svc.web.console import links
from svc.web.http.console import Visit
from svc.web.http.messages import Response

HTML: Final = "text/html; charset=utf-8"

#: The pages that every page leads to: the words, and where they lead.
NAVIGATION: Final = (
    ("Home", links.HOME),
    ("Policies", links.POLICIES),
    ("Audit", links.AUDIT),
    ("Authenticators", links.AUTHENTICATORS),
    ("Try a change", links.CHANGE),
)

#: The most characters that are shown of one text, and what kinds are called where that isn't the word itself.
MAX_TEXT_LENGTH: Final = 2000
#: Characters that a reader could be deceived by: controls but for the line end, marks of direction and format, those that
#: aren't drawn, and blanks that look like others; but not the wide one, which East Asian texts have.
_INVISIBLE: Final = re.compile(
    "([\x00-\x09\x0b-\x1f\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u1680\u17b4\u17b5"
    "\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd"
    "\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff])"
)
_KIND_LABELS: Final[Mapping[str, str]] = {"host_factory": "host factory", "public_key": "public key"}


class PageRenderer:
    """The templates of the console."""

    def __init__(self, cookies: ConsoleCookies) -> None:
        self._cookies = cookies
        style, self._templates = _compile_templates()
        digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
        policy = f"style-src 'sha256-{digest}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        #: The headers of every page (Note [What a page may]), beside those that every answer has.
        self.headers: Final = (
            ("Content-Security-Policy", f"default-src 'none'; {policy}"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        )

    def render_page(self, visit: Visit | None, template: str, *, title: str, status: int = 200, **values: Any) -> Response:
        """Return a page with this title, for a visit: it shows who is signed in, and its forms get their token."""
        token = None if visit is None else self._cookies.form_token(visit.secret)
        session = None if visit is None or visit.ended else visit.session
        text = self._templates[template].render(title=title, session=session, form_token=token, **values)
        return Response.content(text.encode("utf-8", "replace"), HTML, status)


@functools.cache
def _compile_templates() -> tuple[str, Mapping[str, Template]]:
    """Return the text of the style sheet, and the pages by their names: compiled once in a process, which takes 0.3 s."""
    environment = Environment(
        loader=PackageLoader("svc.web.console"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = environment.get_template("style.css").render()
    environment.globals |= {"links": links, "version": VERSION, "navigation": NAVIGATION}
    environment.filters |= {
        "moment": _format_moment,
        "day": iso_day,
        "kind": _kind_label,
        "kinds": pluralize_kind,
        "identifier": _identifier_part,
        "shortened": shorten_text,
        "pieces": mark_invisible,
        "way": describe_path,
    }
    return style, {name: environment.get_template(name) for name in environment.list_templates(extensions=["html"])}


def shorten_text(text: str, most: int = MAX_TEXT_LENGTH) -> str:
    """Return a text, cut where it is too long to be shown."""
    return text if len(text) <= most else f"{text[:most]}…"


def mark_invisible(text: str) -> list[tuple[str, bool]]:
    """Return a text in pieces, each with whether it is the code of a character that would not be seen, or turn others."""
    if _INVISIBLE.search(text) is None:
        return [(text, False)]
    found = []
    for piece in _INVISIBLE.split(text):
        unseen = _INVISIBLE.fullmatch(piece) is not None
        found.append((f"U+{ord(piece):04X}" if unseen else piece, unseen))
    return found


def _format_moment(seconds: float) -> str:
    """Return a moment as people read it."""
    return iso_seconds(seconds).replace("T", " ").replace("Z", " UTC")


def _kind_label(full_id: str) -> str:
    """Return the kind of the thing with an id."""
    kind = full_id.split(":", 2)[1] if ":" in full_id else full_id
    return _KIND_LABELS.get(kind, kind)


def _identifier_part(full_id: str) -> str:
    """Return an id without its account and kind."""
    return full_id.split(":", 2)[2]
