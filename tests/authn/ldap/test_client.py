"""Tests of ``svc.authn.ldap`` without a network: a directory in memory, well behaved, broken and hostile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from ldaptor.protocols import pureldap
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from svc.authn.ldap.client import MAX_CONVERSATIONS, MAX_PER_DIRECTORY
from svc.authn.ldap.conversation import CONVERSATION_LIMIT
from svc.authn.ldap.messages import Entry, MalformedMessage, bind_request
from svc.model.ldap_directories import (
    GROUPS_MOST,
    STATES_DEADLINE,
    STATES_MOST,
    DirectoryRefused,
    EntryState,
    IDirectories,
    LdapServer,
    Security,
)
from svc.model.reasons import Reason
from tests.authn.ldap.directory import (
    ALICE,
    AUTHORITY,
    CERTIFICATE,
    GROUPS,
    HOST,
    SERVER,
    SERVICE,
    Directory,
    DirectoryCase,
    entries,
    message,
    referral,
    results,
)
from tests.authn.providers.authority import Authority

LDAPS = attrs.evolve(SERVER, security=Security.TLS, port=636)
PLAIN = attrs.evolve(SERVER, security=Security.PLAIN, ca_cert=None)
ANONYMOUS = attrs.evolve(SERVER, bind_dn=None, bind_password=None)

#: A hostile name nested far deeper than Python's stack.
DEEP = b"\x30\x84\x00\x00\x10\x00" + b"\x30\x80" * 2048


class ConversationTests(DirectoryCase):
    """What is said, to whom, and within what."""

    def test_provides(self) -> None:
        """The client provides the seam."""
        verifyObject(IDirectories, self.directories)

    def test_the_right_password(self) -> None:
        """A login is proven by TLS, the service's bind, a search and the bind as what was found, in this order."""
        self.successResultOf(self.ask())
        self.assertEqual(self.directory.kinds(), ["Extended", "Bind", "Search", "Bind"])
        self.assertEqual([secure for _, secure in self.directory.asked], [False, True, True, True])
        (service, search, person) = [request for request, _ in self.directory.asked[1:]]
        self.assertEqual((service.dn, service.auth, service.version), (SERVICE.encode(), b"service password", 3))
        self.assertEqual((person.dn, person.auth), (ALICE, b"alice's password"))
        self.assertEqual((search.baseObject, search.scope, search.derefAliases), (b"ou=people,dc=example", 2, 0))
        self.assertEqual((search.sizeLimit, search.timeLimit, search.attributes), (2, 5, [b"1.1"]))
        self.assert_idle()

    def test_the_connection_ends(self) -> None:
        """When it is decided the connection is ended, whatever the directory does."""
        asked = self.begin()
        connection = self.connect()
        connection.run()
        self.successResultOf(asked)
        self.assertTrue(connection.ours.disconnected)

    def test_tls_from_the_first_byte(self) -> None:
        """With LDAPS nothing is said outside of TLS (NET-20)."""
        self.directory.tls_from_the_start = True
        self.successResultOf(self.ask(server=LDAPS))
        self.assertEqual(self.reactor.tcpClients[0][:2], ("93.184.216.34", 636))
        self.assertEqual([secure for _, secure in self.directory.asked], [True, True, True])

    def test_anonymous_search(self) -> None:
        """Without an account that searches, the search is the first thing that is asked."""
        self.successResultOf(self.ask(server=ANONYMOUS))
        self.assertEqual(self.directory.kinds(), ["Extended", "Search", "Bind"])

    def test_plain_is_off(self) -> None:
        """In plain nobody is asked, unless the server's configuration allows it (NET-20)."""
        self.assert_refused(self.begin(server=PLAIN), Reason.CONFIGURATION_INVALID, "allow_plain_ldap is off")
        self.assertEqual(self.reactor.tcpClients, [])
        self.directories = self.client(allow_plain=True)
        self.successResultOf(self.ask(server=PLAIN))
        self.assertEqual([secure for _, secure in self.directory.asked], [False, False, False])

    def test_a_wrong_password(self) -> None:
        """A password that the directory doesn't take is refused with its result code."""
        refused = self.assert_refused(self.ask(password=b"wrong"), Reason.CREDENTIALS_WRONG, "49 (invalid credentials)")
        self.assertNotIn("wrong", refused.detail.replace("wrong password", ""))

    def test_an_empty_password_is_never_sent(self) -> None:
        """No bind is without a password or without a name: a directory would call it anonymous, and a success (AUTH-53)."""
        self.directory.passwords[ALICE] = b""
        self.assert_refused(self.ask(password=b""), Reason.CREDENTIALS_MISSING)
        self.assertEqual(self.directory.kinds(), ["Extended", "Bind", "Search"])
        nameless = attrs.evolve(SERVER, bind_password=None)
        self.assert_refused(self.ask(server=nameless), Reason.CREDENTIALS_MISSING)

    def test_an_entry_without_a_name(self) -> None:
        """A search that finds an entry without a name proves nobody: a bind without a name is anonymous."""
        self.directory.answers[pureldap.LDAPSearchRequest] = entries(b"")
        self.directory.passwords[b""] = b"alice's password"
        self.assert_refused(self.ask(), Reason.LDAP_ANSWER_MALFORMED, "without a name")

    def test_reach(self) -> None:
        """What comes before a search can be tried alone, without anybody's password."""
        asked = Deferred.fromCoroutine(self.directories.check_connection(SERVER))
        self.connect().run()
        self.successResultOf(asked)
        self.assertEqual(self.directory.kinds(), ["Extended", "Bind"])


def _reason(failure: Failure) -> Reason:
    assert isinstance(failure.value, DirectoryRefused)
    return failure.value.reason


