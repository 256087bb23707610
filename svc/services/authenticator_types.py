"""The types of authenticators in the newer interface, and the fields of the ``data`` of each (NEWER-33, NEWER-34)."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from svc.model.dialect import Dialect
from svc.model.errors import Unprocessable
from svc.model.strict_json import format_json, parse_json_object

#: Stands for a value that the caller may not read.
MASKED: Final = "*****"

_ALIAS: Final = re.compile("[A-Za-z0-9_-]+")
_RESERVED: Final = frozenset({"iss", "exp", "nbf", "iat", "aud", "jti"})
_BLANK: Final = re.compile(r"[\s<>\x00\ud800-\udfff]")
_LIST_MARKS: Final = re.compile(r"[\s,:<>\x00\ud800-\udfff]")
_UNWRITABLE: Final = re.compile("[\ud800-\udfff]")

#: The longest value, in characters, unless its key sets a lower limit.
_LONGEST: Final = 10_000


class SettingForm(enum.Enum):
    """The form of a value in ``data``, and of its stored text."""

    TEXT = "string"  #: a text, as it is
    LIST = "array"  #: texts, parted by commas
    PAIRS = "pairs"  #: an object of texts: ``name:text``, parted by commas
    DOCUMENT = "object"  #: an object, as JSON


@attrs.frozen
class SettingKey:
    """A key of ``data``, which has a variable: in the object ``within`` another, if that is named.

    ``plain`` texts have no blank, no ``<`` and no ``>``. ``output_only``: it is only in answers, and can't be given.
    """

    name: str
    form: SettingForm = SettingForm.TEXT
    most: int = _LONGEST
    plain: bool = False
    within: str | None = None
    output_only: bool = False

    @property
    def variable_name(self) -> str:
        """The name of the variable, below the authenticator's."""
        return self.name.replace("_", "-")


@attrs.frozen
class AuthenticatorType:
    """A type: its names in paths, of which answers have the first, its authenticators' name, and the keys of ``data``.

    ``single``: an account has one of it, which is called ``default``.
    """

    names: tuple[str, ...]
    authenticator: str
    keys: tuple[SettingKey, ...] = ()
    single: bool = False

    @property
    def name(self) -> str:
        """The name in answers."""
        return self.names[0]


def _plain_key(name: str, most: int) -> SettingKey:
    return SettingKey(name, most=most, plain=True)


_ONE_OF: Final = ("id_token_user_property",)
_ALL_OF: Final = ("client_id", "client_secret", "redirect_uri", "claim_mapping")

_JWT: Final = (
    _plain_key("jwks_uri", 255),
    SettingKey("public_keys", SettingForm.DOCUMENT),
    SettingKey("provider_uri", output_only=True),
    _plain_key("issuer", 255),
    _plain_key("audience", 1000),
    SettingKey("ca_cert"),
    SettingKey("token_app_property", most=1000, plain=True, within="identity"),
    SettingKey("identity_path", within="identity"),
    SettingKey("enforced_claims", SettingForm.LIST, within="identity"),
    SettingKey("claim_aliases", SettingForm.PAIRS, within="identity"),
)
_OIDC: Final = (
    _plain_key("provider_uri", 255),
    _plain_key("id_token_user_property", 255),
    *map(SettingKey, (*_ALL_OF, "name", "ca_cert", "token_ttl", "provider_scope")),
    SettingKey("response_type", output_only=True),
)
_KUBERNETES: Final = ("ca/cert", "ca/key", "kubernetes/ca_cert", "kubernetes/api_url", "kubernetes/service_account_token")


def types_of(dialect: Dialect) -> tuple[AuthenticatorType, ...]:
    """Return all types that the dialect has a name for, installed or not."""
    return (
        AuthenticatorType(("jwt",), "authn-jwt", _JWT),
        AuthenticatorType((dialect.cloud.removeprefix("authn-"),), dialect.cloud, (_plain_key("provider_uri", 255),)),
        AuthenticatorType(("oidc",), "authn-oidc", _OIDC),
        AuthenticatorType(("ldap",), "authn-ldap", (SettingKey("bind_password"), SettingKey("tls_ca_cert"))),
        AuthenticatorType(("k8s",), "authn-k8s", tuple(map(SettingKey, _KUBERNETES))),
        AuthenticatorType(("aws", "iam"), "authn-iam"),
        AuthenticatorType(("gcp",), "authn-gcp", single=True),
    )


# -- reading what a request gives -------------------------------------------------------------------------------------


def parse_data(kind: AuthenticatorType, data: object) -> dict[str, str]:
    """Return the values in ``data``, by the names of variables; ``None`` stands for a request without ``data``.

    :raises Unprocessable: it doesn't fit the type.
    """
    name = kind.name
    if not kind.keys:
        if data is not None:
            raise Unprocessable(f"The 'data' object cannot be specified for {name} authenticators.")
        return {}
    optional = name == "ldap"
    if not isinstance(data, Mapping) or (not data and not optional):
        if data is None and optional:
            return {}
        raise Unprocessable(
            f"The 'data' object must be specified for {name} authenticators and it must be a non-empty JSON object."
        )
    given = dict(_iterate_settings(kind, data))
    _check_combinations(name, given)
    return {key.variable_name: _format_value(key, given[key.name]) for key in kind.keys if key.name in given}


