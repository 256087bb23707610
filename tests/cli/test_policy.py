"""Tests of ``svc.cli.policy``: what is asked of the server, and what is said of its answers."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import click
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.cli import policy
from svc.cli.connection import ApiAnswer, ApiConnection

VALID = {
    "status": "Valid YAML",
    "created": {"items": []},
    "updated": {
        "before": {"items": [{"identifier": "a:user:bob", "id": "bob", "type": "user", "owner": "a:user:admin"}]},
        "after": {
            "items": [
                {
                    "identifier": "a:user:bob",
                    "id": "bob",
                    "type": "user",
                    "owner": "a:user:admin",
                    "permissions": {"read": ["a:variable:v"]},
                }
            ]
        },
    },
    "deleted": {"items": [{"identifier": "a:group:g", "id": "g", "type": "group", "owner": "a:user:admin"}]},
    "warnings": ["careful"],
}
INVALID = {
    "status": "Invalid YAML",
    "errors": [{"line": 2, "column": 3, "message": "It is wrong\nCorrect it."}, {"message": "All of it\nBegin anew."}],
}


def gain(*, new_role: bool = False, new_resource: bool = False) -> dict[str, Any]:
    """A change of access."""
    way = [{"role": "a:host:h", "by": "member"}, {"role": "a:layer:web", "by": "permitted"}]
    return {
        "roles": {"kind": "host", "count": 1, "first": ["a:host:h"], "new": new_role},
        "resources": {"kind": "variable", "count": 1, "first": ["a:variable:v"], "new": new_resource},
        "privileges": ["read"],
        "owner": False,
        "except": [],
        "through": "a:layer:web",
        "pairs": 1,
        "way": way,
    }


def access(*gains: dict[str, Any], untold: str = "", complete: bool = True) -> dict[str, Any]:
    """What a dry run tells of access."""
    left_out = {name: name == untold for name in ("gains", "new_gains", "losses")}
    return {
        "gains": list(gains),
        "losses": [],
        "untold": left_out,
        "complete": complete,
        "advice": None if complete else "Go on.",
    }


class Server:
    """What a command sees of a connection: it keeps what was asked, and gives the same answer to everything."""

    account = "a"
    encode_path = staticmethod(ApiConnection.encode_path)

    def __init__(self, status: int, answer: object, **headers: str) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._answer = ApiAnswer(status, json.dumps(answer).encode(), headers)

    async def request_with_token(self, method: str, path: str, body: bytes | None = None, **headers: str) -> ApiAnswer:
        """Answer."""
        headers.pop("shows", None)
        self.asked.append((method, path, body, headers))
        return self._answer

    async def send_change(self, send: Callable[..., Awaitable[ApiAnswer]], *request: Any, **named: str) -> ApiAnswer:
        """Send it."""
        return await send(*request, **named)


def summary(**sorts: dict[str, Any]) -> dict[str, Any]:
    """What a load says that it did: nothing but this."""
    nothing: dict[str, Any] = {"records": [], "grants": 0, "permissions": 0}
    return {name: nothing | sorts.get(name, {}) for name in ("created", "changed", "deleted", "unchanged", "absent")}


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


class SendTests(SynchronousTestCase):
    """Loads, and dry runs of them."""

    def send(
        self,
        server: Server,
        mode: str = "load",
        out: io.StringIO | None = None,
        *,
        dry_run: bool = True,
        as_json: bool = False,
        if_version: int | None = None,
        fail_on_gain: bool = False,
        fail_on_gain_of_existing: bool = False,
    ) -> tuple[str, str]:
        """Send a document, and return what was said, on both streams."""
        said, aside = out or io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(aside):
            connection = cast(ApiConnection, server)
            sending = policy._send_policy(
                connection,
                mode,
                "x/y",
                io.BytesIO(b"text"),
                dry_run,
                as_json,
                if_version=if_version,
                fail_on_gain=fail_on_gain,
                fail_on_gain_of_existing=fail_on_gain_of_existing,
            )
            self.result_of(sending)
        return said.getvalue(), aside.getvalue()

    def check(self, server: Server, *, dry_run: bool = True, as_json: bool = False) -> tuple[str, str]:
        """Send a document, to fail on all gains."""
        return self.send(server, dry_run=dry_run, as_json=as_json, fail_on_gain=True)

    def check_existing(self, server: Server, *, dry_run: bool = True, as_json: bool = False) -> tuple[str, str]:
        """Send a document, to fail on gains of what exists."""
        return self.send(server, dry_run=dry_run, as_json=as_json, fail_on_gain_of_existing=True)

    def result_of(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Complete a coroutine that waits for nothing, or raise what it raises."""
        faults: list[Failure] = []
        Deferred.fromCoroutine(coroutine).addErrback(faults.append)
        if faults:
            faults[0].raiseException()

    def test_requests(self) -> None:
        """Each mode has its method; a dry run says that it is one; the document is sent as it is (CLI-12)."""
        for mode, method in (("load", "POST"), ("update", "PATCH"), ("replace", "PUT")):
            server = Server(200, VALID)
            self.send(server, mode)
            headers = {"Content_Type": "application/x-yaml"}
            self.assertEqual(server.asked, [(method, "/policies/a/policy/x%2Fy?dryRun=true", b"text", headers)])
        server = Server(201, {"created_roles": {}, "version": 3})
        _, aside = self.send(server, dry_run=False)
        self.assertEqual(server.asked[0][1], "/policies/a/policy/x%2Fy")
        self.assertEqual(aside, "Policy x/y is now at version 3.\n")

    def test_dry_run(self) -> None:
        """A dry run says in words what would change, without colours off a terminal, and aside that nothing has (CLI-12)."""
        said, aside = self.send(Server(200, VALID))
        self.assertEqual(said, "group g will be deleted\nuser bob may now read variable v\n")
        self.assertEqual(aside, "Warning: careful\nThis was a dry run: nothing has been changed.\n")

    def test_summary(self) -> None:
        """A load says aside what it did, a dry run only what isn't there to be removed (CLI-53)."""
        absent = {"records": [{"kind": "variable", "count": 1, "first": ["a:variable:x/old"]}], "permissions": 2}
        gone = "Nothing to remove, as it isn't there: 1 variable (x/old), 2 permissions.\n"
        hosts = {"kind": "host", "count": 22, "first": ["a:host:b", "a:host:c\x1b"]}
        unseen = {"kind": "host_factory", "count": 2, "first": []}
        for changes, lines in (
            (summary(), "The document declares nothing.\n"),
            (summary(absent=absent), f"The document declares nothing.\n{gone}"),
            (
                summary(created={"records": [hosts], "grants": 1}, deleted={"records": [unseen]}, absent=absent),
                f"Created: 22 hosts (b, c\\x1b and 20 more), 1 grant.\nDeleted: 2 host factories.\n{gone}",
            ),
            (summary(changed={"grants": 2}, unchanged={"permissions": 1}), "Changed: 2 grants.\nUnchanged: 1 permission.\n"),
        ):
            answer = {"created_roles": {}, "version": 3, "changes": changes}
            said, aside = self.send(Server(201, answer), dry_run=False)
            self.assertEqual((said, aside), ("", f"{lines}Policy x/y is now at version 3.\n"))
        _, aside = self.send(Server(200, {**VALID, "changes": summary(created={"grants": 3}, absent=absent)}))
        self.assertEqual(aside, f"{gone}Warning: careful\nThis was a dry run: nothing has been changed.\n")

    def test_versions(self) -> None:
        """A load may be for one version; if there is another by now, the command says which (CLI-54)."""
        loaded = {"created_roles": {}, "version": 8}
        for dry_run, answer in ((False, Server(201, loaded, etag='"8"')), (True, Server(200, VALID))):
            self.send(answer, "update", dry_run=dry_run, if_version=7)
            self.assertEqual(answer.asked[0][3], {"Content_Type": "application/x-yaml", "If_Match": '"7"'})
        error = {"error": {"code": "precondition_failed", "message": "no"}}
        for etag, words in (('"8"', "at version 8 now, not at 7"), ("", "at another version now, not at 7")):
            for as_json in (False, True):
                server = Server(412, error, etag=etag, **{"x-request-id": "id-1"})
                fault = self.assertRaises(
                    click.ClickException, self.send, server, dry_run=False, as_json=as_json, if_version=7
                )
                self.assertEqual(fault.exit_code, 1)
                for part in (f"policy x/y is {words}", "`svc policy show x/y`", "status 412", "id-1"):
                    self.assertIn(part, fault.message)
        fault = self.assertRaises(click.ClickException, self.send, Server(201, loaded), dry_run=False, if_version=7)
        self.assertIn("loaded whatever the version", fault.message)

    def test_shown_version(self) -> None:
        """The version of a policy that is shown is said aside, if the server says it (CLI-54)."""
        for etag, line in (('"7"', "Policy x/y is at version 7.\n"), ("", ""), ('W/"7"', ""), ('"7-ab"', "")):
            aside = io.StringIO()
            with contextlib.redirect_stderr(aside):
                policy._print_version(ApiAnswer(200, b"---\n", {"etag": etag}), "x/y")
            self.assertEqual(aside.getvalue(), line)

    def test_access(self) -> None:
        """Access is told before all else (POL-89)."""
        said, _ = self.send(Server(200, {**VALID, "access": access(gain())}))
        self.assertEqual(
            said,
            "host h of layer web gains read on variable v\n\nWhat would change:\n"
            "group g will be deleted\nuser bob may now read variable v\n",
        )

    def test_fail_on_gain(self) -> None:
        """A dry run is a check that fails with 3 on gains, all or those of what exists, and on what isn't told (POL-89)."""
        for told, any_gain, of_existing in (
            (access(), False, False),
            (access(gain()), True, True),
            (access(gain(new_role=True)), True, False),
            (access(gain(new_resource=True)), True, False),
            (access(gain(new_role=True), gain()), True, True),
            (access(untold="gains"), True, True),
            (access(untold="new_gains"), True, False),
            (access(untold="losses"), False, False),
            (access(complete=False), True, True),
        ):
            self.send(Server(200, {**VALID, "access": told}))
            for as_json in (False, True):
                for send, fails in ((self.check, any_gain), (self.check_existing, of_existing)):
                    server = Server(200, {**VALID, "access": told})
                    if not fails:
                        send(server, as_json=as_json)
                        continue
                    ended = self.assertRaises(click.exceptions.Exit, send, server, as_json=as_json)
                    self.assertEqual(ended.exit_code, 3, (told, send))

    def test_checks_that_cannot_be_made(self) -> None:
        """Checks are for dry runs, and fail when the server doesn't tell or the document has faults (POL-89)."""
        for send in (self.check, self.check_existing):
            server = Server(201, {"created_roles": {}, "version": 3})
            self.assertRaises(click.UsageError, send, server, dry_run=False)
            self.assertEqual(server.asked, [])
            for as_json in (False, True):
                fault = self.assertRaises(click.ClickException, send, Server(200, VALID), as_json=as_json)
                self.assertEqual((fault.exit_code, "who gains access" in fault.message), (1, True))
            ended = self.assertRaises(click.exceptions.Exit, send, Server(422, INVALID), as_json=True)
            self.assertEqual(ended.exit_code, 1)

    def test_colours(self) -> None:
        """On a terminal, losses are red and gains green."""
        said, _ = self.send(Server(200, VALID), out=Screen())
        self.assertEqual(said, "\x1b[31mgroup g will be deleted\x1b[0m\n\x1b[32muser bob may now read variable v\x1b[0m\n")

    def test_nothing(self) -> None:
        """When nothing would change, that is said."""
        nothing: dict[str, object] = {"items": []}
        answer = {"created": nothing, "updated": {"before": nothing, "after": nothing}, "deleted": nothing}
        self.assertIn("Nothing would change", self.send(Server(200, answer))[0])

    def test_faults(self) -> None:
        """The faults of a document end the command, each with its place and advice."""
        fault = self.assertRaises(click.ClickException, self.send, Server(422, INVALID))
        self.assertEqual(fault.message, "line 2, column 3: It is wrong\nCorrect it.\nAll of it\nBegin anew.")

    def test_faults_of_loads(self) -> None:
        """A refused load prints all faults as a dry run does; the answer of an older server has one (CLI-55)."""
        error = {"error": {"code": "policy_invalid", "message": "It is wrong"}}
        fault = self.assertRaises(
            click.ClickException, self.send, Server(422, {**error, "errors": INVALID["errors"]}), dry_run=False
        )
        lines = "line 2, column 3: It is wrong\nCorrect it.\nAll of it\nBegin anew.\nNothing was changed (status 422)"
        self.assertEqual(fault.message, lines)
        fault = self.assertRaises(click.ClickException, self.send, Server(422, error), dry_run=False)
        self.assertIn("It is wrong", fault.message)

    def test_removals(self) -> None:
        """What adds alone, and is told to remove something, names the command that does it."""
        said = "policy_text may not contain deletion statements"
        server = Server(422, {"error": {"code": "validation_failed", "message": said}})
        for dry_run in (False, True):
            fault = self.assertRaises(click.ClickException, self.send, server, dry_run=dry_run)
            self.assertIn(f"{said}: `svc policy update` does these", fault.message)
        self.assertRaises(click.exceptions.Exit, self.send, server, as_json=True)

    def test_other_answers(self) -> None:
        """Any other refusal ends the command with what the server said; so does an answer that is none."""
        error = {"error": {"code": "unprocessable_entity", "message": "too much to tell"}}
        fault = self.assertRaises(click.ClickException, self.send, Server(422, error))
        self.assertIn("too much to tell", fault.message)
        fault = self.assertRaises(
            click.ClickException, self.send, Server(403, {"error": {"code": "forbidden", "message": "no"}})
        )
        self.assertIn("lacks the privilege", fault.message)
        fault = self.assertRaises(click.ClickException, self.send, Server(200, {"version": 1}))
        self.assertIn("dry run", fault.message)

    def test_json(self) -> None:
        """With ``--json`` the server's answer is printed; a document with faults ends with code 1 nevertheless (CLI-12)."""
        self.assertEqual(json.loads(self.send(Server(200, VALID), as_json=True)[0]), VALID)
        out = io.StringIO()
        ended = self.assertRaises(click.exceptions.Exit, self.send, Server(422, INVALID), out=out, as_json=True)
        self.assertEqual((ended.exit_code, json.loads(out.getvalue())), (1, INVALID))
        loaded = {"created_roles": {}, "version": 3}
        self.assertEqual(json.loads(self.send(Server(201, loaded), dry_run=False, as_json=True)[0]), loaded)