class SearchTests(DirectoryCase):
    """Who is found."""

    def test_one_entry(self) -> None:
        """A login must stand for exactly one entry (AUTH-56)."""
        self.assert_refused(self.ask("bob"), Reason.LDAP_ENTRY_UNKNOWN, "no entry below 'ou=people,dc=example'")
        for found in (entries(ALICE, b"uid=alice,ou=other"), entries(ALICE, ALICE, ALICE), entries(ALICE, code=4)):
            self.directory.answers[pureldap.LDAPSearchRequest] = found
            self.assert_refused(self.ask(), Reason.LDAP_ENTRY_AMBIGUOUS)
        self.assertNotIn(b"alice's password", [getattr(request, "auth", None) for request, _ in self.directory.asked])

    def test_search_refused(self) -> None:
        """A search that the directory refuses proves nobody, even when it found an entry; a referral is a refusal too."""
        for code, name in (
            (10, "referral"),
            (32, "no such object"),
            (12, "unavailable critical extension"),
            (18, "inappropriate matching"),
            (36, "alias dereferencing problem"),
            (50, "insufficient"),
            (3, "time limit"),
            (9999, "unknown"),
        ):
            for names in ((), (ALICE,)):
                self.directory.answers[pureldap.LDAPSearchRequest] = entries(*names, code=code)
                self.assert_refused(self.ask(), Reason.LDAP_SEARCH_REFUSED, f"{code} (", name)

    def test_below_the_root(self) -> None:
        """An empty entry to search below is the root of the directory, and is told so."""
        server = attrs.evolve(SERVER, base_dn="")
        self.successResultOf(self.ask(server=server))
        self.assertEqual(self.directory.asked[-2][0].baseObject, b"")
        self.assert_refused(self.ask("bob", server=server), Reason.LDAP_ENTRY_UNKNOWN, "no entry below the root")

    def test_references_are_not_followed(self) -> None:
        """References to other directories are counted and not followed; an entry beside them is found (AUTH-56)."""

        def answer(number: int) -> bytes:
            reference = b"\x73\x14\x04\x12ldap://evil.example"[:22]
            whole = b"\x02\x01" + bytes([number]) + reference
            return b"\x30" + bytes([len(whole)]) + whole + truth(number)

        truth = entries()
        self.directory.answers[pureldap.LDAPSearchRequest] = answer
        self.assert_refused(self.ask(), Reason.LDAP_ENTRY_UNKNOWN, "refers to 1 others")
        truth = entries(ALICE)
        self.successResultOf(self.ask())
        self.assertEqual({args[0] for args in self.reactor.tcpClients}, {"93.184.216.34"})

    def test_binds_refused(self) -> None:
        """A bind that isn't a success is a refusal, whatever the directory calls it: of the entry, unless it itself ails
        (FAIL-19, AUTH-56).
        """
        for code, reason in (
            (48, Reason.CREDENTIALS_WRONG),
            *((code, Reason.LDAP_ENTRY_REFUSED) for code in (8, 10, 13, 14, 19, 50, 53, -1, 9999)),
            *((code, Reason.LDAP_UNAVAILABLE) for code in (1, 3, 11, 51, 52, 80)),
        ):
            directory = Directory(codes={ALICE: code})
            asked = self.begin()
            self.connect(directory).run()
            self.assert_refused(asked, reason, f"{code} (")

    def test_the_service_is_refused(self) -> None:
        """When the account that searches isn't let in, that is said, and nobody is searched for."""
        self.directory.passwords[SERVICE.encode()] = b"changed"
        self.assert_refused(self.ask(), Reason.LDAP_BIND_REFUSED, f"the bind as {SERVICE!r}", "invalid credentials")
        self.assertEqual(self.directory.kinds(), ["Extended", "Bind"])
        for code, reason in ((53, Reason.LDAP_BIND_REFUSED), (51, Reason.LDAP_UNAVAILABLE), (80, Reason.LDAP_UNAVAILABLE)):
            self.begin_counting(0)
            asked = self.begin()
            self.connect(Directory(codes={SERVICE.encode(): code})).run()
            self.assert_refused(asked, reason, f"the bind as {SERVICE!r}", f"{code} (")

    def test_qualified(self) -> None:
        """What a directory says against an account is the reason in words, whether it takes the password or not; a warning
        is none (LOCK-11).
        """
        policy, expired, expiring = "1.3.6.1.4.1.42.2.27.8.5.1", "2.16.840.1.113730.3.4.4", "2.16.840.1.113730.3.4.5"
        windows = b"80090308: LdapErr: DSID-0C0903A9, comment: AcceptSecurityContext error, data %b, v1db1\0"
        must_change, locked, old = "changed first", "is locked", "the password has expired"
        cases: list[tuple[int, bytes, dict[str, bytes | None], str]] = [
            *(
                (49, windows % code, {}, words)
                for code, words in (
                    (b"530", "at this time"), (b"531", "from here"), (b"532", old), (b"533", "is disabled"),
                    (b"534", "in this way"), (b"568", "in too many groups"),
                    (b"701", "the account has expired"), (b"773", must_change), (b"775", locked),
                )
            ),
            (49, b"", {policy: b"0\x03\x81\x01\x00"}, old),
            (49, b"", {policy: b"0\x03\x81\x01\x01"}, locked),
            (0, b"", {policy: b"0\x03\x81\x01\x02"}, must_change),
            (0, b"", {policy: b"0\x03\x81\x01\x09"}, "error 9"),
            (0, b"", {policy: b"0\x05\xa0\x03\x81\x01\x02"}, "last logins"),
            (0, b"", {policy: b"0\x08\xa0\x03\x80\x01\x02\x81\x01\x02"}, must_change),
            (0, b"", {expired: b"0"}, must_change),
            (0, b"", {expiring: b"1", expired: None, policy: b"0\x00"}, must_change),
            (49, b"password expired!", {expired: b"0"}, old),
            (19, b"Exceed password retry limit", {}, "19 ("),
            (53, b"account inactivated", {}, "53 ("),
        ]  # fmt: skip
        for code, text, controls, words in cases:
            self.directory.qualified = {ALICE: (code, text, controls)}
            self.assert_refused(self.ask(), Reason.LDAP_ENTRY_REFUSED, words)
        for taken in ({}, {policy: b"0\x05\xa0\x03\x80\x01\x3c"}, {policy: b"0\x00"}, {policy: None}, {expiring: b"60"}):
            self.directory.qualified = {ALICE: (0, b"data 773", taken)}
            self.successResultOf(self.ask())
        for text in (windows % b"52e", windows % b"525", b"data 99999999999", b"no data"):
            self.directory.qualified = {ALICE: (49, text, {})}
            self.assert_refused(self.ask(), Reason.CREDENTIALS_WRONG)
        for garbled in (b"0", b"0\x09", b"1\x00", b"0\x03\x82\x01\x00", b"0\x03\xa0\x01\x00", b"0\x02\xa0\x00"):
            self.directory.qualified = {ALICE: (0, b"", {policy: garbled})}
            self.assert_refused(self.ask(), Reason.LDAP_ANSWER_MALFORMED)

    def test_policy_is_asked_for(self) -> None:
        """A bind asks what a password policy says (LOCK-11)."""
        self.assertIn(b"1.3.6.1.4.1.42.2.27.8.5.1", bind_request(1, ALICE, b"x"))

    def test_searcher_qualified(self) -> None:
        """A searching account that must change its password, or has last logins, is refused and bound with once (LOCK-1)."""
        policy, name = "1.3.6.1.4.1.42.2.27.8.5.1", SERVICE.encode()
        for control, words in ((b"0\x03\x81\x01\x02", "changed first"), (b"0\x05\xa0\x03\x81\x01\x02", "last logins")):
            self.begin_counting(3)
            self.directory.asked = []
            self.directory.qualified = {name: (0, b"", {policy: control})}
            refused = self.assert_refused(
                self.ask(), Reason.LDAP_BIND_REFUSED, f"{SERVICE!r} ended with 0", words, "an hour"
            )
            self.assertEqual(refused.retry_after, 3600)
            self.assert_refused(self.begin("bob"), Reason.LDAP_BIND_REFUSED, words)
            self.assertEqual(self.directory.kinds(), ["Extended", "Bind"])

    def test_refused_once(self) -> None:
        """A refusal of the account that searches, by 49, 19 or 53, is answered without connecting again, but for an
        operator: then one bind is sent; other results aren't remembered (LOCK-1, LOCK-2).
        """
        name = SERVICE.encode()
        for code in (49, 19, 53):
            self.begin_counting(3)
            self.directory.codes, self.directory.asked = {name: code}, []
            again = self.assert_refused(self.ask(), Reason.LDAP_BIND_REFUSED, f"ended with {code}", "an hour").retry_after
            self.assertEqual(again, 3600)
            connections = len(self.reactor.tcpClients)
            for _ in range(20):
                self.assert_refused(self.begin("bob"), Reason.LDAP_BIND_REFUSED)
                self.assert_refused(
                    Deferred.fromCoroutine(self.directories.check_connection(SERVER)), Reason.LDAP_BIND_REFUSED
                )
            self.assertEqual((len(self.reactor.tcpClients), self.directory.kinds().count("Bind")), (connections, 1))
            asked = Deferred.fromCoroutine(self.directories.check_connection(SERVER, by_operator=True))
            self.connect().run()
            self.assert_refused(asked, Reason.LDAP_BIND_REFUSED)
            self.assertEqual(self.directory.kinds().count("Bind"), 2)
            self.directory.codes.clear()
            asked = Deferred.fromCoroutine(self.directories.check_connection(SERVER, by_operator=True))
            self.connect().run()
            self.successResultOf(asked)
            self.successResultOf(self.ask())
        for code in (8, 50, 51, 52):
            self.directory.codes = {name: code}
            for _ in range(2):
                failed = self.failureResultOf(self.ask(), DirectoryRefused).value
                self.assertIsNone(failed.retry_after)

    def test_twenty_at_once(self) -> None:
        """Of twenty logins and a check that come at once, with a wrong password of the account that searches, one binds;
        with the right one three of twenty wrong passwords of a person are sent, and twenty right ones (LOCK-3, LOCK-6).
        """

        def all_at_once(password: bytes) -> list[Deferred[None]]:
            before = len(self.reactor.tcpClients)
            begun = [self.begin("alice", password) for _ in range(16)]
            begun.append(Deferred.fromCoroutine(self.directories.check_connection(SERVER)))
            begun += [self.begin("alice", password) for _ in range(4)]
            connections: list[Any] = []
            while before + len(connections) < len(self.reactor.tcpClients) or any(not each.over for each in connections):
                place = before + len(connections)
                if place < len(self.reactor.tcpClients):
                    connections.append(self.connect_to(place))
                for each in connections:
                    each.step()
            return begun

        self.begin_counting(3)
        self.directory.passwords[SERVICE.encode()] = b"changed"
        for each in all_at_once(b"alice's password"):
            self.assert_reason(each, Reason.LDAP_BIND_REFUSED)
        self.assertEqual(self.directory.kinds().count("Bind"), 1)
        self.directory.passwords[SERVICE.encode()] = b"service password"
        for password, most in ((b"alice's password", 20), (b"wrong", 3)):
            self.begin_counting(3)
            self.directory.asked.clear()
            ended = Counter[Reason | None]()
            for each in all_at_once(password):
                reasons: Deferred[Reason | None] = each.addErrback(_reason)
                ended[self.successResultOf(reasons)] += 1
            wrong = {Reason.CREDENTIALS_WRONG: 3, Reason.LDAP_FAILURES_TOO_MANY: 17}
            self.assertEqual(ended, {None: 21} if most == 20 else {None: 1, **wrong})
            binds = [request for request, _ in self.directory.asked if isinstance(request, pureldap.LDAPBindRequest)]
            self.assertEqual(sum(each.dn == ALICE for each in binds), most)

    def test_too_many(self) -> None:
        """After three failures nothing is asked about the login, another spelling is searched for and not bound, and a login
        without an entry is treated alike (LOCK-6, LOCK-8).
        """
        self.begin_counting(3)
        self.directory.entries[b"ALICE"] = [ALICE]
        for login, reason in (("alice", Reason.CREDENTIALS_WRONG), ("nobody", Reason.LDAP_ENTRY_UNKNOWN)):
            for _ in range(3):
                self.assert_refused(self.ask(login, b"wrong"), reason)
            connections = len(self.reactor.tcpClients)
            self.assert_refused(self.begin(login), Reason.LDAP_FAILURES_TOO_MANY, "the right password")
            self.assertEqual(len(self.reactor.tcpClients), connections)
        binds = self.directory.kinds().count("Bind")
        self.assert_refused(self.ask("ALICE"), Reason.LDAP_FAILURES_TOO_MANY)
        self.assertEqual(self.directory.kinds()[-1], "Search")
        self.assertEqual(self.directory.kinds().count("Bind"), binds + 1)
        self.reactor.advance(900)
        self.successResultOf(self.ask())

    def test_bases(self) -> None:
        """The entries below which people and groups are found are read, and nobody is searched for (AUTH-58)."""
        server = attrs.evolve(SERVER, group_base_dn=GROUPS)
        self.directory.groups = [GROUPS.encode()]
        for hidden, fault in ((False, None), (True, "doesn't show it")):
            self.directory.hidden = hidden
            asked = Deferred.fromCoroutine(self.directories.read_bases(server))
            self.connect().run()
            people, groups = self.successResultOf(asked)
            self.assertEqual((people.annotation, people.dn), ("ldap-authn/base_dn", "ou=people,dc=example"))
            self.assertEqual((groups.annotation, groups.dn), ("ldap-authn/group_base_dn", GROUPS))
            self.assertIsNone(groups.fault)
            self.assertEqual(fault is None, people.fault is None)
        self.directory.groups_code = 32
        asked = Deferred.fromCoroutine(self.directories.read_bases(server))
        self.connect().run()
        self.assertEqual(
            [each.fault for each in self.successResultOf(asked)], ["the search for it ended with 32 (no such object)"] * 2
        )

    def test_referrals(self) -> None:
        """Where a directory refers to another one for the entry below which people are found, its host is named, and it is
        not asked (AUTH-56, AUTH-58).
        """
        cases: list[tuple[tuple[bytes, ...], str]] = [
            ((b"ldap://dc2.example/dc=example??sub",), "10 (referral to 'dc2.example')"),
            (
                (b"LDAPS://user:secret@dc2.example:636/x", b"ldap://dc2.example", b"ldap://[2001:db8::1]:389/"),
                "10 (referral to 'dc2.example' or '[2001:db8::1]')",
            ),
            ((b"ldap://\x1b[2J/",), "10 (referral to '\\x1b[2J')"),
            (tuple(b"ldap://h%d" % number for number in range(9)), "10 (referral to 'h0' or 'h1' or 'h2')"),
            ((b"ldap:///dc=example", b"http://x", b""), "10 (referral)"),
            ((), "10 (referral)"),
        ]
        for addresses, words in cases:
            self.directory.answers[pureldap.LDAPSearchRequest] = referral(*addresses)
            self.assert_refused(self.ask(), Reason.LDAP_SEARCH_REFUSED, f"ended with {words}")
            asked = Deferred.fromCoroutine(self.directories.read_bases(SERVER))
            self.connect().run()
            (base,) = self.successResultOf(asked)
            self.assertEqual(base.fault, f"the search for it ended with {words}")

    def test_the_root(self) -> None:
        """The root is searched, since anybody may read it where nothing below it is shown (AUTH-58)."""
        server = attrs.evolve(SERVER, base_dn="")
        for found, code, fault in (
            ([], 0, "the directory doesn't show it to the account that searches"),
            ([], 32, "the search for it ended with 32 (no such object)"),
            ([ALICE], 4, None),
            ([ALICE], 0, None),
        ):
            self.directory.answers[pureldap.LDAPSearchRequest] = entries(*found, code=code)
            asked = Deferred.fromCoroutine(self.directories.read_bases(server))
            self.connect().run()
            (root,) = self.successResultOf(asked)
            self.assertEqual((root.dn, root.fault), ("", fault))
            self.assertEqual(self.directory.asked[-1][0].scope, pureldap.LDAP_SCOPE_wholeSubtree)


