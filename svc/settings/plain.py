"""Settings as plain values, for a file that another process reads, without those that are or may hold secrets (CFG-93)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from svc.model.databases import ClusterMember
from svc.model.dialect import Dialect
from svc.model.errors import ConfigurationInvalid
from svc.settings.config import OPTIONS, Settings
from svc.settings.options import Option
from svc.settings.reading import with_reported_version

#: Settings that may hold a secret, beside those that are one.
_LEFT_OUT: Final = frozenset({"data_key_command"})


def plain_settings(settings: Settings) -> dict[str, Any]:
    """Return the values of all settings but those with secrets, by field, as JSON has them."""
    return {option.field: _plain_value(getattr(settings, option.field)) for option in _shown_options()}


def parse_plain_settings(values: Mapping[str, Any], written: Mapping[str, str]) -> Settings:
    """Return the settings of plain values; those that are left out have their defaults.

    :raises ConfigurationInvalid: they can't be read, as those of another version of the program.
    """
    found: dict[str, Any] = {}
    for option in _shown_options():
        if option.field in values:
            try:
                found[option.field] = _parse_value(option, values[option.field])
            except ValueError as error:
                raise ConfigurationInvalid(option.field, str(error)) from None
    return with_reported_version(Settings(**found, written=dict(written)))


def _shown_options() -> list[Option]:
    secret = {field.name for field in attrs.fields(Settings) if not field.repr}
    return [option for option in OPTIONS if option.field not in secret | _LEFT_OUT]


def _plain_value(value: object) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Dialect():
            return value.name
        case ClusterMember(name=name, url=url, ca=ca):
            return {"name": name, "url": url} | ({} if ca is None else {"ca": str(ca)})
        case (str() as origin, Path() as path):
            return f"{_bracket_host(origin)}={path}"
        case tuple():
            return [_plain_value(item) for item in value]
        case _:
            return str(value)


def _bracket_host(origin: str) -> str:
    """Return an origin in the form in which it is given, where an address of IPv6 has brackets."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.rpartition(":")
    return f"{scheme}://[{host}]:{port}" if ":" in host else origin


def _parse_value(option: Option, value: object) -> Any:
    match value:
        case None:
            return None
        case bool():
            return option.parser.from_text("true" if value else "false")
        case float():
            return option.parser.from_text(f"{value:.9f}".rstrip("0").rstrip("."))
        case int() | str():
            return option.parser.from_text(str(value))
        case _:
            return option.parser.from_toml(value)
