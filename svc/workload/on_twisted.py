"""Requests by Twisted, for programs that pass a reactor."""

from __future__ import annotations

from typing import Any

from svc.workload.requester import Requester


def of_reactor(reactor: Any, limit: int) -> Requester:
    """Return the requester by Twisted, without a proxy; ``limit`` is the largest answer, in bytes.

    Programs without Twisted load this module too, so it is imported when it is needed.
    """
    from svc.workload.exchange import Exchange, http_client  # noqa: PLC0415

    return Exchange(http_client(reactor), reactor, limit)
