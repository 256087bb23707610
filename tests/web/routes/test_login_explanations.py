"""Logins by key and password explained to operators."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs, formatEvent

from svc.authn.throttling import ADDRESS_FAILURES, ROLE_FAILURES
from svc.crypto.vault import api_key_name, password_name
from svc.model.authentication import Admitted, ExplanationRequest, LoginRequest, Refused
from svc.model.dialect import CONJUR
from svc.model.ldap_directories import DirectoryRefused
from svc.model.names import RoleName, admin_of
from svc.model.query_results import Sealed
from svc.model.reasons import Reason
from tests.chronicle import Chronicle
from tests.threads import CHEAP
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

ALICE, BOB, OLIVIA, OWNER, EVE = user("alice"), user("bob"), user("olivia"), user("owner"), user("eve")
WEB: Final = RoleName("acme", "host", "web")

POLICY: Final = """
- !user alice
- !user bob
- !user olivia
- !user owner
- !user eve
- !host {{ id: web, owner: !user owner, restricted_to: 10.0.0.0/8 }}
- !group keyless
- !policy
  id: {prefix}/authn
  body:
    - !webservice status
    - !permit {{ role: !user /olivia, privileges: [ read ], resource: !webservice status }}
- !policy
  id: {prefix}/authn-ldap/corp
  body:
    - !webservice
      annotations:
        ldap-authn/uri: ldap://ldap.example
        ldap-authn/base_dn: ou=people,dc=example
    - !webservice status
    - !permit {{ role: !user /alice, privileges: [ read, authenticate ], resource: !webservice }}
    - !permit {{ role: !user /olivia, privileges: [ read ], resource: !webservice status }}
"""

WRONG: Final = b"1wrongkey1wrongkey"
PASSWORD: Final = b"My-Password-1"


class ExplanationsCase(WorldCase):
    """Olivia operates both authenticators and sees no role, the owner owns the host, eve is anybody."""

    def setUp(self) -> None:
        """Load the policy."""
        super().setUp()
        created = self.load(POLICY.format(prefix=self.dialect.prefix)).json()["created_roles"]
        self.keys_of = {name: made["api_key"].encode() for name, made in created.items()}
        self.directory.passwords = {"alice": PASSWORD}

    def asked(
        self,
        login: str,
        evidence: bytes | None = None,
        *,
        role: RoleName = ADMIN,
        address: str | None = None,
        path: str = "/authn/acme",
        peer: str = "192.0.2.7",
    ) -> Answer:
        """The answer to a question."""
        fields = {"evidence": evidence, "address": address}
        body = urlencode({name: value for name, value in fields.items() if value is not None}).encode()
        return self.client.post(f"{path}/{login}/explain", body, role=role, peer=peer)

    def explained(self, login: str, evidence: bytes | None = None, **more: Any) -> Any:
        """What is told, which shows no evidence."""
        answer = self.asked(login, evidence, **more)
        self.assertEqual(answer.status, 200, answer.body)
        if evidence:
            self.assertNotIn(evidence, answer.body)
        return answer.json()

    def failed(self, login: str, evidence: bytes | None = None, **more: Any) -> tuple[str, str]:
        """The check that failed, and its reason; those before it have passed, and those after weren't reached."""
        found = self.explained(login, evidence, **more)
        self.assertIs(found["admitted"], False)
        outcomes = [step["outcome"] for step in found["steps"] if step["outcome"] != "not tried"]
        place = outcomes.index("failed")
        self.assertEqual(set(outcomes[:place]) - {"passed"}, set())
        self.assertEqual(set(outcomes[place + 1 :]) - {"not reached"}, set())
        (step,) = (step for step in found["steps"] if step["outcome"] == "failed")
        return step["check"], step["reason"]

    def told(self, login: str, evidence: bytes | None = None, **more: Any) -> dict[str, str]:
        """The details of what passed."""
        steps = self.explained(login, evidence, **more)["steps"]
        return {step["check"]: step["detail"] for step in steps if step["outcome"] == "passed"}