class StatesTests(DirectoryCase):
    """Whether people still have entries."""

    BOB = b"uid=bob,ou=people,dc=example"

    def setUp(self) -> None:
        """Have another person."""
        super().setUp()
        self.directory.entries[b"bob"] = [self.BOB]

    def ask_states(self, *logins: str, server: LdapServer = SERVER) -> Deferred[Sequence[EntryState]]:
        """Ask for the states of entries, and carry all that is said."""
        asked = Deferred.fromCoroutine(self.directories.read_entry_states(server, logins))
        self.connect().run()
        return asked

    def test_states(self) -> None:
        """The entries of many logins are looked for in one conversation, as the account that searches; nobody is bound as,
        and a login without an entry is no failure of it (LDAP-21, LOCK-8).
        """
        self.begin_counting(1)
        self.directory.entries[b"twice"] = [ALICE, self.BOB]
        for _ in range(3):
            found = self.successResultOf(self.ask_states("alice", "carol", "bob", "twice"))
            states = [EntryState.PRESENT, EntryState.GONE, EntryState.PRESENT, EntryState.AMBIGUOUS]
            self.assertEqual(list(found), states)
        self.assertEqual(self.directory.kinds(), [*["Extended", "Bind"], *["Search"] * 5] * 3)
        self.assertEqual({request.dn for request, _ in self.directory.asked if hasattr(request, "auth")}, {SERVICE.encode()})
        self.assert_refused(self.ask("carol"), Reason.LDAP_ENTRY_UNKNOWN)

    def test_disabled(self) -> None:
        """An account is disabled that Active Directory, 389 or a password policy calls so for good; one that is locked for a
        time, or whose attributes say nothing of the kind, isn't (LDAP-21).
        """
        for name, value, disabled in (
            (b"userAccountControl", b"514", True),
            (b"userAccountControl", b"66050", True),
            (b"useraccountcontrol", b"514", False),  # what wasn't asked for by this name isn't told
            (b"userAccountControl", b"512", False),
            (b"userAccountControl", b"-2147483646", True),
            (b"userAccountControl", b"", False),
            (b"userAccountControl", b"two", False),
            (b"nsAccountLock", b"TRUE", True),
            (b"nsAccountLock", b"false", False),
            (b"pwdAccountLockedTime", b"000001010000Z", True),
            (b"pwdAccountLockedTime", b"20260101000000Z", False),
            (b"description", b"000001010000Z", False),
        ):
            self.directory.shown[ALICE] = [(name, [value])]
            found = self.successResultOf(self.ask_states("alice", "bob"))
            expected = EntryState.DISABLED if disabled else EntryState.PRESENT
            self.assertEqual(list(found), [expected, EntryState.PRESENT], (name, value))

    def test_in_vain(self) -> None:
        """Nothing is said of anybody where the entry below which people are isn't shown, a search is refused, or the answer
        can't be read (LDAP-25).
        """
        self.directory.hidden = True
        self.assert_refused(self.ask_states("carol"), Reason.LDAP_SEARCH_REFUSED, "nothing is found below")
        self.directory.hidden = False
        for code, reason in (
            (32, Reason.LDAP_SEARCH_REFUSED),
            (50, Reason.LDAP_SEARCH_REFUSED),
            (51, Reason.LDAP_UNAVAILABLE),
        ):
            asked = Deferred.fromCoroutine(self.directories.read_entry_states(SERVER, ["alice", "carol"]))
            connection = self.connect()
            while self.directory.kinds()[-2:] != ["Bind", "Search"]:
                connection.step()
            self.directory.answers[pureldap.LDAPSearchRequest] = entries(code=code)
            connection.run()
            self.assert_refused(asked, reason, f"ended with {code}")
            self.directory.answers.clear()
            self.directory.asked.clear()
        self.directory.shown[ALICE] = [(b"nsAccountLock", [b"TRUE"])]
        self.patch(Entry, "values", self.garbled)
        self.assert_refused(self.ask_states("alice"), Reason.LDAP_ANSWER_MALFORMED)

    def garbled(self, _: str) -> dict[str, list[bytes]]:
        """Attributes that can't be read."""
        raise MalformedMessage("an answer lacks an element")

    def test_a_refused_account(self) -> None:
        """An account that searches whose password was refused isn't bound with again for a round (LOCK-1)."""
        self.directory.passwords[SERVICE.encode()] = b"another"
        for _ in range(3):
            asked = Deferred.fromCoroutine(self.directories.read_entry_states(SERVER, ["alice"]))
            if self.directory.kinds().count("Bind") == 0:
                self.connect().run()
            self.assert_refused(asked, Reason.LDAP_BIND_REFUSED)
        self.assertEqual(self.directory.kinds().count("Bind"), 1)

    def test_much(self) -> None:
        """As many logins as are asked for at once have room, with their names as long as these may be (LDAP-21)."""
        long = b"cn=" + b"x" * 3500 + b",ou=people,dc=example"
        logins = [f"p{number}" for number in range(STATES_MOST)]
        self.directory.entries.update({login.encode(): [long] for login in logins})
        found = self.successResultOf(self.ask_states(*logins))
        self.assertEqual(list(found), [EntryState.PRESENT] * STATES_MOST)

    def test_silence(self) -> None:
        """A directory that is silent is given up in time (LDAP-25)."""
        asked = Deferred.fromCoroutine(self.directories.read_entry_states(SERVER, ["alice"]))
        self.connect(played=True)
        self.reactor.advance(STATES_DEADLINE - 1)
        self.assertNoResult(asked)
        self.reactor.advance(1)
        self.assert_refused(asked, Reason.LDAP_UNAVAILABLE)


