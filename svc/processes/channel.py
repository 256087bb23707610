"""A connection between two processes of one server, on which both send questions and notices.

Messages are pickled values (``model.pickled_messages``). A question has a number, and its answer the same one. A domain
refusal that answering a question raises at the other end is raised again here.

Note [Bounded questions]. A process whose other end doesn't read asks no more questions, and drops notices that may be lost.
So each buffers a bounded amount for the other, and a request that needs an answer is refused as without a database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.model.errors import Refusal, StoreUnavailable
from svc.model.pickled_messages import MessageDecoder, encode_message

#: Questions that may be without an answer, and the seconds that an answer may take.
MAX_QUESTIONS: Final = 10_000
ANSWER_TIMEOUT: Final = 5.0

_log = Logger()


@attrs.frozen
class _Question:
    number: int
    value: Any


@attrs.frozen
class _Reply:
    number: int
    value: Any


@attrs.frozen
class _RefusedReply:
    number: int
    refusal: Refusal


@implementer(IPushProducer)
class ProcessChannel(Protocol):
    """One end of a connection.

    ``answer`` answers a question; ``hear`` receives notices; ``lost`` is called when the other process is gone.
    """

    def __init__(
        self,
        clock: IReactorTime,
        answer: Callable[[Any], Awaitable[Any]],
        hear: Callable[[Any], object],
        lost: Callable[[], object],
    ) -> None:
        self._clock, self._answer, self._handle_notice, self._lost = clock, answer, hear, lost
        self._decoder = MessageDecoder()
        self._last = 0
        self._open_questions: dict[int, Deferred[Any]] = {}
        self._full = False

    async def send_question(self, question: object, patience: float | None = ANSWER_TIMEOUT) -> Any:
        """Return the answer, which may take ``patience`` seconds, or any time.

        :raises StoreUnavailable: there is none, or can't be.
        :raises Refusal: the other process refuses.
        """
        if self.transport is None or self._full or len(self._open_questions) >= MAX_QUESTIONS:
            raise StoreUnavailable("another process of the server can't be asked now")
        self._last = number = self._last + 1
        answer: Deferred[Any] = Deferred()
        self._open_questions[number] = answer
        self._send_value(_Question(number, question))
        if patience is not None:
            answer.addTimeout(patience, self._clock)
        try:
            return await answer
        except DeferredTimeout:
            raise StoreUnavailable(f"another process of the server gave no answer within {patience:g} seconds") from None
        finally:
            self._open_questions.pop(number, None)

    def send_notice(self, notice: object, *, droppable: bool = False) -> bool:
        """Notify the other process, unless this is ``droppable`` and it doesn't read (Note [Bounded questions]).

        Return whether it was sent.
        """
        if self.transport is None or (droppable and self._full):
            return False
        self._send_value(notice)
        return True

    def connectionMade(self) -> None:
        """Have the transport say when too much waits to be written."""
        assert self.transport is not None
        self.transport.registerProducer(self, True)  # type: ignore[attr-defined] # a stream's

    def dataReceived(self, data: bytes) -> None:
        """Take messages in their order."""
        for message in self._decoder.feed(data):
            match message.value:
                case _Question(number=number, value=value):
                    Deferred.fromCoroutine(self._answer_question(number, value))
                case _Reply(number=number, value=value):
                    if (answer := self._open_questions.pop(number, None)) is not None:
                        answer.callback(value)
                case _RefusedReply(number=number, refusal=refusal):
                    if (answer := self._open_questions.pop(number, None)) is not None:
                        answer.errback(refusal)
                case notice:
                    self._handle_notice(notice)

    def connectionLost(self, reason: Failure | None = None) -> None:  # noqa: ARG002 - Twisted's
        """Refuse the questions that are still open."""
        self.transport = None
        asked, self._open_questions = self._open_questions, {}
        for answer in asked.values():
            answer.errback(StoreUnavailable("another process of the server is gone"))
        self._lost()

    def pauseProducing(self) -> None:  # noqa: N802 - the name is Twisted's
        """Write no more than must be."""
        self._full = True

    def resumeProducing(self) -> None:  # noqa: N802 - the name is Twisted's
        """Write again."""
        self._full = False

    def stopProducing(self) -> None:  # noqa: N802 - the name is Twisted's
        """Do nothing: ``connectionLost`` follows."""

    async def _answer_question(self, number: int, question: object) -> None:
        outcome: _Reply | _RefusedReply
        try:
            outcome = _Reply(number, await self._answer(question))
        except Refusal as refusal:
            outcome = _RefusedReply(number, refusal)
        except Exception as error:  # a question may not end the conversation
            _log.failure("A question of another process met a bug")
            outcome = _RefusedReply(number, StoreUnavailable(f"an error of this program: {type(error).__name__}"))
        if self.transport is not None:
            self._send_value(outcome)

    def _send_value(self, value: object) -> None:
        assert self.transport is not None
        self.transport.write(b"".join(encode_message(value)))
