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

#: How many texts of a kind of warning are compared with the known ones, which takes long, in one document.
SUGGESTIONS_MOST: Final = 100

#: The kinds on whose records programs check no privileges of their own.
_CHECKED_KINDS: Final = RESOURCE_KINDS - {"webservice"}


class _Suggestions:
    """Suggestions of what may be meant: each text is compared once, and only so many of a document (POL-113)."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Collection[str]], str] = {}

    def find(self, text: str, known: Collection[str]) -> str | None:
        """Return which of the known texts may be meant, an empty one if none is alike; ``None`` if it isn't compared."""
        key = (text[:64].lower(), known)
        if key not in self._found:
            if len(self._found) == SUGGESTIONS_MOST:
                return None
            self._found[key] = next(iter(get_close_matches(key[0], known, 1, 0.6)), "")
        return self._found[key]

    def ask(self, text: str, known: Collection[str], under: str = "") -> str:
        """Return a question for what may have been meant; nothing if nothing is alike."""
        return _ask_meant(self.find(text, known), under)


class _LimitedWarnings:
    """The warnings of a kind, of which only the first are written, and the others counted."""

    def __init__(self) -> None:
        self._written: list[str] = []
        self._others = 0

    def take_place(self) -> bool:
        """Return whether one more is to be written; if not, it is counted."""
        is_free = len(self._written) < _MOST
        self._others += not is_free
        return is_free

    def append(self, warning: str) -> None:
        """Take a warning for which there is a place."""
        self._written.append(warning)

    def list_all(self) -> list[str]:
        """Return the warnings, and the number of the others."""
        return [*self._written, *([f"There are {self._others} other warnings of this kind."] if self._others else ())]


def warn_of_privileges(permitted: Iterable[PermitProduct]) -> Iterator[str]:
    """Return warnings about privileges that nothing checks, such as misspelt ones."""
    #: Whether they are permitted on a kind on which only the service checks privileges.
    unknown: dict[str, bool] = {}
    for product in permitted:
        others = [each for each in product.privileges if each not in PRIVILEGES and not is_padded(each)]
        if others:
            is_ours = not _CHECKED_KINDS.isdisjoint(full.split(":", 2)[1] for full in product.resources)
            for privilege in others:
                unknown[privilege] = unknown.get(privilege, False) or is_ours
    warnings, suggestions, uncompared = _LimitedWarnings(), _Suggestions(), 0
    for privilege, is_ours in unknown.items():
        # Programs check privileges of their own on webservices, and on kinds that policies made up.
        if not is_ours and not (meant := suggestions.find(privilege, PRIVILEGES)):
            uncompared += meant is None
        elif warnings.take_place():
            question = suggestions.ask(privilege, PRIVILEGES)
            warnings.append(f"The privilege '{shorten_text(privilege)}' is none that this service checks.{question}")
    yield from warnings.list_all()
    if uncompared:
        yield f"{uncompared} other privileges were not compared with those that this service checks."


def warn_of_annotations(rows: Iterable[AnnotationRow], cloud: str, describe: Callable[[str], str]) -> Iterator[str]:
    """Return warnings about annotations; ``cloud`` is the name of the cloud authenticator, ``describe`` that of a record."""
    read = {GOOGLE: GOOGLE_ANNOTATIONS, cloud: CLOUD_ANNOTATIONS}
    warnings, suggestions, bound, keyless = _LimitedWarnings(), _Suggestions(), dict[str, None](), set[str]()
    for row in rows:
        first, slash, rest = row.name.partition("/")
        if not slash or not first.startswith(_CONCERNED):
            continue
        kind = row.resource.split(":", 2)[1]
        if kind == "variable" and first in {"expiration", "rotation"}:
            fault = _find_variable_fault(row)
            if fault and warnings.take_place():
                meant = suggestions.ask(row.value, ROTATORS) if row.name == ROTATOR else ""
                warnings.append(f"The annotation '{row.name}' of {describe(row.resource)} {fault}{meant}")
        elif kind in ACTOR_KINDS and first.startswith("authn"):
            if forbids_api_key(row.name, row.value):
                keyless.add(row.resource)
            elif row.name != API_KEY_ANNOTATION and kind == "host" and row.value:
                bound[row.resource] = None
            beginning, _, last = rest.rpartition("/")
            is_read = first not in read or not row.value or last in read[first] or (first == GOOGLE and bool(beginning))
            if not is_read and warnings.take_place():
                under = f"{first}/{beginning}/" if beginning else f"{first}/"
                meant = suggestions.ask(last, read[first], under)
                name = f"The annotation '{shorten_text(row.name)}' of {describe(row.resource)}"
                warnings.append(f"{name} is none that {first} reads.{meant}")
    yield from warnings.list_all()
    several = _LimitedWarnings()
    for host in bound:
        if host not in keyless and several.take_place():
            also = "has claims to check, and an API key besides"
            several.append(f"{describe(host)} {also}: '{API_KEY_ANNOTATION}: false' leaves it none.")
    yield from several.list_all()


def _find_variable_fault(row: AnnotationRow) -> str | None:
    """Return the end of a sentence about an annotation of expiration or rotation that can't be used."""
    if row.name == ROTATOR and row.value not in ROTATORS:
        return f"names no rotator; there is {', '.join(ROTATORS)}."
    if row.name in {LIFETIME, ROTATION_LIFETIME}:
        try:
            Duration.parse(row.value)
        except ValueError as error:
            return f"{error}."
    return None


def _ask_meant(meant: str | None, under: str) -> str:
    return f" Did you mean '{under}{meant}'?" if meant else ""
