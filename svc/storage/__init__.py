"""All SQL: rows to values, errors translated, one pool.

Every method of a store may raise ``StoreUnavailable`` (try again later), every one that writes ``ReadOnlyStandby`` (a
standby), and every one that takes a ``Caller`` ``CallerReplaced``. A change writes the events of ``trail`` in its
transaction, and none where nothing changed.
"""
