"""Logging in by an LDAP directory: who is admitted, who isn't, and for which reason."""

from __future__ import annotations

import base64
import json
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from svc.authn.ldap.authenticator import PASSWORD_LIMIT
from svc.authn.ldap.directory_settings import LdapMisconfiguration, LdapServers
from svc.crypto.tokens import SigningKey
from svc.crypto.vault import Vault
from svc.model.authentication import Admitted, LoginRequest, Refused
from svc.model.credentials import new_api_key
from svc.model.dialect import CONJUR
from svc.model.errors import StoreUnavailable
from svc.model.ldap_directories import DirectoryRefused, GroupSource, IDirectories, LdapServer, Security
from svc.model.names import ResourceName
from svc.model.reasons import Reason
from tests.memory import MemoryCredentials
from tests.statuses import refusal_status
from tests.web.world import ACCOUNT, WorldCase, user

POLICY: Final = """
- !policy
  id: {prefix}/authn-ldap/corp
  body:
    - !webservice
      annotations:
        ldap-authn/uri: ldap://ldap.example
        ldap-authn/base_dn: ou=people,dc=example
        ldap-authn/bind_dn: cn=svc,dc=example
    - !variable bind-password
    - !variable tls-ca-cert
    - !group users
    - !permit {{ role: !group users, privileges: [ read, authenticate ], resource: !webservice }}
- !user alice
- !user bob
- !user mallory
- !user {{ id: near, restricted_to: 10.0.0.0/8 }}
- !host web
- !grant
  role: !group {prefix}/authn-ldap/corp/users
  members: [ !user alice, !user bob, !user near, !user admin, !host web ]
"""

PASSWORD = b"correct horse"
CA = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


class LdapCase(WorldCase):
    """Some users, and a directory that knows them all, and one more."""

    def setUp(self) -> None:
        """Load the policy, and set the variables."""
        super().setUp()
        created = self.load(POLICY.format(prefix=self.dialect.prefix)).json()["created_roles"]
        self.api_keys = {role.rpartition(":")[2]: made["api_key"].encode() for role, made in created.items()}
        self.branch = f"{self.dialect.prefix}/authn-ldap/corp"
        self.set_value(f"{self.branch}/bind-password", b"service password")
        self.set_value(f"{self.branch}/tls-ca-cert", CA.encode())
        self.directory.passwords = dict.fromkeys(
            ("alice", "bob", "mallory", "near", "nobody", "admin", "web", "host/web"), PASSWORD
        )

    def trying(
        self,
        login: str | None,
        evidence: bytes = PASSWORD,
        *,
        ip: str = "192.0.2.1",
        account: str = ACCOUNT,
        to: str = "corp",
    ) -> LoginRequest:
        """An attempt."""
        return LoginRequest(account, login, evidence, ip, to)

    def decide(self, request: LoginRequest) -> Admitted | Refused:
        """The decision."""
        decision: Admitted | Refused = self.result_of(self.ldap.authenticate(request))
        return decision

    def told(self, request: LoginRequest) -> bytes | Refused:
        """The API key that is told."""
        told: bytes | Refused = self.result_of(self.ldap.api_key(request))
        return told

    def assert_refused(self, reason: Reason, request: LoginRequest, status: int = 401) -> Refused:
        """Neither a token nor an API key is to be had, for this reason, which shows no password."""
        decision = self.decide(request)
        for refused in (decision, self.told(request)):
            assert isinstance(refused, Refused), refused
            self.assertEqual((refused.reason, refusal_status(refused)), (reason, status), refused.detail)
            self.assertNotIn(PASSWORD.decode(), repr(refused))
        assert isinstance(decision, Refused)
        return decision

    def annotate(self, **words: str | None) -> None:
        """Give the webservice these annotations in the place of others; ``None`` takes one away."""
        for word, text in words.items():
            key = (f"{ACCOUNT}:webservice:{self.branch}", f"ldap-authn/{word}")
            if text is None:
                del self.memory.annotations[key]
            else:
                self.memory.annotations[key] = (text, None)


