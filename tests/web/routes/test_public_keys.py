"""Tests of ``svc.web.routes.public_keys``."""

from __future__ import annotations

from svc.model.dialect import CONJUR
from tests.sshkeys import ONE, RSA, TWO
from tests.web.world import ADMIN, WorldCase, user

POLICY = f"""
- !user {{ id: alice, public_keys: [ {TWO} work, {ONE} home, '{RSA} a/b' ] }}
- !user bob
- !user keeper
- !user reader
"""
PERMITS = """
- !permit { role: !user keeper, privileges: [ read, update ], resource: { kind: public_key, id: user/alice/home } }
- !permit { role: !user reader, privilege: read, resource: { kind: public_key, id: user/alice/home } }
"""

KEYS, HOME = "/public_keys/acme/user/alice", "/secrets/acme/public_key/user%2Falice%2Fhome"
KEEPER, READER, BOB = map(user, ("keeper", "reader", "bob"))


class PublicKeysTests(WorldCase):
    """Public keys, KEY-9 to KEY-17."""

    def setUp(self) -> None:
        """Load a policy with keys."""
        super().setUp()
        self.load(POLICY)
        self.load(PERMITS)

    def test_told_to_anybody(self) -> None:
        """A user's keys come in the order of their names, one a line, in plain text, without a login (KEY-9)."""
        answer = self.client.get(KEYS)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.body.decode(), f"{RSA} a/b\n{ONE} home\n{TWO} work\n")
        self.assertEqual(answer.headers["content-type"], "text/plain; charset=utf-8")
        self.assertEqual(self.client.get(KEYS, role=BOB).body, answer.body)

    def test_nothing_to_tell(self) -> None:
        """Who has no keys, who doesn't exist, and whose account doesn't, look alike: an empty line (KEY-10)."""
        for path in ("/public_keys/acme/user/bob", "/public_keys/acme/user/nobody", "/public_keys/none/user/alice"):
            answer = self.client.get(path)
            self.assertEqual((answer.status, answer.body), (200, b"\n"))

    def test_bad_requests(self) -> None:
        """A bad token is 401 even here; other kinds are 404, and names that can't be 422 (KEY-11)."""
        self.assertEqual(self.client.get(KEYS, headers=[("Authorization", "Token nonsense")]).status, 401)
        for path in ("/public_keys/acme/host/alice", "/public_keys/acme/User/alice", "/public_keys/acme/user"):
            self.assertEqual(self.client.get(path).status, 404)
        for path in ("/public_keys/a:b/user/alice", "/public_keys/acme/user/%00", "/public_keys/acme/user/%ff"):
            self.assertEqual(self.client.get(path).status, 422)
        self.assertEqual(self.client.get(f"/public_keys/acme/user/{'x' * 1025}").status, 422)

    def test_replaced(self) -> None:
        """A key is replaced by whom policy permits, trimmed; an unchanged one is no new version (KEY-13)."""
        name = "acme:public_key:user/alice/home"
        for body, version in ((f"{TWO}  new\n", 2), (f" {TWO} new", 2), (RSA, 3)):
            self.assertEqual(self.client.post(HOME, body.encode(), role=KEEPER).status, 201)
            self.assertEqual(max(self.memory.secrets[name]), version)
        self.assertEqual(self.client.get(KEYS).body.decode(), f"{RSA} a/b\n{RSA}\n{TWO} work\n")

    def test_refused(self) -> None:
        """Junk, several lines and private keys are 422, and nothing is told of them; the key stays (KEY-15)."""
        private = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
        for body in (b"", b" ", b"ssh-rsa", b"ssh-rsa AAAA x", f"{ONE}\n{TWO}".encode(), private.encode(), b"\xff", b"\x00"):
            message = self.error(self.client.post(HOME, body, role=KEEPER), 422, "argument_error")
            self.assertEqual(message, "value: Invalid public key format")
        self.assertIn(f"{ONE} home\n", self.client.get(KEYS).body.decode())

    def test_privileges(self) -> None:
        """Replacing takes ``update``: 403 for who only sees the key, 404 for who doesn't, and where there is none
        (KEY-14).
        """
        self.assertEqual(self.client.post(HOME, ONE.encode(), role=READER).status, 403)
        message = self.error(self.client.post(HOME, b"junk", role=BOB), 404, "not_found")
        self.assertEqual(message, "Public_key 'user/alice/home' not found in account 'acme'")
        self.error(self.client.post(HOME.replace("home", "none"), ONE.encode(), role=ADMIN), 404, "not_found")
        self.assertEqual(self.client.post(HOME, ONE.encode()).status, 401)
        self.assertEqual(self.client.post(HOME, ONE.encode(), role=user("gone")).status, 403)
        self.assertEqual(self.client.get(HOME, role=ADMIN).status, 404)

    def test_a_key_that_does_not_open(self) -> None:
        """A key that was sealed for another name can be replaced, and until then answers 422 (KEY-16, DATA-5)."""
        secrets = self.memory.secrets
        secrets["acme:public_key:user/alice/home"] = dict(secrets["acme:public_key:user/alice/work"])
        self.error(self.client.get(KEYS), 422, "data_key_invalid")
        self.assertEqual(self.client.post(HOME, ONE.encode(), role=KEEPER).status, 201)
        self.assertEqual(self.client.get(KEYS).status, 200)

    def test_standby(self) -> None:
        """A standby tells keys, and replaces none (KEY-17)."""
        self.memory.standby = True
        self.assertEqual(self.client.get(KEYS).status, 200)
        self.assertEqual(self.client.post(HOME, ONE.encode(), role=KEEPER).status, 405)


class ConjurPublicKeysTests(PublicKeysTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
