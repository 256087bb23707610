"""Which authenticators of OpenID Connect an account has, and whether their settings are sound."""

from __future__ import annotations

from typing import Final

import attrs
from zope.interface import implementer

from svc.authn.oidc_settings import NAME, VARIABLES, OidcConfiguration, configuration_of
from svc.authn.settings import opened
from svc.crypto.vault import Vault
from svc.model.authentication import IAuthenticatorReadings, IAuthenticators
from svc.model.dialect import Dialect
from svc.model.errors import InvalidName
from svc.model.names import account_name
from svc.model.oidc import IOidcSettings, OidcSetting

#: The authenticators of an account that are looked at.
OFFERED: Final = 20


@implementer(IOidcSettings)
@attrs.frozen
class OidcSettingsReader:
    """Provides ``IOidcSettings``; ``enabled`` has the names ``authn-oidc/<service id>`` that the configuration lists."""

    readings: IAuthenticatorReadings
    store: IAuthenticators
    vault: Vault
    dialect: Dialect
    enabled: frozenset[str]

    async def settings(self, account: str) -> list[OidcSetting]:
        """See ``IOidcSettings``."""
        try:
            account_name(account)
        except InvalidName:
            return []
        under = f"{self.dialect.prefix}/{NAME}"
        found: list[str] = []
        # Each may have a ``status`` beside it.
        for webservice, switched in await self.store.account_webservices(account, under, 2 * OFFERED):
            service_id = webservice.identifier.removeprefix(f"{under}/")
            listed = f"{NAME}/{service_id}" in self.enabled
            if service_id.endswith("/status") or len(found) == OFFERED:
                continue
            if self.dialect.lists_disabled_providers or self.dialect.enables(listed, switched):
                found.append(service_id)
        read = [await self._setting(account, service_id) for service_id in found]
        return [setting for setting in read if setting is not None]

    async def _setting(self, account: str, service_id: str) -> OidcSetting | None:
        branch = f"{self.dialect.prefix}/{NAME}/{service_id}"
        settings = await self.readings.settings(account, branch, VARIABLES)
        meaning = configuration_of(opened(account, branch, settings, self.vault), self.dialect)
        if not isinstance(meaning, OidcConfiguration) or (meaning.client is None and not self.dialect.tells_devices):
            return None
        return OidcSetting(
            service_id,
            meaning.name or _title(service_id),
            meaning.provider,
            meaning.client_id,
            meaning.scope,
            meaning.client,
            takes_tokens=meaning.token_claim is not None,
        )


def _title(service_id: str) -> str:
    """Return the name of an authenticator that has none: its id, each word with a capital."""
    return " ".join(word.capitalize() for word in service_id.replace("-", " ").replace("_", " ").split())
