"""Values and port of logins with a signed request of AWS."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from zope.interface import Interface

from svc.model.errors import Refusal


@attrs.frozen
class SignedRequest:
    """A request for ``GetCallerIdentity`` that a workload has signed, of which nothing is verified.

    ``host`` is where it is for. ``headers`` are those that are sent, by their names in lower case, without ``host``.
    ``key_id`` is the id of the access key. ``signed_at`` is in seconds since the epoch.
    """

    host: str
    key_id: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    signature: str = attrs.field(repr=False)
    signed_at: float


@attrs.frozen(str=False)
class StsUnavailable(Refusal):
    """The Security Token Service could not be asked, or gave no answer that can be used. ``why`` is for the log.

    ``answered``: something answered.
    """

    why: str
    answered: bool = False


@attrs.frozen(str=False)
class StsRefused(Refusal):
    """The Security Token Service doesn't take the signature. ``code`` is that of its error."""

    code: str


class IUsedSignatures(Interface):
    """Signatures with which somebody has logged in, as far as they could be used again."""

    async def is_used(signature: str, address: str, again: float) -> bool:
        """Return whether it was used: elsewhere than at this address, or more than ``again`` seconds ago.

        :raises StoreUnavailable: that can't be determined now.
        """

    async def claim_signature(signature: str, address: str, again: float, lasting: float) -> bool:
        """Note that it is used, for as many seconds as it could be used again, unless it was; return whether it wasn't.

        :raises StoreUnavailable: that can't be determined now, or there is no room.
        """
