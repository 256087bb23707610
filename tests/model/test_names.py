"""Names of accounts, roles and resources."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.errors import InvalidName
from svc.model.names import (
    ACCOUNT_LIMIT,
    ACTOR_KINDS,
    IDENTIFIER_LIMIT,
    INTERNAL_ACCOUNT,
    RESOURCE_KINDS,
    ROLE_KINDS,
    ResourceName,
    RoleName,
    admin_of,
    check_account_name,
    check_identifier,
    find_similar_kind,
    is_other_kind,
    root_policy,
)
from tests.strategies import ACCOUNTS, IDENTIFIERS


class AccountTests(SynchronousTestCase):
    """Names of accounts."""

    @given(ACCOUNTS)
    def test_printing_characters_name_accounts(self, text: str) -> None:
        """Any text without blanks, colons, slashes and control characters names an account (NAME-1)."""
        self.assertEqual(check_account_name(text), text)

    def test_other_texts_do_not(self) -> None:
        """An account's name isn't empty or too long, holds none of those characters, and is valid Unicode (NAME-1)."""
        for text in ("", " ", "a b", "a:b", "a/b", "a\n", "\ta", "a\x00", "a\x7f", "a\x85", "a\u2028", "a\u00a0", "\ud800"):
            refusal = self.assertRaises(InvalidName, check_account_name, text)
            self.assertEqual(refusal.parameter, "account", repr(text))

    def test_nobody_has_the_internal_account(self) -> None:
        """What belongs to the program alone can't be named (NAME-3)."""
        self.assertRaises(InvalidName, check_account_name, INTERNAL_ACCOUNT)

    def test_the_limit_is_in_bytes(self) -> None:
        """The length of an account's name counts in bytes of UTF-8 (NAME-1)."""
        self.assertEqual(check_account_name("a" * ACCOUNT_LIMIT), "a" * ACCOUNT_LIMIT)
        self.assertRaises(InvalidName, check_account_name, "a" * (ACCOUNT_LIMIT + 1))
        self.assertRaises(InvalidName, check_account_name, "é" * (ACCOUNT_LIMIT // 2 + 1))


class IdentifierTests(SynchronousTestCase):
    """Identifiers."""

    def test_nearly_anything_is_an_identifier(self) -> None:
        """Blanks, slashes, colons, plus signs and control characters may stand in an identifier, and it is left as it is
        (NAME-7).
        """
        for text in (" ", "a/b", "/a/", "a:b", "a+b", "a%2Fb", "..", "\n", "é", "😀"):
            self.assertEqual(check_identifier(text), text)

    def test_the_rest_is_refused(self) -> None:
        """An identifier isn't empty, holds no NUL, and is valid Unicode (NAME-7)."""
        for text in ("", "\x00", "a\x00b", "\ud800", "a\udfff"):
            refusal = self.assertRaises(InvalidName, check_identifier, text)
            self.assertEqual(refusal.parameter, "id", repr(text))

    def test_the_limit_is_in_bytes(self) -> None:
        """The length of an identifier counts in bytes of UTF-8, and the limit can be another one (NAME-7)."""
        self.assertEqual(check_identifier("a" * IDENTIFIER_LIMIT), "a" * IDENTIFIER_LIMIT)
        self.assertRaises(InvalidName, check_identifier, "a" * (IDENTIFIER_LIMIT + 1))
        self.assertRaises(InvalidName, check_identifier, "é" * (IDENTIFIER_LIMIT // 2) + "a")
        self.assertEqual(check_identifier("aé", 3), "aé")
        self.assertRaises(InvalidName, check_identifier, "aé", 2)


class FullNameTests(SynchronousTestCase):
    """``account:kind:identifier``."""

    @given(ACCOUNTS, st.sampled_from(sorted(ROLE_KINDS)), IDENTIFIERS)
    def test_a_role_reads_back(self, account: str, kind: str, text: str) -> None:
        """The full id of a role reads back as the same role, colons in the identifier included (NAME-10)."""
        role = RoleName.from_parts(account, kind, text)
        self.assertEqual(str(role), f"{account}:{kind}:{text}")
        self.assertEqual(RoleName.parse(str(role)), role)
        self.assertEqual(role.resource.role, role)

    @given(ACCOUNTS, st.sampled_from(sorted(RESOURCE_KINDS)), IDENTIFIERS)
    def test_a_resource_reads_back(self, account: str, kind: str, text: str) -> None:
        """The full id of a resource reads back as the same resource (NAME-10)."""
        resource = ResourceName.from_parts(account, kind, text)
        self.assertEqual(ResourceName.parse(str(resource)), resource)

    @given(st.text())
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        """Any text at all is the full id of one resource, and of no other, or is refused (NAME-11)."""
        try:
            resource = ResourceName.parse(text)
        except InvalidName:
            return
        self.assertEqual(str(resource), text)

    def test_parts_are_checked(self) -> None:
        """A text with fewer than three parts, or with a part that isn't well formed, is refused by the part's name
        (NAME-11).
        """
        for text, parameter in {
            "": "id",
            "acct": "id",
            "acct:user": "id",
            "acct:user:": "id",
            ":user:alice": "account",
            "a/b:user:alice": "account",
            "acct::alice": "kind",
            "acct:User:alice": "kind",
            "acct:user\n:alice": "kind",
            "acct:wid.get:alice": "kind",
            "acct:users:alice": "kind",
            f"acct:{'x' * 65}:alice": "kind",
            "acct:variable:secret": "kind",
        }.items():
            refusal = self.assertRaises(InvalidName, RoleName.parse, text)
            self.assertEqual(refusal.parameter, parameter, text)

    def test_a_long_kind_is_cut(self) -> None:
        """The message about an unknown kind repeats only its beginning (NAME-11)."""
        refusal = self.assertRaises(InvalidName, ResourceName.from_parts, "acct", "x" * 10_000, "a")
        self.assertLess(len(refusal.message), 100)

    def test_roles_and_resources_are_different_things(self) -> None:
        """A role and the resource of the same id aren't equal (NAME-12)."""
        role = admin_of("acct")
        self.assertNotEqual(role, role.resource)
        self.assertEqual(str(role), str(role.resource))

    def test_variables_are_no_roles(self) -> None:
        """There is no role of a variable's name (NAME-4)."""
        self.assertRaises(InvalidName, lambda: ResourceName("acct", "variable", "a").role)

    def test_kinds_that_policies_make_up(self) -> None:
        """A kind of letters, digits, hyphens and underscores is both a role and a resource, unless it looks like one of ours
        (NAME-30).
        """
        for kind in (
            "food",
            "job",
            "cf-service-instance",
            "magical_beast",
            "Job",
            "7",
            "-",
            "_",
            "x" * 64,
            "username",
            "poli",
        ):
            name = ResourceName.parse(f"acct:{kind}:user:alice")
            self.assertEqual((name.kind, name.identifier, name.role.kind), (kind, "user:alice", kind))
            self.assertEqual(RoleName.parse(str(name)), name.role)
            self.assertNotIn(kind, ACTOR_KINDS)
        for kind in (
            "User",
            "users",
            "USERS",
            "host-factory",
            "HostFactory",
            "hostfactories",
            "policies",
            "policys",
            "pub_lic-keys",
        ):
            self.assertIsNotNone(find_similar_kind(kind), kind)
            self.assertRaises(InvalidName, ResourceName.from_parts, "acct", kind, "a")
        for kind in ("", " ", "a b", "a.b", "a/b", "@", "é", "\uff4aob", "job\n", "a\x00", "x" * 65, "!", "%2f", ".", ".."):
            self.assertRaises(InvalidName, ResourceName.from_parts, "acct", kind, "a")
        self.assertFalse(any(map(is_other_kind, RESOURCE_KINDS)))

    def test_every_role_is_a_resource(self) -> None:
        """Every kind of role is a kind of resource, and actors are roles (NAME-4, NAME-5, NAME-12)."""
        self.assertLess(ROLE_KINDS, RESOURCE_KINDS)
        self.assertLess(ACTOR_KINDS, ROLE_KINDS)

    def test_the_two_that_are_always_there(self) -> None:
        """An account has the user admin and the policy root (NAME-16)."""
        self.assertEqual(str(admin_of("acct")), "acct:user:admin")
        self.assertEqual(str(root_policy("acct")), "acct:policy:root")


class LoginTests(SynchronousTestCase):
    """How roles name themselves when they log in."""

    def test_forms(self) -> None:
        """A login without prefix is a user, ``host/`` and ``user/`` name the kind, and other segments belong to a user
        (NAME-13).
        """
        for login, (kind, text) in {
            "alice": ("user", "alice"),
            "user/alice": ("user", "alice"),
            "host/apps/web": ("host", "apps/web"),
            "host": ("user", "host"),
            "group/ops": ("user", "group/ops"),
            "Host/x": ("user", "Host/x"),
            "/host/x": ("user", "/host/x"),
            "host//x": ("host", "/x"),
            "alice@dev:x": ("user", "alice@dev:x"),
            "user/host/x": ("user", "host/x"),
        }.items():
            self.assertEqual(RoleName.from_login("acct", login), RoleName("acct", kind, text), login)

    def test_nobody(self) -> None:
        """A login that names nobody is refused (NAME-13)."""
        for login in ("", "host/", "user/", "a\x00b", "\ud800"):
            self.assertRaises(InvalidName, RoleName.from_login, "acct", login)

    def test_short_logins_are_short(self) -> None:
        """A user's login is the bare identifier, a host's has its prefix (NAME-14)."""
        self.assertEqual(RoleName("acct", "user", "alice").login, "alice")
        self.assertEqual(RoleName("acct", "user", "host").login, "host")
        self.assertEqual(RoleName("acct", "host", "apps/web").login, "host/apps/web")

    @given(st.sampled_from(sorted(ACTOR_KINDS)), st.sampled_from(["", "host/", "user/", "/"]), IDENTIFIERS)
    def test_a_login_names_one_role(self, kind: str, prefix: str, text: str) -> None:
        """No login of one user or host is read as another: a user called ``host/x`` isn't the host ``x`` (NAME-14)."""
        role = RoleName.from_parts("acct", kind, prefix + text)
        self.assertEqual(RoleName.from_login("acct", role.login), role)
