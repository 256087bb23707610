"""Notifications of changes in the database, for those who follow them."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from zope.interface import Interface


@attrs.frozen
class TouchedRecords:
    """The records and values that were changed, by their full ids; or all of some accounts; or everything."""

    ids: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    everything: bool = False


class IChanges(Interface):
    """The changes of the database, no matter who makes them."""

    def follow_changes(callback: Callable[[TouchedRecords], None]) -> Callable[[], None]:
        """Have ``callback`` called soon after each change, and return a function that ends that.

        Its reads of the store are then at least as new as the change.
        """
