"""Rules of passwords, and their hashes, made and compared beside the reactor.

Note [Beside the reactor]. Argon2id takes a core for tens of milliseconds, by design. So it runs in a few threads of its own,
and the queue for them is bounded: more is refused. A permit is released when its work has ended, not when the client stops
waiting: clients that ask and leave again and again can't overfill the queue.

Note [Not all at once]. Clients that are refused together would come again together. So each is refused after a moment of its
own, if there is no room then either, which also slows those that ignore ``Retry-After``.

Note [Same work]. A role without a password is compared with a decoy, a hash that no password has, which takes as long.
Evidence that can't be a password, such as an API key without upper case, is compared with none: that reveals nothing of the
role.
"""

from __future__ import annotations

import base64
import os
import random
import string
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread, get_native_id
from typing import Any, Final, TypeVar

import attrs
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError
from argon2.low_level import Type
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from svc.model.errors import InvalidParameter, PasswordsBusy
from svc.model.permits import IPermits

T = TypeVar("T")

MIN_LENGTH: Final = 12
MAX_LENGTH: Final = 128

#: How many threads hash passwords at most.
_HASHING_THREADS: Final = 4

#: How many characters of each sort a password has at least (TOK-15).
_CHARACTER_RULES: Final = (
    (2, frozenset(string.ascii_uppercase)),
    (2, frozenset(string.ascii_lowercase)),
    (1, frozenset(string.digits)),
    (1, frozenset(string.punctuation + " ")),
)

MAX_WAITING: Final = 32  #: most passwords that wait for a thread
MAX_REFUSAL_DELAY: Final = 1.0  #: the longest delay of a refusal, in seconds
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32


@attrs.frozen
class HashCost:
    """The cost of a hash: ``memory`` in KiB, ``passes`` over it, ``lanes`` at once."""

    memory: int
    passes: int
    lanes: int


#: The first choice of the OWASP Password Storage Cheat Sheet for Argon2id (RFC 9106): 19 MiB, two passes, one lane.
RECOMMENDED: Final = HashCost(19 * 1024, 2, 1)


def can_be_password(evidence: bytes) -> bool:
    """Return whether a role could have these bytes for its password (TOK-15)."""
    try:
        text = evidence.decode("utf-8")
    except UnicodeDecodeError:
        return False
    if not MIN_LENGTH <= len(text) <= MAX_LENGTH or "\n" in text or "\r" in text:
        return False
    return all(sum(character in sort for character in text) >= least for least, sort in _CHARACTER_RULES)


def demand_password(body: bytes) -> bytes:
    """Return ``body`` when it can be a password, or raise ``InvalidParameter``."""
    if not can_be_password(body):
        message = (
            f"A password has {MIN_LENGTH} to {MAX_LENGTH} characters, of these at least 2 uppercase letters, 2"
            " lowercase letters, 1 digit and 1 special character, and no line end"
        )
        raise InvalidParameter("password", message, code="validation_failed", vendor_code="CONJ00046E")
    return body


class LowPriorityPool(ThreadPool):
    """A pool whose threads are nice to all others, on Linux, where a thread can be."""

    @staticmethod
    def threadFactory(target: Callable[[], object], **options: Any) -> Thread:  # type: ignore[override] # it is called so
        """Make a nice thread."""

        def run_at_low_priority() -> None:
            # Elsewhere the number of a thread may be that of another process. A sandbox may forbid it.
            if sys.platform == "linux":
                with suppress(OSError):
                    own = get_native_id()
                    os.setpriority(os.PRIO_PROCESS, own, min(os.getpriority(os.PRIO_PROCESS, own) + 10, 19))
            target()

        return Thread(target=run_at_low_priority, **options)


