"""Tests of ``svc.model.directory_names``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.model.directory_names import InvalidDirectoryName, dn_escaped, group_key, names_of
from svc.model.ldap_mappings import GROUP, USER, DirectoryName

BASE = "ou=groups,dc=example,dc=org"

#: Values of all that means something in distinguished names.
VALUES = st.text(st.sampled_from('aZß ,+="\\#;<>\x00é0a'), min_size=1, max_size=20).filter(lambda text: text.strip())


class GroupKeyTests(SynchronousTestCase):
    """What names of groups are compared by."""

    def test_the_same(self) -> None:
        """What directories take for the same has one key: capitals, blanks, escapes, the order within a part (LDAP-2)."""
        for names in (
            ("cn=Devs,ou=Groups,dc=example", "CN = devs , OU=groups,DC=EXAMPLE", r"cn=\44evs,ou=groups,dc=example"),
            (r"cn=Sales\, EU,dc=x", r"cn=sales\2c  eu,dc=x"),
            ("cn=a+ou=b,dc=x", "ou=b+cn=a,dc=x"),
            ("Devs", "devs", " DEVS "),
            ("cn=\u00e9", "cn=e\u0301", r"cn=\c3\a9"),
        ):
            self.assertEqual(len({group_key(name) for name in names}), 1, names)

    def test_different(self) -> None:
        """What may be different is: other parts, values that directories may tell apart, and a plain name (LDAP-2)."""
        names = ("cn=devs,dc=x", "cn=devs", "cn=devs,dc=x,dc=y", "ou=devs,dc=x", r"cn=devs\,dc\=x", "devs", "dev s")
        self.assertEqual(len({group_key(name) for name in names}), len(names))
        self.assertNotEqual(group_key("serialNumber=A,dc=x"), group_key("serialNumber=a,dc=x"))
        self.assertNotEqual(group_key("2.5.4.3=a"), group_key("cn=a"))

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
        first, second = (group_key(f"serialNumber={dn_escaped(value)},dc=x") for value in (one, other))
        self.assertEqual(first == second, one == other)
        self.assertEqual(group_key(first), first)


class NamesTests(SynchronousTestCase):
    """The names by which mappings may speak of a person."""

    def names(self, *groups: str, base: str | None = BASE) -> set[str]:
        """The keys of groups."""
        found = names_of("alice", groups, base)
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

    def test_no_name(self) -> None:
        """What is no name gives nothing; a group that is told twice counts once."""
        self.assertEqual(self.names("no name", "", f"cn=a,{BASE}", f"cn=A,{BASE}"), {"a", f"cn=a,{BASE}"})