class LdapTests(LdapCase):
    """Logins, in the native dialect."""

    def test_revoked_meanwhile(self) -> None:
        """A login that the directory admits just before the user's tokens are revoked has a token of before (TOK-39)."""
        prove = self.directory.verify_password

        async def proven_then_revoked(server: LdapServer, login: str, password: bytes, *, by_operator: bool = False) -> None:
            await prove(server, login, password, by_operator=by_operator)
            await MemoryCredentials(self.memory).revoke_tokens(user("alice"))

        self.patch(self.directory, "verify_password", proven_then_revoked)
        decision = self.decide(self.trying("alice"))
        assert isinstance(decision, Admitted)
        self.assertEqual((decision.epoch, self.memory.numbers(str(user("alice")))), (0, (0, 1)))

    def test_interfaces(self) -> None:
        """The directory of these tests is one."""
        verifyObject(IDirectories, self.directory)

    def test_the_password_admits(self) -> None:
        """The password that the directory takes for a login admits the user of that name, and tells the user's API key
        (AUTH-52).
        """
        self.memory.creations[str(user("alice"))] = 5
        decision = self.decide(self.trying("alice"))
        assert isinstance(decision, Admitted)
        self.assertEqual((decision.role, decision.creation), (user("alice"), 5))
        self.assertEqual(self.told(self.trying("alice")), self.api_keys["alice"])
        (server, login, password), _ = self.directory.asked
        self.assertEqual((login, password), ("alice", PASSWORD))
        self.assertEqual(
            server,
            LdapServer(
                "ldap.example",
                389,
                Security.START_TLS,
                "ou=people,dc=example",
                "(&(objectClass=posixAccount)(uid=%s))",
                "cn=svc,dc=example",
                b"service password",
                CA,
            ),
        )

    def test_the_api_key_admits(self) -> None:
        """The user's own API key admits too, and no directory learns of it (AUTH-52)."""
        request = self.trying("alice", self.api_keys["alice"])
        self.assertIsInstance(self.decide(request), Admitted)
        self.assertEqual(self.told(request), self.api_keys["alice"])
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "down")
        self.assertIsInstance(self.decide(request), Admitted)
        self.assertEqual(self.directory.asked, [])

    def test_keys_are_no_passwords(self) -> None:
        """What is written as an API key and isn't the user's own is refused without asking the directory, for known and
        unknown users alike: keys that expired, were replaced, are another's, or have a line end (LOCK-9).
        """
        self.memory.key_expirations[str(user("alice"))] = self.clock.seconds()
        keys = [self.api_keys["alice"], self.api_keys["bob"], new_api_key().encode(), self.api_keys["bob"] + b"\r\n"]
        for login in ("alice", "stranger"):
            self.directory.passwords |= {login: keys[2]}
            for key in keys:
                reason = Reason.ROLE_UNKNOWN if login == "stranger" else Reason.CREDENTIALS_WRONG
                self.assert_refused(reason, self.trying(login, key))
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "down")
        self.assert_refused(Reason.CREDENTIALS_WRONG, self.trying("alice", keys[2]))
        self.assertEqual(self.directory.asked, [])

    def test_other_forms_of_secrets(self) -> None:
        """An API key in quotation marks, in capitals, with padding or behind a byte order mark isn't sent to a directory,
        nor is an access token in any of its forms (LOCK-9).
        """
        key = self.api_keys["bob"]
        token = SigningKey.generate(ACCOUNT).mint_token(user("bob"), 1_700_000_000, 480)
        encoded = base64.b64encode(token)
        secrets = (
            *(b'"%b"' % key, b"'%b'" % key, key + b"=", key + b"======\n", key.upper(), b' "%b="\r\n' % key.upper()),
            *(b"\xef\xbb\xbf" + key, b' \xef\xbb\xbf "%b"\r\n' % key),
            *(token, token + b"\n", json.dumps(json.loads(token), indent=1).encode()),
            *(encoded, encoded.rstrip(b"="), base64.encodebytes(token), b'"%b"' % encoded),
            *(b'Token token="%b"' % encoded, b"Token token=%b\n" % encoded),
        )
        for secret in secrets:
            self.directory.passwords |= dict.fromkeys(("alice", "stranger"), secret)
            self.assert_refused(Reason.CREDENTIALS_WRONG, self.trying("alice", secret))
            self.assert_refused(Reason.ROLE_UNKNOWN, self.trying("stranger", secret))
        self.assertEqual(self.directory.asked, [])

    def test_passwords_like_secrets(self) -> None:
        """A password that has only something in common with API keys and access tokens is sent to the directory (LOCK-9)."""
        key = new_api_key()
        token = json.loads(SigningKey.generate(ACCOUNT).mint_token(user("bob"), 1_700_000_000, 480))
        passwords = (
            *(f'"{key}', f"\"{key}'", f"{key}=======", f"{key}!", f"{key[:20]} {key[20:]}", key[:40], "x" * 43 + "=", '""'),
            *(json.dumps({**token, "more": ""}), json.dumps(token["payload"]), token["payload"], "Token token=", "{}"),
            *("[" * 99, "Token token=hunter2", base64.b64encode(b"hunter2").decode(), "correct horse battery", "pässword"),
        )
        for password in map(str.encode, passwords):
            self.directory.passwords["alice"] = password
            self.assertIsInstance(self.decide(self.trying("alice", password)), Admitted, password)
        self.assertEqual(len(self.directory.asked), len(passwords))

    def test_others_credentials(self) -> None:
        """Neither another's password nor another's API key admits."""
        self.directory.passwords["alice"] = b"another"
        self.assert_refused(Reason.CREDENTIALS_WRONG, self.trying("alice"))
        self.assert_refused(Reason.CREDENTIALS_WRONG, self.trying("alice", self.api_keys["bob"]))

    def test_empty_and_impossible_passwords(self) -> None:
        """A password that is empty, holds NUL or is too long is refused, and no directory asked: some would take it
        (AUTH-53).
        """
        for login in ("alice", "nobody"):
            self.directory.passwords[login] = b""
            self.assert_refused(Reason.CREDENTIALS_MISSING, self.trying(login, b""))
            self.assert_refused(Reason.REQUEST_MALFORMED, self.trying(login, b"\0"))
            self.assert_refused(Reason.REQUEST_MALFORMED, self.trying(login, PASSWORD + b"\0"))
            self.assert_refused(Reason.REQUEST_MALFORMED, self.trying(login, b"x" * (PASSWORD_LIMIT + 1)))
        self.assertEqual(self.directory.asked, [])

    def test_hosts_and_admin(self) -> None:
        """Hosts and admin are refused, with a directory's password and with their API key, and no directory is asked
        (AUTH-53).
        """
        self.directory.passwords["user/admin"] = PASSWORD
        for login in ("host/web", "admin", "user/admin"):
            self.assert_refused(Reason.LDAP_ROLE_REFUSED, self.trying(login))
        self.load('- !user "alice "\n- !user " alice"\n- !user "alice\u00a0"')
        for login in ("alice ", " alice", "alice\u00a0"):
            self.directory.passwords[login] = PASSWORD
            self.assert_refused(Reason.LDAP_ROLE_REFUSED, self.trying(login))
        self.assert_refused(Reason.LDAP_ROLE_REFUSED, self.trying("host/web", self.api_keys["web"]))
        self.assertEqual(self.directory.asked, [])

    def test_unknown_roles(self) -> None:
        """Whom the directory knows and policy doesn't is refused, and so is whom neither knows."""
        self.assert_refused(Reason.ROLE_UNKNOWN, self.trying("nobody"))
        self.assert_refused(Reason.ROLE_UNKNOWN, self.trying("stranger"))
        self.assert_refused(Reason.ROLE_UNKNOWN, self.trying("Alice"))

    def test_unknown_entries(self) -> None:
        """Whom policy knows and the directory doesn't is refused."""
        del self.directory.passwords["alice"]
        self.assert_refused(Reason.LDAP_ENTRY_UNKNOWN, self.trying("alice"))

    def test_privilege(self) -> None:
        """Who lacks the privilege is refused, whether proven or not; nobody can tell."""
        self.assert_refused(Reason.PRIVILEGE_MISSING, self.trying("mallory"))
        self.assert_refused(Reason.PRIVILEGE_MISSING, self.trying("mallory", b"wrong"))
        self.assert_refused(Reason.PRIVILEGE_MISSING, self.trying("mallory", self.api_keys["mallory"]))

    def test_origin(self) -> None:
        """A user logs in from where restricted_to says; an API key is told everywhere, since it counts only there
        (TOK-20).
        """
        far, near = self.trying("near"), self.trying("near", ip="10.1.2.3")
        self.assertIsInstance(self.decide(near), Admitted)
        refused = self.decide(far)
        assert isinstance(refused, Refused)
        self.assertEqual((refused.reason, refusal_status(refused)), (Reason.ORIGIN_REFUSED, 401))
        self.assertEqual(self.told(far), self.api_keys["near"])
        wrong = self.decide(self.trying("near", b"wrong"))
        assert isinstance(wrong, Refused)
        self.assertEqual(wrong.reason, Reason.ORIGIN_REFUSED)

    def test_unknown_places(self) -> None:
        """An account, a service or a webservice that there isn't is refused, and no directory asked."""
        self.assert_refused(Reason.AUTHENTICATOR_NOT_ENABLED, self.trying("alice", to="other"))
        self.assert_refused(Reason.REQUEST_MALFORMED, self.trying("alice", account="a:b"))
        for login in (None, "", "a\0b", "x" * 2000):
            self.assert_refused(Reason.REQUEST_MALFORMED, self.trying(login))
        self.assert_refused(Reason.ACCOUNT_UNKNOWN, self.trying("alice", account="nowhere"))
        self.load(f"- !delete {{ record: !webservice {self.branch} }}", method="PATCH")
        self.assert_refused(Reason.WEBSERVICE_UNKNOWN, self.trying("alice"))
        self.assertEqual(self.directory.asked, [])

    def test_switched_off(self) -> None:
        """An authenticator that was switched off admits nobody, not even by API key."""
        self.memory.switches[f"{ACCOUNT}:webservice:{self.branch}"] = False
        self.assert_refused(Reason.AUTHENTICATOR_NOT_ENABLED, self.trying("alice", self.api_keys["alice"]))

    def test_directory_faults(self) -> None:
        """What is wrong with the directory is the reason of the refusal, before anything that speaks against the role
        (AUTH-57).
        """
        credentials = self.memory.credentials
        credentials[str(user("bob"))] = credentials[str(user("alice"))]
        for reason in (Reason.LDAP_UNAVAILABLE, Reason.LDAP_TLS_FAILED, Reason.LDAP_BIND_REFUSED):
            self.directory.refused = DirectoryRefused(reason, "it is")
            for login in ("alice", "bob", "mallory", "near", "nobody", "stranger"):
                self.assertEqual(self.assert_refused(reason, self.trying(login), 503).detail, "it is")

    def test_the_work_is_alike(self) -> None:
        """A directory is asked about everyone, whether or not the role exists and may log in; so time tells nothing
        (FAIL-18).
        """
        works = set()
        credentials = self.memory.credentials
        credentials[str(user("bob"))] = credentials[str(user("alice"))]
        for login in ("alice", "bob", "nobody", "mallory", "near"):
            for evidence in (PASSWORD, b"wrong"):
                asked = len(self.directory.asked)
                self.decide(self.trying(login, evidence))
                works.add(len(self.directory.asked) - asked)
        self.assertEqual(works, {1})

    def test_keys_that_do_not_open(self) -> None:
        """An API key that can't be opened is told to nobody, and the refusal says that it can't be read."""
        credentials = self.memory.credentials
        credentials[str(user("alice"))] = credentials[str(user("bob"))]
        self.assert_refused(Reason.CREDENTIALS_UNREADABLE, self.trying("alice"))

    def test_no_signing_key(self) -> None:
        """In an account without signing key a proven user is put off, and not called an impostor; others are refused."""
        self.memory.accounts[ACCOUNT].clear()
        for evidence in (PASSWORD, self.api_keys["alice"]):
            decision = self.decide(self.trying("alice", evidence))
            assert isinstance(decision, Refused)
            self.assertEqual((decision.reason, refusal_status(decision)), (Reason.SIGNING_KEY_UNUSABLE, 503))
        self.assert_refused(Reason.CREDENTIALS_WRONG, self.trying("alice", b"wrong"))

    def test_no_api_key(self) -> None:
        """A user without an API key logs in by the directory, and is told none."""
        del self.memory.credentials[str(user("alice"))]
        self.assertIsInstance(self.decide(self.trying("alice")), Admitted)
        told = self.told(self.trying("alice"))
        assert isinstance(told, Refused)
        self.assertEqual(told.reason, Reason.CREDENTIALS_MISSING)

    def test_a_failing_store_is_no_refusal(self) -> None:
        """While the store can't be asked the attempt is neither admitted nor refused, and no directory asked."""
        self.memory.down = True
        for asked in (self.ldap.authenticate(self.trying("alice")), self.ldap.api_key(self.trying("alice"))):
            with self.assertRaises(StoreUnavailable):
                asked.send(None)
        self.assertEqual(self.directory.asked, [])


