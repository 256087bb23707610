"""Names of accounts, roles and resources, ``account:kind:identifier``, as types that are always well formed."""

from __future__ import annotations

import functools
import re
from typing import ClassVar, Final, Self

import attrs

from svc.model.errors import InvalidName

#: Longest identifier, in bytes of UTF-8, unless the configuration says otherwise (NAME-7).
IDENTIFIER_LIMIT: Final = 1024

#: Longest account name, in bytes of UTF-8: a key of two full ids and a privilege must fit into a page of an index.
ACCOUNT_LIMIT: Final = 128

#: The account of those who administer accounts. It is no tenant's: it is made on the command line alone, and never listed.
RESERVED_ACCOUNT: Final = "!"

#: The account of the program's own records: no account can have this name, and no request can name it.
INTERNAL_ACCOUNT: Final = "/"

#: Kinds that are both a role and a resource.
ROLE_KINDS: Final = frozenset({"user", "host", "group", "layer", "policy", "host_factory"})

#: Kinds of which there are resources and no roles.
THING_KINDS: Final = frozenset({"variable", "webservice", "public_key", "configuration"})

#: Every kind that has a meaning here. Policies may make up others, which are both a role and a resource (NAME-30).
RESOURCE_KINDS: Final = ROLE_KINDS | THING_KINDS

#: Kinds of role that can log in.
ACTOR_KINDS: Final = frozenset({"user", "host"})

#: Kinds of role that can log in, or make others that can.
ACTING_KINDS: Final = ACTOR_KINDS | {"host_factory"}

#: The form of a kind that policies made up (NAME-30).
OTHER_KIND: Final = "[A-Za-z0-9_-]{1,64}"
_OTHER_KIND = re.compile(OTHER_KIND)

_ACCOUNT = re.compile(r"[^\s:/\x00-\x1f\x7f]+")


def is_other_kind(text: str) -> bool:
    """Return whether a text can be a kind that policies make up: it may not look like one of ours (NAME-30)."""
    return _OTHER_KIND.fullmatch(text) is not None and find_similar_kind(text) is None


def find_similar_kind(text: str) -> str | None:
    """Return the kind with a meaning here that a text is or looks like; ``None`` if there is none."""
    return _SPELLINGS.get(_fold_spelling(text))


def is_kind(text: str) -> bool:
    """Return whether there can be resources of this kind."""
    return text in RESOURCE_KINDS or is_other_kind(text)


def is_role_kind(text: str) -> bool:
    """Return whether there can be roles of this kind; policies make up no other kinds (NAME-30)."""
    return is_kind(text) and text not in THING_KINDS


def kind_sort_key(kind: str) -> str:
    """Return a sort key that orders kinds as full ids are: some characters of kinds come before a colon in byte order."""
    return f"{kind}:"


def _fold_spelling(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "")


#: Our kinds by their folded spellings, also in the plural.
_SPELLINGS: Final = {
    spelling: kind
    for kind in RESOURCE_KINDS
    for folded in [_fold_spelling(kind)]
    for spelling in (folded, f"{folded}s", f"{folded[:-1]}ies" if folded.endswith("y") else folded)
}


def check_account_name(text: str) -> str:
    """Return ``text`` when it can name an account.

    :raises InvalidName: it is empty, too long, or holds a blank, a control character, a colon or a slash.
    """
    if not _ACCOUNT.fullmatch(text) or (len(text) if text.isascii() else _utf8_size(text, "account")) > ACCOUNT_LIMIT:
        raise InvalidName(
            "account", f"an account name is 1 to {ACCOUNT_LIMIT} bytes without blanks, colons, slashes or control characters"
        )
    return text


def check_identifier(text: str, limit: int = IDENTIFIER_LIMIT) -> str:
    """Return ``text`` when it can be the identifier of a role or resource.

    :raises InvalidName: it is empty, longer than ``limit`` bytes, holds NUL, or is not valid Unicode.
    """
    if not text:
        raise InvalidName("id", "an identifier may not be empty")
    if "\x00" in text:
        raise InvalidName("id", "an identifier may not hold a NUL character")
    if (len(text) if text.isascii() else _utf8_size(text, "id")) > limit:
        raise InvalidName("id", f"an identifier is at most {limit} bytes long")
    return text


def _utf8_size(text: str, parameter: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidName(parameter, "a name must be valid Unicode") from None


@attrs.frozen(order=True, slots=True)
class _Name:
    _refused: ClassVar[frozenset[str]]

    account: str
    kind: str
    identifier: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``account:kind:identifier``; the identifier may hold further colons.

        :raises InvalidName: the text has fewer than three parts, or one of them is not well formed.
        """
        parts = text.split(":", 2)
        if len(parts) != 3:
            raise InvalidName("id", "a full id has the form account:kind:identifier")
        return cls.from_parts(*parts)

    @classmethod
    def from_parts(cls, account: str, kind: str, ident: str) -> Self:
        """Make a name from parts that came from outside, each checked.

        :raises InvalidName: one of them is not well formed, or the kind is not one of this type's.
        """
        if kind in cls._refused or (kind not in RESOURCE_KINDS and not is_other_kind(kind)):
            raise InvalidName("kind", f"unknown kind {kind[:40]!r}")
        return cls(check_account_name(account), kind, check_identifier(ident))

    def __str__(self) -> str:
        return f"{self.account}:{self.kind}:{self.identifier}"

    @functools.cached_property
    def full_id(self) -> str:
        """The text of the name, which is kept for as long as the name: for one that is written several times."""
        return f"{self.account}:{self.kind}:{self.identifier}"


@attrs.frozen(order=True, slots=True)
class RoleName(_Name):
    """The name of something that can hold privileges: user, host, group, layer, policy, host factory, and what has a kind
    that policies made up.
    """

    _refused = THING_KINDS

    @classmethod
    def from_login(cls, account: str, login: str) -> RoleName:
        """Read a login: ``alice`` and ``user/alice`` are users, ``host/a/b`` is a host.

        Any other first segment belongs to the identifier of a user (NAME-13).

        :raises InvalidName: the account or the rest is not well formed.
        """
        kind, slash, rest = login.partition("/")
        return (
            cls.from_parts(account, kind, rest) if slash and kind in ACTOR_KINDS else cls.from_parts(account, "user", login)
        )

    @property
    def login(self) -> str:
        """Return the name with which the role logs in, and the ``sub`` of its tokens; ``from_login`` reads it back."""
        if self.kind == "user" and not self.identifier.startswith(("user/", "host/")):
            return self.identifier
        return f"{self.kind}/{self.identifier}"

    @property
    def resource(self) -> ResourceName:
        """Return the resource of the same name, through which this role is seen and administered."""
        return ResourceName(self.account, self.kind, self.identifier)


@attrs.frozen(order=True, slots=True)
class ResourceName(_Name):
    """The name of something that privileges are held on; every role has one too."""

    _refused = frozenset[str]()

    @property
    def role(self) -> RoleName:
        """Return the role of the same name.

        :raises InvalidName: things of this kind are no roles.
        """
        if not is_role_kind(self.kind):
            raise InvalidName("kind", f"a {self.kind} is not a role")
        return RoleName(self.account, self.kind, self.identifier)


def admin_of(account: str) -> RoleName:
    """Return the role that owns the account."""
    return RoleName(account, "user", "admin")


def root_policy(account: str) -> RoleName:
    """Return the policy at the root of the account, owned by its admin."""
    return RoleName(account, "policy", "root")


#: The resource with the privileges to make, list and delete accounts.
ACCOUNTS_WEBSERVICE: Final = ResourceName(RESERVED_ACCOUNT, "webservice", "accounts")
