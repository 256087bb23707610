"""The settings of LDAP authenticators: annotations of a webservice and variables below it, and the directory they mean.

Annotations begin with ``ldap-authn/``, as those of the installed base do (AUTH-54). The connection is encrypted unless they
say otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

import attrs

from svc.authn.settings import Values, open_values, usable_texts
from svc.crypto.vault import Vault
from svc.model.authentication import AuthenticatorSettings, Problem
from svc.model.dialect import Dialect
from svc.model.ldap_directories import (
    DEADLINE,
    ENTRY_PLACEHOLDER,
    GROUP_FILTER,
    PLACEHOLDER,
    GroupSource,
    LdapServer,
    Security,
)
from svc.model.names import ResourceName
from svc.model.text import quote_address, quote_text
from svc.model.web_address import HOST, HOST_LIMIT
from svc.storage.authenticators import AuthenticatorStore

#: The name of the type of authenticator.
NAME: Final = "authn-ldap"

#: The variables; the last is an older name of the one before it.
VARIABLES: Final = ("bind-password", "tls-ca-cert", "tls-cert")

_PREFIX: Final = "ldap-authn/"
_GROUPS: Final = ("group_base_dn", "group_filter_template", "group_source")
_ANNOTATION_WORDS: Final = (
    "uri",
    "host",
    "port",
    "base_dn",
    "bind_dn",
    "filter_template",
    "connect_type",
    "timeout",
    *_GROUPS,
)

ANNOTATIONS: Final = tuple(_PREFIX + word for word in _ANNOTATION_WORDS)

#: The longest annotation that is taken, in characters.
ANNOTATION_LIMIT: Final = 2048

DEFAULT_FILTER: Final = "(&(objectClass=posixAccount)(uid=%s))"

_PORTS: Final = {Security.PLAIN: 389, Security.START_TLS: 389, Security.TLS: 636}

#: The annotations that may be empty, which stands for the root of the directory.
_ROOTS: Final = frozenset({"base_dn", "group_base_dn"})

#: Seconds that a login may take in the directory, and how many hosts it may have.
_SECONDS: Final = (1.0, 25.0)
MAX_HOSTS: Final = 16

_HOST: Final = re.compile(HOST, re.ASCII)
_URI: Final = re.compile(
    r"ldaps?://(?P<host>\[[^\]/]*\]|[^:/?#\[\]]*)(?::(?P<port>[0-9]{1,5}))?(?P<path>/?|[/?#].+)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_BETWEEN: Final = re.compile(r"[\s,]+(?=ldaps?://)", re.ASCII | re.IGNORECASE)
_BEHIND: Final = re.compile(r"ldaps?://[^/?#\s,]*(?:/[^\s,]|[?#])", re.ASCII | re.IGNORECASE)


@attrs.frozen
class LdapMisconfiguration:
    """Settings with which nobody can log in."""

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return " ".join(problem.what for problem in self.problems).rstrip(".")


@attrs.frozen
class LdapServers:
    """The directories that policies name. ``enabled`` has the names of authenticators that the configuration lists."""

    store: AuthenticatorStore
    vault: Vault
    dialect: Dialect
    enabled: Collection[str]

    async def build_server(
        self, webservice: ResourceName, settings: AuthenticatorSettings
    ) -> LdapServer | LdapMisconfiguration:
        """Return the directory of one authenticator, whose ``settings`` were read."""
        annotations = await self.store.read_annotations(webservice, ANNOTATIONS, ANNOTATION_LIMIT + 1)
        values = open_values(webservice.account, webservice.identifier, settings, self.vault)
        return parse_directory(annotations, values)

    async def read_settings(self, webservice: ResourceName) -> AuthenticatorSettings:
        """Read the settings of one authenticator, as they are now."""
        return await self.store.read_settings(webservice.account, webservice.identifier, VARIABLES)

    async def find_server(self, webservice: ResourceName) -> LdapServer | LdapMisconfiguration:
        """Read the directory of one authenticator, as it is set now."""
        return await self.build_server(webservice, await self.read_settings(webservice))

    async def list_webservices(self, after: str, limit: int) -> list[tuple[str, list[ResourceName]]]:
        """Return the next accounts in order after one, each with the authenticators that are defined and may be used.

        Where no directory can be used there are no accounts, and the store isn't queried.
        """
        if not self.dialect.switch_enables and not any(name.startswith(f"{NAME}/") for name in self.enabled):
            return []
        seen = await self.store.list_webservices_by_account(f"{self.dialect.prefix}/{NAME}", after, limit)
        usable = self._is_usable
        return [(account, [name for name, on in found if usable(name, on)]) for account, found in seen.items()]

    def _is_usable(self, webservice: ResourceName, switched: bool | None) -> bool:
        service = webservice.identifier.removeprefix(f"{self.dialect.prefix}/")
        nested = service.count("/") > 1 and service.endswith("/status")
        return not nested and self.dialect.is_enabled(service in self.enabled, switched)


def parse_directory(annotations: Mapping[str, str], values: Values) -> LdapServer | LdapMisconfiguration:
    """Return the meaning of a webservice's annotations and of the variables below it."""
    problems: list[Problem] = []
    words = {name.removeprefix(_PREFIX): text for name, text in annotations.items()}
    for word, text in words.items():
        if len(text) > ANNOTATION_LIMIT or not (text.strip() or (text == "" and word in _ROOTS)):
            problems.append(_unusable_problem(word, "it is blank, or too long", _text_remedy(word, words)))
    if problems:
        return LdapMisconfiguration(tuple(problems))
    ca_name = "tls-cert" if "tls-ca-cert" not in values else "tls-ca-cert"
    texts = usable_texts(values, ("bind-password", ca_name), (), problems)
    security = _parse_security(words, problems)
    places = _parse_hosts(words, security, problems)
    if "base_dn" not in words:
        problems.append(_missing_problem("base_dn", "below which entry people stand", "ou=people,dc=example,dc=org"))
    if "bind_dn" in words and "bind-password" not in values:
        what = f"The annotation {_PREFIX}bind_dn names an account, and no variable has its password."
        problems.append(Problem(what, "Declare and set the variable bind-password."))
    if "bind-password" in values and "bind_dn" not in words:
        what = "The variable bind-password is declared, and it is not said whose password that is."
        remedy = f"Annotate the webservice with {_PREFIX}bind_dn, or remove the declaration from the policy."
        problems.append(Problem(what, remedy))
    if "group_filter_template" in words and "group_base_dn" not in words:
        problems.append(
            _missing_problem("group_base_dn", "below which entry the groups of the filter stand", "ou=groups,dc=example")
        )
    template, group_template = _parse_templates(words, problems)
    timeout, source = _parse_timeout(words, problems), _parse_group_source(words, problems)
    if problems:
        return LdapMisconfiguration(tuple(problems))
    (host, port), *others = places
    bind_dn = words.get("bind_dn")
    password = None if bind_dn is None else texts["bind-password"].encode("utf-8")
    return LdapServer(
        host=host,
        port=port,
        security=security,
        base_dn=words["base_dn"],
        filter_template=template,
        bind_dn=bind_dn,
        bind_password=password,
        ca_cert=texts.get(ca_name),
        group_base_dn=words.get("group_base_dn"),
        group_filter_template=group_template,
        group_source=source,
        others=tuple(others),
        timeout=timeout,
    )