class ConjurTests(LdapCase):
    """What differs in the other dialect."""

    dialect = CONJUR

    def test_privilege(self) -> None:
        """A proven identity without the privilege is 403; an unproven one is refused like any."""
        self.assert_refused(Reason.PRIVILEGE_MISSING, self.trying("mallory"), 403)
        self.assert_refused(Reason.PRIVILEGE_MISSING, self.trying("mallory", self.api_keys["mallory"]), 403)
        self.assert_refused(Reason.PRIVILEGE_MISSING, self.trying("mallory", b"wrong"))

    def test_switched_on(self) -> None:
        """An authenticator that isn't listed can be switched on (AUTH-2)."""
        self.ldap._enabled = frozenset()
        self.assert_refused(Reason.AUTHENTICATOR_NOT_ENABLED, self.trying("alice"))
        self.memory.switches[f"{ACCOUNT}:webservice:{self.branch}"] = True
        self.assertIsInstance(self.decide(self.trying("alice")), Admitted)


class ServerTests(LdapCase):
    """Which directory is asked."""

    def configured(self) -> LdapServer | LdapMisconfiguration:
        """What the settings mean."""
        webservice = ResourceName(ACCOUNT, "webservice", self.branch)
        settings = self.result_of(self.ldap_servers.read_settings(webservice))
        server: LdapServer | LdapMisconfiguration = self.result_of(self.ldap_servers.build_server(webservice, settings))
        return server

    def address(self, **words: str | None) -> tuple[str, int, Security]:
        """Where, and how, the directory is asked."""
        self.annotate(**words)
        server = self.configured()
        assert isinstance(server, LdapServer), str(server)
        return server.host, server.port, server.security

    def assert_unusable(self, *parts: str, **words: str | None) -> None:
        """Nobody is asked, and why is told; afterwards all is as before."""
        before = dict(self.memory.annotations)
        self.annotate(**words)
        self.assertIsInstance(self.configured(), LdapMisconfiguration)
        refused = self.assert_refused(Reason.CONFIGURATION_INVALID, self.trying("alice"))
        for part in parts:
            self.assertIn(part, refused.detail)
        self.assertEqual(self.directory.asked, [])
        self.memory.annotations.clear()
        self.memory.annotations.update(before)

    def test_addresses(self) -> None:
        """An address says whether it is LDAPS; else there is StartTLS, unless policy wants something else (AUTH-54)."""
        self.assertEqual(self.address(), ("ldap.example", 389, Security.START_TLS))
        self.assertEqual(self.address(uri="ldap://ldap.example:1389/"), ("ldap.example", 1389, Security.START_TLS))
        self.assertEqual(self.address(uri="ldaps://ldap.example"), ("ldap.example", 636, Security.TLS))
        self.assertEqual(self.address(uri="ldaps://[2001:db8::1]:1636"), ("2001:db8::1", 1636, Security.TLS))
        self.assertEqual(self.address(uri="LDAP://192.0.2.1:1389"), ("192.0.2.1", 1389, Security.START_TLS))
        self.assertEqual(self.address(uri="Ldaps://ldap.example/"), ("ldap.example", 636, Security.TLS))
        self.assertEqual(self.address(uri="ldap://192.0.2.1", connect_type="plain"), ("192.0.2.1", 389, Security.PLAIN))
        self.assertEqual(self.address(connect_type="TLS"), ("192.0.2.1", 389, Security.START_TLS))
        self.assertEqual(self.address(uri=None, host="ldap.example"), ("ldap.example", 389, Security.START_TLS))
        self.assertEqual(self.address(connect_type="ssl"), ("ldap.example", 636, Security.TLS))
        self.assertEqual(self.address(port="3269"), ("ldap.example", 3269, Security.TLS))

    def test_several_addresses(self) -> None:
        """An address may be several, separated by blanks or commas, which are asked in this order, each once (AUTH-54)."""
        for uri, others in (
            ("ldaps://a ldaps://b:3269", (("b", 3269),)),
            ("ldaps://a,ldaps://b ,\n ldaps://[2001:db8::1]/", (("b", 636), ("2001:db8::1", 636))),
            (" ldaps://a  ldaps://a ldaps://b ldaps://a ", (("b", 636),)),
        ):
            self.assertEqual(self.address(uri=uri), ("a", 636, Security.TLS))
            server = self.configured()
            assert isinstance(server, LdapServer)
            self.assertEqual((server.others, server.host_ports), (others, (("a", 636), *others)), uri)
        self.annotate(uri="ldap://ldap.example")
        self.assert_unusable("ldap: and ldaps: stand in it", uri="ldap://a ldaps://b")
        self.assert_unusable("doesn't fit", uri="ldap://a ldap://b", connect_type="ssl")
        self.assert_unusable("ldap-authn/uri", uri="ldap://a b")
        self.assert_unusable("more than 16 hosts", uri=" ".join(f"ldap://a{number}" for number in range(17)))
        self.assert_unusable("no port", uri="ldap://a ldap://b:0")

    def test_timeout(self) -> None:
        """A login takes 5 seconds at most in the directory, unless policy says 1 to 25 (NET-19)."""
        for text, seconds in ((None, 5.0), ("1", 1.0), ("2.5", 2.5), (" 25 ", 25.0)):
            if text is not None:
                self.annotate(timeout=text)
            server = self.configured()
            assert isinstance(server, LdapServer)
            self.assertEqual(server.timeout, seconds)
        for text in ("0.9", "26", "-1", "1e1", "nan", "inf", "five", "5 s", "\u0665", "000000005"):
            self.assert_unusable("ldap-authn/timeout", timeout=text)

    def test_templates(self) -> None:
        """A filter template that is no filter, or lacks the place for the login or the entry, is a fault of the settings
        with a remedy, which the status has without a login (AUTH-29, AUTH-55, AUTH-58, LDAP-11).
        """
        for template in ("(uid=alice)", "(uid=%s", "uid=%s", "(uid=%s*)", "(&)", "(uid=%u)", "(uid=%s)" + " " * 2041):
            self.assert_unusable("ldap-authn/filter_template is not usable: ", filter_template=template)
        for template in ("(objectClass=*)", "(member=%d", "(member=%d,dc=x)", "(memberUid=%s*)"):
            fault = "ldap-authn/group_filter_template is not usable: "
            self.assert_unusable(fault, group_base_dn="dc=x", group_filter_template=template)
        self.annotate(filter_template="(uid=%u)", group_base_dn="dc=x", group_filter_template="(member=%m)")
        found = self.result_of(
            self.ldap.read_directory_status(ResourceName(ACCOUNT, "webservice", self.branch), "authn-ldap/corp")
        )
        self.assertEqual(
            [(problem.what, problem.remedy) for problem in found.problems],
            [
                (
                    "The annotation ldap-authn/filter_template is not usable: it has no %s where the login is to stand.",
                    "Set it to a filter with %s where the login is to stand, such as (uid=%s).",
                ),
                (
                    "The annotation ldap-authn/group_filter_template is not usable: it has no %d where the person's entry is"
                    " to stand, nor %s.",
                    "Set it to a filter with %d where the person's entry is to stand, such as (member=%d).",
                ),
            ],
        )
        self.assertEqual(self.directory.asked, [])

    def test_root(self) -> None:
        """An empty entry is the root of the directory; a blank one is none (AUTH-54)."""
        self.annotate(base_dn="", group_base_dn="")
        server = self.configured()
        assert isinstance(server, LdapServer)
        self.assertEqual((server.base_dn, server.group_base_dn), ("", ""))
        for word in ("uri", "bind_dn", "filter_template", "connect_type", "timeout", "group_source"):
            self.assert_unusable(f"ldap-authn/{word} is not usable: it is blank", **{word: ""})
        for word in ("base_dn", "group_base_dn"):
            self.assert_unusable(f"ldap-authn/{word} is not usable: it is blank", **{word: " "})

    def test_remedies_of_blanks(self) -> None:
        """An annotation that is blank may be left out where the settings are complete without it, and otherwise the remedy
        says something else (AUTH-54).
        """
        cases: list[tuple[str, dict[str, str | None], str]] = [
            ("base_dn", {}, 'or leave it empty ("") for the root of the directory'),
            ("group_base_dn", {}, 'or leave it empty ("") for the root of the directory'),
            ("bind_dn", {}, "or leave it out together with the variable bind-password"),
            ("uri", {}, "Correct it: it says which directory is asked."),
            ("host", {"uri": None}, "Correct it: it says which directory is asked."),
            ("uri", {"host": "ldap.example"}, "Correct it, or leave it out."),
            ("host", {}, "Correct it, or leave it out."),
            ("timeout", {}, "Correct it, or leave it out."),
        ]
        for word, other, remedy in cases:
            before = dict(self.memory.annotations)
            self.annotate(**{word: " ", **other})
            server = self.configured()
            assert isinstance(server, LdapMisconfiguration)
            (problem,) = server.problems
            self.assertIn(remedy, problem.remedy, word)
            self.memory.annotations.clear()
            self.memory.annotations.update(before)

    def test_group_source(self) -> None:
        """Groups are those of the filter, or those of tokenGroups, for which there is no filter (LDAP-11)."""
        for text, source in ((None, GroupSource.MEMBERS), ("tokenGroups", GroupSource.TOKEN_GROUPS)):
            if text is not None:
                self.annotate(group_source=text)
            server = self.configured()
            assert isinstance(server, LdapServer)
            self.assertEqual(server.group_source, source)
        for text in ("tokengroups", "memberOf", "member"):
            self.assert_unusable("ldap-authn/group_source", group_source=text)
        self.assert_unusable("ldap-authn/group_filter_template", group_base_dn="dc=x", group_filter_template="(member=%d)")

    def test_filter(self) -> None:
        """The filter is the one of the annotation."""
        self.annotate(filter_template="(mail=%s@example.org)")
        server = self.configured()
        assert isinstance(server, LdapServer)
        self.assertEqual(server.filter_template, "(mail=%s@example.org)")

    def test_unusable_annotations(self) -> None:
        """The problem names the annotation; what stands behind a host is in it as a whole, and alone (AUTH-54)."""
        self.assert_unusable("which directory is asked", uri=None)
        self.assert_unusable("below which entry", base_dn=None)
        self.assert_unusable("ldap-authn/base_dn is not usable", base_dn=" ")
        self.assert_unusable("ldap-authn/filter_template", filter_template="(uid=%s)" + " " * 3000)
        for uri in ("ldap.example", "http://ldap.example", "ldap://", "ldap://a/b", "ldap://a:b", "ldap://u@a", "ldapi://x"):
            self.assert_unusable("ldap-authn/uri", uri=uri)
        for uri in ("ldap://a/dc=example,dc=org", "LDAPS://[::1]:636/dc=example", "ldap://a?uid", "ldap://a#x"):
            self.assert_unusable("stands behind a host", uri=uri)
        for behind in ("dc=example,dc=org", "ou=people, dc=example,dc=org", "dc=example,\n dc=org"):
            for uri in (f"ldaps://h:636/{behind}", f"ldaps://a, ldaps://h:636/{behind} ldaps://b"):
                self.annotate(uri=uri)
                server = self.configured()
                assert isinstance(server, LdapMisconfiguration)
                what = [problem.what for problem in server.problems]
                fault = f"The annotation ldap-authn/uri is not usable: {f'/{behind}'!r} stands behind a host."
                self.assertEqual(what, [fault], uri)
        self.annotate(uri="ldap://ldap.example")
        for uri in (
            "ldap://a b",
            "ldap://-a",
            "ldap://[::1",
            "ldap://[v1]",
            f"ldap://{'a' * 300}",
            "ldap://a..b",
            "ldap://ä",
        ):
            self.assert_unusable("ldap-authn/uri", uri=uri)
        for uri in ("ldap://a:0", "ldap://a:65536"):
            self.assert_unusable("no port from 1 to 65535", uri=uri)
        self.assert_unusable("ldap-authn/port", uri=None, host="a", port="x")
        self.assert_unusable("beside it", host="ldap.example")
        self.assert_unusable("it is 'starttls'", connect_type="starttls")
        self.assert_unusable("doesn't fit", connect_type="ssl")
        self.assert_unusable("doesn't fit", uri="ldaps://a", connect_type="plain")

    def test_bind_account(self) -> None:
        """The account that searches has a name and a password, or neither: half of it would be an anonymous bind
        (AUTH-54).
        """
        self.assert_unusable("whose password that is", bind_dn=None)
        self.load(f"- !delete {{ record: !variable {self.branch}/bind-password }}", method="PATCH")
        self.assert_unusable("no variable has its password")
        self.annotate(bind_dn=None)
        server = self.configured()
        assert isinstance(server, LdapServer)
        self.assertEqual((server.bind_dn, server.bind_password), (None, None))

    def test_authorities(self) -> None:
        """The variable of authorities has two names, of which the newer counts; declared and not set it is a fault
        (AUTH-54).
        """
        self.load("- !variable tls-cert", policy=self.branch)
        server = self.configured()
        assert isinstance(server, LdapServer)
        self.assertEqual(server.ca_cert, CA)
        self.load(f"- !delete {{ record: !variable {self.branch}/tls-ca-cert }}", method="PATCH")
        self.assert_unusable("tls-cert is declared and has no value")
        self.set_value(f"{self.branch}/tls-cert", b"older")
        server = self.configured()
        assert isinstance(server, LdapServer)
        self.assertEqual(server.ca_cert, "older")

    def test_other_data_key(self) -> None:
        """A password sealed under another data key is a fault of the configuration."""
        memory = self.ldap_servers
        servers = LdapServers(memory.store, Vault(b"o" * 32), memory.dialect, memory.enabled)
        webservice = ResourceName(ACCOUNT, "webservice", self.branch)
        settings = self.result_of(servers.read_settings(webservice))
        self.assertIn("does not open under the data key", str(self.result_of(servers.build_server(webservice, settings))))

    def test_all(self) -> None:
        """Of all authenticators those are told that policy defines and that may be used; their status services aren't."""
        name = f"{ACCOUNT}:webservice:{self.branch}"
        self.load(f"- !policy {{ id: {self.dialect.prefix}/authn-ldap/other, body: [ !webservice ] }}")
        self.load("- !webservice status", policy=self.branch)
        webservice = ResourceName.parse(name)
        self.assertEqual(self.result_of(self.ldap_servers.list_webservices("", 9)), [(ACCOUNT, [webservice])])
        self.assertEqual(self.result_of(self.ldap_servers.find_server(webservice)), self.configured())
        self.annotate(base_dn=None)
        self.assertIsInstance(self.result_of(self.ldap_servers.find_server(webservice)), LdapMisconfiguration)
        self.memory.switches[name] = False
        self.assertEqual(self.result_of(self.ldap_servers.list_webservices("", 9)), [(ACCOUNT, [])])

    def test_none_listed(self) -> None:
        """Where the configuration lists no directory, and none can be switched on without, the store isn't asked."""
        servers = attrs.evolve(self.ldap_servers, enabled=frozenset({"authn", "authn-jwt/ldap"}))
        self.memory.down = True
        looking = Deferred.fromCoroutine(servers.list_webservices("", 9))
        if self.dialect.switch_enables:
            self.failureResultOf(looking, StoreUnavailable)
        else:
            self.assertEqual(self.successResultOf(looking), [])