class TLSTests(DirectoryCase):
    """Who is trusted, and what is said before."""

    def assert_said_nothing(self) -> None:
        """No bind and no search left the client."""
        self.assertLessEqual(set(self.directory.kinds()), {"Extended"})

    def test_wrong_authority(self) -> None:
        """A certificate of an authority that isn't trusted ends the conversation before anything is said."""
        self.directory.certificate = Authority("other").issue(HOST)
        self.assert_refused(self.ask(), Reason.LDAP_TLS_FAILED, "TLS failed", "certificate verify failed")
        self.directory.tls_from_the_start = True
        self.assert_refused(self.ask(server=LDAPS), Reason.LDAP_TLS_FAILED, "certificate verify failed")
        self.assert_said_nothing()

    def test_platform_authorities(self) -> None:
        """Without authorities of its own, a directory must have a certificate of the platform's."""
        asked = self.ask(server=attrs.evolve(SERVER, ca_cert=None))
        self.assert_refused(asked, Reason.LDAP_TLS_FAILED, "certificate verify failed")

    def test_authorities_on_one_line(self) -> None:
        """Authorities whose ends of lines became blanks are trusted like those that have them."""
        self.successResultOf(self.ask(server=attrs.evolve(SERVER, ca_cert=AUTHORITY.pem.replace("\n", " "))))

    def test_wrong_name(self) -> None:
        """A certificate for another host ends the conversation."""
        self.directory.certificate = AUTHORITY.issue("other.example")
        self.assert_refused(self.ask(), Reason.LDAP_TLS_FAILED, "the certificate is for another host")
        self.assert_said_nothing()

    def test_expired(self) -> None:
        """An expired certificate ends the conversation, and is called so (NET-3)."""
        self.directory.certificate = AUTHORITY.issue(HOST, days=1)
        self.assert_refused(self.ask(), Reason.LDAP_TLS_FAILED, "certificate verify failed: certificate has expired")
        self.assert_said_nothing()

    def test_a_number_for_a_name(self) -> None:
        """The certificate of a directory that is named by number is for that number."""
        numbered = attrs.evolve(SERVER, host="93.184.216.34")
        self.directory.certificate = AUTHORITY.issue("93.184.216.34")
        self.successResultOf(self.ask(server=numbered))
        self.directory.certificate = CERTIFICATE
        self.assert_refused(self.ask(server=numbered), Reason.LDAP_TLS_FAILED, "for another host")

    def test_start_tls_refused(self) -> None:
        """Where StartTLS is refused nothing is said in plain (NET-20)."""
        for code in (1, 2, 52, 53):
            self.directory.answers[pureldap.LDAPExtendedRequest] = results(code, content=pureldap.LDAPExtendedResponse)
            asked = self.begin()
            self.connect().run()
            self.assert_refused(asked, Reason.LDAP_TLS_FAILED, "refuses StartTLS", f"{code} (")
        self.assert_said_nothing()

    def test_start_tls_answered_by_another_answer(self) -> None:
        """Another answer than one to StartTLS is none."""
        self.directory.answers[pureldap.LDAPExtendedRequest] = results(0, content=pureldap.LDAPBindResponse)
        self.assert_refused(self.ask(), Reason.LDAP_ANSWER_MALFORMED, "another question")

    def test_nothing_is_taken_from_before_tls(self) -> None:
        """What stands behind the answer to StartTLS, put there by somebody between, is refused, whole or in part
        (NET-20).
        """
        bound = message(2, pureldap.LDAPBindResponse(resultCode=0))
        for injected in (bound, bound[:5], b"\x00", bound + bound):
            agreed = message(1, pureldap.LDAPExtendedResponse(resultCode=0)) + injected
            self.directory.answers[pureldap.LDAPExtendedRequest] = {1: agreed}.__getitem__
            asked = self.begin()
            self.connect().run()
            self.assert_refused(asked, Reason.LDAP_TLS_FAILED, "spoke in plain")
        self.assert_said_nothing()

    def test_nothing_is_taken_from_after_start_tls(self) -> None:
        """Plain messages in a segment of their own behind the answer are no TLS records, and end the conversation
        (NET-20).
        """
        asked = self.begin()
        connection = self.connect(played=True)
        connection.line.dataReceived(message(1, pureldap.LDAPExtendedResponse(resultCode=0)))
        connection.line.dataReceived(message(2, pureldap.LDAPBindResponse(resultCode=0)) * 3)
        connection.run()
        self.assert_refused(asked, Reason.LDAP_TLS_FAILED)

    def test_ended_before_tls(self) -> None:
        """A line that ends before TLS is up is a fault of TLS, as it is where StartTLS and LDAPS have the other's port."""
        alert, record = b"\x15\x03\x03\x00\x02\x02\x32", b"\x16\x03\x03\x00\x40"
        for server, sent, told in (
            (SERVER, b"", "closed the connection before TLS was up"),
            (SERVER, message(1, pureldap.LDAPExtendedResponse(resultCode=0)), "closed the connection before TLS was up"),
            (SERVER, alert, "as a port for LDAPS does"),
            (SERVER, record, "as a port for LDAPS does"),
            (LDAPS, b"", "closed the connection before TLS was up"),
            (LDAPS, b"\x30\x0c\x02\x01\x00\x78\x07\x0a\x01\x02\x04\x00\x04\x00", "TLS failed"),
        ):
            for cause in (ConnectionLost(), ConnectionDone()):
                asked = self.begin(server=server)
                connection = self.connect(played=True)
                if sent:
                    connection.line.dataReceived(sent)
                connection.run()
                connection.close(cause)
                self.assert_refused(asked, Reason.LDAP_TLS_FAILED, told)
        plain = self.client(allow_plain=True)
        asked = Deferred.fromCoroutine(plain.verify_password(PLAIN, "alice", b"alice's password"))
        self.connect(played=True).close(ConnectionLost())
        self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "closed the connection")

    def test_unusable_authorities(self) -> None:
        """Authorities that are no certificates are a fault of the configuration, told by the variable's name."""
        for text in ("", "nonsense", AUTHORITY.pem[:200]):
            asked = self.begin(server=attrs.evolve(SERVER, ca_cert=text))
            self.assert_refused(asked, Reason.CONFIGURATION_INVALID, "tls-ca-cert")

    def test_authorities_of_one_directory_are_not_those_of_another(self) -> None:
        """Each directory's authorities count for itself alone."""
        self.directory.certificate = Authority("other").issue(HOST)
        self.assert_refused(self.ask(), Reason.LDAP_TLS_FAILED)
        self.directory.certificate = CERTIFICATE
        self.successResultOf(self.ask())


