"""Answers of a server, read with caution."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from svc.model.text import blank_unprintable

#: How much of a server's message is repeated, in characters.
_MESSAGE_LIMIT: Final = 300

#: The statuses of a proxy before the service that got no answer from it: a change may have been made, or may be made yet.
GATEWAY_FAILURES: Final = {502, 504}

#: The statuses that send a client elsewhere, which the service never does with its API.
_REDIRECTS: Final = {301, 302, 303, 307, 308}


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    :raises ValueError: it isn't JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def printable_excerpt(text: str) -> str:
    """Return a server's message, for a terminal: truncated, and with nothing but printable characters."""
    return blank_unprintable(text[:_MESSAGE_LIMIT]).strip()


@attrs.frozen
class Reply:
    """A server's answer: status code, body, and the headers by their lower-case names."""

    status: int
    body: bytes = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def error_message(self) -> str:
        """Return an excerpt of the message in a refusal; empty where there is none, or a page for browsers.

        Another answer may hold a secret, and has no message.
        """
        if self.status < HTTPStatus.BAD_REQUEST:
            return ""
        try:
            error = parse_json(self.body)["error"]
            message = error if isinstance(error, str) else error["message"]
        except (ValueError, KeyError, TypeError):
            if self.headers.get("content-type", "").lower().startswith("text/html"):
                return ""
            message = self.body[: 4 * _MESSAGE_LIMIT].decode("utf-8", "replace")
        return printable_excerpt(message) if isinstance(message, str) else ""

    @property
    def error_code(self) -> str | None:
        """Return the code of a refusal as the service writes it, a text; ``None`` where there is none."""
        try:
            code = parse_json(self.body)["error"]["code"]
        except (ValueError, KeyError, TypeError):
            return None
        return code if isinstance(code, str) else None

    @property
    def is_from_service(self) -> bool:
        """Return whether an answer is the service's own, and not that of something in front of it.

        The service's has the id of its request (WIRE-33), and is no page: a value whose type is that of pages is an
        attachment. A refusal of what can't be read as a request alone has no id (WIRE-34), but a code in JSON.
        """
        html = self.headers.get("content-type", "").lower().startswith("text/html")
        if self.status < HTTPStatus.MULTIPLE_CHOICES or self.status == HTTPStatus.NOT_MODIFIED:
            attached = self.headers.get("content-disposition", "").lower().startswith("attachment")
            return self.request_id is not None and (attached or not html)
        if self.status < HTTPStatus.BAD_REQUEST:
            return False
        return self.error_code is not None or (self.request_id is not None and not html)

    @property
    def is_outcome_unknown(self) -> bool:
        """Return whether a change may have been made, or not, if this is the answer to it.

        Something in front of the service may say 408, 500 or 503 when it has waited long enough, or 200 to what it keeps.
        The service itself doesn't know where its database confirmed nothing (CLU-12).
        """
        late = self.status == HTTPStatus.REQUEST_TIMEOUT or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        failed = self.status < HTTPStatus.MULTIPLE_CHOICES or late
        return (
            self.status in GATEWAY_FAILURES or (failed and not self.is_from_service) or self.error_code == "outcome_unknown"
        )

    @property
    def redirect_target(self) -> str:
        """Return the address that a redirect names, without its query; empty where there is none."""
        if self.status not in _REDIRECTS:
            return ""
        try:
            address = urlsplit(self.headers.get("location", ""))
        except ValueError:
            return ""
        host = address.netloc.rpartition("@")[2]
        return printable_excerpt(f"{address.scheme or 'http'}://{host}{address.path}" if host else address.path)

    @property
    def request_id(self) -> str | None:
        """Return the id by which the server knows the request; ``None`` where it gives none."""
        name = self.headers.get("x-request-id", "").strip()
        return name if re.fullmatch("[!-~]{1,128}", name, re.ASCII) else None

    @property
    def retry_after(self) -> float | None:
        """Return in how many seconds the server wants another request (RFC 9110 10.2.3); a date counts as none."""
        text = self.headers.get("retry-after", "").strip()
        return float(text) if re.fullmatch("[0-9]{1,6}", text, re.ASCII) else None
