"""The role that a query names, or the caller, as several routes read it."""

from __future__ import annotations

from typing import Final

from svc.model.errors import CredentialUnknown, InvalidName, InvalidParameter
from svc.model.names import ROLE_KINDS, RoleName, is_role_kind
from svc.services.credentials import Named
from svc.web.http.declarations import Parameter
from svc.web.http.routing import Call

ROLE: Final = Parameter.text("role", "the role, kind:id or account:kind:id; without it, the caller", late=True)


def named_role(call: Call, account: str) -> Named:
    """Return what reads the role that the query names, ``kind:id`` or ``account:kind:id``."""

    def read_role() -> RoleName | None:
        text = call.read_late(ROLE)
        if not text:
            return None
        first, colon, rest = text.partition(":")
        if not colon:
            raise InvalidParameter("role", "'role' has the form kind:id or account:kind:id")
        kind, inner, identifier = rest.partition(":")
        with_account = inner and (kind in ROLE_KINDS or first not in ROLE_KINDS)
        full = (first, kind, identifier) if with_account else (account, first, rest)
        if not is_role_kind(full[1]):
            raise CredentialUnknown(":".join(full))
        try:
            return RoleName.from_parts(*full)
        except InvalidName as refusal:
            raise InvalidParameter("role", f"'role': {refusal.message}") from None

    return read_role