class KeyTests(ExplanationsCase):
    """``authn``, for an operator who sees all."""

    def test_the_right_key(self) -> None:
        """Of the right key every check passes, and it is said what was compared (REF-12)."""
        found = self.explained("alice", self.keys_of[str(ALICE)])
        self.assertEqual((found["admitted"], found["role"]), (True, "acme:user:alice"))
        self.assertEqual({step["outcome"] for step in found["steps"]}, {"passed"})
        self.assertEqual(
            [step["check"] for step in found["steps"]],
            [
                "throttle",
                "account",
                "role",
                "annotation",
                "data-key",
                "api-key",
                "credentials",
                "entry",
                "expiry",
                "origin",
                "signing-key",
            ],
        )
        self.assertNotIn("", [step["detail"] for step in found["steps"]])

    def test_a_password(self) -> None:
        """A user's password is found to be one, as a login finds it (REF-12)."""
        self.give_password(ALICE)
        told = self.told("alice", PASSWORD)
        self.assertEqual(told["credentials"], "the evidence is the user's password")

    def test_refused(self) -> None:
        """Each check fails by its reason (REF-12)."""
        self.assertEqual(self.failed("nobody", WRONG), ("role", "role-unknown"))
        self.assertEqual(self.failed("alice", WRONG), ("credentials", "credentials-wrong"))
        self.assertEqual(self.failed("alice", b""), ("credentials", "credentials-wrong"))
        key = self.keys_of[str(WEB)]
        self.assertEqual(self.failed("host%2Fweb", key), ("origin", "origin-refused"))
        self.assertEqual(self.failed("host%2Fweb"), ("origin", "origin-refused"))
        self.assertTrue(self.explained("host%2Fweb", key, address="10.1.2.3")["admitted"])
        self.memory.key_expirations[str(ALICE)] = 1.0
        self.assertEqual(self.failed("alice", self.keys_of[str(ALICE)]), ("expiry", "credentials-expired"))
        gone_from = "acme:webservice:svc/authn-ldap/corp"
        self.memory.directory_users[str(ALICE)] = (gone_from, 1.0, True)
        self.assertEqual(self.failed("alice", self.keys_of[str(ALICE)]), ("entry", "ldap-entry-gone"))
        self.memory.accounts["acme"] = []
        self.assertEqual(self.failed("bob", self.keys_of[str(BOB)]), ("signing-key", "signing-key-unusable"))
        self.memory.credentials[str(BOB)] = Sealed(b"other")
        self.assertEqual(self.failed("bob", WRONG), ("data-key", "credentials-unreadable"))

    def test_without_a_key(self) -> None:
        """Without a key all else is told, nothing is counted, and nobody would be admitted for certain (REF-10, REF-12)."""
        for _ in range(ROLE_FAILURES + 1):
            found = self.explained("alice")
        self.assertIs(found["admitted"], None)
        self.assertEqual([s["check"] for s in found["steps"] if s["outcome"] == "not tried"], ["credentials"])
        self.assertIn("no failures", found["steps"][0]["detail"])

    def test_agrees(self) -> None:
        """What is explained is what a login decides, whatever the key (REF-15)."""
        self.give_password(BOB)
        keys = st.sampled_from([WRONG, b"", PASSWORD, *self.keys_of.values()])

        @given(st.sampled_from(["alice", "bob", "nobody", "host/web"]), keys, st.sampled_from(["10.1.1.1", "192.0.2.9"]))
        def agree(login: str, evidence: bytes, address: str) -> None:
            """Compare the two."""
            asked = ExplanationRequest("acme", login, evidence, "192.0.2.9", address=address, tried=True)
            request = LoginRequest("acme", login, evidence, address)
            told = self.result_of(self.by_api_key.api_key(request))
            # A login by password is told the key, and authenticates with that.
            key = told if isinstance(told, bytes) else evidence
            decided = self.result_of(self.by_api_key.authenticate(LoginRequest("acme", login, key, address)))
            explained = self.result_of(self.by_api_key.explain(asked))
            if isinstance(decided, Admitted):
                self.assertTrue(explained.admitted)
            else:
                self.assertEqual((explained.reason, explained.detail), (decided.reason, decided.detail))

        agree()

    def give_password(self, role: RoleName) -> None:
        """Let a user have the password."""
        from argon2 import PasswordHasher  # noqa: PLC0415

        hashed = PasswordHasher(CHEAP.passes, CHEAP.memory, 1).hash(PASSWORD)
        self.memory.passwords[str(role)] = self.vault.seal(password_name(role), hashed.encode())


