"""Messages over pipes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model import errors
from svc.model.dialect import CONJUR, NATIVE
from svc.model.pickled_messages import Message, MessageDecoder, encode_message
from svc.model.reasons import Reason
from svc.policy.document import Bounds
from svc.worker.messages import LoadWorkerSettings

VALUES = st.one_of(st.integers(), st.text(), st.just(errors.Forbidden("why")), st.just(errors.PolicyInvalid("no", 1, 2)))


class MessagesTests(SynchronousTestCase):
    """What is written comes out."""

    @given(st.lists(st.tuples(VALUES, st.binary(max_size=300)), max_size=4), st.integers(1, 700))
    def test_in_any_pieces(self, messages: list[tuple[object, bytes]], size: int) -> None:
        """Messages come out whole and in order, in whatever pieces they arrive."""
        stream = b"".join(piece for message in messages for piece in encode_message(*message))
        reading = MessageDecoder()
        read = [message for start in range(0, len(stream), size) for message in reading.feed(stream[start : start + size])]
        self.assertEqual([(_plain(value), content) for value, content in read], [(_plain(v), c) for v, c in messages])

    def test_incomplete(self) -> None:
        """Before its last byte no message comes out."""
        stream = b"".join(encode_message("value", b"content"))
        reading = MessageDecoder()
        self.assertEqual(list(reading.feed(stream[:-1])), [])
        self.assertEqual(list(reading.feed(stream[-1:])), [Message("value", b"content")])

    def test_refusals(self) -> None:
        """Every refusal arrives as it was raised."""
        for refusal in _refusals():
            [(arrived, _)] = MessageDecoder().feed(b"".join(encode_message(refusal)))
            self.assertIs(type(arrived), type(refusal))
            self.assertEqual(_plain(arrived), _plain(refusal))

    def test_task(self) -> None:
        """So does a task; and it doesn't show its secrets."""
        for dialect in (NATIVE, CONJUR):
            task = LoadWorkerSettings(
                "dbname=x password=concealed", 5.0, (b"concealed".ljust(32),), dialect, Bounds(nesting=3)
            )
            self.assertEqual(pickle.loads(pickle.dumps(task)), task)
            self.assertNotIn("concealed", repr(task))


def _refusals() -> Iterator[errors.Refusal]:
    """One of each type."""
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.Refusal) and value is not errors.Refusal:
            names = [field.name for field in attrs.fields(value)]
            yield value(**{name: Reason.TOKEN_EXPIRED if name == "reason" else f"a {name}" for name in names})


def _plain(value: object) -> object:
    return (type(value), attrs.astuple(value)) if isinstance(value, errors.Refusal) else value
