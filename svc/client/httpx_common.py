"""The common parts of both clients on ``httpx``: building requests, and turning errors into faults.

Note [Transports]. Requests go by a transport of ``httpx``, without its ``Client``: so there are no redirects, cookies,
proxies, ``.netrc`` and decompression to turn off, no variable of the environment counts, and nothing logs addresses.

Note [Quoted headers]. The code of the libraries that refuses a header quotes it, and many hold a token. So headers are
checked here before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import httpx

from svc._version import VERSION
from svc.client.tls import tls_fault
from svc.model.versions import AT_LEAST_HEADER, VERSION_HEADER
from svc.workload.address import public_origin
from svc.workload.faults import BadAddress, Fault, NoEvidence, Unreachable, Untrusted
from svc.workload.replies import printable_excerpt
from svc.workload.versions import Versions

#: Seconds for a connection.
CONNECT: Final = 10.0

#: Nothing is taken compressed: a few compressed bytes can become a gigabyte. The service reads ``base64`` there (SEC-15).
_DEFAULT_HEADERS: Final = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": f"svc-client/{VERSION}"}

#: The syntax of a header's value (RFC 9110 5.5), as far as the service and platforms need it.
_VALUE: Final = re.compile(r"([!-~]([\t -~]*[!-~])?)?", re.ASCII)


def build_request(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str] | None,
    versions: Versions | None,
    *,
    within: float,
    idle: float | None = None,
) -> httpx.Request:
    """Return the request for a question; ``within`` and ``idle`` are seconds, for its parts and between those of an answer.

    :raises BadAddress: there can be none to this address.
    :raises NoEvidence: there can be none with these headers (Note [Quoted headers]).
    """
    named = {**_DEFAULT_HEADERS, **(headers or {})}
    for name, value in named.items():
        if not _VALUE.fullmatch(value):
            raise NoEvidence(f"what should be sent as {name} holds a line end, or something else that no header may")
    if versions is not None and (wanted := versions.wanted) is not None:
        named[AT_LEAST_HEADER] = wanted
    limits = {"connect": min(CONNECT, within), "read": within if idle is None else idle, "write": within, "pool": within}
    try:
        return httpx.Request(method, url, headers=named, content=body, extensions={"timeout": limits})
    except httpx.InvalidURL:
        raise BadAddress("the address of the request") from None


def read_headers(response: httpx.Response, versions: Versions | None) -> dict[str, str]:
    """Return the headers by their lower-case names, the last of several; a version among them is noted."""
    pairs: Iterable[tuple[bytes, bytes]] = response.headers.raw
    named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
    if versions is not None:
        versions.note(named.get(VERSION_HEADER.lower()))
    return named


def late_answer_fault(url: str, within: float) -> Fault:
    """Return the fault of a question that has no answer in time."""
    return Unreachable(public_origin(url), f"there was no complete answer within {within:g} seconds")


def fault_from_error(url: str, error: httpx.HTTPError, within: float) -> Fault:
    """Return the fault that an error of ``httpx`` is."""
    place = public_origin(url)
    if (why := tls_fault(error)) is not None:
        return Untrusted(place, why)
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return Unreachable(place, f"no connection within {min(CONNECT, within):g} seconds", connected=False)
    if isinstance(error, httpx.TimeoutException):
        return late_answer_fault(url, within)
    cause = printable_excerpt(_find_cause(error)) or type(error).__name__
    return Unreachable(place, cause, connected=not isinstance(error, httpx.ConnectError))


def _find_cause(error: BaseException) -> str:
    """Return the system's message for the cause of an error, without which there are only general words."""
    message, cause = str(error), error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            message = cause.strerror
        # Several addresses may have been tried.
        inner = cause.exceptions[-1] if isinstance(cause, BaseExceptionGroup) else None
        cause = inner or cause.__cause__ or cause.__context__
    return message