class LdapTests(ExplanationsCase):
    """``authn-ldap``."""

    def failed(self, login: str, evidence: bytes | None = None, **more: Any) -> tuple[str, str]:
        """The check that failed."""
        more.setdefault("role", ADMIN)
        return super().failed(login, evidence, **{"path": "/authn-ldap/corp/acme", **more})

    def test_the_password(self) -> None:
        """Of the right password every check passes; of an API key the directory isn't asked (REF-13)."""
        found = self.explained("alice", PASSWORD, path="/authn-ldap/corp/acme")
        self.assertEqual((found["admitted"], {step["outcome"] for step in found["steps"]}), (True, {"passed"}))
        self.assertEqual(
            " ".join(step["check"] for step in found["steps"]),
            "throttle listed user evidence enabled directory bind search mappings account webservice role privilege origin"
            " configuration entry credentials signing-key",
        )
        self.directory.asked.clear()
        told = self.told("alice", self.keys_of[str(ALICE)], path="/authn-ldap/corp/acme")
        self.assertEqual(told["directory"], "not asked: the evidence is the role's API key")
        self.assertEqual(self.directory.asked, [])

    def test_refused(self) -> None:
        """Each check fails by its reason (REF-13)."""
        self.assertEqual(self.failed("host%2Fweb", PASSWORD), ("user", "ldap-role-refused"))
        self.assertEqual(self.failed("alice", b""), ("evidence", "credentials-missing"))
        self.assertEqual(self.failed("alice", b"x" * 2000), ("evidence", "request-malformed"))
        self.assertEqual(self.failed("nobody", PASSWORD), ("role", "role-unknown"))
        self.assertEqual(self.failed("bob", PASSWORD), ("privilege", "privilege-missing"))
        self.assertEqual(self.failed("alice", WRONG), ("credentials", "credentials-wrong"))
        self.directory.passwords = {}
        self.assertEqual(self.failed("alice", WRONG), ("entry", "ldap-entry-unknown"))
        for reason, check in (
            (Reason.LDAP_UNAVAILABLE, "directory"),
            (Reason.LDAP_TLS_FAILED, "directory"),
            (Reason.LDAP_ANSWER_MALFORMED, "directory"),
            (Reason.LDAP_BIND_REFUSED, "bind"),
            (Reason.LDAP_SEARCH_REFUSED, "search"),
            (Reason.LDAP_GROUPS_UNKNOWN, "mappings"),
        ):
            self.directory.refused = DirectoryRefused(reason, "what it said")
            self.assertEqual(self.failed("alice", PASSWORD), (check, reason.value))
        key = (f"acme:webservice:{self.dialect.prefix}/authn-ldap/corp", "ldap-authn/base_dn")
        del self.memory.annotations[key]
        self.assertEqual(self.failed("alice", PASSWORD), ("configuration", "configuration-invalid"))

    def test_without_a_password(self) -> None:
        """Without a password the directory is reached, as the account that searches, and nobody is looked for (REF-13)."""
        found = self.explained("alice", path="/authn-ldap/corp/acme")
        self.assertIs(found["admitted"], None)
        self.assertEqual(
            [step["check"] for step in found["steps"] if step["outcome"] == "not tried"],
            ["evidence", "search", "mappings", "entry", "credentials"],
        )
        self.assertEqual(self.directory.asked, [])
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "down")
        self.assertEqual(self.failed("alice"), ("directory", "ldap-unavailable"))

    def test_not_enabled(self) -> None:
        """One that isn't listed, or is switched off, is told (REF-13)."""
        self.memory.switches[f"acme:webservice:{self.dialect.prefix}/authn-ldap/corp"] = False
        expected = ("enabled", "authenticator-not-enabled")
        if self.dialect is CONJUR:
            self.assertTrue(self.explained("alice", PASSWORD, path="/authn-ldap/corp/acme")["admitted"])
        else:
            self.assertEqual(self.failed("alice", PASSWORD), expected)


