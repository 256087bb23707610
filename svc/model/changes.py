"""What changes in the database, as those are told who follow it."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from zope.interface import Interface


@attrs.frozen
class TouchedRecords:
    """What was changed: records and values, by their full ids; all of some accounts; or anything."""

    ids: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    everything: bool = False


class IChanges(Interface):
    """The changes of the database, no matter who makes them."""

    def follow(told: Callable[[TouchedRecords], None]) -> Callable[[], None]:
        """Have ``told`` called soon after each change, and return what ends that.

        What it asks the store for then is at least as new as the change.
        """
