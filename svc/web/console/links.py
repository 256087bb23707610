"""Where the pages of the console are, and which of them a browser may be sent back to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, urlencode

from svc.model.refusals import RefusalGroup

HOME: Final = "/ui"
SIGN_IN: Final = "/ui/sign-in"
PROVIDER: Final = "/ui/sign-in/provider"
CALLBACK: Final = "/ui/sign-in/callback"
SEARCH: Final = "/ui/resources"
POLICIES: Final = "/ui/policies"
AUDIT: Final = "/ui/audit"
AUTHENTICATORS: Final = "/ui/authenticators"
CHANGE: Final = "/ui/change"
EXPIRING: Final = "/ui/expiring"
REFUSALS: Final = "/ui/refusals"
UNUSED: Final = "/ui/unused"
LOGIN_EXPLAINED: Final = "/ui/explain-login"

#: A path of the console, perhaps with a query: nothing that a browser could read as another site's.
_RETURN_PATH: Final = re.compile(r"/ui(?:[/?][!-\[\]-~]*)?", re.ASCII)
_MAX_RETURN_LENGTH: Final = 2000

#: Path segments that a browser would drop or resolve upwards.
_DOTS: Final = frozenset({"", ".", ".."})


def return_path(target: str) -> str:
    """Return where to go on after signing in: a request's target if it is a page of the console, else the first page."""
    fits = len(target) <= _MAX_RETURN_LENGTH and _RETURN_PATH.fullmatch(target) and not target.startswith("/ui/sign-")
    path = target.partition("?")[0]
    return target if fits and "//" not in path and not _DOTS.intersection({".", ".."}, path.split("/")) else HOME


def sign_in(target: str) -> str:
    """Return the path of the page to sign in, to go on at a target."""
    back = return_path(target)
    return SIGN_IN if back == HOME else f"{SIGN_IN}?{urlencode({'to': back}, safe='/')}"


def resource(full_id: str) -> str:
    """Return the path of a resource's page."""
    return f"/ui/resources/{_quote_full_id(full_id)}"


def role(full_id: str) -> str:
    """Return the path of a role's page."""
    return f"/ui/roles/{_quote_full_id(full_id)}"


def policy(full_id: str) -> str:
    """Return the path of a policy's place in the tree."""
    return f"{POLICIES}/{_quote_full_id(full_id)}"


def audit(filters: Mapping[str, str]) -> str:
    """Return the path of the audit's page, with these filters."""
    return with_query(AUDIT, filters.items())


def audit_of_load(full_id: str, version: int) -> str:
    """Return the path of the audit's page with what the load changed that made this version of a policy."""
    return audit({"load": f"{full_id}@{version}"})


def authenticator(name: str) -> str:
    """Return the path of an authenticator's page, by its name: its type and service id."""
    kind, slash, service_id = name.partition("/")
    return f"{AUTHENTICATORS}/{kind}{slash}{quote(service_id, safe='')}"


def refusals(sort: RefusalGroup) -> str:
    """Return the path of the page of recent refusals, with those of one sort."""
    names = (("reason", sort.reason), ("authenticator", sort.authenticator), ("service", sort.service_id))
    return with_query(REFUSALS, names)


def with_query(path: str, pairs: Iterable[tuple[str, object]]) -> str:
    """Return a path with a query of what has a value."""
    query = urlencode([(name, str(value)) for name, value in pairs if value not in {None, ""}], quote_via=quote)
    return f"{path}?{query}" if query else path


def _quote_full_id(full_id: str) -> str:
    """Return an id as the end of a path, with slashes as they are, unless a browser would take them for something else."""
    account, kind, identifier = full_id.split(":", 2)
    safe = "" if _DOTS.intersection(identifier.split("/")[1:]) else "/"
    return f"{quote(account, safe='')}:{kind}:{quote(identifier, safe=safe)}"