class ConjurLdapTests(LdapTests):
    """The same in the other dialect."""

    dialect = CONJUR


class WhoTests(ExplanationsCase):
    """Who may ask, and what they learn."""

    def test_who(self) -> None:
        """It takes the role, the root policy, or ``read`` on the status of authn; others get 403, whoever they ask about
        (REF-11).
        """
        self.assertEqual(self.client.post("/authn/acme/alice/explain").status, 401)
        for login in ("alice", "nobody", "eve"):
            for evidence in (None, WRONG, self.keys_of[str(ALICE)]):
                answer = self.asked(login, evidence, role=EVE)
                self.assertEqual((answer.status, answer.body), (403, b""))
        self.assertEqual(
            self.told("host%2Fweb", role=OWNER, address="10.1.1.1")["role"], "there is the role 'acme:host:web'"
        )
        self.assertEqual(self.asked("alice", role=OWNER).status, 403)
        self.assertEqual(self.asked("alice", WRONG, role=OLIVIA).status, 200)

    def test_auditors(self) -> None:
        """To inspect the whole account is not enough: a try is no look (REF-11)."""
        self.load("- !permit { role: !user eve, privileges: [ inspect ], resource: !policy root }")
        self.assertEqual(self.client.get("/refusals", role=EVE).status, 200)
        for login in ("alice", "nobody"):
            for evidence in (None, WRONG):
                self.assertEqual(self.asked(login, evidence, role=EVE).status, 403)

    def test_other_accounts(self) -> None:
        """Of another account nothing is told, whether there is one or not (REF-11)."""
        self.result_of(self.create_account("other", "1other"))
        for account in ("other", "none"):
            for path in (f"/authn/{account}", f"/authn-ldap/corp/{account}"):
                self.assertEqual(self.asked("alice", WRONG, path=path).status, 404)
                self.assertEqual(self.asked("alice", WRONG, path="/authn/acme", role=admin_of("other")).status, 404)

    def test_ldap(self) -> None:
        """For a directory it takes ``read`` on the webservice's status, as for other kinds (REF-11)."""
        path = "/authn-ldap/corp/acme"
        self.assertEqual(self.asked("alice", WRONG, role=OWNER, path=path).status, 403)
        self.assertEqual(self.asked("alice", WRONG, role=OLIVIA, path=path).status, 200)
        self.assertEqual(self.asked("alice", WRONG, path="/authn-ldap/other/acme").status, 404)

    def test_no_oracle(self) -> None:
        """Who doesn't see the role learns what a login tells: admitted, or not, whatever the cause (REF-14)."""
        self.memory.key_expirations[str(BOB)] = 1.0
        right, expired, near = self.keys_of[str(ALICE)], self.keys_of[str(BOB)], self.keys_of[str(WEB)]
        for path in ("/authn/acme", "/authn-ldap/corp/acme"):
            answers = set()
            for login, evidence in (
                ("nobody", WRONG),
                ("alice", WRONG),
                ("bob", expired),
                ("host%2Fweb", near),
                ("host%2Fnone", near),
                ("bob", PASSWORD),
            ):
                found = self.explained(login, evidence, role=OLIVIA, path=path)
                found.pop("role")
                answers.add(str(found))
            self.assertEqual(len(answers), 1, answers)
            found = self.explained("alice", right, role=OLIVIA, path=path)
            self.assertEqual((found["admitted"], len(found["steps"])), (True, 1))
            for login in ("alice", "nobody"):
                self.assertEqual(self.asked(login, role=OLIVIA, path=path).status, 403)

    def test_what_is_of_no_role(self) -> None:
        """A directory that is away is told to an operator who sees nobody, of whomever (REF-14)."""
        self.directory.refused = DirectoryRefused(Reason.LDAP_UNAVAILABLE, "down")
        for login in ("alice", "nobody"):
            found = self.explained(login, PASSWORD, role=OLIVIA, path="/authn-ldap/corp/acme")
            self.assertEqual([step["reason"] for step in found["steps"]], ["ldap-unavailable"])

    def test_parameters(self) -> None:
        """An address must be one, and a login name somebody."""
        self.assertEqual(self.asked("alice", address="nowhere").status, 422)
        self.assertEqual(self.asked("host%2F").status, 422)


