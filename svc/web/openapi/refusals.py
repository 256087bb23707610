"""The refusals of ``svc.web.http.refusal_responses`` in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from svc.model import errors
from svc.web.http.refusal_responses import COMMON, REFUSALS, V2, Form, RefusalAnswer
from svc.web.openapi.schemas import Object

_CONTENT: Final[Mapping[Form, Mapping[str, Object]]] = {
    "json": {"application/json": {"$ref": "#/components/schemas/Refusal"}},
    "text": {"text/plain": {"type": "string"}},
    "empty": {},
    "newer": {V2: {"$ref": "#/components/schemas/NewerRefusal"}},
}


#: The answers possible on any route, by their names in the document.
COMMON_ANSWERS: Final[Mapping[str, RefusalAnswer]] = {name: row.answers[0] for name, row in COMMON.items()}


def answers_to(refusals: Collection[type[errors.Refusal]]) -> list[RefusalAnswer]:
    """Return the answers to these refusals, in the table's order."""
    return [answer for refusal, row in REFUSALS.items() if refusal in refusals for answer in row.answers]


def answer_content(answer: RefusalAnswer) -> Mapping[str, Object]:
    """Return the schemas of an answer's body, by media type."""
    return _CONTENT[answer.form]


def v2_forms(answer: RefusalAnswer) -> tuple[RefusalAnswer, ...]:
    """Return the forms of a refusal on a route of the newer interface (NEWER-5): most have two."""
    if answer.form == "text":
        return answer, attrs.evolve(answer, form="empty")
    return (answer, attrs.evolve(answer, form="newer")) if answer.form == "json" else (answer,)
