"""The names of changed things, as the triggers of the schema write them (``schema/0010_changes.sql``), and as reads
depend on them.

Note [Coarse names]. A read follows the memberships of a few roles, and depends on each of them. One that follows more
depends on all policy data of the account, which is named ``~``: a change of a record, a membership or a grant touches it.
And every read depends on its accounts, each named ``*``, which a transaction touches if it changes more than it names,
and on ``*`` alone.

Note [Folders]. An authenticator reads a dozen variables, all in one folder of names. So each login at it depends on that
folder, which is named ``/`` with the id up to the last slash: a change of a record or value in it touches it. So does the
cached answer to a batch, whose secrets are many and in few folders: their own names would take more room than the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from svc.model.versions import TouchedRecords

#: How many of the names that a read has by following memberships are kept apart.
FOLLOWED: Final = 64

#: A read of more things than this depends on their folders.
FEW: Final = 16

#: Everything.
ALL: Final = "*"

#: The letters of policy data: a change of any of these touches the account's ``~``.
_POLICY: Final = frozenset("rmg")

#: The letters for all of an account, or for what all tokens of its roles depend on.
_WHOLE: Final = frozenset("*k")

#: The letters of records and values, which are in folders (Note [Folders]).
_IN_FOLDERS: Final = frozenset("rv")


def _account_of(name: str) -> str:
    """Return the account of a name, which is a letter, a colon and an account or a full id."""
    return name[2:].partition(":")[0]


def expand_dependencies(names: Iterable[str]) -> frozenset[str]:
    """Return all names that a read depends on, given the ``names`` that it follows (Note [Coarse names])."""
    found, followed = {ALL}, 0
    for name in names:
        account = _account_of(name)
        found.add(f"*:{account}")
        followed += name[0] == "m"
        found.add(f"~:{account}" if name[0] == "m" and followed > FOLLOWED else name)
    return frozenset(found)


def expand_touched(names: Iterable[str]) -> Iterator[str]:
    """Return all names that a change touches, given the ``names`` that it wrote."""
    for name in names:
        yield name
        letter = name[0]
        if letter in _POLICY:
            yield f"~:{_account_of(name)}"
        if letter in _IN_FOLDERS and (folder := _folder_of(name)) is not None:
            yield folder


def touched_records(names: Iterable[str]) -> TouchedRecords:
    """Return the records and accounts of names that a poll found."""
    ids, accounts = set(), set()
    for name in names:
        if name == ALL:
            return TouchedRecords(everything=True)
        if name[0] in _IN_FOLDERS:
            ids.add(name[2:])
        elif name[0] in _WHOLE:
            accounts.add(name[2:])
    return TouchedRecords(frozenset(ids), frozenset(accounts))


def fold_names(names: Iterable[str], ids: Collection[str]) -> Iterator[str]:
    """Return names, with those of folders instead of these ids' own if there are many (Note [Folders])."""
    for name in names:
        folder = _folder_of(name) if len(ids) > FEW and name[0] in _IN_FOLDERS and name[2:] in ids else None
        yield name if folder is None else folder


def _folder_of(name: str) -> str | None:
    """Return the name of the folder that a record or value is in; ``None`` for one that is in none."""
    end = name.rfind("/")
    return f"/{name[1:end]}" if end > 0 else None
