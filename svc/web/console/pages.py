"""How pages are declared, and what several of them have: the name in the path, and how much one shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from svc.model.errors import Forbidden, InvalidName, RecordNotFound
from svc.model.names import ResourceName
from svc.web.console.rendering import HTML
from svc.web.http.declarations import Answer, Body
from svc.web.http.routing import SESSION, Handler, Routes
from svc.web.http.shapes import raw_shape

_H = TypeVar("_H", bound=Handler)

#: The most rows of one list on a page.
ROWS: Final = 100

#: The answer of every page that shows something.
PAGE: Final = Answer(200, "a page", raw_shape(HTML), ("Content-Security-Policy",))

#: The answer of every press after which another page is shown.
SEE_OTHER: Final = Answer(303, "the page to go on with", None, ("Location",))


def declare_page(routes: Routes, path: str, **more: Any) -> Callable[[_H], _H]:
    """Declare a page for people who are signed in; ``more`` is as in ``Routes.add``."""
    usual: dict[str, Any] = {"caller": SESSION, "answers": (PAGE,), "errors": (Forbidden, RecordNotFound)}
    return routes.add("GET", path, **{**usual, **more})


def declare_form_post(routes: Routes, path: str, **more: Any) -> Callable[[_H], _H]:
    """Declare an action: a form that people who are signed in send; ``more`` is as in ``Routes.add``."""
    usual: dict[str, Any] = {
        "caller": SESSION,
        "body": form_body(),
        "answers": (PAGE,),
        "errors": (Forbidden, RecordNotFound),
    }
    return routes.add("POST", path, **{**usual, **more})


def form_body(*fields: Any) -> Body:
    """Return the body of a form with these fields; its token is looked at before the route is called."""
    return Body("a form of a page, with its token", ("application/x-www-form-urlencoded",), fields=fields)


def parse_full_id(text: str, kind: str | None = None) -> ResourceName:
    """Return the resource of a full id in a path.

    :raises NotFound: it is no id, or of another kind than the page's: there is no such thing.
    """
    try:
        name = ResourceName.parse(text)
    except InvalidName:
        raise RecordNotFound("-", kind or "resource", text) from None
    if kind is not None and name.kind != kind:
        raise RecordNotFound.for_name(name)
    return name
