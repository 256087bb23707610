"""Filters: what a template means, and that no login changes it."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ldaptor.protocols import pureber, pureldap
from twisted.trial.unittest import SynchronousTestCase

from svc.authn.ldap.filters import InvalidTemplate, group_filter, search_filter
from svc.model.ldap_directories import GROUP_FILTER, escape_dn_value

DEFAULT = "(&(objectClass=posixAccount)(uid=%s))"

#: Templates of every form in which a login may stand.
TEMPLATES = (
    DEFAULT,
    "(uid=%s)",
    "(|(uid=%s)(mail=%s@example.org))",
    "(&(|(objectClass=person)(!(shadowExpire>=1)))(uid~=%s)(memberOf=*)(cn=a*b*c))",
    "(uid:caseExactMatch:=%s)",
    "(&(entryDN=uid=%s,ou=people,dc=example)(objectClass=*))",
)

#: Texts made of all that means something in filters and names.
LOGINS = st.text(st.characters(codec="utf-8", exclude_characters="\ue000"), min_size=1, max_size=30) | st.text(
    r"()*\&|!=~<>:%s,+\"#;0a5c29 " + "\0", min_size=1, max_size=30
)


def read(template: str, login: str = "alice") -> Any:
    """The filter as a directory reads it."""
    found, _ = pureber.berDecodeObject(
        pureldap.LDAPBERDecoderContext_Filter(fallback=pureber.BERDecoderContext()), search_filter(template, login).toWire()
    )
    return found


#: A login that is no part of any template.
MARK = "\ue000"


def shape(found: Any, login: str = MARK) -> object:
    """A filter as lists and octets; for the mark that stands in its values, a login is put there, escaped within names."""
    if isinstance(found, pureldap.LDAPFilterSet):
        return [type(found), *(shape(part, login) for part in found)]
    if isinstance(found, pureldap.LDAPFilter_not):
        return [type(found), shape(found.value, login)]
    if isinstance(found, pureldap.LDAPAttributeValueAssertion):
        written = escape_dn_value(login) if found.attributeDesc.value == b"entryDN" else login
        return [type(found), found.attributeDesc.value, found.assertionValue.value.replace(MARK.encode(), written.encode())]
    if isinstance(found, pureldap.LDAPFilter_extensibleMatch):
        value = found.matchValue.value.replace(MARK.encode(), login.encode())
        return [type(found), found.type.value, found.matchingRule.value, value]
    return found.toWire()


class FilterTests(SynchronousTestCase):
    """Templates."""

    def assert_unusable(self, template: str, why: str = "") -> None:
        """It is refused."""
        with self.assertRaises(InvalidTemplate) as caught:
            search_filter(template, "alice")
        self.assertIn(why, str(caught.exception))

    def test_wire_form(self) -> None:
        """A filter is written as RFC 4511 4.5.1 has it."""
        self.assertEqual(search_filter("(uid=%s)", "al").toWire(), b"\xa3\x09\x04\x03uid\x04\x02al")
        self.assertEqual(search_filter("(!(uid=%s))", "al").toWire(), b"\xa2\x0b\xa3\x09\x04\x03uid\x04\x02al")
        self.assertEqual(search_filter("(&(a=*)(uid=%s))", "al").toWire(), b"\xa0\x0e\x87\x01a\xa3\x09\x04\x03uid\x04\x02al")
        self.assertEqual(
            search_filter("(|(uid=%s)(a=b*c*d))", "al").toWire(),
            b"\xa1\x1b\xa3\x09\x04\x03uid\x04\x02al\xa4\x0e\x04\x01a0\x09\x80\x01b\x81\x01c\x82\x01d",
        )
        self.assertEqual(
            search_filter("(cn:dn:2.4.6:=%s)", "al").toWire(), b"\xa9\x12\x81\x052.4.6\x82\x02cn\x83\x02al\x84\x01\xff"
        )

    def test_escapes(self) -> None:
        """A backslash and two digits stand for an octet, also one that is no character of its own."""
        self.assertEqual(read(r"(&(cn=\c3\a9\2A\28\5c)(uid=%s))")[0].assertionValue.value, "é*(\\".encode())
        for template in (r"(cn=%s\)", r"(cn=%s\2)", r"(cn=%s\zz)", r"(&(cn=\*)(uid=%s))", "(cn=%s\\\\)"):
            self.assert_unusable(template, "backslash")

    def test_the_login_is_a_value(self) -> None:
        """A login with all that means something in a filter is searched for as it is."""
        login = "*)(|(uid=*\\2a%s\0é"
        self.assertEqual(read("(uid=%s)", login).assertionValue.value, login.encode())

    def test_a_login_in_a_name(self) -> None:
        """Within a distinguished name a login is escaped as RFC 4514 says (AUTH-55)."""
        found = read("(entryDN=uid=%s,ou=people)", "a,ou=b+c")
        self.assertEqual(found.assertionValue.value, rb"uid=a\,ou\=b\+c,ou=people")

    @given(LOGINS)
    def test_no_login_changes_the_filter(self, login: str) -> None:
        """Whatever the login, the filter is that of any other, but for the value in which the login stands (AUTH-55)."""
        for template in TEMPLATES:
            self.assertEqual(shape(read(template, login)), shape(read(template, MARK), login))

    @given(LOGINS)
    def test_no_login_changes_a_name(self, login: str) -> None:
        """An escaped login has none of the characters that part a name, but behind a backslash, and is got back whole."""
        escaped = escape_dn_value(login)
        self.assertNotRegex(re.sub(r"\\00|\\.", "", escaped, flags=re.DOTALL), r'[\\"+,;<>=#\0 ]')
        back = re.sub(r"\\(00|.)", lambda m: "\0" if m[1] == "00" else m[1], escaped, flags=re.DOTALL)
        self.assertEqual(back, login)

    def test_where_the_login_may_stand(self) -> None:
        """The login stands in values that find one entry: not in patterns, ranges, attributes, or nowhere (AUTH-55)."""
        for template in ("(uid=%s*)", "(uid=*%s)", "(uid=*%s*)", "(uid>=%s)", "(uid<=%s)"):
            self.assert_unusable(template, "%s may stand only")
        for template in ("(%s=alice)", "(&(%s)(uid=%s))", "(uid:%s:=a)"):
            self.assert_unusable(template)
        for template in ("", "(uid=alice)", "(uid=%S)", "(uid={})"):
            self.assert_unusable(template, "it has no %s")

    def test_malformed(self) -> None:
        """What isn't a filter by RFC 4515 is refused, with the place."""
        for template in (
            *(
                "uid=%s",
                "(uid=%s",
                "(uid=%s))",
                "((uid=%s))",
                "(uid=%s)(cn=a)",
                " (uid=%s)",
                "(uid=%s) ",
                "(&)%s",
                "(&uid=%s)",
            ),
            *(
                "(!)%s",
                "(!(uid=%s)(cn=a))",
                "(=%s)",
                "(:=%s)",
                "(u id=%s)",
                "(uid%s)",
                "(u_d=%s)",
                "(uid:dn=%s)",
                "(uid:x=%s)",
            ),
            *("(&(cn=**)(uid=%s))", "(&(cn~=*)(uid=%s))", "(&(cn=a\0)(uid=%s))", "(uid=%s)\0", "(& (uid=%s))"),
        ):
            self.assert_unusable(template)

    def test_bounds(self) -> None:
        """A template is short, and not nested deeply: the author of a policy can't exceed Python's stack with it."""
        search_filter("(!" * 15 + "(uid=%s)" + ")" * 15, "a")
        self.assert_unusable("(!" * 16 + "(uid=%s)" + ")" * 16, "nested deeper")
        self.assert_unusable("(!" * 500 + "(uid=%s)" + ")" * 500, "nested deeper")
        self.assert_unusable("(uid=%s" + "x" * 2048 + ")", "more than 2048 characters")

    @given(st.text("()&|!=*~<>:%s\\2auid ", max_size=40))
    def test_any_template(self, template: str) -> None:
        """Any text is a filter that ldaptor can write and read, or is refused."""
        try:
            found = search_filter(template, "alice")
        except InvalidTemplate:
            return
        self.assertIn(b"alice", found.toWire())


class GroupFilterTests(SynchronousTestCase):
    """Filters for the groups of a person (LDAP-11)."""

    def test_the_entry(self) -> None:
        """The name of the entry is a whole value, whatever stands in it; the login is as in other filters."""
        dn = rb"cn=a\2c)(*,ou=%s,dc=x"
        self.assertEqual(group_filter("(member=%d)", "al", dn).toWire(), b"\xa3\x1f\x04\x06member\x04\x15" + dn)
        found = group_filter(GROUP_FILTER, "a)*", b"cn=a")
        self.assertEqual([part.assertionValue.value for part in found], [b"cn=a", b"cn=a", b"a)*"])
        nested = group_filter("(member:1.2.840.113556.1.4.1941:=%d)", "al", dn)
        self.assertEqual(nested.matchValue.value, dn)

    def test_unusable(self) -> None:
        """A template says where the person is, and nowhere else than in a whole value."""
        for template in (
            "(objectClass=group)",
            "(member=x%d)",
            "(member=%d*)",
            "(member>=%d)",
            "(%d=a)",
            "(cn=%s*)",
            "(member=%d",
        ):
            with self.assertRaises(InvalidTemplate, msg=template):
                group_filter(template, "alice", b"cn=a")
