"""Whether policy lets a role log in by its API key, as a piece of SQL that several statements share (TOK-52)."""

from __future__ import annotations

from typing import Final

from svc.model.credentials import API_KEY_ANNOTATION

#: Whether the annotation of a role, in SQL, says that it has no API key (``credentials.forbids_api_key``).
API_KEY_OFF: Final = (
    "EXISTS (SELECT FROM annotations WHERE annotations.resource_id = {role}"
    f" AND annotations.name = '{API_KEY_ANNOTATION}' AND lower(btrim(annotations.value, E' \\t\\r\\n')) = 'false' OFFSET 0)"
)
