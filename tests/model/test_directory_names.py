"""Tests of ``svc.model.ldap_directories``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.ldap_directories import (
    GROUP,
    USER,
    DirectoryName,
    InvalidDirectoryName,
    escape_dn_value,
    group_key,
    list_directory_names,
)

BASE = "ou=groups,dc=example,dc=org"

#: Values of all that means something in distinguished names.
VALUES = st.text(st.sampled_from('aZß ,+="\\#;<>\x00é0a'), min_size=1, max_size=20).filter(lambda text: text.strip())


class GroupKeyTests(SynchronousTestCase):
    """What names of groups are compared by."""

    def test_the_same(self) -> None:
        """What every directory takes for the same has one key: capitals from A to Z, blanks around a value, escapes, the
        order within a part (LDAP-2).
        """
        for names in (
            ("cn=Devs,ou=Groups,dc=example", "CN = devs , OU=groups,DC=EXAMPLE", r"cn=\44evs,ou=groups,dc=example"),
            (r"cn=Sales\, EU,dc=x", r"cn= sales\2c eu ,dc=x"),
            ("cn=a+ou=b,dc=x", "ou=b+cn=a,dc=x"),
            ("Devs", "devs", "DEVS"),
            ("cn=\u00e9", r"cn=\c3\a9"),
        ):
            self.assertEqual(len({group_key(name) for name in names}), 1, names)

    def test_different(self) -> None:
        """What may be different is: other parts, values that directories may tell apart, and a plain name (LDAP-2)."""
        names = ("cn=devs,dc=x", "cn=devs", "cn=devs,dc=x,dc=y", "ou=devs,dc=x", r"cn=devs\,dc\=x", "devs", "dev s")
        self.assertEqual(len({group_key(name) for name in names}), len(names))
        self.assertNotEqual(group_key("serialNumber=A,dc=x"), group_key("serialNumber=a,dc=x"))
        self.assertNotEqual(group_key("2.5.4.3=a"), group_key("cn=a"))

    def test_what_some_directories_tell_apart(self) -> None:
        """What one directory takes for the same and another doesn't is different: nobody is taken for a member of a group
        who may make another that is nearly called so (LDAP-2).
        """
        for name, other in (
            ("domain admins", "domain  admins"),
            ("domain admins", "domain\u00a0admins"),
            ("domain admins", "domain\u2003admins"),
            ("domain admins", r"domain\0aadmins"),
            ("domain admins", r"domain\1cadmins"),
            ("admins", r"\ admins"),
            ("admins", r"admins\ "),
            ("admins", r"\e2\80\a8admins"),
            ("caf\u00e9", "cafe\u0301"),
            ("stra\u00dfe", "stra\u1e9ee"),
            ("\u00e9t\u00e9", "\u00c9T\u00c9"),
            ("k", "\u212a"),
        ):
            self.assertNotEqual(group_key(f"cn={name},{BASE}"), group_key(f"cn={other},{BASE}"), other)
            (_, _, plain), (_, _, near) = (
                list_directory_names("alice", [f"cn={one},{BASE}"], BASE) for one in (name, other)
            )
            self.assertEqual(plain, DirectoryName(GROUP, group_key(name)))
            self.assertNotEqual(plain, near, other)

    def test_no_name(self) -> None:
        """What has an equals sign and is no distinguished name is refused (LDAP-2)."""
        for name in (
            "=a",
            "cn=",
            "cn=a,",
            "cn=a,,dc=x",
            "cn=a;dc=x",
            'cn="a"',
            "cn=a\\",
            r"cn=\zz",
            "cn=#0402",
            "a b=c",
            r"cn=\ff",
            "cn=a+",
        ):
            with self.assertRaises(InvalidDirectoryName, msg=name):
                group_key(name)

    @given(VALUES, VALUES)
    def test_any_value(self, one: str, other: str) -> None:
        """Whatever stands in a value, escaped, is of that value: names are the same only if their values are."""
        first, second = (group_key(f"serialNumber={escape_dn_value(value)},dc=x") for value in (one, other))
        self.assertEqual(first == second, one == other)
        self.assertEqual(group_key(first), first)


class NamesTests(SynchronousTestCase):
    """The names by which mappings may speak of a person."""

    def names(self, *groups: str, base: str | None = BASE) -> set[str]:
        """The keys of groups."""
        found = list_directory_names("alice", groups, base)
        self.assertEqual(found[0], DirectoryName(USER, "alice"))
        return {name.key for name in found[1:] if name.kind == GROUP}

    def test_plain(self) -> None:
        """A plain name is that of a group right below the base alone, and of none without a base (LDAP-2)."""
        self.assertEqual(self.names(f"CN=Devs,{BASE.upper()}"), {"devs", f"cn=devs,{BASE}"})
        for other in (
            f"cn=devs,ou=sub,{BASE}",
            "cn=devs,dc=example,dc=org",
            f"ou=devs,{BASE}",
            f"cn=devs+ou=x,{BASE}",
            "cn=devs",
        ):
            self.assertNotIn("devs", self.names(other), other)
        self.assertEqual(self.names(f"cn=devs,{BASE}", base=None), {f"cn=devs,{BASE}"})
        self.assertEqual(self.names(f"cn=devs,{BASE}", base="no name"), {f"cn=devs,{BASE}"})

    def test_a_name_within_a_name(self) -> None:
        """A group that is called like another's distinguished name isn't that group (LDAP-2)."""
        self.assertEqual(self.names(rf"cn=cn\=devs,{BASE}"), {rf"cn=cn\=devs,{BASE}"})

    def test_no_text_of_the_database(self) -> None:
        """A group with NUL in its name has no plain name, and doesn't keep its members from logging in."""
        self.assertEqual(self.names(rf"cn=a\00b,{BASE}"), {rf"cn=a\00b,{BASE}"})

    def test_no_name(self) -> None:
        """What is no name gives nothing; a group that is told twice counts once."""
        self.assertEqual(self.names("no name", "", f"cn=a,{BASE}", f"cn=A,{BASE}"), {"a", f"cn=a,{BASE}"})
