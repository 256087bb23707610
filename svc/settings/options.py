"""One setting as users see it: the option, the environment variable, the help; see ``config``, Note [One table]."""

from __future__ import annotations

from typing import Any, Final

import attrs

from svc.model.dialect import Dialect
from svc.settings.parsers import Parser

PREFIX: Final = "SERVICE_"


@attrs.frozen
class Option:
    """A setting as users see it: ``group`` is its heading in help and samples, ``default`` the text that help shows."""

    field: str
    parser: Parser[Any]
    group: str
    help: str
    default: str
    on_command_line: bool
    in_file: bool

    @property
    def name(self) -> str:
        """Return the option's name without the leading dashes."""
        return self.field.replace("_", "-")

    @property
    def variable(self) -> str:
        """Return the name of the environment variable."""
        return PREFIX + self.field.upper()


def _format_default(default: object) -> str:
    match default:
        case None | ():
            return "none"
        case bool():
            return "on" if default else "off"
        case tuple():
            return ",".join(map(_format_default, default))
        case Dialect():
            return default.name
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def declare_setting(
    group: str,
    parser: Parser[Any],
    text: str,
    default: Any = None,
    *,
    shown: str | None = None,
    on_command_line: bool = True,
    in_file: bool = True,
    secret: bool = False,
) -> Any:
    """Declare a field that is a setting. ``shown`` is its default in help texts; a ``secret`` isn't in ``repr``."""
    option = Option("", parser, group, text, shown or _format_default(default), on_command_line, in_file)
    return attrs.field(default=default, repr=not secret, metadata={"option": option})
