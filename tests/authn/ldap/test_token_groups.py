"""Tests of ``svc.authn.ldap.client``: a directory in memory that tells security identifiers."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from ldaptor.protocols import pureldap

from svc.authn.ldap.client import CACHE_SECONDS, MAX_DIRECTORIES
from svc.authn.ldap.conversation import CONVERSATION_LIMIT
from svc.model.ldap_directories import GroupSource
from svc.model.reasons import Reason
from tests.authn.ldap.directory import ALICE, GROUPS, SERVER, SERVICE, DirectoryCase

AD = attrs.evolve(SERVER, group_source=GroupSource.TOKEN_GROUPS, group_base_dn=GROUPS)


def sid(number: int, parts: int = 5) -> bytes:
    """A security identifier of a domain."""
    return bytes([1, parts]) + bytes(5) + b"\5" + number.to_bytes(4, "little") * parts


DEVS, OPS, ODD = f"cn=devs,{GROUPS}", "CN=Ops,OU=EU,DC=example", r"cn=a\, b,dc=example"


class TokenGroupsTests(DirectoryCase):
    """The groups of a person, by SIDs (LDAP-11)."""

    def setUp(self) -> None:
        """Three groups, of which Alice is in two."""
        super().setUp()
        self.directory.sids = {DEVS.encode(): sid(1), OPS.encode(): sid(2), rb"cn=a\2c b,dc=example": sid(3)}
        self.directory.tokens = [sid(1), sid(3), sid(513), sid(32, 2)]

    def groups(self, *mapped: str, server: object = AD) -> Sequence[str]:
        """Ask, and return the mapped names of Alice's groups."""
        assert isinstance(server, type(AD))
        found = self.successResultOf(self.ask_groups(server=server, mapped=mapped))
        self.assert_idle()
        return found

    def reads(self) -> list[bytes]:
        """The names whose SIDs were read since the last call."""
        read = [
            request.baseObject
            for request, _ in self.directory.asked
            if isinstance(request, pureldap.LDAPSearchRequest) and request.attributes == [b"objectSid"]
        ]
        self.directory.asked.clear()
        return read

    def test_told(self) -> None:
        """They are the mapped names whose SIDs the person's entry has in tokenGroups, asked for as the account that searches
        when the password is taken; a plain name stands right below group_base_dn.
        """
        self.assertEqual(self.groups("devs", OPS, ODD, "absent"), [DEVS, ODD])
        kinds = ["Extended", "Bind", "Search", "Bind", "Bind", *["Search"] * 5]
        self.assertEqual(self.directory.kinds(), kinds)
        again, tokens, *sids = [request for request, _ in self.directory.asked[4:]]
        self.assertEqual((again.dn, again.auth), (SERVICE.encode(), b"service password"))
        self.assertEqual((tokens.baseObject, tokens.scope, tokens.attributes), (ALICE, 0, [b"tokenGroups"]))
        names = [DEVS, OPS, ODD, f"cn=absent,{GROUPS}"]
        self.assertEqual([(one.baseObject.decode(), one.scope) for one in sids], [(name, 0) for name in names])
        self.assertEqual(self.groups(), [])
        self.assertEqual(self.groups("devs", server=attrs.evolve(AD, group_base_dn=None)), [])
        self.assert_refused(self.ask_groups(password=b"wrong", server=AD), Reason.CREDENTIALS_WRONG)

    def test_remembered(self) -> None:
        """SIDs are read once in a minute; of names that aren't mapped any more, and of a directory whose settings change,
        nothing is known.
        """
        self.groups(DEVS, OPS)
        self.assertEqual(len(self.reads()), 2)
        self.groups(DEVS, OPS, ODD)
        self.assertEqual(self.reads(), [ODD.encode()])
        self.groups(DEVS, ODD)
        self.assertEqual(self.reads(), [])
        self.groups(DEVS, OPS, ODD)
        self.assertEqual(self.reads(), [OPS.encode()])
        for changed in (attrs.evolve(AD, base_dn="dc=example"), attrs.evolve(AD, timeout=6.0)):
            self.groups(DEVS, server=changed)
            self.assertEqual(self.reads(), [DEVS.encode()])
        self.reactor.advance(CACHE_SECONDS - 1)
        self.groups(DEVS, OPS, ODD)
        self.assertEqual(self.reads(), [])
        self.reactor.advance(1)
        self.groups(DEVS, OPS, ODD)
        self.assertEqual(len(self.reads()), 3)

    def test_clock_set_back(self) -> None:
        """What was read at a time that the clock hasn't reached is read again."""
        self.groups(DEVS)
        self.reads()
        self.reactor.rightNow -= 3600
        self.groups(DEVS)
        self.assertEqual(self.reads(), [DEVS.encode()])

    def test_made_again(self) -> None:
        """A group that is deleted gives nothing at once, and one that is made again under its name counts in a minute."""
        self.assertEqual(self.groups(DEVS), [DEVS])
        self.directory.tokens.remove(sid(1))
        self.assertEqual(self.groups(DEVS), [])
        assert self.directory.sids is not None
        self.directory.sids[DEVS.encode()] = sid(4)
        self.directory.tokens.append(sid(4))
        self.assertEqual(self.groups(DEVS), [])
        self.reactor.advance(CACHE_SECONDS)
        self.assertEqual(self.groups(DEVS), [DEVS])

    def test_forgotten(self) -> None:
        """Only so many directories are remembered."""
        servers = [attrs.evolve(AD, base_dn=f"dc=d{number}") for number in range(MAX_DIRECTORIES + 1)]
        for server in servers:
            self.groups(DEVS, server=server)
        self.reads()
        self.groups(DEVS, server=servers[-1])
        self.assertEqual(self.reads(), [])
        self.groups(DEVS, server=servers[0])
        self.assertEqual(self.reads(), [DEVS.encode()])

    def test_strictly(self) -> None:
        """Octets are compared, and a name counts as the directory writes it: what it takes for the same may be another's."""
        for told, mapped, found in (
            (DEVS.upper(), DEVS, [DEVS]),
            ("cn=d\u00c9vs,dc=x", "cn=d\u00e9vs,dc=x", []),
            ("cn=d\u00e9vs,dc=x", "cn=devs,dc=x", []),
            ("cn=\u00e4,dc=x", "cn=a\u0308,dc=x", []),
        ):
            self.directory.sids = {told.encode(): sid(1)}
            self.assertEqual(self.groups(mapped), found, told)
            self.assertEqual(self.reads(), [mapped.encode()])
            self.reactor.advance(CACHE_SECONDS)
        for other in (sid(1, 4), sid(1, 6), sid(1).swapcase()):
            self.directory.sids = {DEVS.encode(): other}
            self.assertEqual(self.groups(DEVS), [DEVS] if other == sid(1) else [])
            self.reactor.advance(CACHE_SECONDS)

    def test_not_told(self) -> None:
        """Where the directory tells no SIDs of the person, or ends a search with an error, nothing is taken for known; a
        name that it refers elsewhere for, or can't read, has none.
        """
        self.directory.tokens = []
        self.assert_refused(self.ask_groups(server=AD), Reason.LDAP_GROUPS_UNKNOWN, "shows no tokenGroups")
        self.directory.tokens = [sid(1)]
        for code, reason in ((50, Reason.LDAP_GROUPS_UNKNOWN), (51, Reason.LDAP_UNAVAILABLE), (80, Reason.LDAP_UNAVAILABLE)):
            self.directory.groups_code = code
            self.assert_refused(self.ask_groups(server=AD, mapped=[DEVS]), reason)
        self.directory.groups_code = 0
        for malformed in (b"", b"\1", sid(1)[:-1], b"\2" + sid(1)[1:], sid(1, 16)):
            self.directory.tokens = [sid(1), malformed]
            self.assert_refused(self.ask_groups(server=AD), Reason.LDAP_ANSWER_MALFORMED, "security identifier")
        self.directory.tokens = [sid(1)]
        assert self.directory.sids is not None
        self.directory.sids[DEVS.encode()] = b"\1"
        self.assert_refused(self.ask_groups(server=AD, mapped=[DEVS]), Reason.LDAP_ANSWER_MALFORMED, "security identifier")

    def test_many(self) -> None:
        """A thousand mapped names with long names are read in one conversation, although that is more than a conversation
        may have otherwise.
        """
        names = [f"cn={number:04},ou={'x' * 300},dc=example" for number in range(1000)]
        self.directory.sids = {name.encode(): sid(number) for number, name in enumerate(names)}
        self.assertGreater(sum(map(len, names)), CONVERSATION_LIMIT)
        self.assertEqual(self.groups(*names), [names[1], names[3], names[513]])
