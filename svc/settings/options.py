"""One setting as users see it: the option, the environment variable, the help; see ``config``, Note [One table]."""

from __future__ import annotations

from typing import Any, Final

import attrs

from svc.model.dialect import Dialect
from svc.settings.parsers import Form

PREFIX: Final = "SERVICE_"


@attrs.frozen
class Option:
    """A setting as the user sees it: ``room`` is the part of the program that it is for, ``default`` a text for help."""

    field: str
    form: Form[Any]
    room: str
    help: str
    default: str
    on_command_line: bool
    in_file: bool

    @property
    def name(self) -> str:
        """The option without the dashes in front."""
        return self.field.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.field.upper()


def _shown(default: object) -> str:
    match default:
        case None | ():
            return "none"
        case bool():
            return "on" if default else "off"
        case tuple():
            return ",".join(map(_shown, default))
        case Dialect():
            return default.name
        case float():
            return f"{default:g}"
        case _:
            return str(default)


def setting(
    form: Form[Any],
    room: str,
    text: str,
    default: Any = None,
    *,
    shown: str | None = None,
    on_command_line: bool = True,
    in_file: bool = True,
    secret: bool = False,
) -> Any:
    """A field that is a setting. ``shown`` is what help says of its default; a ``secret`` one is never shown."""
    option = Option("", form, room, text, shown or _shown(default), on_command_line, in_file)
    return attrs.field(default=default, repr=not secret, metadata={"option": option})
