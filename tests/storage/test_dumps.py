"""Tests of ``svc.storage.dumps``: which program dumps a database; that dumps are whole, tests on PostgreSQL prove."""

from __future__ import annotations

from pathlib import Path

from twisted.internet import reactor
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svc.model.errors import StartRefused
from svc.storage.dumps import complaint_of, parse_bytea, program_candidates, run_program

OWN = "/usr/bin/pg_dump"


class DumpersTests(SynchronousTestCase):
    """Whose ``pg_dump`` is taken; ``None`` is ours."""

    def test_embedded(self) -> None:
        """The embedded PostgreSQL is dumped by the program that came with it, whatever else the machine has."""
        self.assertEqual(program_candidates(embedded=True, own=OWN), [None])
        self.assertEqual(program_candidates(embedded=True, own=None), [None])

    def test_of_the_operator(self) -> None:
        """Any other is dumped by the machine's own program, which speaks TLS, and else by ours."""
        self.assertEqual(program_candidates(embedded=False, own=OWN), [OWN, None])
        self.assertEqual(program_candidates(embedded=False, own=None), [None])


class ProgramTests(TestCase):
    """What a program of PostgreSQL is given."""

    async def test_secrets(self) -> None:
        """No argument of a program has a secret of the DSN: everybody on the machine can read these (CLI-4)."""
        program = Path(self.mktemp())
        program.write_text(
            '#!/bin/sh\necho "$@" "$PGPASSWORD"\nset -- "$PGSERVICEFILE"\n'
            '[ -z "$1" ] || { ls -l "$1" | cut -c 1-10; cat "$1" "$1"; }\n'
        )
        program.chmod(0o700)

        async def run(dsn: str) -> str:
            return (await run_program(reactor, "pg_dump", dsn, ["--all"], str(program.absolute()))).decode()

        self.assertEqual(await run("host=h password=abc"), "--dbname=host=h --all abc\n")
        self.assertEqual(
            await run("postgresql://h/?password=abc&sslpassword=d%20%3De"),
            "--dbname=host=h service=svc --all abc\n-rw-------\n" + 2 * "[svc]\nsslpassword=d =e\n",
        )
        for dsn, why in (
            ("host=h sslpassword=a service=s", "sslpassword of database_url must be in the service file"),
            ("host=h sslpassword='a '", "sslpassword of database_url has a line end, a blank at its end"),
            ("host=h sslpassword='a\nb'", "sslpassword of database_url has a line end, a blank at its end"),
        ):
            with self.assertRaisesRegex(StartRefused, why):
                await run(dsn)


class ByteaTests(SynchronousTestCase):
    """The bytes of a column, as dumps have them."""

    def test_forms(self) -> None:
        """Both forms of ``bytea_output`` are read (DATA-58)."""
        for text in ("\\x00ff5c78", "\\000\\377\\\\x"):
            self.assertEqual(parse_bytea(text), b"\x00\xff\\x")
        self.assertEqual(parse_bytea("\\\\000\\\\\\001"), b"\\000\\\x01")
        for text in ("\\xf", "\\xzz", "é"):
            self.assertRaises(ValueError, parse_bytea, text)


class ComplaintTests(SynchronousTestCase):
    """The reason why a program failed."""

    def test_complaints(self) -> None:
        """A pg_dump that is too old says which package is needed; of others the first complaint is repeated, no rows
        (DATA-55).
        """
        for said, reason in (
            (
                "pg_dump: error: aborting because of server version mismatch\n"
                "pg_dump: detail: server version: 19rc1; pg_dump version: 18.4\n",
                "install postgresql-client-19: pg_dump must not be older than the server",
            ),
            (
                "pg_dump: error: server version: 18.4; pg_dump version: 14.23\n"
                "pg_dump: error: aborting because of server version mismatch\n",
                "install postgresql-client-18: pg_dump must not be older than the server",
            ),
            ("pg_dump: error: query failed: ERROR:  denied\npg_dump: detail: a row", "query failed: ERROR:  denied"),
            ("", "exit code 1"),
        ):
            self.assertEqual(complaint_of("pg_dump", said, 1), reason)
        self.assertEqual(complaint_of("pg_dump", "", 141), "the reader of standard output went away before the end")
