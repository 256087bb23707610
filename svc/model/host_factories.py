"""Values of host factories: tokens with which machines make hosts of their own (HF-3, HF-11)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from typing import Final

import attrs

from svc.model.events import EventBatch
from svc.model.names import RoleName
from svc.model.query_results import is_within

_NAME: Final = re.compile("sha256:[0-9a-f]{12}")


@attrs.frozen
class FactoryToken:
    """A host factory's token without its text; ``expires_at`` in epoch seconds; no ``networks`` (CIDR) means all."""

    factory: RoleName
    expires_at: float
    networks: tuple[str, ...] = ()

    def admits_address(self, client_ip: str) -> bool:
        """Return whether it may be used from an address; one of the other family is in no network."""
        return not self.networks or is_within(client_ip, map(ip_network, self.networks))


def digest_token(token: str) -> bytes:
    """Return the SHA-256 of a token, by which the store finds it: a thief of the store gets no token."""
    return hashlib.sha256(token.encode("utf-8")).digest()


def name_token(digest: bytes) -> str:
    """Return the name of a token for logs and answers, which mustn't contain it: the start of a hash of 256 random bits."""
    return f"sha256:{digest.hex()[:12]}"


def is_token_name(text: str) -> bool:
    """Return whether a text has the form of a token's name, which no token has."""
    return _NAME.fullmatch(text) is not None


@attrs.frozen
class CreatedHost:
    """The outcome of making a host: whether it is ``new``, and whether it was given the API key, as policy permits."""

    new: bool
    has_key: bool
    #: The host's (see ``Caller``). Not compared: no two stores make the same.
    creation: int = attrs.field(default=0, eq=False)


@attrs.frozen
class ExpiredToken:
    """A token that was removed since it had expired: its name, as ``name_token`` returns it, and its factory."""

    name: str
    factory: RoleName


#: Returns the events of tokens that were removed.
RemovalEvents = Callable[[Sequence[ExpiredToken]], EventBatch | None]
