"""The table of refusals and their answers, row by row (FAIL-6)."""

from __future__ import annotations

import json

import attrs
from twisted.trial.unittest import SynchronousTestCase

from svc.model import errors
from svc.model.dialect import CONJUR, NATIVE, Dialect
from svc.model.reasons import Reason, RefusalKind
from svc.web.http.messages import Response
from svc.web.http.refusal_responses import (
    TOO_SLOW,
    UNREADABLE,
    audit_reason,
    response_to,
)
from svc.web.http.request_reader import Unreadable

#: Refusals that end a start, or that an authenticator turns into another: none of them reaches a route.
ELSEWHERE = {
    errors.ConfigurationInvalid,
    errors.StartRefused,
    errors.StandbyBehind,
    errors.KeysUnavailable,
    errors.AddressRefused,
}


class FaultTests(SynchronousTestCase):
    """``response_to``."""

    def error(self, refusal: errors.Refusal, status: int) -> dict[str, object]:
        """The error that the answer's body tells."""
        response = response_to(refusal, NATIVE)
        assert response is not None
        self.assertEqual((response.status, response.content_type), (status, "application/json"))
        document = json.loads(response.body)
        self.assertEqual(list(document), ["error"])
        error: dict[str, object] = document["error"]
        return error

    def test_every_refusal_has_its_answer(self) -> None:
        """No refusal that can reach a route lacks a row (FAIL-1)."""
        types = [value for value in vars(errors).values() if isinstance(value, type)]
        for refusal in (t for t in types if issubclass(t, errors.Refusal) and t is not errors.Refusal):
            # All fields may be text here: a row says what it makes of them, not whether they make sense.
            example = refusal(**{field.name: "401" for field in attrs.fields(refusal)})
            if refusal is errors.AuthenticationRefused:
                example = errors.AuthenticationRefused(Reason.TOKEN_MISSING)
            elif refusal is errors.NoValue:
                example = errors.NoValue("acct:variable:v", 401.0)
            elif refusal is errors.PolicyInvalid:
                example = errors.PolicyInvalid("401", faults=(errors.DocumentFault("acct:policy:p", "401", "", 4, 1),))
            self.assertEqual(response_to(example, NATIVE) is None, refusal in ELSEWHERE, refusal.__name__)

    def test_not_found(self) -> None:
        """A missing record is told with its kind capitalised, its target and its full id (FAIL-2)."""
        self.assertEqual(
            self.error(errors.RecordNotFound("acct", "group", "ops"), 404),
            {
                "code": "not_found",
                "message": "Group 'ops' not found in account 'acct'",
                "target": "group",
                "details": {"code": "not_found", "target": "id", "message": "acct:group:ops"},
            },
        )
        error = self.error(errors.RecordNotFound("acct", "host_factory", "x"), 404)
        self.assertEqual(error["message"], "Host_factory 'x' not found in account 'acct'")

    def test_too_many_roles(self) -> None:
        """Roles that are too many to be followed are told with their limit (FAIL-6)."""
        error = self.error(errors.TooManyRoles(50), 422)
        self.assertEqual(error["code"], "unprocessable_entity")
        self.assertIn("more than 50 roles", str(error["message"]))

    def test_no_value(self) -> None:
        """A missing secret is told without target and details (FAIL-9)."""
        self.assertEqual(
            self.error(errors.NoValue("acct:variable:v"), 404),
            {"code": "not_found", "message": "Variable acct:variable:v is empty or not found."},
        )

    def test_ended_value(self) -> None:
        """A value that has expired is told in the words of a missing one, with when it expired after them (FAIL-9)."""
        error = self.error(errors.NoValue("acct:variable:v", 1_700_000_000.5), 404)
        self.assertEqual(error["code"], "not_found")
        self.assertEqual(
            error["message"],
            "Variable acct:variable:v is empty or not found."
            " Its value expired at 2023-11-14T22:13:20.500+00:00: set a new one.",
        )

    def test_vendor_codes(self) -> None:
        """In ``conjur`` messages begin with the codes of the installed base, byte for byte, in ``native`` no answer has one
        (FAIL-40).
        """
        said = "of the refusal"
        for refusal, code in (
            (errors.NotAcceptable(), "CONJ00194W"),
            (errors.NoValue("acct:variable:v"), "CONJ00076E"),
            (errors.NotText("acct:variable:v"), "CONJ00074E"),
            (errors.CredentialUnknown("acct:user:u"), "CONJ00123E"),
            (errors.CredentialImpossible("acct:group:g"), "CONJ00126E"),
            (errors.CredentialImpossible("acct:host:h", by_policy=True), "CONJ00126E"),
            (errors.Unprocessable(said, "CONJ00190W"), "CONJ00190W"),
            (errors.Conflict("member", "x", said, "CONJ00180W"), "CONJ00180W"),
            (errors.Forbidden("why", said, "CONJ00006E"), "CONJ00006E"),
            (errors.InvalidParameter("refusal", said, "unprocessable_entity", "CONJ00164E"), "CONJ00164E"),
            (
                errors.AuthenticationRefused(Reason.WEBSERVICE_UNKNOWN, client_message=said, vendor_code="CONJ00005E"),
                "CONJ00005E",
            ),
        ):
            shown, hidden = self.message(refusal, CONJUR), self.message(refusal, NATIVE)
            self.assertEqual(shown, f"{code} {hidden}")
            self.assertNotIn("CONJ", hidden)
        weak = errors.InvalidParameter("password", said, "validation_failed", "CONJ00046E")
        self.assertEqual(self.message(weak, CONJUR), f"password CONJ00046E {said}")
        self.assertEqual(self.message(weak, NATIVE), f"password {said}")

    def test_no_body_for_a_code(self) -> None:
        """A refusal without a message has none by its code (FAIL-3, FAIL-40)."""
        response = response_to(errors.Forbidden("why", vendor_code="CONJ00006E"), CONJUR)
        self.assertEqual(None if response is None else response.body, b"")

    def test_codes_are_apart(self) -> None:
        """What is written of a refusal in logs has no code of the installed base (FAIL-40)."""
        for refusal in (
            errors.NoValue("acct:variable:v"),
            errors.InvalidParameter("password", "is weak", "validation_failed", "CONJ00046E"),
            errors.Forbidden("why", "words", "CONJ00006E"),
        ):
            self.assertNotIn("CONJ", f"{refusal} {refusal!r}")

    def message(self, refusal: errors.Refusal, dialect: Dialect) -> str:
        """The message of an answer, in either of its forms."""
        response = response_to(refusal, dialect)
        assert response is not None
        document = json.loads(response.body)
        return str(document.get("error", document)["message"])

    def test_preconditions(self) -> None:
        """A precondition that fails is told with its header, and with the tag that the value has now."""
        refusal = errors.PreconditionFailed("If-Match", '"2-abc"')
        self.assertIn("If-Match", str(self.error(refusal, 412)["message"]))
        response = response_to(refusal, NATIVE)
        assert response is not None
        self.assertEqual(response.headers, (("ETag", '"2-abc"'),))
        self.assertIn(
            "the policy is not as If-Match asks",
            str(self.error(errors.PreconditionFailed("If-Match", '"2"', "policy"), 412)["message"]),
        )
        self.assertEqual(self.error(errors.PreconditionFailed("If-Match", None), 412)["code"], "precondition_failed")

    def test_invalid(self) -> None:
        """A bad parameter is named, in words that name it already where there are any (FAIL-4)."""
        self.assertEqual(
            self.error(errors.InvalidParameter("privilege", "privilege"), 422),
            {"code": "argument_error", "message": "privilege"},
        )
        self.assertEqual(
            self.error(errors.InvalidParameter("limit", "'limit' is wrong", "unprocessable_entity"), 422),
            {"code": "unprocessable_entity", "message": "'limit' is wrong"},
        )
        self.assertEqual(
            self.error(errors.InvalidParameter("limit", "'Limit' is too much", "unprocessable_entity"), 422)["message"],
            "'Limit' is too much",
        )
        self.assertEqual(
            self.error(errors.InvalidName("kind", "no such thing"), 422),
            {"code": "argument_error", "message": "kind: no such thing"},
        )

    def test_empty_answers(self) -> None:
        """Who is forbidden something, or not let in, learns the status alone (FAIL-3)."""
        for refusal, status in (
            (errors.Forbidden("he lacks execute"), 403),
            (errors.AuthenticationRefused(Reason.ROLE_UNKNOWN), 401),
            (errors.AuthenticationRefused(Reason.PRIVILEGE_MISSING, RefusalKind.UNPRIVILEGED), 403),
        ):
            response = response_to(refusal, NATIVE)
            assert response is not None
            self.assertEqual((response.status, response.body, response.content_type), (status, b"", None))

    def test_bearer(self) -> None:
        """A bad access token is told in plain text (WIRE-30)."""
        response = response_to(errors.BearerRefused("Authorization missing"), NATIVE)
        assert response is not None
        self.assertEqual((response.status, response.body), (401, b"Authorization missing"))
        self.assertEqual(response.content_type, "text/plain; charset=utf-8")

    def test_policy(self) -> None:
        """A policy's fault is told with its place, if it has one (FAIL-5)."""
        self.assertEqual(
            self.error(errors.PolicyInvalid("User 'zed' not found in account 'acct'"), 422),
            {"code": "policy_invalid", "message": "User 'zed' not found in account 'acct'"},
        )
        self.assertEqual(
            self.error(errors.PolicyInvalid("Unrecognized data type '!x'", 3, 5), 422),
            {
                "code": "policy_invalid",
                "message": "Error at line 3, column 5 in policy : Unrecognized data type '!x'",
                "innererror": {"code": "policy_invalid", "filename": "policy", "line": 3, "column": 5},
            },
        )

    def test_conflict(self) -> None:
        """A record that exists already is told with its id (FAIL-6)."""
        self.assertEqual(
            self.error(errors.Conflict("account", "x", 'account "x" already exists'), 409),
            {
                "code": "conflict",
                "message": 'account "x" already exists',
                "target": "account",
                "details": {"code": "conflict", "target": "id", "message": "x"},
            },
        )

    def test_try_again(self) -> None:
        """What may work later says when to try again, and not why it doesn't work now (WIRE-47)."""
        for refusal, status, code in (
            (errors.PolicyConflict(3), 409, "policy_conflict"),
            (errors.StoreUnavailable("10.0.0.5 is down", 3), 503, "unavailable"),
            (errors.PrimaryContested("the server two has it", 3), 503, "unavailable"),
            (errors.TooOften("try again soon", 3), 429, "too_many_requests"),
        ):
            self.assertEqual(self.error(refusal, status)["code"], code)
            response = response_to(refusal, NATIVE)
            assert response is not None
            self.assertEqual(response.headers, (("Retry-After", "3"),))
            self.assertNotIn(b"10.0.0.5", response.body)

    def test_outcome_unknown(self) -> None:
        """What may have happened says so, and nothing by which a library would do it once more (WIRE-47)."""
        refusal = errors.OutcomeUnknown("10.0.0.5 is down", 3)
        error = self.error(refusal, 503)
        self.assertEqual(error["code"], "outcome_unknown")
        self.assertIn("it may have been made, or not", str(error["message"]))
        response = response_to(refusal, NATIVE)
        assert response is not None
        self.assertEqual(response.headers, ())
        self.assertNotIn(b"10.0.0.5", response.body)
        self.assertEqual(audit_reason(refusal), "outcome-unknown")

    def test_read_only(self) -> None:
        """A write on a standby has a number for its code, as installed clients know it."""
        self.assertEqual(
            self.error(errors.ReadOnlyStandby(), 405), {"code": 405, "message": "Write operations are not allowed"}
        )

    def test_sizes_and_forms(self) -> None:
        """Too large is 413, unreadable 400, no route 404, a value that doesn't open 422 (FAIL-6)."""
        for refusal, status, code in (
            (errors.TooLarge("the token", 16384), 413, "too_large"),
            (errors.BadRequest("no form"), 400, "bad_request"),
            (errors.RouteNotFound("GET", "/x"), 404, "not_found"),
            (errors.WrongDataKey("acct:variable:v"), 422, "data_key_invalid"),
        ):
            self.assertEqual(self.error(refusal, status)["code"], code)
        self.assertIn("16384", str(self.error(errors.TooLarge("the token", 16384), 413)["message"]))

    def test_long_paths_are_not_echoed(self) -> None:
        """An unknown path is told, but no more of it than helps (FAIL-10)."""
        self.assertLess(len(str(self.error(errors.RouteNotFound("GET", "/x" * 30000), 404))), 300)

    def test_before_a_request(self) -> None:
        """What can't be read as a request has an answer with the status of its limit (FAIL-7)."""
        self.assertEqual([UNREADABLE[why].status for why in Unreadable], [400, 413, 414, 431])
        self.assertEqual(TOO_SLOW.status, 408)

    def test_bug(self) -> None:
        """A bug tells its incident and nothing else (FAIL-8)."""
        response = Response.internal_error("i-7")
        self.assertEqual(response.status, 500)
        self.assertIn(b"i-7", response.body)