def _text_remedy(word: str, words: Mapping[str, str]) -> str:
    """Return a remedy for an annotation that is blank or too long, with which the settings are complete."""
    if word in _ROOTS:
        return 'Correct it, or leave it empty ("") for the root of the directory.'
    if word == "bind_dn":
        return "Correct it, or leave it out together with the variable bind-password: the search is anonymous then."
    needed = (word == "uri" and "host" not in words) or (word == "host" and "uri" not in words)
    return "Correct it: it says which directory is asked." if needed else "Correct it, or leave it out."


def _parse_templates(words: Mapping[str, str], problems: list[Problem]) -> tuple[str, str]:
    """Return the filters for people and for groups, whose place for the login or the entry is empty yet (AUTH-55)."""
    # Few servers use a directory, and the library takes time to load.
    from svc.authn.ldap.filters import InvalidTemplate, group_filter, search_filter  # noqa: PLC0415

    people, groups = words.get("filter_template", DEFAULT_FILTER), words.get("group_filter_template", GROUP_FILTER)
    try:
        search_filter(people, "")
    except InvalidTemplate as error:
        remedy = f"Set it to a filter with {PLACEHOLDER} where the login is to stand, such as (uid={PLACEHOLDER})."
        problems.append(_unusable_problem("filter_template", str(error), remedy))
    try:
        group_filter(groups, "", b"")
    except InvalidTemplate as error:
        example = f"such as (member={ENTRY_PLACEHOLDER})"
        remedy = f"Set it to a filter with {ENTRY_PLACEHOLDER} where the person's entry is to stand, {example}."
        problems.append(_unusable_problem("group_filter_template", str(error), remedy))
    return people, groups


def _parse_timeout(words: Mapping[str, str], problems: list[Problem]) -> float:
    if "timeout" not in words:
        return DEADLINE
    text, (least, most) = words["timeout"].strip(), _SECONDS
    seconds = float(text) if re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{1,3})?", text, re.ASCII) else 0.0
    if not least <= seconds <= most:
        problems.append(
            _unusable_problem("timeout", f"it is {quote_text(text)}", f"Set it to {least:g} to {most:g} seconds.")
        )
    return seconds