class GuessTests(ExplanationsCase):
    """A tried key is a guess."""

    def test_slowed_down(self) -> None:
        """What is tried counts with failed logins, and is answered late with them; it is told how it stands (REF-14)."""
        for _ in range(ROLE_FAILURES - 1):
            self.client.post("/authn/acme/alice/authenticate", WRONG)
        told = self.explained("alice", WRONG)["steps"][0]["detail"]
        self.assertEqual(
            told, "9 failures to prove the role in the last minute: another one is answered at once, the right one at once"
        )
        for path in ("/authn/acme", "/authn-ldap/corp/acme"):
            begun = self.client.begin("POST", f"{path}/alice/explain", body=b"evidence=wrong", role=ADMIN)
            self.assertEqual(begun.answers(), [])
            self.clock.advance(2.0)
            self.assertEqual(begun.answer().status, 200)
        begun = self.client.begin("POST", "/authn/acme/alice/authenticate", body=WRONG)
        self.assertEqual(begun.answers(), [])
        self.clock.advance(4.0)
        self.assertEqual(begun.answer().status, 401)
        told = self.told("alice")["throttle"]
        self.assertTrue(told.startswith("10 failures or more"), told)
        self.assertIn("answered 8 s late", told)
        self.assertTrue(self.explained("alice", self.keys_of[str(ALICE)])["admitted"])

    def test_addresses(self) -> None:
        """Tries count for the address of who asks, whichever is named; beyond many they are 429 (REF-14)."""
        for number in range(ADDRESS_FAILURES):
            self.client.post(f"/authn/acme/n{number}/authenticate", WRONG, peer="203.0.113.9")
        answer = self.asked("alice", WRONG, peer="203.0.113.9")
        self.assertEqual((answer.status, answer.headers["retry-after"]), (429, "60"))
        right = self.keys_of[str(ALICE)]
        for evidence in (None, WRONG, right):
            self.assertEqual(self.failed("alice", evidence, address="203.0.113.9"), ("throttle", "failures-too-many"))
        self.assertEqual(self.failed("alice", peer="203.0.113.9"), ("throttle", "failures-too-many"))
        self.assertEqual(self.failed("alice", WRONG), ("credentials", "credentials-wrong"))

    def test_recorded(self) -> None:
        """Who had whose login explained is recorded, with what became of a try, and never the key (REF-14)."""
        journal = self.client.journal
        assert isinstance(journal, Chronicle)
        journal.told()
        self.explained("alice", WRONG)
        self.explained("alice", path="/authn-ldap/corp/acme")
        prefix = self.dialect.prefix
        subject = {"role": str(ADMIN), "login": str(ALICE)}
        self.assertEqual(
            journal.told(),
            [
                (
                    "authn",
                    "explain",
                    {
                        "resource": f"acme:webservice:{prefix}/authn",
                        **subject,
                        "tried": "yes",
                        "reason": "credentials-wrong",
                    },
                    None,
                ),
                (
                    "authn",
                    "explain",
                    {"resource": f"acme:webservice:{prefix}/authn-ldap/corp", **subject, "tried": "no", "reason": "none"},
                    None,
                ),
            ],
        )

    def test_logged(self) -> None:
        """The log says who had it explained, and no evidence."""
        with capturedLogs() as events:
            self.explained("alice", WRONG)
        said = [formatEvent(event) for event in events]
        self.assertIn(
            "acme:user:admin had a login of acme:user:alice at authn explained, refused for: credentials-wrong", said
        )
        self.assertNotIn(WRONG.decode(), repr(events))

    def test_nothing_is_issued(self) -> None:
        """No key, hash or token is in an answer (REF-14)."""
        key = self.keys_of[str(ALICE)]
        self.assertNotIn(key, self.asked("alice", key).body)
        self.assertNotIn(b"protected", self.asked("alice", key).body)
        refused = self.result_of(
            self.by_api_key.explain(ExplanationRequest("acme", "alice", WRONG, "::1", address="::1", tried=True))
        )
        assert isinstance(refused, Refused)
        self.assertNotIn(api_key_name(ALICE), repr(refused))
