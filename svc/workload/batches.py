"""Many secrets in one answer (SEC-37 to SEC-40): the requests and their answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from svc.workload.replies import Reply, parse_json, printable_excerpt

#: The most ids of one request (SEC-37), and the bytes of its body: half of what the service takes (LIM-1).
MOST_IDS: Final = 10_000
_BODY_LIMIT: Final = 512 * 1024


@attrs.frozen
class SecretFault:
    """Why a secret of a batch can't be read: a ``code`` such as ``not_found``, and a sentence."""

    code: str
    message: str


@attrs.frozen
class SecretValues:
    """Secrets that were read together, by their ids as they were requested.

    ``errors`` has those that can't be read, where partial results were requested. ``tag`` is that of these values, ``None``
    where there are errors. ``unchanged``: the tag that was shown is still theirs, and they were not sent again.
    """

    values: Mapping[str, bytes] = attrs.field(factory=dict, repr=False)
    errors: Mapping[str, SecretFault] = attrs.field(factory=dict)
    tag: str | None = None
    unchanged: bool = False


def full_id(account: str, variable: str) -> str:
    """Return the full id of a variable."""
    return f"{account}:variable:{variable}"


def batch_body(account: str, variables: Sequence[str], *, partial: bool = False) -> bytes:
    """Return the body of a request for these variables."""
    asked: dict[str, Any] = {"variable_ids": [full_id(account, each) for each in variables]}
    return json.dumps(asked | ({"partial": True} if partial else {})).encode("ascii")


def split_batches(account: str, variables: Sequence[str]) -> Iterator[list[str]]:
    """Divide variables into lists for one request each."""
    piece: list[str] = []
    size = 0
    for variable in variables:
        added = len(json.dumps(full_id(account, variable))) + 2
        if piece and (size + added > _BODY_LIMIT or len(piece) == MOST_IDS):
            yield piece
            piece, size = [], 0
        piece.append(variable)
        size += added
    if piece:
        yield piece


def parse_batch(account: str, variables: Sequence[str], reply: Reply) -> SecretValues:
    """Read the answer of a batch, or of a login that reads secrets, in base64.

    :raises ValueError: it isn't one, or lacks requested ids.
    """
    try:
        document = parse_json(reply.body)
        refused = {
            full: SecretFault(_check_text(why["code"]), _check_text(why["message"]))
            for full, why in document.get("errors", {}).items()
        }
        values: dict[str, bytes] = {}
        errors: dict[str, SecretFault] = {}
        for variable in variables:
            full = full_id(account, variable)
            if full in refused:
                errors[variable] = refused[full]
            else:
                text = document["values"][full].replace("\r", "").replace("\n", "")
                values[variable] = base64.b64decode(text, validate=True)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("the answer is none to what was asked") from error
    return SecretValues(values, errors, None if errors else reply.headers.get("etag"))


def _check_text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError("a fault is told in words")
    return printable_excerpt(text)