def _parse_group_source(words: Mapping[str, str], problems: list[Problem]) -> GroupSource:
    text = words.get("group_source")
    if text is None:
        return GroupSource.MEMBERS
    if text.strip() != GroupSource.TOKEN_GROUPS.value:
        remedy = f"Set it to {GroupSource.TOKEN_GROUPS.value} for Active Directory, or leave it out."
        problems.append(_unusable_problem("group_source", f"it is {quote_text(text)}", remedy))
    elif "group_filter_template" in words:
        remedy = "Leave it out: the directory tells the groups of a person without a filter."
        problems.append(
            _unusable_problem("group_filter_template", f"group_source is {GroupSource.TOKEN_GROUPS.value}", remedy)
        )
    return GroupSource.TOKEN_GROUPS


def _parse_security(words: Mapping[str, str], problems: list[Problem]) -> Security:
    """Return how the connection is secured; the scheme of the addresses must fit."""
    schemes = {uri.lower().startswith("ldaps:") for uri in _split_uris(words)}
    if len(schemes) > 1:
        problems.append(_unusable_problem("uri", "ldap: and ldaps: stand in it", "Begin all addresses in the same way."))
    ldaps = True in schemes
    text = words.get("connect_type", "").strip().lower()
    try:
        security = Security(text) if text else (Security.TLS if ldaps else Security.START_TLS)
    except ValueError:
        problems.append(
            _unusable_problem("connect_type", f"it is {quote_text(text)}", "Set it to tls (StartTLS), ssl (LDAPS) or plain.")
        )
        return Security.START_TLS
    if "uri" in words and ldaps != (security is Security.TLS):
        remedy = "An address that begins with ldaps: goes with ssl, and no other."
        problems.append(_unusable_problem("connect_type", f"{text} doesn't fit the address", remedy))
    return security


def _split_uris(words: Mapping[str, str]) -> list[str]:
    """Return the addresses, which blanks or commas separate; what stands behind a host may have both."""
    addresses = _BETWEEN.split(words.get("uri", "").strip())
    return [uri for text in addresses for uri in ([text] if _BEHIND.match(text) else re.split(r"[\s,]+", text))]


def _parse_hosts(words: Mapping[str, str], security: Security, problems: list[Problem]) -> list[tuple[str, int]]:
    """Return hosts and ports in order, each once, from the addresses or from annotations of their own."""
    if "uri" in words and ("host" in words or "port" in words):
        problems.append(
            _unusable_problem("uri", "host or port stand beside it", "Leave the one or the others in the policy.")
        )
    if "uri" in words:
        places: dict[tuple[str, int], None] = {}
        for uri in _split_uris(words):
            match = _URI.fullmatch(uri)
            if match is None:
                remedy = "Set it to ldap://host, ldap://host:port or ldaps://host, or to several of these."
                problems.append(_unusable_problem("uri", f"it is {quote_address(words['uri'])}", remedy))
                break
            if len(match["path"]) > 1:
                remedy = f"Leave that out, and name the entry below which people stand in {_PREFIX}base_dn."
                problems.append(_unusable_problem("uri", f"{quote_address(match['path'])} stands behind a host", remedy))
                break
            places[_parse_host(match["host"], match["port"], "uri", security, problems)] = None
        if len(places) > MAX_HOSTS:
            problems.append(_unusable_problem("uri", f"it has more than {MAX_HOSTS} hosts", "Leave some out."))
        return list(places)
    if "host" in words:
        return [_parse_host(words["host"].strip(), words.get("port"), "host", security, problems)]
    problems.append(_missing_problem("uri", "which directory is asked", "ldap://ldap.example.org"))
    return []


def _parse_host(host: str, port: str | None, word: str, security: Security, problems: list[Problem]) -> tuple[str, int]:
    if not _HOST.fullmatch(host) or len(host) > HOST_LIMIT:
        problems.append(
            _unusable_problem(word, f"{quote_text(host)} is no host", "Set it to a name, or a number (IPv6 in brackets).")
        )
    number = _PORTS[security] if port is None else int(port) if re.fullmatch("[0-9]{1,5}", port.strip(), re.ASCII) else 0
    if number not in range(1, 1 << 16):
        problems.append(
            _unusable_problem("port" if word == "host" else word, "it has no port from 1 to 65535", "Correct the port.")
        )
    return host.strip("[]"), number


def _unusable_problem(word: str, fault: str, remedy: str) -> Problem:
    return Problem(f"The annotation {_PREFIX}{word} is not usable: {fault}.", remedy)


def _missing_problem(word: str, what: str, example: str) -> Problem:
    return Problem(f"It is not said {what}.", f"Annotate the webservice with {_PREFIX}{word}, such as {example}.")
