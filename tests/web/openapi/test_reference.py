"""The table of requests in ``docs/reference/http.md`` is the document's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from svc.model.dialect import NATIVE
from svc.web.openapi.document import build_document, iterate_operations
from svc.web.openapi.served_routes import routes_of_dialect

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "reference" / "http.md"

_ROW: Final = re.compile(r"^\| (.*?) \| ", re.MULTILINE)
_PIECE: Final = re.compile("`([^`]*)`")
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_OPTIONAL: Final = re.compile(r"\[([^][]*)\]")

#: How many rows "the last four" are.
_LAST: Final = 4


def _expanded(path: str) -> Iterator[str]:
    """A path without its brackets: with what is in them, and without."""
    found = _OPTIONAL.search(path)
    if found is None:
        yield re.sub("<[^>]*>", "{}", path)
        return
    for inside in (found[1], ""):
        yield from _expanded(path[: found.start()] + inside + path[found.end() :])


def _requests(cell: str) -> Iterator[tuple[str, str, str]]:
    """The requests of a row: method, path, query."""
    methods: list[str] = []
    ended = True
    for piece in _PIECE.findall(cell):
        first, _, rest = piece.partition(" ")
        if first in _METHODS:
            methods = [first] if ended else [*methods, first]
            ended = bool(rest)
        target = rest if first in _METHODS else piece
        if target.startswith("/"):
            path, _, query = target.partition("?")
            yield from ((method, each, query) for method in methods for each in _expanded(path))


def _table() -> Iterator[tuple[str, str, str]]:
    """All requests of the table, those that it tells by other rows included."""
    rows = [cell for cell in _ROW.findall(PAGE.read_text(encoding="utf-8")) if "`" in cell]
    for number, cell in enumerate(rows):
        if not cell.startswith("the last four"):
            yield from _requests(cell)
            continue
        for name in re.findall("`/(authn-[a-z]+)`", cell):
            for method, path, query in (found for row in rows[number - _LAST : number] for found in _requests(row)):
                # An account has one of these, without a service id.
                here = (
                    path.replace("/authn-jwt/{}", "/authn-gcp") if name == "authn-gcp" else path.replace("authn-jwt", name)
                )
                if not (name == "authn-gcp" and path.endswith("/{}/{}/{}/explain")):
                    yield method, here, query


class ReferenceTests(SynchronousTestCase):
    """What the page says there is."""

    def setUp(self) -> None:
        """Read the page and the document."""
        self.table = [found for found in _table() if found[1] != "/ui"]
        document = build_document(routes_of_dialect(NATIVE), NATIVE)
        self.operations = {
            (method, re.sub(r"\{[^}]*\}", "{}", path)): operation for path, method, operation in iterate_operations(document)
        }

    def test_the_same(self) -> None:
        """OAS-3: the table has each operation of the document, and no other."""
        table = {(method, path) for method, path, _ in self.table}
        self.assertEqual(sorted(self.operations.keys() - table), [], "add a row to docs/reference/http.md")
        self.assertEqual(sorted(table - self.operations.keys()), [], "the document knows no such request")

    def test_queries(self) -> None:
        """OAS-8: what the table has in a query is a parameter of the operation."""
        for method, path, query in self.table:
            named = {parameter.get("name") for parameter in self.operations[method, path]["parameters"]}
            given = {each.partition("=")[0] for each in query.split("&") if each}
            self.assertEqual(given - named, set(), (method, path))