class Passwords(Service):
    """Makes and compares hashes in the threads of ``pool``, which it starts and stops (Note [Beside the reactor]).

    ``waiting`` is how many may wait for a thread. ``cost`` is what new hashes cost; those of another cost are
    ``is_outdated``. ``chance`` returns numbers from 0 to 1, for Note [Not all at once]. ``permits`` are of all processes of
    the server.

    :raises PasswordsBusy: by ``hash_password``, ``verify_password`` and ``wait_for_room``, when too many passwords wait.
    """

    def __init__(
        self,
        reactor: Any,
        pool: ThreadPool,
        *,
        waiting: int = MAX_WAITING,
        cost: HashCost = RECOMMENDED,
        chance: Callable[[], float] = random.random,
        permits: IPermits | None = None,
    ) -> None:
        self._reactor = reactor
        self._permits = permits
        self._chance = chance
        self._pool = pool
        self._capacity = pool.max + waiting
        self._pending = 0
        self._hasher = PasswordHasher(cost.passes, cost.memory, cost.lanes, _HASH_BYTES, _SALT_BYTES, type=Type.ID)
        salt, tag = (base64.b64encode(os.urandom(size)).decode("ascii").rstrip("=") for size in (_SALT_BYTES, _HASH_BYTES))
        self._decoy = f"$argon2id$v=19$m={cost.memory},t={cost.passes},p={cost.lanes}${salt}${tag}"

    def startService(self) -> None:
        """Start the pool."""
        super().startService()  # type: ignore[no-untyped-call] # Twisted's
        self._pool.start()

    def stopService(self) -> None:
        """Stop the pool, when its threads have ended what they do."""
        super().stopService()  # type: ignore[no-untyped-call] # Twisted's
        self._pool.stop()

    @property
    def pending_count(self) -> int:
        """Return how many passwords are hashed, or wait for a thread."""
        return self._pending

    @property
    def capacity(self) -> int:
        """Return how many there may be."""
        return self._capacity

    async def hash_password(self, password: bytes) -> bytes:
        """Return the hash of a password, with its salt and cost, as text."""
        return (await self._run_in_pool(lambda: self._hasher.hash(password))).encode("ascii")

    async def verify_password(self, hashed: bytes | None, evidence: bytes) -> bool:
        """Return whether a password has this hash; ``None`` stands for a hash that none has (Note [Same work])."""
        known = self._decoy if hashed is None else hashed.decode("ascii")

        def verify() -> bool:
            try:
                return self._hasher.verify(known, evidence)
            except VerifyMismatchError:
                return False

        return await self._run_in_pool(verify)

    def is_outdated(self, hashed: bytes) -> bool:
        """Return whether a hash has another cost than new ones."""
        return self._hasher.check_needs_rehash(hashed.decode("ascii"))

    async def wait_for_room(self) -> None:
        """Return when a password that comes now would be hashed (Note [Not all at once])."""
        if self._pending >= self._capacity:
            await deferLater(self._reactor, self._chance() * MAX_REFUSAL_DELAY)
            self._demand_room()

    def _demand_room(self) -> None:
        if self._pending >= self._capacity:
            raise PasswordsBusy

    def _run_in_pool(self, work: Callable[[], T]) -> Deferred[T]:
        self._demand_room()
        self._pending += 1
        result: Deferred[T] = Deferred()

        def release_permit(outcome: T | Failure) -> None:
            self._pending -= 1
            result.callback(outcome)  # which goes nowhere when the caller has left

        Deferred.fromCoroutine(self._run_with_permit(work)).addBoth(release_permit)
        return result

    async def _run_with_permit(self, work: Callable[[], T]) -> T:
        if self._permits is None:
            return await deferToThreadPool(self._reactor, self._pool, work)
        give_back = await self._permits.acquire("")
        try:
            return await deferToThreadPool(self._reactor, self._pool, work)
        finally:
            give_back()


def count_hashing_threads() -> int:
    """Return how many threads of a server hash passwords: half of the machine's cores, and no more than a few."""
    return min(_HASHING_THREADS, max(1, (os.cpu_count() or 1) // 2))
