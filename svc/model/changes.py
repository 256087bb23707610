"""Notifications of changes in the database, for those who follow them."""

from __future__ import annotations

from collections.abc import Callable

import attrs


@attrs.frozen
class TouchedRecords:
    """The records and values that were changed, by their full ids; or all of some accounts; or everything."""

    ids: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    everything: bool = False


#: Calls a function soon after each change in the database, no matter who makes it, until the returned function is called.
#: The function's reads of the store are at least as new as the change.
FollowChanges = Callable[[Callable[[TouchedRecords], None]], Callable[[], None]]