class FaultTests(DirectoryCase):
    """Directories that are slow, broken or hostile."""

    def test_refused_and_unknown(self) -> None:
        """A directory that can't be connected to is unavailable, and all its addresses were tried."""
        self.names.answers = [["93.184.216.34", "93.184.216.35"]]
        asked = self.begin()
        for _ in range(2):
            self.assertNoResult(asked)
            self.refuse()
        self.assert_refused(
            asked, Reason.LDAP_UNAVAILABLE, "no connection to 93.184.216.34", "no connection to 93.184.216.35"
        )
        self.names.answers = [[]]
        self.assert_refused(self.begin(), Reason.LDAP_UNAVAILABLE, "ldap.example: the name has no address")

    def test_the_second_address(self) -> None:
        """Where the first address doesn't answer, the second is asked."""
        self.names.answers = [["93.184.216.34", "93.184.216.35"]]
        asked = self.begin()
        self.refuse()
        self.connect().run()
        self.successResultOf(asked)
        self.assertEqual([args[0] for args in self.reactor.tcpClients], ["93.184.216.34", "93.184.216.35"])

    def test_forbidden_addresses(self) -> None:
        """Loopback, private and link-local addresses are not connected to, unless the configuration lists the network
        (NET-9).
        """
        for address in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fd00::1"):
            self.names.answers = [[address]]
            refused = self.assert_refused(self.begin(), Reason.LDAP_UNAVAILABLE, "allow_private_providers")
            self.assertNotIn(address, refused.detail)
        self.assertEqual(self.reactor.tcpClients, [])
        self.names.answers = [["10.1.2.3"]]
        self.directories = self.client(networks=["10.0.0.0/8"])
        self.successResultOf(self.ask())

    def test_silence(self) -> None:
        """A directory that says nothing is given up at the deadline, at whatever point it fell silent (NET-19)."""
        self.names.answers = [None]
        asked = self.begin()
        self.reactor.advance(5)
        self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "no name service answered in time")
        self.names.answers = [["93.184.216.34"]]
        asked = self.begin()
        self.reactor.advance(5)
        self.assert_refused(asked, Reason.LDAP_UNAVAILABLE)
        for silent in (pureldap.LDAPExtendedRequest, pureldap.LDAPBindRequest, pureldap.LDAPSearchRequest):
            directory = Directory(answers={silent: lambda number: b""})
            asked = self.begin()
            connection = self.connect(directory)
            connection.run()
            self.reactor.advance(4.9)
            self.assertNoResult(asked)
            self.reactor.advance(0.2)
            refused = self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "took too long")
            self.assertEqual("before TLS was up" in refused.detail, silent is pureldap.LDAPExtendedRequest)
            self.assertTrue(connection.ours.disconnected)

    def test_silent_before_tls(self) -> None:
        """A port that takes a connection and says nothing before TLS is up is named so, with StartTLS and with LDAPS."""
        for server in (SERVER, LDAPS):
            asked = self.begin(server=server)
            self.connect(played=True)
            self.reactor.advance(5)
            self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "took too long before TLS was up")

    def test_dripping(self) -> None:
        """A directory that answers a byte at a time has the same deadline."""
        asked = self.begin()
        connection = self.connect(played=True)
        for octet in b"\x30\x84\x00\x00\x10\x00" + b"\x02" * 4:
            self.reactor.advance(0.5)
            connection.line.dataReceived(bytes([octet]))
        self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "took too long")

    def test_closed(self) -> None:
        """A directory that closes the connection once TLS is up, at whatever point, is unavailable."""
        for last in (pureldap.LDAPBindRequest, pureldap.LDAPSearchRequest):
            asked = self.begin()
            connection = self.connect(Directory(answers={last: lambda number: b""}))
            connection.run()
            connection.close()
            self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "closed the connection")

    def test_notice_of_disconnection(self) -> None:
        """A directory that says why it ends the conversation is believed."""
        notice = message(0, pureldap.LDAPExtendedResponse(resultCode=52, responseName=b"1.3.6.1.4.1.1466.20036"))
        self.directory.answers[pureldap.LDAPSearchRequest] = lambda number: notice
        self.assert_refused(self.ask(), Reason.LDAP_UNAVAILABLE, "ends the conversation: 52 (unavailable)")

    def test_garbage(self) -> None:
        """What is no message of LDAP ends the conversation at once, and nothing of it is quoted (NET-21)."""
        for garbage in (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\x30\x80\x00\x00",
            b"\x30\x85\x00\x00\x00\x00\x05",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x00",
            b"\x30\x02\x02\x00",
            b"\x30\x06\x02\x01\x01\x78\x01\x0a",
            b"\x30\x0a\x02\x05\x01\x01\x01\x01\x01\x78\x01\x0a",
            b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x7f",
            b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x03\x00\x00\x00\x04\x00",
            b"\x30\x0c\x02\x01\x01\x77\x07\x0a\x01\x00\x04\x00\x04\x00",
            b"\x30\x0c\x02\x01\x01\x79\x07\x0a\x01\x00\x04\x00\x04\x00",
            b"\x30\x05\x02\x01\x01\x04\x00",
            b"\x30\x03\x04\x01\x01",
            DEEP,
        ):
            asked = self.begin()
            connection = self.connect(played=True)
            connection.line.dataReceived(garbage)
            connection.run()
            self.assert_refused(asked, Reason.LDAP_ANSWER_MALFORMED)
            self.assertTrue(connection.ours.disconnected)

    def test_deep_elements_are_not_entered(self) -> None:
        """Elements that are nested two thousand deep where nothing is needed are passed over; elsewhere they are refused."""
        deep = b""
        for _ in range(2000):
            deep = b"\x30\x82" + len(deep).to_bytes(2) + deep
        name = b"\x04" + bytes([len(ALICE)]) + ALICE

        def answer(number: int) -> bytes:
            entry = name + deep
            whole = b"\x02\x01" + bytes([number]) + b"\x64\x82" + len(entry).to_bytes(2) + entry
            return b"\x30\x82" + len(whole).to_bytes(2) + whole + entries()(number)

        self.directory.answers[pureldap.LDAPSearchRequest] = answer
        self.successResultOf(self.ask())
        name = b""
        self.assert_refused(self.ask(), Reason.LDAP_ANSWER_MALFORMED)

    def test_huge_answers(self) -> None:
        """A message over its limit is refused by its length alone, and a conversation over its own when it gets there
        (NET-19).
        """
        asked = self.begin()
        connection = self.connect(played=True)
        connection.line.dataReceived(b"\x30\x84\x7f\xff\xff\xff")
        self.assert_refused(asked, Reason.LDAP_ANSWER_MALFORMED, "longer than 65536 bytes")
        many = entries(*[b"cn=" + b"x" * 1000] * 300)
        self.directory.answers[pureldap.LDAPSearchRequest] = many
        self.assert_refused(self.ask(), Reason.LDAP_ANSWER_MALFORMED, f"more than {CONVERSATION_LIMIT} bytes")

    def test_unasked(self) -> None:
        """An answer with another number, or before anything was asked, or too many of them, end the conversation
        (NET-21).
        """
        self.directory.answers[pureldap.LDAPSearchRequest] = lambda number: entries(ALICE)(number + 1)
        self.assert_refused(self.ask(), Reason.LDAP_ANSWER_MALFORMED, "what it wasn't asked")
        self.directory.answers[pureldap.LDAPSearchRequest] = lambda number: (
            entries(ALICE)(number) + message(number + 1, pureldap.LDAPBindResponse(resultCode=0))
        )
        self.assert_refused(self.ask(password=b"wrong"), Reason.LDAP_ANSWER_MALFORMED, "what it wasn't asked")
        greeted = attrs.evolve(self.directory, greeting=message(1, pureldap.LDAPExtendedResponse(resultCode=0)), answers={})
        asked = self.begin()
        self.connect(greeted).run()
        self.failureResultOf(asked, DirectoryRefused)
        self.assert_idle()

    def test_what_a_directory_says(self) -> None:
        """What a directory says of a result is cut, and shown so that it can neither break nor fake a line of the log
        (NET-21).
        """
        said = b"no\nway\x1b[2J\xff" + b"x" * 5000
        self.directory.answers[pureldap.LDAPBindRequest] = results(53, content=pureldap.LDAPBindResponse, errorMessage=said)
        refused = self.assert_refused(self.ask(), Reason.LDAP_BIND_REFUSED, "no\\nway")
        self.assertTrue(refused.detail.isprintable())
        self.assertLess(len(refused.detail), 400)

    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda body: b"\x30" + bytes([len(body)]) + body))
    def test_any_octets(self, octets: bytes) -> None:
        """Whatever a directory sends, the outcome is a refusal within the deadline."""
        self.begin_counting(0)
        self.directories = self.client(allow_plain=True)
        asked = self.begin(server=PLAIN)
        connection = self.connect(played=True)
        connection.line.dataReceived(octets)
        connection.run()
        self.reactor.advance(5)
        self.failureResultOf(asked, DirectoryRefused)
        self.assert_idle()


