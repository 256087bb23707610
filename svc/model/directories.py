"""LDAP directories: what is to be known of one, and the seam by which it is asked whether a password is someone's."""

from __future__ import annotations

import enum
from typing import Final

import attrs
from zope.interface import Interface

from svc.model.errors import Refusal
from svc.model.reasons import Reason

#: What stands in a filter template for the login of whoever asks to be admitted.
PLACEHOLDER: Final = "%s"


class Security(enum.Enum):
    """How a connection to a directory is kept from being read; the values are those of policies (AUTH-54)."""

    #: Not at all.
    PLAIN = "plain"
    #: TLS that is asked for on a plain connection, before anything else is said (StartTLS, RFC 4511 4.14).
    START_TLS = "tls"
    #: TLS from the first byte on (LDAPS).
    TLS = "ssl"


@attrs.frozen
class LdapServer:
    """A directory, and how people are found in it.

    They stand below the entry ``base_dn``. ``filter_template`` is an LDAP filter (RFC 4515) with ``PLACEHOLDER`` for the
    login. ``bind_dn`` and ``bind_password`` are those of the account that searches; ``None`` stands for an anonymous search.
    ``ca_cert`` has the certificates, in PEM, of the only authorities to trust; ``None`` stands for the platform's.
    """

    host: str
    port: int
    security: Security
    base_dn: str
    filter_template: str
    bind_dn: str | None = None
    bind_password: bytes | None = attrs.field(default=None, repr=False)
    ca_cert: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(str=False)
class DirectoryRefused(Refusal):
    """An LDAP directory doesn't take a password, or can't be asked; raised by ``ldap``, told as a refused login.

    ``detail`` is for operators: what the directory answered, or what failed; never a password.
    """

    reason: Reason
    detail: str


class IDirectories(Interface):
    """Directories, asked over the network. Every call ends within a few seconds, whatever the other side does."""

    async def prove(server: LdapServer, login: str, password: bytes) -> None:
        """Find the one entry that a login stands for, and see that the directory takes the password for it.

        :raises DirectoryRefused: it doesn't, or it can't be asked; the reason and the detail are for the log.
        """

    async def reach(server: LdapServer) -> None:
        """Do all that comes before a search: connect, secure the connection, bind.

        :raises DirectoryRefused: that fails.
        """
