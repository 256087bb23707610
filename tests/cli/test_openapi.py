"""Tests of ``svc.cli.openapi``: the document without a server."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.openapi import openapi
from svc.model.dialect import CONJUR, NATIVE
from svc.web.openapi.document import build_document
from svc.web.openapi.served_routes import routes_of_dialect


class OpenapiTests(SynchronousTestCase):
    """What is printed, and where to."""

    def test_printed(self) -> None:
        """OAS-5: the document of the dialect that is asked for is printed, that of ``native`` otherwise."""
        for options, dialect in (((), NATIVE), (("--dialect", "conjur"), CONJUR)):
            printed = CliRunner().invoke(openapi, options)
            self.assertEqual(printed.exit_code, 0, printed.output)
            self.assertEqual(json.loads(printed.output), build_document(routes_of_dialect(dialect), dialect))

    def test_written(self) -> None:
        """It is written to a file, or the command says why not."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "svc.json")
            self.assertEqual(CliRunner().invoke(openapi, ["--output", str(path)]).output, "")
            self.assertEqual(json.loads(path.read_text())["openapi"], "3.1.1")
            failed = CliRunner().invoke(openapi, ["--output", str(Path(folder, "none", "svc.json"))])
            self.assertEqual(failed.exit_code, 1)
            self.assertIn("can't be written: No such file or directory", failed.output)
