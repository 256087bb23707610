"""The authenticators that the configuration lists: by name, or by pattern (CFG-90).

Note [Narrow patterns]. A pattern permits names that nobody has thought of yet. So a type can't be a pattern, a ``*`` stands
for a part of one segment alone, and the webservices ``…/status`` beneath an authenticator are no names that it matches.
Policy must define the webservice all the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

_STAR: Final = "*"

#: A webservice with as many slashes that is called so belongs to another authenticator.
_STATUS: Final = "/status"


def is_pattern(name: str) -> bool:
    """Return whether the name of an authenticator in the configuration is a pattern."""
    return _STAR in name


def is_sound_pattern(service_id: str) -> bool:
    """Return whether a service id with a ``*`` is a pattern: there is one, at the end of a segment."""
    before, _, after = service_id.partition(_STAR)
    return _STAR not in before + after and after[:1] in {"", "/"}


class ListedAuthenticators(Collection[str]):
    """The authenticators that the configuration lists, which may change while the server runs (CFG-91).

    A name is contained if it is listed, or a pattern matches it. The items are the names and patterns as they were written.
    ``names`` are those that aren't patterns.
    """

    names: frozenset[str]
    items: tuple[str, ...]

    def __init__(self, items: Sequence[str]) -> None:
        self.replace_items(items)

    def replace_items(self, items: Sequence[str]) -> None:
        """Let these be listed from now on, and no others."""
        self.items = tuple(items)
        self._patterns = tuple(_compile_pattern(item) for item in items if is_pattern(item))
        self.names = frozenset(item for item in items if not is_pattern(item))

    def matches_pattern(self, name: str) -> bool:
        """Return whether a pattern matches a name (Note [Narrow patterns])."""
        if name.endswith(_STATUS) and name.count("/") > 1:
            return False
        return any(pattern.fullmatch(name) for pattern in self._patterns)

    def __contains__(self, name: object) -> bool:
        """Return whether an authenticator is listed."""
        return name in self.names or (isinstance(name, str) and self.matches_pattern(name))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names and patterns."""
        return iter(self.items)

    def __len__(self) -> int:
        """Return how many names and patterns there are."""
        return len(self.items)


def _compile_pattern(item: str) -> re.Pattern[str]:
    before, _, after = item.partition(_STAR)
    return re.compile(f"{re.escape(before)}[^/]+{re.escape(after)}")
