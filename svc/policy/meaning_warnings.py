"""Warnings about privileges and annotations that can't mean what their author may think (POL-107 to POL-111).

They are no faults: programs may check privileges of their own, and annotations may be for somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from svc.model.authorization import INSPECT
from svc.model.credentials import API_KEY_ANNOTATION, forbids_api_key
from svc.model.expiration import LIFETIME, ROTATION_LIFETIME, ROTATOR, Duration
from svc.model.names import ACTOR_KINDS, RESOURCE_KINDS
from svc.model.policy_loads import AnnotationRow
from svc.policy.document import shorten_text
from svc.policy.ids import is_padded
from svc.policy.resolved_policy import PermitProduct

#: The privileges that the service checks, or that its clients do.
PRIVILEGES: Final = ("read", "execute", "update", "create", "delete", "authenticate", INSPECT)

#: The rotators that there are.
ROTATORS: Final = ("postgresql/password",)

#: The annotations that authenticators read, by the last part of their names.
GOOGLE: Final = "authn-gcp"
GOOGLE_ANNOTATIONS: Final = ("project-id", "instance-name", "service-account-id", "service-account-email")
CLOUD_ANNOTATIONS: Final = ("subscription-id", "resource-group", "user-assigned-identity", "system-assigned-identity")

#: Annotations that begin otherwise have no meaning here.
_CONCERNED: Final = ("authn", "expiration", "rotation")

#: How many of a kind of warning there are, before the others are only counted.
_MOST: Final = 100


def warn_of_privileges(permitted: Iterable[PermitProduct]) -> Iterator[str]:
    """Return warnings about privileges that nothing checks, such as misspelt ones."""
    kinds: dict[str, set[str]] = {}
    for product in permitted:
        for privilege in product.privileges:
            if privilege not in PRIVILEGES and not is_padded(privilege):
                kinds.setdefault(privilege, set()).update(full.split(":", 2)[1] for full in product.resources)
    yield from _limit_warnings(
        [
            f"The privilege '{shorten_text(privilege)}' is none that this service checks.{meant}"
            for privilege, found in kinds.items()
            # Programs check privileges of their own on webservices, and on kinds that policies made up.
            if (meant := _suggest(privilege, PRIVILEGES)) or found & (RESOURCE_KINDS - {"webservice"})
        ]
    )


def warn_of_annotations(rows: Iterable[AnnotationRow], cloud: str, describe: Callable[[str], str]) -> Iterator[str]:
    """Return warnings about annotations; ``cloud`` is the name of the cloud authenticator, ``describe`` that of a record."""
    read = {GOOGLE: GOOGLE_ANNOTATIONS, cloud: CLOUD_ANNOTATIONS}
    warnings, bound, keyless = [], dict[str, None](), set[str]()
    for row in rows:
        first, slash, rest = row.name.partition("/")
        if not slash or not first.startswith(_CONCERNED):
            continue
        kind = row.resource.split(":", 2)[1]
        if kind == "variable" and first in {"expiration", "rotation"}:
            fault = _find_variable_fault(row)
            warnings += [f"The annotation '{row.name}' of {describe(row.resource)} {fault}"] if fault else []
        elif kind in ACTOR_KINDS and first.startswith("authn"):
            if forbids_api_key(row.name, row.value):
                keyless.add(row.resource)
            elif row.name != API_KEY_ANNOTATION and kind == "host" and row.value:
                bound[row.resource] = None
            beginning, _, last = rest.rpartition("/")
            if first in read and row.value and last not in read[first] and not (first == GOOGLE and beginning):
                under = f"{first}/{beginning}/" if beginning else f"{first}/"
                meant = _suggest(last, read[first], under)
                name = f"The annotation '{shorten_text(row.name)}' of {describe(row.resource)}"
                warnings.append(f"{name} is none that {first} reads.{meant}")
    yield from _limit_warnings(warnings)
    yield from _limit_warnings(
        [
            f"{describe(host)} has claims to check, and an API key besides: '{API_KEY_ANNOTATION}: false' leaves it none."
            for host in bound
            if host not in keyless
        ]
    )


def _find_variable_fault(row: AnnotationRow) -> str | None:
    """Return the end of a sentence about an annotation of expiration or rotation that can't be used."""
    if row.name == ROTATOR and row.value not in ROTATORS:
        return f"names no rotator; there is {', '.join(ROTATORS)}.{_suggest(row.value, ROTATORS)}"
    if row.name in {LIFETIME, ROTATION_LIFETIME}:
        try:
            Duration.parse(row.value)
        except ValueError as error:
            return f"{error}."
    return None


def _suggest(text: str, known: Collection[str], under: str = "") -> str:
    """Return a question for what may have been meant; nothing if nothing is alike."""
    alike = get_close_matches(text[:64].lower(), known, 1, 0.6)
    return f" Did you mean '{under}{alike[0]}'?" if alike else ""


def _limit_warnings(warnings: list[str]) -> Iterator[str]:
    yield from warnings[:_MOST]
    if len(warnings) > _MOST:
        yield f"There are {len(warnings) - _MOST} other warnings of this kind."
