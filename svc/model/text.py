"""Text from outside as it may be shown: in a message, in the log, on a terminal."""

from __future__ import annotations

from typing import Final

#: Longest text from outside in a field of a log event, in characters; what is longer is cut.
FIELD_LIMIT: Final = 300


def shown(text: str) -> str:
    """Quote a text for a message: shortened, without control characters or odd Unicode."""
    return repr(text if len(text) <= 100 else text[:100] + "…")


def printable(text: str, limit: int = FIELD_LIMIT) -> str:
    """Escape a text for a log, ``limit`` characters of it at most: what doesn't print, and the backslash, as Python does."""
    if len(text) <= limit and text.isprintable() and "\\" not in text:
        return text
    escaped = "".join(
        character if character.isprintable() and character != "\\" else character.encode("unicode_escape").decode("ascii")
        for character in text[:limit]
    )
    return escaped if len(text) <= limit else f"{escaped}…"


def blanked(text: str) -> str:
    """Replace each character that doesn't print by a blank, for a terminal or a header."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def encodable(text: object) -> str:
    """Escape what no UTF-8 is: a path may hold bytes that are none, and log files can't take those."""
    return str(text).encode(errors="backslashreplace").decode()