def _iterate_settings(kind: AuthenticatorType, data: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    objects = {key.within for key in kind.keys if key.within is not None}
    known = {key.name for key in kind.keys if key.within is None and not key.output_only}
    refuse_unknown([name for name in data if name not in known | objects])
    for name, value in data.items():
        if name in known:
            yield name, value
            continue
        if not isinstance(value, Mapping):
            raise wrong_type(name, "object")
        refuse_unknown([inner for inner in value if inner not in {key.name for key in kind.keys if key.within == name}])
        yield from value.items()


def _check_combinations(name: str, given: Mapping[str, object]) -> None:
    """Refuse keys that are incompatible."""
    if name == "jwt":
        if ("jwks_uri" in given) == ("public_keys" in given):
            raise Unprocessable("The data object must contain either ['jwks_uri'] or ['public_keys'] keys.")
        _require_companion("public_keys", "issuer", given)
        _require_companion("identity_path", "token_app_property", given)
    elif name == "oidc":
        require_keys(given, ("provider_uri",))
        of_id, of_code = [key for key in _ONE_OF if key in given], [key for key in _ALL_OF if key in given]
        if bool(of_id) == bool(of_code) or (of_code and len(of_code) < len(_ALL_OF)):
            all_of = ", ".join(f'"{key}"' for key in _ALL_OF)
            raise Unprocessable(f'The data object must contain either ["id_token_user_property"] or [{all_of}] keys.')
    elif name == "ldap":
        _require_companion("tls_ca_cert", "bind_password", given)
    elif name == "k8s":
        require_keys(given, ("ca/cert", "ca/key"))
    else:
        require_keys(given, ("provider_uri",))


def _require_companion(key: str, other: str, given: Mapping[str, object]) -> None:
    if key in given:
        require_keys(given, (other,))


def _format_value(key: SettingKey, value: object) -> str:
    """Return the text that is stored of a value."""
    name = key.name
    if value in (None, "", [], {}):
        raise missing_parameter(name)
    match key.form, value:
        case SettingForm.TEXT, str():
            text = value
        case SettingForm.LIST, list():
            text = ",".join(_check_part(name, part) for part in value)
        case SettingForm.PAIRS, dict():
            text = ",".join(f"{_check_alias(alias)}:{_check_part(name, claim)}" for alias, claim in value.items())
        case SettingForm.DOCUMENT, dict():
            try:
                text = format_json(value)
            except ValueError:  # a number beyond all
                raise wrong_type(name, key.form.value) from None
        case _:
            raise wrong_type(name, "object" if key.form is SettingForm.PAIRS else key.form.value)
    if len(text) > key.most:
        raise Unprocessable(f"'{name}' parameter length exceeded. Limit the length to {key.most} characters")
    if _UNWRITABLE.search(text) or (key.plain and _BLANK.search(text)):
        raise Unprocessable(f"Invalid '{name}' parameter. It may not have blanks, < or >.")
    return text


def _check_part(name: str, part: object) -> str:
    if not isinstance(part, str):
        raise wrong_type(name, "string")
    if not part or _LIST_MARKS.search(part):
        raise Unprocessable(f"Invalid '{name}' parameter. Claims may not have blanks, commas, colons, < or >.")
    return part


def _check_alias(alias: str) -> str:
    if not _ALIAS.fullmatch(alias) or alias in _RESERVED:
        raise Unprocessable(
            "Invalid 'claim_aliases' parameter. An alias has letters, numbers, - and _, and is none of "
            f"{', '.join(sorted(_RESERVED))}."
        )
    return alias


def refuse_unknown(names: Sequence[str]) -> None:
    """Refuse unknown parameters.

    :raises Unprocessable: there are some.
    """
    if names:
        listed = ", ".join(name[:100] for name in names[:20])
        raise Unprocessable(f"The following parameters were not expected: {listed}")


def require_keys(given: Mapping[str, object], names: Sequence[str]) -> None:
    """Refuse data that lacks a parameter.

    :raises Unprocessable: it does, or the parameter is empty.
    """
    for name in names:
        if given.get(name) in (None, ""):
            raise missing_parameter(name)


def missing_parameter(name: str) -> Unprocessable:
    """Return the refusal of data that lacks a parameter."""
    return Unprocessable(f"Missing required parameter: {name}", "CONJ00190W")


def wrong_type(name: str, wanted: str) -> Unprocessable:
    """Return the refusal of a parameter of another type."""
    return Unprocessable(f"The '{name}' parameter must be of 'type={wanted}'", "CONJ00192W")


# -- telling what is stored -------------------------------------------------------------------------------------------


def format_data(kind: AuthenticatorType, values: Mapping[str, str | None]) -> dict[str, object]:
    """Return ``data`` of values by the names of variables, in the order of the type; ``None`` is one that is masked."""
    data: dict[str, object] = {}
    for key in kind.keys:
        if key.variable_name in values:
            value = values[key.variable_name]
            shown = MASKED if value is None else _parse_value(key, value)
            if key.within is None:
                data[key.name] = shown
            else:
                inner = data.setdefault(key.within, {})
                assert isinstance(inner, dict)
                inner[key.name] = shown
    return data


def _parse_value(key: SettingKey, value: str) -> object:
    """Return a stored text in the form of ``data``; one that can't be parsed, as it is."""
    match key.form:
        case SettingForm.LIST:
            return [part.strip() for part in value.split(",") if part.strip()]
        case SettingForm.PAIRS:
            pairs = [part.partition(":") for part in value.split(",") if part.strip()]
            return {alias.strip(): claim.strip() for alias, _, claim in pairs}
        case SettingForm.DOCUMENT:
            try:
                document = parse_json_object(value.encode("utf-8"))
                format_json(document)
            except ValueError:  # no object, or a number that JSON can't represent
                return value
            return document
        case _:
            return value
