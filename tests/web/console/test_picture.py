"""The picture of who can."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.access import AccessPath, PathStep, StepKind
from svc.web.console.picture import HEIGHT, WIDTH, draw_picture, shorten_middle

_ROLES: Final = st.sampled_from([f"acme:group:{'long/' * (number % 4)}g{number}" for number in range(8)])
_ENDS: Final = st.sampled_from([StepKind.OWNER, StepKind.PERMITTED])


@st.composite
def ways(draw: st.DrawFn) -> tuple[str, AccessPath]:
    """A privilege and a way to it."""
    roles = draw(st.lists(_ROLES, min_size=1, max_size=4, unique=True))
    steps = [PathStep(name, StepKind.MEMBER) for name in roles[:-1]]
    return draw(st.sampled_from(["read", "execute", "update"])), (*steps, PathStep(roles[-1], draw(_ENDS)))


class PictureTests(SynchronousTestCase):
    """Where things stand."""

    @settings(max_examples=100, deadline=None)
    @given(st.lists(ways(), min_size=1, max_size=20))
    def test_no_overlap(self, given_ways: list[tuple[str, AccessPath]]) -> None:
        """No box covers another, and no words cover a box or other words (CON-25)."""
        drawn = draw_picture("acme:variable:prod/db/password", given_ways)
        rooms = [(box.x, box.y, box.x + WIDTH, box.y + HEIGHT) for box in drawn.boxes]
        for arrow in drawn.arrows:
            self.assertLess(arrow.start.x, arrow.end.x)
            if arrow.place is not None:
                x, y = arrow.place
                rooms.append((x, y - 12, x + 6 * len(arrow.label), y))
        for number, one in enumerate(rooms):
            self.assertTrue(one[0] >= 0 and one[1] >= 0 and one[2] <= drawn.width and one[3] <= drawn.height, one)
            for other in rooms[:number]:
                self.assertFalse(one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3])

    def test_words(self) -> None:
        """The words of a usual picture all have a place (CON-25)."""
        member = (PathStep("acme:user:u", StepKind.MEMBER), PathStep("acme:group:g", StepKind.PERMITTED))
        owner = (PathStep("acme:policy:p", StepKind.OWNER),)
        drawn = draw_picture(
            "acme:variable:v", [(each, way) for each in ("read", "execute", "update") for way in (member, owner)]
        )
        self.assertEqual({arrow.label for arrow in drawn.arrows}, {"member of", "read, execute, update", "owns"})
        self.assertTrue(all(arrow.place for arrow in drawn.arrows))

    def test_long_names(self) -> None:
        """What is too long for its box is cut in the middle; wide letters count twice, marks not at all (CON-25)."""
        for text, most, expected in (
            ("short", 5, "short"),
            ("prod/databases/password", 12, "prod…assword"),
            ("\u4e2d" * 6, 12, "\u4e2d" * 6),
            ("\u4e2d" * 7, 12, "\u4e2d\u4e2d…\u4e2d\u4e2d\u4e2d"),
            ("e\u0301" * 5, 5, "e\u0301" * 5),
        ):
            self.assertEqual(shorten_middle(text, most), expected)
