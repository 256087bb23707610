"""The meaning of the variables of an authenticator of OpenID Connect, and their problems (OIDC-2 to OIDC-6); and which of
these authenticators an account has.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

import attrs

from svc.authn.settings import (
    Configuration,
    Misconfiguration,
    Values,
    check_address,
    check_authorities,
    open_values,
    parse_algorithms,
    usable_texts,
)
from svc.crypto.vault import Vault
from svc.model.authentication import KeySource, Problem
from svc.model.dialect import Dialect
from svc.model.errors import InvalidName
from svc.model.names import check_account_name
from svc.model.oidc import OidcClient, OidcIssuer, OidcSetting
from svc.model.text import quote_address, quote_text
from svc.storage.authenticators import AuthenticatorStore

NAME: Final = "authn-oidc"

_CODE: Final = ("client-secret", "claim-mapping")
_TOKEN: Final = "id-token-user-property"
_OPTIONAL: Final = ("redirect-uri", "response-type", "provider-scope", "token-ttl", "name")
_NAMES: Final = ("provider-uri", "ca-cert", "algorithms", "client-id", *_CODE, _TOKEN, *_OPTIONAL)

#: A dash and an underscore are the same in the names (OIDC-2).
VARIABLES: Final = (*_NAMES, *(name.replace("-", "_") for name in _NAMES if "-" in name))

#: Variables whose values are used as they are, to the last character.
_EXACT: Final = frozenset({"provider-uri", "client-id", "client-secret", "claim-mapping", _TOKEN, "redirect-uri"})

#: The scopes that every login requests.
_SCOPE: Final = ("openid", "email", "profile")
_SCOPE_TOKEN: Final = re.compile(r"[!#-\[\]-~]+")  # RFC 6749 3.3

#: Seconds that an access token lives, unless the variable says otherwise, and at most.
LIFETIME: Final = 3600
LONGEST_LIFETIME: Final = 5 * 3600

_DURATION: Final = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,6})Y)?(?:([0-9]{1,6})M)?(?:([0-9]{1,6})W)?(?:([0-9]{1,6})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,6})S)?)?",
    re.ASCII,
)
_SECONDS: Final = (365 * 86_400, 30 * 86_400, 7 * 86_400, 86_400, 3600, 60, 1)

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")

#: The authenticators of an account that are looked at.
OFFERS_LIMIT: Final = 20


@attrs.frozen
class OidcConfiguration(Configuration):
    """The meaning of one authenticator's settings; the ``audience`` is ``client_id``.

    ``client`` and ``code_claim``, which names the user, are ``None`` where no code is taken; ``token_claim`` where no id
    token is. Access tokens for codes live for ``lifetime`` seconds. ``name`` is for people, where it is set.
    """

    provider: OidcIssuer = attrs.field(kw_only=True)
    client_id: str = attrs.field(kw_only=True)
    scope: str = attrs.field(kw_only=True)
    client: OidcClient | None = attrs.field(default=None, kw_only=True)
    code_claim: str | None = attrs.field(default=None, kw_only=True)
    token_claim: str | None = attrs.field(default=None, kw_only=True)
    lifetime: int = attrs.field(default=LIFETIME, kw_only=True)
    name: str | None = attrs.field(default=None, kw_only=True)


def parse_oidc_values(values: Values, _: Dialect) -> OidcConfiguration | Misconfiguration:
    """Return the meaning of the variables' values (``settings.open_values``)."""
    problems: list[Problem] = []
    values = _normalize_names(values, problems)
    takes_tokens = _TOKEN in values
    takes_codes = not takes_tokens or any(name in values for name in _CODE)
    for name in ("provider-uri", "client-id", *(_CODE if takes_codes else ())):
        if name not in values:
            problems.append(Problem(f"The variable {name} is not declared.", "Declare it in policy, and set it."))
    texts = usable_texts(values, _NAMES, _EXACT, problems)
    before = len(problems)
    check_address("provider-uri", texts, problems)
    _check_authority(values, texts, problems)
    is_reachable = len(problems) == before
    algorithms = parse_algorithms(values, texts, problems)
    lifetime = _parse_lifetime(texts, problems)
    scope = _parse_scope(texts, problems)
    if texts.get("response-type", "code").strip() != "code":
        problems.append(Problem("The variable response-type is not code.", "Set it to code, or remove its declaration."))
    if "#" in texts.get("redirect-uri", ""):
        problems.append(Problem("The variable redirect-uri has a fragment (#).", "Set it to the address before that."))
    elif "redirect-uri" in texts and not _URI.fullmatch(texts["redirect-uri"]):
        what = f"The variable redirect-uri is {quote_address(texts['redirect-uri'])}, which is no address."
        problems.append(
            Problem(what, "Set it to the address that the provider sends browsers to, as it is registered there.")
        )
    issuer, keys = texts.get("provider-uri"), None
    if issuer is not None and is_reachable and ("ca-cert" not in values or "ca-cert" in texts):
        keys = KeySource(issuer, discovered=True, ca_cert=texts.get("ca-cert"), algorithms=algorithms)
    if keys is None or problems:
        return Misconfiguration(tuple(problems), keys, algorithms)
    provider, client_id, client = OidcIssuer(keys.uri, keys.ca_cert), texts["client-id"], None
    if takes_codes:
        client = OidcClient(provider, client_id, texts["client-secret"], scope, texts.get("redirect-uri"))
    return OidcConfiguration(
        keys,
        None,
        client_id,
        algorithms=algorithms,
        provider=provider,
        client_id=client_id,
        scope=scope,
        client=client,
        code_claim=texts["claim-mapping"] if takes_codes else None,
        token_claim=texts.get(_TOKEN),
        lifetime=lifetime,
        name=texts.get("name"),
    )


