"""Tables of TOML, read strictly: an unknown key is a mistake, and each message says where it is."""

from __future__ import annotations

import difflib
import math
from typing import Any

from svc.agent.faults import BadConfiguration


class Table:
    """A table; ``name`` is where it stands, empty for the document itself. All methods raise ``BadConfiguration``."""

    def __init__(self, entries: dict[str, Any], name: str) -> None:
        self._entries, self._asked = entries, set[str]()
        self.place = f"{name}." if name else ""

    def text(self, key: str) -> str | None:
        """Return a text that isn't empty, ``None`` where there is none."""
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise BadConfiguration(f"{self.place}{key} must be a text in quotes")
        if "\0" in value:
            raise BadConfiguration(f"{self.place}{key} holds a NUL character")
        return value

    def required(self, key: str) -> str:
        """Return a text that must be there."""
        value = self.text(key)
        if value is None:
            raise BadConfiguration(f"{self.place}{key} is missing")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts, ``None`` where there is none."""
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) and "\0" not in each for each in value):
            raise BadConfiguration(f'{self.place}{key} must be a list of texts: ["one", "two"]')
        return tuple(value)

    def number(self, key: str, default: float, *, least: float) -> float:
        """Return a number that is at least ``least``."""
        value = self._get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
            raise BadConfiguration(f"{self.place}{key} must be a number of seconds, at least {least:g}")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """Return ``true`` or ``false``."""
        value = self._get(key)
        if value is not None and not isinstance(value, bool):
            raise BadConfiguration(f"{self.place}{key} must be true or false")
        return default if value is None else value

    def choice(self, key: str, among: tuple[str, ...], default: str | None = None) -> str:
        """Return one of several words."""
        value = self._get(key)
        if value is None and default is not None:
            return default
        if value not in among:
            said = "is missing" if value is None else "is something else"
            raise BadConfiguration(f"{self.place}{key} {said}: it is one of {', '.join(among)}")
        return str(value)

    def table(self, key: str) -> Table:
        """Return a table within this one, an empty one where there is none."""
        value = self._get(key)
        if value is not None and not isinstance(value, dict):
            raise BadConfiguration(f"{self.place}{key} must be a table: [{self.place}{key}]")
        return Table(value or {}, f"{self.place}{key}")

    def tables(self, key: str) -> list[Table]:
        """Return several tables of one name."""
        value = self._get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
            raise BadConfiguration(f"{self.place}{key} must be written [[{self.place}{key}]], once for each")
        return [Table(each, f"{self.place}{key}[{number}]") for number, each in enumerate(value or (), 1)]

    def names(self) -> list[str]:
        """Return the names of all entries."""
        return list(self._entries)

    def is_text(self, key: str) -> bool:
        """Return whether an entry is a text."""
        return isinstance(self._entries.get(key), str)

    def close(self) -> None:
        """Refuse unknown keys."""
        for key in self._entries:
            if key not in self._asked:
                near = difflib.get_close_matches(key, self._asked, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(self._asked))}"
                raise BadConfiguration(f"{self.place}{key} is no setting: {hint}")

    def _get(self, key: str) -> Any:
        self._asked.add(key)
        return self._entries.get(key)