class FailoverTests(DirectoryCase):
    """Directories with several hosts, and hosts with several addresses."""

    SERVER = attrs.evolve(SERVER, others=(("ldap2.example", 389), ("ldap3.example", 1389)))

    def setUp(self) -> None:
        """Each host has an address of its own."""
        super().setUp()
        self.hosts = [["93.184.216.34"], ["93.184.216.35"], ["93.184.216.36"]]
        self.names.answers = list(self.hosts)
        self.second = Directory(certificate=AUTHORITY.issue("ldap2.example"))

    def asked_of(self) -> list[tuple[str, int]]:
        """The addresses that were connected to, in order."""
        return [(host, port) for host, port, *_ in self.reactor.tcpClients]

    def auths(self, directory: Directory) -> list[bytes]:
        """The passwords that a directory was sent, in order."""
        return [request.auth for request, _ in directory.asked if isinstance(request, pureldap.LDAPBindRequest)]

    def test_next(self) -> None:
        """The next host is asked when one can't be connected to, ends the conversation, is busy or unavailable at a bind or
        a search, or fails TLS; the second proves the person (NET-16).
        """
        notice = message(0, pureldap.LDAPExtendedResponse(resultCode=52, responseName=b"1.3.6.1.4.1.1466.20036"))
        cases: list[Directory] = [
            *(Directory(codes={SERVICE.encode(): code}) for code in (51, 52)),
            *(Directory(answers={pureldap.LDAPSearchRequest: entries(code=code)}) for code in (51, 52)),
            Directory(answers={pureldap.LDAPBindRequest: lambda number: notice}),
            Directory(answers={pureldap.LDAPSearchRequest: lambda number: notice}),
            Directory(answers={pureldap.LDAPExtendedRequest: results(52, content=pureldap.LDAPExtendedResponse)}),
            Directory(certificate=AUTHORITY.issue(HOST, days=1)),
            Directory(certificate=AUTHORITY.issue("other.example")),
            Directory(certificate=Authority("other").issue(HOST)),
        ]
        for first in cases:
            self.names.answers = list(self.hosts)
            self.reactor.tcpClients.clear()
            second = Directory(certificate=self.second.certificate)
            asked = self.begin(server=self.SERVER)
            self.connect(first).run()
            self.connect(second).run()
            self.successResultOf(asked)
            self.assertEqual(self.asked_of(), [("93.184.216.34", 389), ("93.184.216.35", 389)])
            self.assertNotIn(b"alice's password", self.auths(first))
            self.assert_idle()
        self.names.answers = list(self.hosts)
        asked = self.begin(server=self.SERVER)
        self.refuse()
        self.connect(played=True).close(ConnectionLost())
        self.connect(Directory(certificate=AUTHORITY.issue("ldap3.example"))).run()
        self.successResultOf(asked)
        self.assertEqual(self.asked_of()[-1], ("93.184.216.36", 1389))
        self.assert_idle()

    def test_silent(self) -> None:
        """A host that is silent has its share of the time, at whatever point it falls silent before the person's password;
        then the next is asked (NET-16).
        """
        silences = (pureldap.LDAPExtendedRequest, pureldap.LDAPBindRequest, pureldap.LDAPSearchRequest)
        for silent in silences:
            self.names.answers = list(self.hosts)
            asked = self.begin(server=attrs.evolve(self.SERVER, timeout=9.0))
            connection = self.connect(Directory(answers={silent: lambda number: b""}))
            connection.run()
            self.reactor.advance(2.9)
            self.assertFalse(connection.ours.disconnected)
            self.reactor.advance(0.2)
            self.assertTrue(connection.ours.disconnected)
            self.connect(Directory(certificate=self.second.certificate)).run()
            self.successResultOf(asked)
            self.assert_idle()
        self.names.answers = [None, ["93.184.216.35"]]
        asked = self.begin(server=self.SERVER)
        self.reactor.advance(1.7)
        self.connect(Directory(certificate=self.second.certificate)).run()
        self.successResultOf(asked)

    def test_all_silent(self) -> None:
        """All hosts and addresses together have the one deadline, which policy may set (NET-19)."""
        for timeout, addresses in ((5.0, 1), (25.0, 1), (5.0, 12)):
            some = [f"93.184.216.{number}" for number in range(addresses)]
            self.names.answers = [some, some, some]
            asked = self.begin(server=attrs.evolve(self.SERVER, timeout=timeout))
            for _ in range(100):
                self.reactor.advance(timeout * 0.0099)
            self.assertNoResult(asked)
            self.reactor.advance(timeout * 0.02)
            self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "; ")

    def test_final(self) -> None:
        """Once a host has refused a password, be it the person's or that of the account that searches, or anything else than
        that it is busy, no other is asked (NET-16).
        """
        for first, reason in (
            (Directory(passwords={SERVICE.encode(): b"other"}), Reason.LDAP_BIND_REFUSED),
            *((Directory(codes={SERVICE.encode(): code}), Reason.LDAP_BIND_REFUSED) for code in (19, 48, 53)),
            (Directory(passwords={SERVICE.encode(): b"service password", ALICE: b"other"}), Reason.CREDENTIALS_WRONG),
            (Directory(codes={ALICE: 53}), Reason.LDAP_ENTRY_REFUSED),
            *((Directory(codes={ALICE: code}), Reason.LDAP_UNAVAILABLE) for code in (51, 52)),
            (Directory(entries={}), Reason.LDAP_ENTRY_UNKNOWN),
            (Directory(answers={pureldap.LDAPSearchRequest: entries(code=32)}), Reason.LDAP_SEARCH_REFUSED),
        ):
            self.names.answers = list(self.hosts)
            self.reactor.tcpClients.clear()
            self.begin_counting(0)
            asked = self.begin(server=self.SERVER)
            self.connect(first).run()
            self.assert_refused(asked, reason)
            self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_not_after_the_password(self) -> None:
        """Once a person's password was sent it is sent to no other host, whatever becomes of it; that one has all the time
        that is left (NET-16).
        """
        for lost in (True, False):
            self.names.answers = list(self.hosts)
            self.reactor.tcpClients.clear()
            server = attrs.evolve(self.SERVER, bind_dn=None, bind_password=None)
            asked = self.begin(server=server)
            connection = self.connect(Directory(answers={pureldap.LDAPBindRequest: lambda number: b""}))
            connection.run()
            self.reactor.advance(4.9)
            self.assertNoResult(asked)
            if lost:
                connection.close(ConnectionLost())
            self.reactor.advance(0.2)
            self.assert_refused(asked, Reason.LDAP_UNAVAILABLE)
            self.assertEqual(len(self.reactor.tcpClients), 1)

    def test_binds_without_an_answer(self) -> None:
        """Where no host answers the bind of the account that searches three are sent, and nobody connects then (LOCK-12)."""
        silent = Directory(answers={pureldap.LDAPBindRequest: lambda number: b""})
        second = Directory(answers=silent.answers, certificate=self.second.certificate)
        third = Directory(answers=silent.answers, certificate=AUTHORITY.issue("ldap3.example"))
        asked = self.begin(server=self.SERVER)
        for directory in (silent, second, third):
            self.connect(directory).run()
            self.reactor.advance(1.7)
        self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "took too long")
        self.assertEqual([len(self.auths(each)) for each in (silent, second, third)], [1, 1, 1])
        self.assert_refused(self.begin(server=self.SERVER), Reason.LDAP_UNAVAILABLE, "may have been counted")
        self.assertEqual(len(self.reactor.tcpClients), 3)

    def test_hosts_that_hang(self) -> None:
        """A directory that hangs is sent one bind, whoever comes; when it is back the next login is proven (LOCK-12)."""
        silent = lambda number: b""  # noqa: E731
        hung = Directory(answers={pureldap.LDAPBindRequest: silent, pureldap.LDAPSearchRequest: silent})
        for number in range(10):
            self.names.answers = list(self.hosts[:1])
            asked = Deferred.fromCoroutine(self.directories.check_connection(SERVER, 1.8)) if number % 2 else self.begin()
            self.connect(hung).run()
            self.reactor.advance(5.1)
            self.assert_refused(asked, Reason.LDAP_UNAVAILABLE, "took too long")
        self.assertEqual(len(self.auths(hung)), 1)
        self.names.answers = list(self.hosts[:1])
        self.successResultOf(self.ask())
        self.directory.asked.clear()
        self.names.answers = list(self.hosts[:1])
        self.successResultOf(self.ask())
        self.assertEqual(self.directory.kinds(), ["Extended", "Bind", "Search", "Bind"])

    def test_logins_at_a_silent_host(self) -> None:
        """Of logins that come at once one binds at a silent host; all go on to the next one, and are proven (LOCK-12)."""
        silent = Directory(answers={pureldap.LDAPBindRequest: lambda number: b""})
        self.names.answers = [*([self.hosts[0]] * 4), *([self.hosts[1]] * 4)]
        asked = [self.begin(server=self.SERVER) for _ in range(4)]
        for connection in [self.connect_to(place, silent) for place in range(4)]:
            connection.run()
        self.assertEqual(len(self.auths(silent)), 1)
        self.reactor.advance(1.7)
        self.assertEqual(len(self.reactor.tcpClients), 8)
        connections = [self.connect_to(place, self.second) for place in range(4, 8)]
        for connection in 2 * connections:
            connection.run()
        for each in asked:
            self.successResultOf(each)
        self.assertEqual(len(self.auths(silent)), 1)
        self.assert_idle()

    def test_all_addresses(self) -> None:
        """Not only the first few addresses of a name are tried, and each is checked: one that is forbidden forbids the name,
        and the next host is asked (NET-9, NET-10).
        """
        many = [f"93.184.216.{number}" for number in range(20)]
        self.names.answers = [many]
        asked = self.begin()
        for _ in range(19):
            self.refuse()
        self.connect().run()
        self.successResultOf(asked)
        self.assertEqual([host for host, _ in self.asked_of()], many)
        self.reactor.tcpClients.clear()
        self.names.answers = [[*many, "10.1.2.3"], ["93.184.216.35"]]
        asked = self.begin(server=self.SERVER)
        self.connect(self.second).run()
        self.successResultOf(asked)
        self.assertEqual(self.asked_of(), [("93.184.216.35", 389)])

    def test_all_in_vain(self) -> None:
        """Where no host could be asked, the refusal tells of each, and is about TLS if one failed that."""
        self.names.answers = [["93.184.216.34"], [], ["10.1.2.3"]]
        asked = self.begin(server=self.SERVER)
        self.connect(Directory(certificate=AUTHORITY.issue(HOST, days=1))).run()
        self.assert_refused(
            asked,
            Reason.LDAP_TLS_FAILED,
            "93.184.216.34 port 389: TLS failed: certificate verify failed: certificate has expired",
            "ldap2.example: the name has no address",
            "ldap3.example: its address is private",
        )

    def test_reach(self) -> None:
        """A check has the time that it wants, and finds the second host within that (HEALTH-15)."""
        asked = Deferred.fromCoroutine(self.directories.check_connection(self.SERVER, 1.8))
        self.connect(Directory(answers={pureldap.LDAPBindRequest: lambda number: b""})).run()
        self.reactor.advance(0.65)
        self.connect(self.second).run()
        self.successResultOf(asked)
        self.names.answers = list(self.hosts)
        asked = Deferred.fromCoroutine(self.directories.check_connection(self.SERVER, 1.8))
        self.reactor.advance(0.61)
        self.reactor.advance(0.61)
        self.reactor.advance(0.61)
        self.assert_refused(asked, Reason.LDAP_UNAVAILABLE)

    def test_one_who_leaves(self) -> None:
        """Anyone who leaves while a host is asked has no other asked, and leaves nothing behind."""
        for connected in (True, False):
            self.names.answers = list(self.hosts)
            self.reactor.tcpClients.clear()
            asked = self.begin(server=self.SERVER)
            if connected:
                self.connect(Directory(answers={pureldap.LDAPBindRequest: lambda number: b""})).run()
            asked.cancel()
            self.failureResultOf(asked, CancelledError)
            self.assertEqual(len(self.reactor.tcpClients), 1)
            self.assert_idle()


