"""The rules for names, references and annotations in requests of the newer interface (NEWER-12)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from svc.model.errors import Unprocessable
from svc.model.names import RoleName, root_policy
from svc.model.text import quote_text

_NAME: Final = re.compile("[A-Za-z0-9_-]{1,60}")
_PATH: Final = re.compile("[A-Za-z0-9_/-]{1,500}")
_USER: Final = re.compile("[A-Za-z0-9_/@-]{1,500}")
_ANNOTATION: Final = re.compile("[^<>'\x00\ud800-\udfff]{1,120}")

#: How many elements an id may have, and how many characters.
DEPTH_MOST: Final = 15
ID_MOST: Final = 950

#: The kinds of roles that may own a branch, and that may be members of a group.
OWNERS: Final = ("host", "user", "group", "policy")
MEMBERS: Final = ("host", "user", "group")


def refuse_faults(faults: Iterable[str]) -> None:
    """Refuse a request that has faults, with all of them in one sentence.

    :raises Unprocessable: there are some.
    """
    *others, last = [*faults] or [""]
    if not last:
        return
    comma = "," if len(others) > 1 else ""
    raise Unprocessable(f"{', '.join(others)}{comma} and {last}" if others else last)


def wrong_name(name: object) -> Iterator[str]:
    """Return what is wrong with the name of a new record."""
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        yield f"Name Wrong name {_quote_value(name)}"


def wrong_path(path: object) -> Iterator[str]:
    """Return what is wrong with the path of a branch; the slash alone stands for the root."""
    if not (isinstance(path, str) and _PATH.fullmatch(path)):
        yield f"Branch Wrong path {_quote_value(path)}"


def wrong_role(kind: object, ident: object, kinds: Sequence[str], what: str) -> Iterator[str]:
    """Return what is wrong with the kind and the id of an owner or a member."""
    if kind not in kinds:
        yield f"Kind {_quote_value(kind)} is not a valid {what} kind"
    pattern = _USER if kind == "user" else _PATH
    if not (isinstance(ident, str) and pattern.fullmatch(ident) and ident.strip("/")):
        yield f"Id Wrong path {_quote_value(ident)}"


def wrong_annotations(annotations: object) -> Iterator[str]:
    """Return what is wrong with annotations."""
    if not isinstance(annotations, Mapping):
        yield "Annotations should be an object"
        return
    for key, value in annotations.items():
        if not _ANNOTATION.fullmatch(key):
            yield f"Annotation key {_quote_value(key)} should have 1 to 120 characters without <, > and '"
        elif not isinstance(value, str):
            yield f"{key[:1].upper()}{key[1:]} should have string value but got {str(value)[:100]}"
        elif not _ANNOTATION.fullmatch(value):
            yield f"Annotation {key} should have a value of 1 to 120 characters without <, > and '"


def wrong_id(identifier: str) -> Iterator[str]:
    """Return what is wrong with the whole id of a new record."""
    if identifier.count("/") >= DEPTH_MOST:
        yield f"The number of identifier nesting exceeds maximum depth of {DEPTH_MOST}"
    if len(identifier) > ID_MOST:
        yield f"The identifier exceeds the maximum length of {ID_MOST}"


def branch_at(account: str, path: str) -> RoleName:
    """Return the policy at a path: ``/``, ``root`` and ``/root`` stand for that at the root."""
    identifier = path.removeprefix("/")
    return RoleName.from_parts(account, "policy", identifier) if identifier else root_policy(account)


def is_root(branch: RoleName) -> bool:
    """Return whether a branch is the one at the root."""
    return branch == root_policy(branch.account)


def branch_around(account: str, identifier: str) -> RoleName:
    """Return the branch that holds a thing by its id; it may not exist."""
    folder, slash, _ = identifier.rpartition("/")
    return RoleName.from_parts(account, "policy", folder) if slash and folder else root_policy(account)


def id_within(branch: RoleName, name: str) -> str:
    """Return the id of a record with a name in a branch."""
    return name if is_root(branch) else f"{branch.identifier}/{name}"


def path_of(branch: RoleName) -> str:
    """Return the path of a branch as answers have it."""
    return "/" if is_root(branch) else branch.identifier


def relative_id(branch: RoleName, identifier: str) -> str:
    """Return an id as it is written in a document for a branch."""
    return identifier if is_root(branch) else identifier.removeprefix(f"{branch.identifier}/")


def _quote_value(value: object) -> str:
    return quote_text(value) if isinstance(value, str) else f"'{str(value)[:100]}'"
