"""Durations as they are written on a command line."""

from __future__ import annotations

import re
from typing import Final

import click

#: The seconds of each unit.
_UNITS: Final = {"m": 60, "h": 3600, "d": 86400}

_LIFETIME: Final = re.compile("([1-9][0-9]{0,5})([mhd])", re.ASCII)


def lifetime(context: click.Context, parameter: click.Parameter, value: str) -> int:  # noqa: ARG001 (click's)
    """Read ``30m``, ``12h`` or ``7d``; return seconds. For the callback of an option.

    :raises click.BadParameter: it is none of these.
    """
    matched = _LIFETIME.fullmatch(value)
    if matched is None:
        raise click.BadParameter("is written 30m, 12h or 7d: minutes, hours or days")
    return int(matched[1]) * _UNITS[matched[2]]