class TurnTests(DirectoryCase):
    """How many are asked at once."""

    def begin_many(self, count: int, server: LdapServer = SERVER) -> list[Deferred[None]]:
        """Begin to ask."""
        return [self.begin(server=server) for _ in range(count)]

    def test_one_directory(self) -> None:
        """A directory holds only so many conversations; others wait for a turn, within their own deadlines
        (NET-19).
        """
        first = self.begin_many(MAX_PER_DIRECTORY)
        waiting = self.begin()
        self.assertEqual(len(self.reactor.tcpClients), MAX_PER_DIRECTORY)
        self.reactor.advance(3)
        later = self.begin()
        self.reactor.advance(2)
        for asked in (*first, waiting):
            self.failureResultOf(asked, DirectoryRefused)
        self.connect().run()
        self.successResultOf(later)
        self.assert_idle()

    def test_one_who_leaves(self) -> None:
        """Anyone who leaves before it is decided, in a conversation or waiting for a turn, leaves nothing behind."""
        *others, talking, waiting = self.begin_many(MAX_PER_DIRECTORY + 1)
        connection = self.connect(Directory(answers={pureldap.LDAPSearchRequest: lambda number: b""}))
        connection.run()
        for leaving in (waiting, talking, *others):
            self.assertNoResult(leaving)
            leaving.cancel()
            self.failureResultOf(leaving, CancelledError)
        self.assertTrue(connection.ours.disconnected)
        self.assert_idle()

    def test_others_go_on(self) -> None:
        """While one directory hangs, with as many waiting as like, another is asked at once."""
        hanging = self.begin_many(MAX_PER_DIRECTORY * 3)
        other = self.begin(server=attrs.evolve(SERVER, base_dn="dc=other"))
        self.connect().run()
        self.successResultOf(other)
        self.reactor.advance(5)
        for asked in hanging:
            self.assert_refused(asked, Reason.LDAP_UNAVAILABLE)

    def test_all_directories(self) -> None:
        """All directories together hold only so many; beyond that a login is refused at once (NET-19)."""
        hanging = []
        for number in range(MAX_CONVERSATIONS // MAX_PER_DIRECTORY):
            hanging += self.begin_many(MAX_PER_DIRECTORY, attrs.evolve(SERVER, base_dn=f"dc=d{number}"))
        refused = self.failureResultOf(self.begin(server=attrs.evolve(SERVER, base_dn="dc=more")), DirectoryRefused)
        self.assertIn("too many directories", refused.value.detail)
        self.assertEqual(len(self.reactor.tcpClients), MAX_CONVERSATIONS)
        self.reactor.advance(5)
        for asked in hanging:
            self.assert_refused(asked, Reason.LDAP_UNAVAILABLE)
        self.names.answers = [["93.184.216.34"]]
        self.successResultOf(self.ask())

    def test_secrets_are_not_shown(self) -> None:
        """No secret of a directory is shown."""
        self.assertNotIn("service password", repr(SERVER))


class GroupsTests(DirectoryCase):
    """The groups of a person (LDAP-11)."""

    def test_searched(self) -> None:
        """They are asked for once the password is taken, as the account that searches, below their own entry."""
        self.directory.groups = [b"cn=devs," + GROUPS.encode(), b"cn=\xff"]
        server = attrs.evolve(SERVER, group_base_dn=GROUPS)
        self.assertEqual(self.successResultOf(self.ask_groups(server=server)), [f"cn=devs,{GROUPS}"])
        self.assertEqual(self.directory.kinds(), ["Extended", "Bind", "Search", "Bind", "Bind", "Search"])
        again, search = [request for request, _ in self.directory.asked[-2:]]
        self.assertEqual((again.dn, again.auth), (SERVICE.encode(), b"service password"))
        self.assertEqual((search.baseObject, search.scope, search.attributes), (GROUPS.encode(), 2, [b"1.1"]))
        self.assertEqual([part.assertionValue.value for part in search.filter], [ALICE, ALICE, b"alice"])
        self.assertTrue(all(secure for _, secure in self.directory.asked[1:]))
        self.assert_idle()

    def test_of_the_entry(self) -> None:
        """Without such an entry, the person's own tells them."""
        self.directory.attributes = [
            (b"MemberOf", [b"cn=devs", b"cn=ops"]),
            (b"mail", [b"cn=no"]),
            (b"memberOf;x-y", [b"cn=a"]),
        ]
        self.assertEqual(self.successResultOf(self.ask_groups()), ["cn=devs", "cn=ops", "cn=a"])
        search = self.directory.asked[-1][0]
        self.assertEqual((search.baseObject, search.scope, search.attributes), (ALICE, 0, [b"memberOf"]))
        self.directory.attributes = []
        self.assertEqual(self.successResultOf(self.ask_groups()), [])

    def test_as_nobody(self) -> None:
        """Where nobody searches, nobody asks for groups, either, though somebody was bound before."""
        self.directory.passwords[b""] = b""
        self.assertEqual(self.successResultOf(self.ask_groups(server=ANONYMOUS)), [])
        binds = [request.dn for request, _ in self.directory.asked if isinstance(request, pureldap.LDAPBindRequest)]
        self.assertEqual(binds, [ALICE, b""])

    def test_not_before_the_password(self) -> None:
        """Who doesn't know the password has nothing asked of groups."""
        self.assert_refused(self.ask_groups(password=b"wrong"), Reason.CREDENTIALS_WRONG)
        self.assert_refused(self.ask_groups("nobody"), Reason.LDAP_ENTRY_UNKNOWN)
        self.assertEqual(self.directory.kinds().count("Search"), 2)

    def test_not_told(self) -> None:
        """Where the directory doesn't tell all groups, none are taken for known."""
        searched = attrs.evolve(SERVER, group_base_dn=GROUPS)
        for server, code, reason in (
            (searched, 32, Reason.LDAP_GROUPS_UNKNOWN),
            (searched, 4, Reason.LDAP_GROUPS_UNKNOWN),
            (searched, 51, Reason.LDAP_UNAVAILABLE),
            (SERVER, 50, Reason.LDAP_GROUPS_UNKNOWN),
        ):
            self.directory.groups_code = code
            self.assert_refused(self.ask_groups(server=server), reason)
        self.directory.groups_code = 0
        self.directory.attributes = [(b"memberOf;range=0-1499", [b"cn=a"])]
        self.assert_refused(self.ask_groups(), Reason.LDAP_GROUPS_UNKNOWN, "more values")
        self.directory.hidden = True
        self.assert_refused(self.ask_groups(), Reason.LDAP_GROUPS_UNKNOWN, "doesn't show the entry")
        self.directory.groups = [b"cn=%d" % number for number in range(GROUPS_MOST + 1)]
        self.assert_refused(self.ask_groups(server=searched), Reason.LDAP_GROUPS_UNKNOWN, "more than 1000")
        del self.directory.groups[0]
        self.assertEqual(len(self.successResultOf(self.ask_groups(server=searched))), GROUPS_MOST)

    @given(st.binary(max_size=60))
    def test_any_attributes(self, octets: bytes) -> None:
        """Whatever stands where attributes should be is read, or refused."""
        try:
            values = Entry(ALICE, octets).values("memberof")
        except MalformedMessage:
            return
        self.assertTrue(all(isinstance(value, bytes) for several in values.values() for value in several))

    def test_garbled_attributes(self) -> None:
        """Attributes that can't be read are an answer that can't be."""
        begin = b"\x04" + bytes([len(ALICE)]) + ALICE + b"\x30\x03\x30\x01\x04"
        self.directory.answers[pureldap.LDAPSearchRequest] = lambda number: (
            (
                message(number, pureldap.LDAPSearchResultEntry(ALICE, []))
                if number == 3
                else b"\x30" + bytes([len(begin) + 5, 2, 1, number, 0x64, len(begin)]) + begin
            )
            + message(number, pureldap.LDAPSearchResultDone(resultCode=0))
        )
        self.assert_refused(self.ask_groups(), Reason.LDAP_ANSWER_MALFORMED, "can't be read")
