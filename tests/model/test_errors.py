"""The refusals of the domain."""

from __future__ import annotations

from pathlib import Path

import attrs
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.model import errors
from svc.model.errors import (
    AuthenticationRefused,
    BearerRefused,
    InvalidName,
    PolicyInvalid,
    ReadOnlyStandby,
    RecordNotFound,
    Refusal,
    StoreUnavailable,
)
from svc.model.names import ResourceName, RoleName
from svc.model.reasons import Reason

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "reasons.md"

REFUSALS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Refusal)]


class ReasonTests(SynchronousTestCase):
    """The codes of refused logins."""

    def test_codes_are_the_names(self) -> None:
        """Each reason's code is its name, in lower case with hyphens."""
        for reason in Reason:
            self.assertEqual(reason.value, reason.name.lower().replace("_", "-"))

    def test_each_is_documented(self) -> None:
        """``docs/reference/reasons.md`` has every reason once, in order, then those of other requests, each with its cause
        and its remedy.
        """
        _, *sections = DOCUMENT.read_text(encoding="utf-8").split("\n### ")
        codes = [section.partition("\n")[0] for section in sections]
        self.assertEqual(codes[: len(Reason)], [reason.value for reason in Reason])
        self.assertEqual(len(codes), len({*codes}))
        for section in sections:
            self.assertRegex(
                section, r"^[a-z-]+\n\n\*\*Cause\.\*\* (?:[^\n]+\n)*[^\n]*[.)]\n\n\*\*Remedy\.\*\* (?:[^\n]+\n)*[^\n]*\.\n"
            )


class RefusalTests(SynchronousTestCase):
    """What all refusals have in common."""

    def test_each_says_who_raises_it(self) -> None:
        """The documentation of every refusal says who raises it, or where it comes from."""
        for kind in REFUSALS:
            self.assertRegex(kind.__doc__ or "", r"raised|from ``", kind.__name__)

    def test_refusals_are_frozen(self) -> None:
        """What a refusal says can't be changed once it is made."""
        refusal = StoreUnavailable("time-out")
        with self.assertRaises(attrs.exceptions.FrozenInstanceError):
            refusal.why = "other"  # type: ignore[misc] # the point of the test

    def test_the_text_has_type_and_fields(self) -> None:
        """As text, a refusal is its type and all that it carries, but for what is absent."""
        self.assertEqual(str(ReadOnlyStandby()), "ReadOnlyStandby")
        self.assertEqual(str(BearerRefused("Authorization missing")), "BearerRefused: Authorization missing")
        self.assertEqual(str(InvalidName("id", "too long")), "InvalidName: id: too long")
        self.assertEqual(str(PolicyInvalid("no")), "PolicyInvalid: no")
        self.assertEqual(str(PolicyInvalid("no", 1, 2)), "PolicyInvalid: no: 1: 2")
        self.assertEqual(str(AuthenticationRefused(Reason.ROLE_UNKNOWN)), "AuthenticationRefused: role-unknown: unproven")

    def test_a_refusal_travels_through_coroutines(self) -> None:
        """A refusal that is raised in a coroutine arrives unchanged where its Deferred fails, however often it is raised."""
        refusal = StoreUnavailable("time-out")

        async def refuse() -> None:
            raise refusal

        async def pass_on() -> None:
            try:
                await Deferred.fromCoroutine(refuse())
            except StoreUnavailable as caught:
                raise caught from None

        for _ in range(2):
            self.assertIs(self.failureResultOf(Deferred.fromCoroutine(pass_on()), StoreUnavailable).value, refusal)
        failure = Failure(refusal)
        failure.cleanFailure()
        self.assertIn("time-out", failure.getErrorMessage())

    def test_a_refusal_can_be_the_cause_of_another(self) -> None:
        """A refusal takes a cause and notes as any exception does."""
        cause = BearerRefused("x")
        cause.add_note("seen")

        def refuse() -> None:
            raise ReadOnlyStandby from cause

        self.assertIs(self.assertRaises(ReadOnlyStandby, refuse).__cause__, cause)


class NotFoundTests(SynchronousTestCase):
    """What is missing."""

    def test_it_knows_the_parts(self) -> None:
        """The parts of a missing record's name are those of the name, colons in the identifier included."""
        for name in (ResourceName("acct", "variable", "a:b/c"), RoleName("acct", "host_factory", "x")):
            refusal = RecordNotFound.for_name(name)
            self.assertEqual((refusal.account, refusal.kind, refusal.identifier), (name.account, name.kind, name.identifier))
            self.assertEqual(refusal.name, str(name))
