"""Tests of ``svc.web.routes.secrets``."""

from __future__ import annotations

import base64
from math import inf

from svc.model.dialect import CONJUR
from svc.model.names import RoleName
from svc.services.secret_batches import SHORT
from tests.memory import ExpirationRow
from tests.web.support import Answer
from tests.web.world import ADMIN, WorldCase, user

ALICE, BOB, EVE = user("alice"), user("bob"), user("eve")

POLICY = """
- !user alice
- !user bob
- !user eve
- !variable password
- !variable { id: key, mime_type: application/x-pem-file }
- !permit { role: !user alice, privileges: [ read, execute ], resource: !variable password }
- !permit { role: !user bob, privileges: [ read, update ], resource: !variable password }
"""

PATH = "/secrets/acme/variable/password"


class SecretsTests(WorldCase):
    """Reading and writing, SEC-1 to SEC-26."""

    def setUp(self) -> None:
        """Load a policy with variables."""
        super().setUp()
        self.load(POLICY)

    def test_exact_bytes(self) -> None:
        """A value comes back as it was sent, whatever its bytes, as an attachment of no type in particular (SEC-1, SEC-8,
        WIRE-23).
        """
        value = bytes(range(256)) + "ü".encode()
        self.set_value("password", value)
        answer = self.client.get(PATH, role=ALICE)
        self.assertEqual((answer.status, answer.body), (200, value))
        self.assertEqual(answer.headers["content-type"], "application/octet-stream")
        self.assertEqual(answer.headers["content-disposition"], "attachment")
        self.assertEqual(answer.headers["cache-control"], "no-store")

    def test_any_content_type(self) -> None:
        """The body is the value, whatever content type it is sent with, or none (SEC-1)."""
        for sent in (None, "application/x-www-form-urlencoded", "application/json", "text/plain; charset=utf-8"):
            value = f"a=1&b=%2F&c={sent}".encode()
            headers = [] if sent is None else [("Content-Type", sent)]
            self.assertEqual(self.client.post(PATH, value, role=ADMIN, headers=headers).status, 201, sent)
            self.assertEqual(self.client.get(PATH, role=ADMIN).body, value, sent)

    def test_the_content_type_of_policy(self) -> None:
        """The variable's ``mime_type`` is the content type of its value (SEC-11)."""
        self.set_value("key", b"-----BEGIN")
        self.assertEqual(
            self.client.get("/secrets/acme/variable/key", role=ADMIN).headers["content-type"], "application/x-pem-file"
        )

    def test_privileges(self) -> None:
        """Reading takes ``execute``, writing ``update``: 403 for who only sees the variable, 404 for who doesn't (SEC-1,
        SEC-2, SEC-9).
        """
        self.set_value("password")
        self.assertEqual(self.client.get(PATH, role=BOB).status, 403)
        self.assertEqual(self.client.get(PATH, role=BOB).body, b"")
        self.set_value("password", role=BOB)
        self.set_value("password", role=ALICE, status=403)
        message = self.error(self.client.get(PATH, role=EVE), 404, "not_found")
        self.assertEqual(message, self.worded("CONJ00076E Variable acme:variable:password is empty or not found."))
        self.error(self.set_value("password", role=EVE, status=404), 404, "not_found")

    def test_no_value(self) -> None:
        """A variable without a value, and one that isn't there, are 404 with the same words (SEC-9, FAIL-20)."""
        for name in ("password", "nothing"):
            message = self.error(self.client.get(f"/secrets/acme/variable/{name}", role=ADMIN), 404, "not_found")
            self.assertEqual(message, self.worded(f"CONJ00076E Variable acme:variable:{name} is empty or not found."))
        message = self.error(self.set_value("nothing", status=404), 404, "not_found")
        self.assertEqual(message, "Variable 'nothing' not found in account 'acme'")

    def test_versions(self) -> None:
        """Each new value is a new version, an unchanged one is none, and 20 of them are kept (SEC-3, SEC-4, SEC-8)."""
        for number in range(1, 23):
            self.set_value("password", b"value %d" % number)
            self.set_value("password", b"value %d" % number)
        self.assertEqual(self.client.get(PATH, role=ALICE).body, b"value 22")
        self.assertEqual(self.client.get(f"{PATH}?version=3", role=ALICE).body, b"value 3")
        for version in (-1, 0, 2, 23, 2**31, 2**62, 2**70, "9" * 5000):
            self.assertEqual(self.client.get(f"{PATH}?version={version}", role=ALICE).status, 404)

    def test_bad_versions(self) -> None:
        """A version that is no integer is 422 and named (SEC-10)."""
        for version in ("", "one", "1.5", "1e3", "%00"):
            message = self.error(self.client.get(f"{PATH}?version={version}", role=ALICE), 422, "argument_error")
            self.assertIn("version", message)

    def test_empty_values(self) -> None:
        """A value that is empty or nothing but blanks is 422 (SEC-2)."""
        for value in (b"", b" \n\t"):
            self.assertEqual(
                self.error(self.set_value("password", value, status=422), 422, "argument_error"), "'value' may not be empty"
            )

    def test_values_are_sealed(self) -> None:
        """The store sees no plain value, and a sealed one opens under its own variable's name alone (DATA-5)."""
        self.set_value("password", b"plain text")
        self.set_value("key", b"other")
        stored = self.memory.secrets
        self.assertNotIn("plain text", repr(stored))
        stored["acme:variable:key"] = stored["acme:variable:password"]
        self.error(self.client.get("/secrets/acme/variable/key", role=ADMIN), 422, "data_key_invalid")
        self.assertEqual(self.client.get(PATH, role=ALICE).body, b"plain text")

    def test_a_value_that_does_not_open_can_be_replaced(self) -> None:
        """A value that can't be read any more doesn't keep a new one out (SEC-6)."""
        self.set_value("password", b"old")
        self.set_value("key", b"other")
        self.memory.secrets["acme:variable:key"] = self.memory.secrets["acme:variable:password"]
        self.set_value("key", b"new")
        self.assertEqual(self.client.get("/secrets/acme/variable/key", role=ADMIN).body, b"new")

    def test_callers(self) -> None:
        """Without a token it is 401, with the token of a role that is gone 403 (SEC-12)."""
        self.assertEqual(self.client.get(PATH).status, 401)
        self.assertEqual(self.client.post(PATH, b"x").status, 401)
        self.assertEqual(self.client.get(PATH, role=user("gone")).status, 403)
        self.set_value("password", role=user("gone"), status=403)

    def test_other_kinds(self) -> None:
        """Nothing but variables has a route (NAME-6, SEC-7)."""
        for kind in ("user", "Variable", "webservice"):
            self.assertEqual(self.client.get(f"/secrets/acme/{kind}/password", role=ADMIN).status, 404)

    def test_several(self) -> None:
        """Several values are read at once as an object by full ids; an id that is repeated counts once (SEC-13)."""
        self.set_value("password", "grüße".encode())
        self.set_value("key", b"-----BEGIN <&>")
        asked = "/secrets?variable_ids=acme%3Avariable%3Apassword%2Cacme:variable:key,acme:variable:password,"
        answer = self.client.get(asked, role=ADMIN)
        self.assertEqual(answer.json(), {"acme:variable:password": "grüße", "acme:variable:key": "-----BEGIN <&>"})
        self.assertEqual(answer.headers["cache-control"], "no-store")
        self.assertNotIn("content-encoding", answer.headers)

    def test_several_in_base64(self) -> None:
        """Asked for ``base64`` and nothing else, values are base64 in lines of 60; otherwise all of them must be text
        (SEC-15).
        """
        value = bytes(range(256))
        self.set_value("password", value)
        self.set_value("key", b"x" * 45)
        asked = "/secrets?variable_ids=acme:variable:password,acme:variable:key"
        for header in ("base64", " BASE64 "):
            answer = self.client.get(asked, role=ADMIN, headers=[("Accept-Encoding", header)])
            self.assertEqual(answer.headers["content-encoding"], "base64")
            values = answer.json()
            self.assertEqual(base64.b64decode(values["acme:variable:password"]), value)
            self.assertEqual(values["acme:variable:key"], "eHh4" * 15 + "\n")
            self.assertEqual({len(line) for line in values["acme:variable:password"].split("\n")[:-2]}, {60})
        for header in ("gzip", "base64, gzip"):
            answer = self.client.get(asked, role=ADMIN, headers=[("Accept-Encoding", header)])
            message = self.error(answer, 406, "not_acceptable")
            told = "CONJ00074E Issue encoding secret into JSON format, try including 'Accept-Encoding: base64' header in"
            told = f"{told} request. The value of acme:variable:password is no text in UTF-8."
            self.assertEqual(message, self.worded(told))

    def test_several_refused(self) -> None:
        """What is seen without ``execute`` is refused first, then what isn't seen, then what has no value (SEC-14)."""
        self.set_value("key")

        def ask(ids: str, role: RoleName = ALICE) -> Answer:
            return self.client.get(f"/secrets?variable_ids={ids}", role=role)

        empty, hidden, missing = "acme:variable:password", "acme:variable:key", "acme:variable:none"
        self.assertEqual(ask(f"{missing},{hidden},{empty}", BOB).status, 403)
        self.assertEqual(ask(f"{missing},{hidden},{empty}", BOB).body, b"")
        for ids, told in (
            (f"{empty},{hidden},{missing}", hidden),
            (f"{empty},{missing},{hidden}", missing),
            (f"{empty},1,{missing}", "1"),
            (f"{empty},other:variable:x", "other:variable:x"),
            (empty, empty),
        ):
            message = self.error(ask(ids), 404, "not_found")
            self.assertEqual(message, self.worded(f"CONJ00076E Variable {told} is empty or not found."))
        self.assertEqual(ask(empty, user("gone")).status, 403)
        self.assertEqual(self.client.get(f"/secrets?variable_ids={empty}").status, 401)

    def test_too_many_at_once(self) -> None:
        """Only so many are read at once, and of so many bytes; who may not read them learns nothing of their sizes (SEC-14,
        LIM-16).
        """
        listed = ",".join(f"acme:variable:v{number}" for number in range(SHORT.ids + 1))
        answer = self.client.get(f"/secrets?variable_ids={listed}", role=ADMIN)
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (422, "argument_error"))
        names = ("ci/one", "ci/two")
        self.load("".join(f"- !variable {name}\n" for name in names))
        for name in names:
            self.set_value(name, b"<" * (SHORT.bytes // 2))
        path = "/secrets?variable_ids=" + ",".join(f"acme:variable:{name}" for name in names)
        answer = self.client.get(path, role=ADMIN)
        self.assertEqual((answer.status, answer.json()["error"]["code"]), (413, "too_large"))
        self.assertIn(str(SHORT.bytes), answer.json()["error"]["message"])
        self.assertEqual(self.client.get(f"{path},acme:variable:none", role=ADMIN).status, 404)
        self.assertEqual(self.client.get(path.partition(",")[0], role=ADMIN).status, 200)

    def test_several_of_nothing(self) -> None:
        """A list that is missing, empty or has a blank in it is 422, named and explained (SEC-14)."""
        none = "variable_ids must name at least one variable: full ids, such as acme:variable:db/password, between commas"
        blank = "variable_ids has an empty id among the full ids that commas separate"
        for query, told in (
            ("", none),
            ("?variable_ids", none),
            ("?variable_ids=", none),
            ("?variable_ids=,", none),
            ("?variable_ids=%20", none),
            ("?variable_ids=%20,,", none),
            ("?variable_ids=,a:variable:b", blank),
            ("?variable_ids=a,%20,b", blank),
        ):
            message = self.error(self.client.get(f"/secrets{query}", role=ALICE), 422, "argument_error")
            self.assertEqual(message, told, query)

    def tag(self, name: str = "password") -> str:
        """The entity tag of a value, as a reader is told it."""
        return self.client.get(f"/secrets/acme/variable/{name}", role=ADMIN).headers["etag"]

    def test_tags(self) -> None:
        """A value has a strong tag that names its version, the same each time, and to who writes it as to who reads it
        (SEC-1, SEC-16).
        """
        written = self.set_value("password", b"one").headers["etag"]
        self.assertRegex(written, r'^"1-[0-9a-f]{24}"$')
        self.assertEqual((self.tag(), self.tag()), (written, written))
        self.assertEqual(self.set_value("password", b"one").headers["etag"], written)
        second = self.set_value("password", b"two").headers["etag"]
        self.assertEqual(self.client.get(f"{PATH}?version=1", role=ADMIN).headers["etag"], written)
        self.assertEqual(self.tag(), second)

    def test_guesses(self) -> None:
        """Who may set a value and not read it is told the same of one that is set already as of any other (SEC-3)."""
        writer, told = user("writer"), set()
        self.load("- !user writer\n- !permit { role: !user writer, privilege: [ update ], resource: !variable password }")
        for value, guess in ((b"one", b"one"), (b"two", b"no")):
            before = self.set_value("password", value).headers["etag"]
            after = self.set_value("password", guess, writer).headers["etag"]
            shown = self.client.get("/resources/acme/variable/password", role=writer).json()["secrets"]
            told.add((len(after), after == before, shown[-1]["version"] - int(before[1])))
        self.assertEqual(told, {(28, False, 1)})
        self.assertEqual(self.set_value("password", b"no").headers["etag"], after)

    def test_a_tag_in_another_life(self) -> None:
        """A variable that is deleted and made again has other tags, of the same value and version too (SEC-16)."""
        before = self.set_value("key", b"one").headers["etag"]
        self.load("- !delete { record: !variable key }", method="PATCH")
        self.load("- !variable key")
        self.assertNotEqual(self.set_value("key", b"one").headers["etag"], before)

    def test_known_values(self) -> None:
        """Who has the value by its tag gets 304, which has no body, for ``GET`` and for ``HEAD``; otherwise it is told
        (SEC-17).
        """
        tag = self.set_value("password", b"one").headers["etag"]
        for ask in (self.client.get, self.client.head):
            for header in (tag, "*", f"W/{tag}", f'"x", {tag}'):
                answer = ask(PATH, role=ALICE, headers=[("If-None-Match", header)])
                self.assertEqual((answer.status, answer.body, answer.headers["etag"]), (304, b"", tag))
                self.assertNotIn("content-length", answer.headers)
            self.assertEqual(ask(PATH, role=ALICE, headers=[("If-None-Match", '"1-x"')]).status, 200)
            self.assertEqual(ask(PATH, role=ALICE, headers=[("If-Match", '"1-x"')]).status, 412)
            self.assertEqual(ask(PATH, role=ALICE, headers=[("If-Match", tag)]).status, 200)

    def test_tags_tell_strangers_nothing(self) -> None:
        """Who may not execute is answered as without conditions, and told no tag (SEC-20)."""
        tag = self.set_value("password", b"one").headers["etag"]
        for header in ("If-Match", "If-None-Match"):
            for value in (tag, "*", '"x"'):
                for role, status in ((BOB, 403), (EVE, 404)):
                    answer = self.client.get(PATH, role=role, headers=[(header, value)])
                    self.assertEqual(answer.status, status)
                    self.assertNotIn("etag", answer.headers)
                for role, status in ((ALICE, 403), (EVE, 404)):
                    answer = self.client.post(PATH, b"x", role=role, headers=[(header, value)])
                    self.assertEqual(answer.status, status)
                    self.assertNotIn("etag", answer.headers)
        self.assertEqual(self.tag(), tag)

    def test_conditional_writes(self) -> None:
        """``If-Match`` lets only who knows the newest value replace it; the others get 412 and the tag that it has
        (SEC-17).
        """
        tag = self.set_value("password", b"one").headers["etag"]
        answer = self.client.post(PATH, b"two", role=BOB, headers=[("If-Match", tag)])
        self.assertEqual(answer.status, 201)
        self.assertTrue(answer.headers["etag"].startswith('"2-'))
        late = self.client.post(PATH, b"three", role=BOB, headers=[("If-Match", tag)])
        self.error(late, 412, "precondition_failed")
        self.assertEqual(late.headers["etag"], answer.headers["etag"])
        self.assertEqual(self.client.get(PATH, role=ALICE).body, b"two")
        self.assertEqual(self.client.post(PATH, b"three", role=BOB, headers=[("If-Match", "*")]).status, 201)

    def test_first_values(self) -> None:
        """``If-None-Match: *`` writes the first value alone, and ``If-Match`` never does (SEC-17)."""
        for header in ("*", '"1-x"'):
            answer = self.client.post(PATH, b"one", role=BOB, headers=[("If-Match", header)])
            self.assertIn("If-Match", self.error(answer, 412, "precondition_failed"))
        create = [("If-None-Match", "*")]
        self.assertEqual(self.client.post(PATH, b"one", role=BOB, headers=create).status, 201)
        for value in (b"one", b"two"):
            self.error(self.client.post(PATH, value, role=BOB, headers=create), 412, "precondition_failed")
        self.assertEqual(self.client.get(PATH, role=ALICE).body, b"one")

    def test_other_faults_come_before_conditions(self) -> None:
        """An empty value and a value that isn't there are told as ever, whatever the conditions (SEC-2)."""
        for header in ("If-Match", "If-None-Match"):
            answer = self.client.post(PATH, b" ", role=BOB, headers=[(header, '"x"')])
            self.error(answer, 422, "argument_error")
            self.error(self.client.get(PATH, role=ALICE, headers=[(header, "*")]), 404, "not_found")

    def test_malformed_conditions(self) -> None:
        """A condition that can't be read is 422 and named (SEC-19)."""
        self.set_value("password", b"one")
        for header in ("If-Match", "If-None-Match"):
            for answer in (
                self.client.get(PATH, role=ALICE, headers=[(header, "1-x")]),
                self.client.post(PATH, b"x", role=BOB, headers=[(header, '"1-x')]),
            ):
                self.assertIn(header, self.error(answer, 422, "argument_error"))

    def test_content_types_that_are_none(self) -> None:
        """An annotation that is no content type is not sent as one, and no browser runs what is of a type that it knows
        (SEC-11).
        """
        good = ("text/html", 'text/plain; charset="utf-8"', "application/vnd.x+json;v=1")
        bad = (
            "html",
            "text/html\\r\\nSet-Cookie: a=b",
            "text/html, text/plain",
            "text/",
            "text/pläin",
            "a/" + "b" * 300,
            "",
        )
        for number, text in enumerate((*good, *bad)):
            prefix = self.dialect.prefix
            self.load(
                f'- !variable {{ id: t{number}, annotations: {{ {prefix}/mime_type: "{text}" }} }}'.replace(
                    '"utf-8"', "utf-8"
                )
            )
            self.set_value(f"t{number}", b"<script>")
            answer = self.client.get(f"/secrets/acme/variable/t{number}", role=ADMIN)
            expected = text.replace('"', "") if text in good else "application/octet-stream"
            self.assertEqual(answer.headers["content-type"], expected)
            self.assertEqual(answer.headers["content-disposition"], "attachment")
            self.assertEqual(answer.headers["x-content-type-options"], "nosniff")
            self.assertNotIn("set-cookie", answer.headers)

    def test_a_secret_of_ten_mebibytes(self) -> None:
        """A value beyond the limit of bodies is 413, and the connection can be used again or is closed."""
        self.assertEqual(self.client.post(PATH, b"x" * (10 * 1024 * 1024), role=BOB).status, 413)
        self.assertEqual(self.client.get(PATH, role=ALICE).status, 404)

    def test_a_batch_of_ten_thousand(self) -> None:
        """Ten thousand ids at once are 422, before anything is looked up (SEC-14)."""
        listed = ",".join(map(str, range(10_000)))
        message = self.error(self.client.get(f"/secrets?variable_ids={listed}", role=ADMIN), 422, "argument_error")
        self.assertIn("variable_ids", message)

    def load_expiring(self) -> None:
        """Load a variable whose values live for an hour, and one that is rotated."""
        self.load(
            """
            - !variable { id: short, annotations: { expiration/ttl: PT1H } }
            - !variable { id: turned, annotations: { rotation/rotator: postgresql/password, rotation/ttl: P1D } }
            - !permit { role: !user alice, privileges: [ read, execute ], resource: !variable short }
            - !permit { role: !user bob, privileges: [ read, update ], resource: !variable short }
            - !policy db
            """
        )

    def test_expiry(self) -> None:
        """A value is there up to the last moment of its life, and from then on 404 with words of its own (SEC-22)."""
        self.load_expiring()
        tag = self.set_value("short", b"one").headers["etag"]
        path = "/secrets/acme/variable/short"
        ends = self.memory.now + 3600
        self.memory.now = ends - 0.001
        self.assertEqual(self.client.get(path, role=ALICE).body, b"one")
        self.memory.now = ends
        for target in (path, f"{path}?version=1", "/secrets?variable_ids=acme:variable:short"):
            message = self.error(self.client.get(target, role=ALICE, headers=[("If-None-Match", tag)]), 404, "not_found")
            told = self.worded("CONJ00076E Variable acme:variable:short is empty or not found.")
            self.assertTrue(message.startswith(told), message)
            self.assertIn("expired at 2023-11-14T23:13:20.250+00:00", message)
        self.assertEqual(self.client.get(path, role=BOB).status, 403)
        self.assertNotIn(b"expired", self.client.get(path, role=EVE).body)

    def test_the_end_of_an_expired_value(self) -> None:
        """An expired value is none: the same one can be set again, as a new version, and as a first one (SEC-23)."""
        self.load_expiring()
        tag = self.set_value("short", b"one").headers["etag"]
        self.memory.now += 3600
        path = "/secrets/acme/variable/short"
        self.error(self.client.post(path, b"two", role=BOB, headers=[("If-Match", tag)]), 412, "precondition_failed")
        answer = self.client.post(path, b"one", role=BOB, headers=[("If-None-Match", "*")])
        self.assertEqual(answer.status, 201)
        self.assertTrue(answer.headers["etag"].startswith('"2-'))
        self.assertEqual(self.client.get(path, role=ALICE).body, b"one")

    def test_expirations_told(self) -> None:
        """The resource tells when each value ends, and what is known of its expiration; one without has no such field
        (SEC-26).
        """
        self.load_expiring()
        self.set_value("short", b"one")
        told = self.client.get("/resources/acme/variable/short", role=ADMIN).json()
        self.assertEqual(told["secrets"], [{"version": 1, "expires_at": "2023-11-14T23:13:20.250+00:00"}])
        self.assertEqual(told["expiration"], {"due_at": None, "failures": 0, "fault": None})
        self.set_value("password", b"one")
        told = self.client.get("/resources/acme/variable/password", role=ADMIN).json()
        self.assertEqual(told["secrets"], [{"version": 1, "expires_at": None}])
        self.assertNotIn("expiration", told)

    def test_clearing_expirations(self) -> None:
        """``?expirations`` takes ``update``, sets no value, and has those that there are not end, nor have ended
        (SEC-25); with brackets it is 422, and sets none either (WIRE-21).
        """
        self.load_expiring()
        self.set_value("short", b"one")
        self.memory.now += 3600
        path = "/secrets/acme/variable/short"
        for query in ("?expirations", "?expirations=no", "?expirations="):
            answer = self.client.post(f"{path}{query}", b"ignored", role=BOB)
            self.assertEqual((answer.status, answer.body), (201, b""))
        for query in ("?expirations[]=1", "?expirations[0]", "?expirations[", "?expirations&expirations[]=1"):
            self.error(self.client.post(f"{path}{query}", b"ignored", role=BOB), 422, "argument_error")
        self.assertEqual(self.client.get(path, role=ALICE).body, b"one")
        told = self.client.get("/resources/acme/variable/short", role=ADMIN).json()
        self.assertEqual(told["secrets"], [{"version": 1, "expires_at": None}])

    def test_clearing_expirations_refused(self) -> None:
        """``?expirations`` is 403 for who lacks ``update``, 404 for who doesn't see the variable, 422 for other kinds
        (SEC-25).
        """
        self.load_expiring()
        path = "/secrets/acme/variable/short?expirations"
        self.assertEqual(self.client.post(path, role=ALICE).status, 403)
        for target, role in ((path, EVE), ("/secrets/acme/variable/nothing?expirations", ADMIN)):
            self.assertIn("not found in account", self.error(self.client.post(target, role=role), 404, "not_found"))
        self.assertEqual(self.client.post(path).status, 401)
        for kind in ("policy", "public_key", "user", "nonsense"):
            message = self.error(self.client.post(f"/secrets/acme/{kind}/db?expirations", role=ADMIN), 422, "argument_error")
            self.assertEqual(message, f"Invalid secret kind: {kind}")
        self.assertEqual(self.client.post("/secrets/acme/policy/db", b"x", role=ADMIN).status, 404)
        self.memory.standby = True
        self.assertEqual(self.client.post(path, role=BOB).status, 405)

    def test_rotation_requested(self) -> None:
        """``?rotation`` has a rotated variable be due, takes ``update``, and refuses a variable without a usable rotator by
        a text that names those that there are, changing nothing (SEC-25).
        """
        self.load_expiring()
        self.load("- !variable { id: odd, annotations: { rotation/rotator: aws/key, rotation/ttl: P1D } }")
        self.load("- !variable { id: vague, annotations: { rotation/rotator: postgresql/password } }")
        for name in ("short", "turned", "odd", "vague", "password"):
            self.set_value(name, b"one")
        self.memory.expirations["acme:variable:turned"] = ExpirationRow(due_at=self.memory.now + 60)
        ends = dict(self.memory.lives)
        for name, why in (
            ("short", "has no annotation rotation/rotator; there are: postgresql/password"),
            ("password", "has no annotation rotation/rotator; there are: postgresql/password"),
            ("odd", "rotation/rotator names no rotator; there are: postgresql/password"),
            ("vague", "rotation/ttl is missing"),
        ):
            answer = self.client.post(f"/secrets/acme/variable/{name}?rotation", role=ADMIN)
            message = self.error(answer, 422, "argument_error")
            self.assertIn(f"acme:variable:{name} can't be rotated: ", message)
            self.assertIn(why, message)
        self.assertEqual(self.memory.lives, ends)
        path = "/secrets/acme/variable/turned?rotation"
        self.assertEqual(self.client.post(path, role=EVE).status, 404)
        self.assertEqual(self.client.post("/secrets/acme/variable/short?rotation", role=ALICE).status, 403)
        answer = self.client.post(path, b"ignored", role=ADMIN)
        self.assertEqual((answer.status, answer.body), (201, b""))
        self.assertEqual(self.memory.expirations["acme:variable:turned"].due_at, -inf)
        self.assertEqual(self.client.get("/secrets/acme/variable/turned", role=ADMIN).body, b"one")

    def test_expirations_removed(self) -> None:
        """``DELETE`` with ``?expirations`` has no value expire, takes ``update``, and refuses a rotated variable, which
        stays as it was (SEC-25).
        """
        self.load_expiring()
        self.set_value("short", b"one")
        self.memory.now += 3600
        path = "/secrets/acme/variable/short"
        for role, status in ((ALICE, 403), (EVE, 404), (None, 401)):
            self.assertEqual(self.client.request("DELETE", f"{path}?expirations", role=role).status, status)
        self.assertEqual(self.client.request("DELETE", path, role=ADMIN).status, 404)
        self.assertEqual(self.client.get(path, role=ALICE).status, 404)
        self.assertEqual(self.client.request("DELETE", f"{path}?expirations", role=BOB).status, 204)
        self.assertEqual(self.client.get(path, role=ALICE).body, b"one")
        row = ExpirationRow(due_at=self.memory.now + 60)
        self.memory.expirations["acme:variable:turned"] = row
        refused = self.client.request("DELETE", "/secrets/acme/variable/turned?expirations", role=ADMIN)
        self.assertIn("rotation/rotator postgresql/password", self.error(refused, 422, "argument_error"))
        self.assertEqual(self.memory.expirations["acme:variable:turned"].due_at, row.due_at)

    def test_unavailable(self) -> None:
        """While the store is away, it is 503 with ``Retry-After``; a standby answers writes with 405 (SEC-36, CLU-7)."""
        self.memory.down = True
        answer = self.client.get(PATH, role=ALICE)
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "1"))
        self.memory.down, self.memory.standby = False, True
        self.assertEqual(
            self.set_value("password", status=405).json(),
            {"error": {"code": 405, "message": "Write operations are not allowed"}},
        )


class ConjurSecretsTests(SecretsTests):
    """The same, in the vocabulary of the installed base."""

    dialect = CONJUR