def _normalize_names(values: Values, problems: list[Problem]) -> Values:
    """Return the values under names with dashes, without optional ones that were never set."""
    spelled: dict[str, str | Problem | None] = {}
    for name, value in values.items():
        dashed = name.replace("_", "-")
        if dashed in spelled:
            what = f"The variables {dashed} and {dashed.replace('-', '_')} are declared beside each other."
            problems.append(Problem(what, "Remove one of them from the policy."))
        elif value is not None or dashed not in _OPTIONAL:
            spelled[dashed] = value
    return spelled


def _check_authority(values: Values, texts: Mapping[str, str], problems: list[Problem]) -> None:
    if "ca-cert" not in values:
        return
    if texts.get("provider-uri", "").lower().startswith("http:"):
        what = "The variable ca-cert is declared, and provider-uri begins with http: where no certificate is shown."
        problems.append(Problem(what, "Set an address that begins with https:."))
    check_authorities("ca-cert", texts, problems)


def _parse_lifetime(texts: Mapping[str, str], problems: list[Problem]) -> int:
    text = texts.get("token-ttl", "").strip()
    if not text:
        return LIFETIME
    match = _DURATION.fullmatch(text)
    seconds = 0 if match is None else sum(int(n or 0) * each for n, each in zip(match.groups(), _SECONDS, strict=True))
    if not seconds:
        what = f"The variable token-ttl is {quote_text(text)}, which is no duration in the form of ISO 8601."
        problems.append(Problem(what, "Set it to a duration such as PT60M, or remove its declaration."))
    return min(seconds, LONGEST_LIFETIME)


def _parse_scope(texts: Mapping[str, str], problems: list[Problem]) -> str:
    more = texts.get("provider-scope", "").split()
    bad = [word for word in more if not _SCOPE_TOKEN.fullmatch(word)]
    if bad:
        what = f"The variable provider-scope has {quote_text(bad[0])}, which is no scope."
        problems.append(Problem(what, "Set it to scopes with blanks between."))
    return " ".join(dict.fromkeys((*_SCOPE, *more)))


@attrs.frozen
class OidcSettingsReader:
    """The authenticators that operators have set up.

    ``enabled`` has the names ``authn-oidc/<service id>`` that the configuration lists.
    """

    store: AuthenticatorStore
    vault: Vault
    dialect: Dialect
    enabled: Collection[str]

    async def list_settings(self, account: str) -> list[OidcSetting]:
        """Return the authenticators of an account whose settings are sound, in the order of their ids; the first few."""
        try:
            check_account_name(account)
        except InvalidName:
            return []
        under = f"{self.dialect.prefix}/{NAME}"
        found: list[str] = []
        # Each may have a ``status`` beside it.
        for webservice, switched in await self.store.list_account_webservices(account, under, 2 * OFFERS_LIMIT):
            service_id = webservice.identifier.removeprefix(f"{under}/")
            listed = f"{NAME}/{service_id}" in self.enabled
            if service_id.endswith("/status") or len(found) == OFFERS_LIMIT:
                continue
            if self.dialect.lists_disabled_providers or self.dialect.is_enabled(listed, switched):
                found.append(service_id)
        read = [await self._read_setting(account, service_id) for service_id in found]
        return [setting for setting in read if setting is not None]

    async def _read_setting(self, account: str, service_id: str) -> OidcSetting | None:
        branch = f"{self.dialect.prefix}/{NAME}/{service_id}"
        settings = await self.store.read_settings(account, branch, VARIABLES)
        meaning = parse_oidc_values(open_values(account, branch, settings, self.vault), self.dialect)
        if not isinstance(meaning, OidcConfiguration) or (
            meaning.client is None and not self.dialect.lists_device_endpoints
        ):
            return None
        return OidcSetting(
            service_id,
            meaning.name or _default_title(service_id),
            meaning.provider,
            meaning.client_id,
            meaning.scope,
            meaning.client,
            takes_tokens=meaning.token_claim is not None,
        )


def _default_title(service_id: str) -> str:
    """Return the name of an authenticator that has none: its id, each word with a capital."""
    return " ".join(word.capitalize() for word in service_id.replace("-", " ").replace("_", " ").split())
