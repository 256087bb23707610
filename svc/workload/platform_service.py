"""Requests to a service of the platform on the machine itself, repeated while it is busy or silent (GCP-10)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import attrs

from svc.workload.address import public_origin
from svc.workload.faults import PlatformUnavailable, Unreachable
from svc.workload.replies import Reply
from svc.workload.requester import Requester

#: Seconds for an answer, all tries included, and for one try; the largest answer that is taken, in bytes.
DEADLINE: Final = 30.0
TRY_DEADLINE: Final = 5.0
ANSWER_LIMIT: Final = 64 * 1024

#: Seconds before the second and the following tries, each up to a fifth longer by chance.
_PAUSES: Final = (0.5, 1.0, 2.0, 4.0)
_SPREAD: Final = 0.2


@attrs.frozen
class PlatformService:
    """Asks services of the platform; ``deadline`` and ``try_deadline`` are in seconds, ``chance`` returns [0, 1)."""

    requester: Requester
    deadline: float = DEADLINE
    try_deadline: float = TRY_DEADLINE
    chance: Callable[[], float] = random.random

    async def ask(self, method: str, url: str, headers: Mapping[str, str]) -> Reply:
        """Return an answer of any status, but for those after which the request is repeated: 429 and 5xx.

        :raises PlatformUnavailable: there was none in time.
        """
        ends, why = self.requester.seconds() + self.deadline, ""
        for number in range(len(_PAUSES) + 1):
            body = b"" if method == "PUT" else None
            within = min(self.try_deadline, ends - self.requester.seconds())
            try:
                reply = await self.requester.ask(method, url, body, headers, within=within)
            except Unreachable as unreachable:
                why = unreachable.why
            else:
                if reply.status != HTTPStatus.TOO_MANY_REQUESTS and reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return reply
                why = f"status {reply.status}"
            pause = _PAUSES[min(number, len(_PAUSES) - 1)] * (1 + _SPREAD * self.chance())
            if number == len(_PAUSES) or self.requester.seconds() + pause >= ends:
                break
            await self.requester.sleep(pause)
        raise PlatformUnavailable(public_origin(url), self.deadline, number + 1, why)
