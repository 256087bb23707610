"""The common parts of requests for several secrets: the ids in a query, values as texts, and refusals instead of values; and
the answer of a login that reads secrets (SEC-43 to SEC-46).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Final

from svc.model.authentication import LoginRequest
from svc.model.dialect import Dialect
from svc.model.errors import Forbidden, InvalidParameter, NotText, NoValue, Refusal, TooLarge, WrongDataKey
from svc.model.events import Event
from svc.services.login import LoginService
from svc.services.secret_batches import WITH_LOGIN, BatchService, login_and_read
from svc.web.http.declarations import Answer, Parameter, ParameterSource
from svc.web.http.messages import Json, Response
from svc.web.http.query import Query
from svc.web.http.refusal_responses import audit_reason, response_to
from svc.web.http.routing import Call
from svc.web.http.shapes import BOOLEAN, TEXT, mapping_shape, object_shape
from svc.web.routes.secrets import value_fetched


def batch_fetched(call: Call) -> list[Event]:
    """Values of several resources were read: an event for each, and one for the batch; only this for one that was known."""
    return batch_events(call, None) or [value_fetched("-", None)]


def secrets_watched(call: Call) -> list[Event]:
    """Secrets were watched from now on: an event for each."""
    return [
        Event("watch", "watch", (("resource", name),), f"began to watch {name}", f"watch {name}")
        for name in call.audit_facts.get("resources") or ("-",)
    ]


def batch_events(call: Call, user: str | None) -> list[Event]:
    """Return the events of a batch that ``user`` reads, the caller if that is ``None``."""
    facts = call.audit_facts
    refused, batch, count = facts.get("refused", {}), facts.get("batch"), str(facts.get("count"))
    events = [value_fetched(name, None, user, refused.get(name)) for name in facts.get("resources", ())]
    if batch is not None:
        subject, words = (("batch", batch), ("count", count)), f"the batch {batch} of {count} secrets"
        if facts.get("known"):
            return [Event("fetch", "confirm", subject, f"confirmed {words}", f"confirm {words}", user)]
        events.append(Event("fetch", "batch", subject, f"fetched {words}", f"fetch {words}", user))
    return events


#: The errors that are returned instead of values.
ERRORS: Final = mapping_shape(object_shape({"code": TEXT, "message": TEXT}))


def parse_id_list(query: Query, name: str) -> list[str]:
    """Return full ids that a parameter of the query lists, each once.

    :raises InvalidParameter: there is none, or a blank among them.
    """
    ids = (query.text(name) or "").rstrip(",").split(",")
    blank = [not text.strip() for text in ids]
    if all(blank):
        sentence = f"{name} must name at least one variable: full ids, such as acme:variable:db/password, between commas"
        raise InvalidParameter(name, sentence)
    if any(blank):
        raise InvalidParameter(name, f"{name} has an empty id among the full ids that commas separate")
    return list(dict.fromkeys(ids))


def _read_ids(source: ParameterSource) -> list[str]:
    return parse_id_list(source.query, "variable_ids")


IDS: Final = Parameter(
    "variable_ids", _read_ids, TEXT, "full ids, separated by commas; a repeated one counts once", field="ids", required=True
)


def is_base64(encoding: str | None) -> bool:
    """Return whether a header asks for base64, and for nothing else (SEC-15)."""
    return (encoding or "").strip().lower() == "base64"


def value_writer(encoding: str | None) -> Callable[[bytes], str]:
    """Return what writes values as the header asks for it."""
    return _encode_base64_lines if is_base64(encoding) else bytes.decode


def error_json(refusal: Refusal, dialect: Dialect) -> Json:
    """Return the error for a refusal, in the place of a value: the same as that of a read of that secret alone (SEC-38)."""
    response = response_to(refusal, dialect)
    if response is None or not response.body:
        return {"code": "forbidden", "message": "this secret may be seen, and not read"}
    error = json.loads(response.body)["error"]
    return {"code": error["code"], "message": error["message"]}


def _encode_base64_lines(value: bytes) -> str:
    # 45 bytes make 60 characters (SEC-15).
    pieces = (value[start : start + 45] for start in range(0, len(value), 45))
    return b"".join(map(binascii.b2a_base64, pieces)).decode("ascii")


def _read_requested(source: ParameterSource) -> tuple[list[str], bool]:
    ids = parse_id_list(source.query, "secrets")
    if len(ids) > WITH_LOGIN.ids:
        raise InvalidParameter("secrets", f"'secrets' may name at most {WITH_LOGIN.ids} secrets")
    return ids, source.query.boolean("partial")


#: The secrets that a login reads, and whether it gets the readable ones where some can't be read.
REQUESTED_SECRETS: Final = Parameter.combine(
    "wanted",
    _read_requested,
    Parameter("secrets", _read_requested, TEXT, "full ids, separated by commas, as in variable_ids"),
    Parameter("partial", _read_requested, BOOLEAN, "whether to return what can be read where something can't"),
)
_BOTH: Final = object_shape({"token": TEXT, "values": mapping_shape(TEXT)}, {"errors": ERRORS})
WITH_VALUES: Final = (
    Answer(200, "an access token in base64, as it stands in a header, and values by the requested ids", _BOTH),
    Answer(200, "the same, with the values in base64, in lines of 60 characters", _BOTH, ("Content-Encoding",)),
)
VALUE_ERRORS: Final = (Forbidden, NoValue, NotText, TooLarge, WrongDataKey)


async def log_in_with_values(
    call: Call,
    login: LoginService,
    batches: BatchService,
    request: LoginRequest,
    wanted: tuple[list[str], bool],
    encoding: str | None,
) -> Response:
    """Return the answer to a login that reads secrets."""
    ids, partial = wanted
    encoded = is_base64(encoding)
    token, batch = await login_and_read(login, batches, request, call, ids, partial=partial, texts=not encoded)
    call.add_audit_facts(refused={text: audit_reason(refusal) for text, refusal in batch.refused.items()})
    write = value_writer(encoding)
    document: dict[str, Json] = {
        "token": base64.b64encode(token).decode("ascii"),
        "values": {text: write(value) for text, value in batch.values.items()},
    }
    if partial:
        document["errors"] = {text: error_json(refusal, call.dialect) for text, refusal in batch.refused.items()}
    return Response.json(document, headers=(("Content-Encoding", "base64"),) if encoded else ())
