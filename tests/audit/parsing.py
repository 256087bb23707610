"""A strict parser of RFC 5424, independent of what writes records."""

from __future__ import annotations

import re

import attrs

_HEADER = re.compile(
    r"<(0|[1-9][0-9]{0,2})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z)"
    r" ([!-~]{1,255}) ([!-~]{1,48}) ([!-~]{1,128}) ([!-~]{1,32}) "
)
_ID = re.compile(r"\[([^\s=\]\"]{1,32})")
_PARAMETER = re.compile(r' ([^\s=\]"]{1,32})="((?:[^"\\\]]|\\["\\\]])*)"', re.DOTALL)
_ESCAPE = re.compile(r'\\(["\\\]])')


@attrs.frozen
class Parsed:
    """A record as it was read."""

    priority: int
    timestamp: str
    hostname: str
    appname: str
    procid: str
    msgid: str
    data: dict[str, dict[str, str]]
    message: str


def parse(line: bytes) -> Parsed:
    """Read a record, all of it.

    :raises ValueError: it is none.
    """
    text = line.decode("utf-8")
    if "\n" in text or "\r" in text:
        raise ValueError("a record spans lines")
    header = _HEADER.match(text)
    if header is None or int(header[1]) > 191:
        raise ValueError(f"no header: {text!r}")
    place = header.end()
    data: dict[str, dict[str, str]] = {}
    while matched := _ID.match(text, place):
        place, parameters = matched.end(), {}
        while parameter := _PARAMETER.match(text, place):
            if parameter[1] in parameters:
                raise ValueError(f"{parameter[1]} stands twice")
            parameters[parameter[1]] = _ESCAPE.sub(r"\1", parameter[2])
            place = parameter.end()
        if text[place : place + 1] != "]":
            raise ValueError(f"an element has no end: {text[place:]!r}")
        place += 1
        if matched[1] in data:
            raise ValueError(f"{matched[1]} stands twice")
        data[matched[1]] = parameters
    if text[place : place + 1] != " ":
        raise ValueError(f"no message: {text[place:]!r}")
    message = text[place + 1 :]
    if not message.isascii():
        if not message.startswith("\ufeff"):
            raise ValueError("a message of UTF-8 has no mark")
        message = message[1:]
    return Parsed(int(header[1]), header[2], header[3], header[4], header[5], header[6], data, message)
