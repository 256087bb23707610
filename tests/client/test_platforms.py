"""Tests of ``svc.client.platforms``: clients on machines of cloud platforms, over sockets of this machine."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from twisted.trial.unittest import SynchronousTestCase

from svc.client import AsyncClient, AwsWorkload, AzureMachine, Client, GoogleWorkload, Versions
from tests.client.small import token


def jwt() -> str:
    """An identity token, as far as its end."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 3600}).encode()).decode().rstrip("=")
    return f"e30.{claims}.x"


class Platform(BaseHTTPRequestHandler):
    """Both metadata services, and the service itself; ``asked`` is what came."""

    asked: list[tuple[str, dict[str, str], bytes]]

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        named = {name.lower(): value for name, value in self.headers.items()}
        self.asked.append((self.path, named, self.rfile.read(length)))
        told, headers = b"value", {"svc-version": "1.2.3"}
        if self.path.startswith("/metadata/identity"):
            told = json.dumps({"access_token": jwt(), "expires_in": "3600"}).encode()
        elif self.path.startswith("/computeMetadata"):
            told, headers = jwt().encode(), {"metadata-flavor": "Google"}
        elif "authenticate" in self.path:
            told, headers = token(1).encode(), {"content-encoding": "base64", "svc-version": "1.2.3"}
        self.send_response(200)
        for name, value in {**headers, "x-request-id": "r-1", "content-length": str(len(told))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_POST = _answer  # noqa: N815 - the base class's

    def log_message(self, *_: object) -> None:
        """Be quiet."""


class PlatformTests(SynchronousTestCase):
    """Logins with what a platform gives."""

    def setUp(self) -> None:
        """Start the platform, which is the service, too."""
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Platform,), {"asked": self.asked}))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"
        keys = {"AWS_ACCESS_KEY_ID": "the-id", "AWS_SECRET_ACCESS_KEY": "the-secret"}
        self.patch(os, "environ", {**keys, "GCE_METADATA_HOST": self.url.removeprefix("http://")})

    def read(self, evidence: AzureMachine | GoogleWorkload | AwsWorkload, *, threads: bool) -> tuple[str, bytes]:
        """Read a secret twice; return the path and the body of the login."""
        self.asked.clear()
        versions = Versions(lambda: 0.0)
        versions.note("1.2.3")

        async def work() -> None:
            async with AsyncClient(self.url, "acme", evidence, versions=versions) as client:
                self.assertEqual([await client.secret("a") for _ in range(2)], [b"value"] * 2)

        if threads:
            with Client(self.url, "acme", evidence, versions=versions) as client:
                self.assertEqual([client.secret("a") for _ in range(2)], [b"value"] * 2)
        else:
            asyncio.run(work())
        for path, headers, _ in self.asked:
            if "etadata" in path:
                self.assertNotIn("svc-at-least", headers)
                self.assertNotIn("authorization", headers)
        [(path, _, body)] = [each for each in self.asked if "authenticate" in each[0]]
        return path, body

    def test_each(self) -> None:
        """Each platform's identity logs in; the platform is sent nothing that is for the service (LIB-10)."""
        host = "host/apps/shop"
        for threads in (False, True):
            path, body = self.read(AzureMachine("prod", host, metadata_url=self.url), threads=threads)
            self.assertEqual(path, "/authn-cloud/prod/acme/host%2Fapps%2Fshop/authenticate")
            self.assertTrue(body.startswith(b"jwt=e30."))
            path, body = self.read(GoogleWorkload(host), threads=threads)
            self.assertEqual(path, "/authn-gcp/acme/authenticate")
            self.assertIn("audience=svc%2Facme%2Fhost%2Fapps%2Fshop", self.asked[0][0])
            path, body = self.read(AwsWorkload("prod", host, region="eu-west-1"), threads=threads)
            self.assertEqual(path, "/authn-iam/prod/acme/host%2Fapps%2Fshop/authenticate")
            signed = json.loads(body)
            self.assertEqual(signed["host"], "sts.eu-west-1.amazonaws.com")
            self.assertTrue(signed["x-svc-server-id"].startswith("127.0.0.1/acme/"))
            self.assertNotIn("the-secret", body.decode())
