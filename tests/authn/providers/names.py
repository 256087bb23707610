"""A name service that answers as a test tells it to."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IHostnameResolver, IHostResolution, IResolutionReceiver
from zope.interface import implementer


@implementer(IHostResolution)
class Looking:
    """A look-up under way."""

    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        """Can't be."""
        raise NotImplementedError


@implementer(IHostnameResolver)
class Names:
    """Gives each look-up, of whatever name, the next of its answers, and the last one ever after.

    An answer is a list of addresses, or ``None`` for a look-up that waits: its receiver is put into ``waiting``.
    """

    def __init__(self, *answers: Sequence[str] | None) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.waiting: list[IResolutionReceiver] = []

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,  # noqa: N803 - Twisted's names
        hostName: str,  # noqa: N803
        portNumber: int = 0,  # noqa: N803
        addressTypes: Sequence[type[IAddress]] | None = None,  # noqa: N803
        transportSemantics: str = "TCP",  # noqa: N803
    ) -> IHostResolution:
        """Tell the addresses."""
        self.asked.append(hostName)
        looking = Looking(hostName)
        resolutionReceiver.resolutionBegan(looking)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            self.waiting.append(resolutionReceiver)
            return looking
        for text in answer:
            kind = IPv6Address if ":" in text else IPv4Address
            resolutionReceiver.addressResolved(kind("TCP", text, portNumber))
        resolutionReceiver.resolutionComplete()
        return looking
