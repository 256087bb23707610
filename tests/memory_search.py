"""Search in memory: words are compared as they are, in lower case. Stems and stop words are for the real store alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from svc.model.query_results import Search


def words(text: str, *, split: bool) -> set[str]:
    """The words of a text; what ``.`` ``/`` ``-`` join is one word unless it is to be split."""
    return set(filter(None, re.split(r"[^\w]|_" if split else r"[^\w./-]|_", text.lower())))


def search_rank(annotations: Mapping[tuple[str, str], tuple[str, object]], search: Search, resource: str) -> int | None:
    """Return the class in which a resource matches a search, or ``None``; ``annotations`` are those of ``ReadCache``."""
    _, kind, identifier = resource.split(":", 2)

    def values(wanted: bool) -> Iterable[str]:
        return (
            value for (owner, name), (value, _) in annotations.items() if owner == resource and (name == "name") is wanted
        )

    described = [{word for value in values(wanted) for word in words(value, split=search.split)} for wanted in (True, False)]
    classes = [words(identifier, split=True) | described[0], described[1], words(kind, split=True)]
    asked = words(search.text, split=True)
    if not asked or not asked <= set().union(*classes):
        return None
    return next(rank for rank, found in enumerate(classes) if found & asked)
