"""The providers that people are offered to log in at, read once for all requests at about the same time."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import attrs
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from svc.authn.providers.shared_work import SharedWork
from svc.model.oidc import IOidcOffers, IOidcProviders, IOidcSettings, OidcOffer, OidcSetting, ProviderUnavailable

#: Seconds for which the offers of an account are cached, and the most accounts in the cache.
FRESH: Final = 1.0
KEPT: Final = 1000


@implementer(IOidcOffers)
class OidcOffers:
    """Provides ``IOidcOffers`` by what operators have set up, and what providers say of themselves."""

    def __init__(self, settings: IOidcSettings, providers: IOidcProviders, clock: IReactorTime) -> None:
        self._settings = settings
        self._providers = providers
        self._clock = clock
        self._work: SharedWork[str, list[OidcOffer]] = SharedWork()
        self._read: OrderedDict[str, tuple[float, list[OidcOffer]]] = OrderedDict()

    async def offers(self, account: str) -> list[OidcOffer]:
        """See ``IOidcOffers``."""
        at, offers = self._read.get(account, (0.0, None))
        if offers is not None and self._clock.seconds() - at < FRESH:
            return offers
        return await self._work.done(account, lambda: self._offers(account))

    async def _offers(self, account: str) -> list[OidcOffer]:
        began = self._clock.seconds()
        found = await self._settings.settings(account)
        # One after the other, each that is away would make the others late.
        asked = gatherResults([Deferred.fromCoroutine(self._offer(setting)) for setting in found])
        offers = [offer for offer in await asked if offer is not None]
        self._read[account] = (began, offers)
        self._read.move_to_end(account)
        if len(self._read) > KEPT:
            self._read.popitem(last=False)
        return offers

    async def _offer(self, setting: OidcSetting) -> OidcOffer | None:
        try:
            metadata = await self._providers.metadata(setting.issuer)
        except ProviderUnavailable:
            return None
        return OidcOffer(**attrs.asdict(setting, recurse=False), metadata=metadata)
