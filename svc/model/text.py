"""Text from outside as it may be shown: in a message, in the log, on a terminal."""

from __future__ import annotations

import re
from typing import Final

#: Longest text from outside in a field of a log event, in characters; what is longer is cut.
FIELD_LIMIT: Final = 300

_SCHEME: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//")
_WITHOUT_USER: Final = re.compile(rf"(?:{_SCHEME.pattern}|(?!//))[^/?#@:\\]*(?::[0-9]{{1,5}})?(?:[/?#]|\Z)")
_QUERY: Final = re.compile(r"[?#]")


def quote_text(text: str) -> str:
    """Quote a text for a message: shortened, without control characters or odd Unicode."""
    return repr(text if len(text) <= 100 else text[:100] + "…")


def quote_address(text: str) -> str:
    """Quote an address for a message as :func:`quote_text` does, without user, password, query and fragment.

    It may be malformed: what stands before an ``@`` is left out unless it surely isn't a password.
    """
    if "@" in text and not _WITHOUT_USER.match(text):
        scheme = _SCHEME.match(text)
        text = f"{'' if scheme is None else scheme[0]}…@{text.rpartition('@')[2]}"
    bare = _QUERY.split(text, maxsplit=1)[0]
    return quote_text(bare if bare == text else f"{text[: len(bare) + 1]}…")


def escape_unprintable(text: str, limit: int = FIELD_LIMIT) -> str:
    """Escape a text for a log, ``limit`` characters of it at most: what doesn't print, and the backslash, as Python does."""
    if len(text) <= limit and text.isprintable() and "\\" not in text:
        return text
    escaped = "".join(
        character if character.isprintable() and character != "\\" else character.encode("unicode_escape").decode("ascii")
        for character in text[:limit]
    )
    return escaped if len(text) <= limit else f"{escaped}…"


def blank_unprintable(text: str) -> str:
    """Replace each character that doesn't print by a blank, for a terminal or a header."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def escape_unencodable(text: object) -> str:
    """Escape what isn't UTF-8: a path may contain bytes that aren't, and log files can't take those."""
    return str(text).encode(errors="backslashreplace").decode()
