"""Checks of the services of a server, which ``health`` makes in rounds."""

from __future__ import annotations

from zope.interface import Attribute, Interface


class IProbe(Interface):
    """One check of one service."""

    service = Attribute("""The name in the health report: ``core``, ``authn``, …""")

    async def check() -> None:
        """Return when the service works; raise anything when it does not. The caller sets the deadline."""
