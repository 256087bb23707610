"""Tables of TOML, read strictly: an unknown key is a mistake, and each message says where it is."""

from __future__ import annotations

import difflib
import math
from typing import Any

from svc.agent.faults import BadConfiguration


class TomlTable:
    """A table; ``name`` is where it stands, empty for the document itself. All methods raise ``BadConfiguration``."""

    def __init__(self, entries: dict[str, Any], name: str) -> None:
        self._entries, self._known_keys = entries, set[str]()
        self.prefix = f"{name}." if name else ""

    def get_text(self, key: str) -> str | None:
        """Return a text that isn't empty, ``None`` where there is none."""
        value = self._get_value(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise BadConfiguration(f"{self.prefix}{key} must be a text in quotes")
        if "\0" in value:
            raise BadConfiguration(f"{self.prefix}{key} holds a NUL character")
        return value

    def require_text(self, key: str) -> str:
        """Return a text that must be there."""
        value = self.get_text(key)
        if value is None:
            raise BadConfiguration(f"{self.prefix}{key} is missing")
        return value

    def get_texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts, ``None`` where there is none."""
        value = self._get_value(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) and "\0" not in each for each in value):
            raise BadConfiguration(f'{self.prefix}{key} must be a list of texts: ["one", "two"]')
        return tuple(value)

    def get_number(self, key: str, default: float, *, least: float) -> float:
        """Return a number that is at least ``least``."""
        value = self._get_value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
            raise BadConfiguration(f"{self.prefix}{key} must be a number of seconds, at least {least:g}")
        return float(value)

    def get_flag(self, key: str, *, default: bool) -> bool:
        """Return ``true`` or ``false``."""
        value = self._get_value(key)
        if value is not None and not isinstance(value, bool):
            raise BadConfiguration(f"{self.prefix}{key} must be true or false")
        return default if value is None else value

    def get_choice(self, key: str, among: tuple[str, ...], default: str | None = None) -> str:
        """Return one of several words."""
        value = self._get_value(key)
        if value is None and default is not None:
            return default
        if value not in among:
            problem = "is missing" if value is None else "is something else"
            raise BadConfiguration(f"{self.prefix}{key} {problem}: it is one of {', '.join(among)}")
        return str(value)

    def get_table(self, key: str) -> TomlTable:
        """Return a table within this one, an empty one where there is none."""
        value = self._get_value(key)
        if value is not None and not isinstance(value, dict):
            raise BadConfiguration(f"{self.prefix}{key} must be a table: [{self.prefix}{key}]")
        return TomlTable(value or {}, f"{self.prefix}{key}")

    def get_tables(self, key: str) -> list[TomlTable]:
        """Return several tables of one name."""
        value = self._get_value(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
            raise BadConfiguration(f"{self.prefix}{key} must be written [[{self.prefix}{key}]], once for each")
        return [TomlTable(each, f"{self.prefix}{key}[{number}]") for number, each in enumerate(value or (), 1)]

    def entry_names(self) -> list[str]:
        """Return the names of all entries."""
        return list(self._entries)

    def is_text(self, key: str) -> bool:
        """Return whether an entry is a text."""
        return isinstance(self._entries.get(key), str)

    def refuse_unknown_keys(self) -> None:
        """Refuse unknown keys."""
        for key in self._entries:
            if key not in self._known_keys:
                near = difflib.get_close_matches(key, self._known_keys, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(self._known_keys))}"
                raise BadConfiguration(f"{self.prefix}{key} is no setting: {hint}")

    def _get_value(self, key: str) -> Any:
        self._known_keys.add(key)
        return self._entries.get(key)
