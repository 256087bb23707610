"""Ids relative to policies, and full ids (POL-24 to POL-31).

A *path* is the id with all policies around it in front: ``prod/db/password``. It is the identifier, but for users.
"""

from __future__ import annotations

from typing import Final

from svc.model.names import RoleName, admin_of, root_policy

PUBLIC_KEY: Final = "public_key"
#: Kinds whose ids don't begin with that of the policy in which they are declared.
USER_KINDS: Final = frozenset({"user", PUBLIC_KEY})


def join_path(namespace: str, ident: str) -> str:
    """Return the path of an id that is written in the policy ``namespace``, which is empty for the root.

    The blank id is the policy's own. The result is empty when there is no name.
    """
    if not ident:
        return namespace
    return f"{namespace}/{ident}" if namespace else ident


def resolve_parents(path: str) -> str | None:
    """Return the path with its ``..`` elements resolved, or ``None`` when they lead to the root or beyond."""
    if ".." not in path:
        return path
    elements: list[str] = []
    for element in path.split("/"):
        if element != "..":
            elements.append(element)
        elif elements:
            elements.pop()
        else:
            return None
    return "/".join(elements) or None


def is_rewritten(identifier: str) -> bool:
    """Return whether an id has parts that proxies remove from paths, leaving another id: ``//``, ``.`` or ``..``."""
    return "//" in identifier or ("." in identifier and not {".", ".."}.isdisjoint(identifier.split("/")))


def is_padded(text: str) -> bool:
    """Return whether a text is blank, or begins or ends with a blank, and so is not what its author sees."""
    return not text or text != text.strip()


def identifier_of(kind: str, path: str) -> str:
    """Return the identifier of the thing at a path. Users are folded: ``prod/db/bob`` is ``bob@prod-db``."""
    if kind != "user":
        return path
    namespace, slash, name = path.rpartition("/")
    return f"{name}@{namespace.replace('/', '-')}" if slash else name


def is_inside(policy: RoleName, kind: str, identifier: str) -> bool:
    """Return whether a name lies beneath ``policy``, or, for the root policy, anywhere but above it.

    The policy itself doesn't: its role may hold what others gave to it, and a role that may only load it is not its owner.
    Nor does any user: ``bob@a-b`` may be of ``a/b``, of ``a-b``, or of the root; nor any public key, which is named like its
    user.
    """
    if policy == root_policy(policy.account):
        return (kind, identifier) not in {("user", admin_of(policy.account).identifier), ("policy", policy.identifier)}
    return kind not in USER_KINDS and identifier.startswith(f"{policy.identifier}/")


def has_policy_id(policy: RoleName, kind: str, identifier: str) -> bool:
    """Return whether a thing has the id of ``policy``: in its body without an id, or beside it, as a host may be."""
    return kind not in USER_KINDS and kind != "policy" and identifier == policy.identifier
