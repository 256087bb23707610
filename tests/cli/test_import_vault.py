"""Tests of ``svc import vault``: what the command reads, makes, prints and ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner, Result

from svc.cli import import_vault
from svc.cli.coroutines import Network
from svc.cli.main import main
from tests.client.small import WaitlessAsync, token
from tests.importing.moving import ImportCase
from tests.importing.vault_stand_in import TOKEN, KeptSecret, VaultStandIn
from tests.web.world import ADMIN

URL = "https://vault.example.org"
ENVIRONMENT = {"SVC_URL": "https://svc.example", "SVC_ACCOUNT": "acme", "SVC_LOGIN": "admin", "SVC_API_KEY": "ours"}


class ClosedStandIn(VaultStandIn):
    """One that a command closes."""

    async def close(self) -> None:
        """Close nothing."""


class ImportVaultTests(ImportCase):
    """The command, with a stand-in for a Vault and a server in memory."""

    def setUp(self) -> None:
        """Put both behind the command's connections."""
        super().setUp()
        self.openbao = ClosedStandIn()
        self.patch(Network, "make_requester", lambda *_: self.waitless())
        self.patch(import_vault, "AsyncExchange", lambda transport, limit: self.openbao)
        vault = self.openbao
        vault.data |= {"auth/token/lookup-self": {"num_uses": 0, "ttl": 0}, "sys/auth": {"approle/": {"type": "approle"}}}
        vault.mounts = {"secret/": {"options": {"version": "2"}}}
        vault.second["secret/", "app/db"] = KeptSecret(
            {1: '{"pw":"value-one","user":"value-two"}', 2: '{"pw":"value-three"}'}
        )
        vault.lists |= {"sys/policies/acl": ["web"], "auth/approle/role": ["batch"]}
        vault.data["sys/policies/acl/web"] = {"policy": 'path "secret/data/app/*" { capabilities = ["read"] }'}
        vault.data["auth/approle/role/batch"] = {"token_policies": ["web"], "token_bound_cidrs": ["10.1.2.3/8"]}
        vault.data["auth/approle/role/batch/role-id"] = {"role_id": "rid-of-batch"}
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def waitless(self) -> WaitlessAsync:
        """Return what sends requests to the target."""
        made = WaitlessAsync(httpx.MockTransport(self.answer), 1_000_000)
        object.__setattr__(made, "slept", [])
        return made

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer for the target."""
        path = request.url.raw_path.decode()
        if path.endswith("/authenticate"):
            return httpx.Response(200, text=token(1), headers={"content-encoding": "base64", "x-request-id": "r"})
        dropped = {"host", "authorization", "content-length"}
        headers = [(name, value) for name, value in request.headers.items() if name not in dropped]
        answer = self.client.request(request.method, path, body=request.content, headers=headers, role=ADMIN)
        return httpx.Response(answer.status, content=answer.body, headers=answer.headers)

    def svc(self, *arguments: str, code: int = 0, given: str | None = None, **environ: Any) -> Result:
        """Run the command; nothing that it prints holds a secret."""
        cleared = dict.fromkeys(
            ("VAULT_TOKEN", "BAO_TOKEN", "VAULT_NAMESPACE", "BAO_NAMESPACE", "VAULT_CACERT", "BAO_CACERT")
        )
        surroundings = {**cleared, **ENVIRONMENT, **environ}
        result = CliRunner().invoke(main, ["import", "vault", *arguments], env=surroundings, input=given)
        self.assertEqual(result.exit_code, code, (result.output, result.exception))
        for secret in (TOKEN, "value-one", "value-three", "sid"):
            self.assertNotIn(secret, result.output)
        return result

    def test_moved(self) -> None:
        """Secrets, permissions and hosts are moved; again nothing is left to do, and both are equal (IMP-40)."""
        output = self.svc(URL, "--plan", VAULT_TOKEN=TOKEN).output
        self.assertIn("From vault or openbao at https://vault.example.org to", output)
        self.assertIn("secret-ids of 1 roles of auth/approle/: a secret-id can't be read", output)
        result = self.svc(URL, "--new-keys", str(self.folder / "keys"), BAO_TOKEN=TOKEN)
        self.assertIn("3 versions of values set", result.output)
        self.assertEqual(self.value("secret/app/db/pw"), b"value-three")
        self.assertEqual(self.value("secret/app/db/user"), b"value-two")
        (key,) = [each for each in (self.folder / "keys").iterdir() if each.name.endswith(".env")]
        self.assertEqual(key.stat().st_mode & 0o777, 0o600)
        self.assertIn("auth%2Fapprole%2Fbatch", key.name)
        again = self.svc(URL, VAULT_TOKEN=TOKEN).output
        self.assertIn("0 statements of policy were loaded, 0 versions of values set, and 2 variables had theirs", again)
        self.assertIn("\n0 differences", self.svc(URL, "--verify", VAULT_TOKEN=TOKEN).output)

    def test_evidence(self) -> None:
        """A token comes from a file, standard input or the environment, a login by AppRole from a file (IMP-41)."""
        written = self.folder / "token"
        written.write_text(f"{TOKEN}\n")
        self.svc(URL, "--plan", "--token-file", str(written))
        self.svc(URL, "--plan", "--token-file", "-", given=TOKEN)
        self.svc(URL, "--plan", "--approle-file", "-", given="rid\nsid\n")
        self.assertEqual(self.openbao.asked[-1], ("POST", "auth/token/revoke-self"))
        refused = self.svc(URL, "--plan", "--approle-file", "-", code=1, given="rid\nanother\n").output
        self.assertIn("refused the role id or secret id", refused)
        for arguments, given, environ, part in (
            ((), None, {}, "no token of the source"),
            ((), None, {"VAULT_TOKEN": "a", "BAO_TOKEN": "b"}, "two tokens"),
            (("--token-file", "-"), "a\nb\n", {}, "one line"),
            (("--token-file", "-"), "\u00e9\n", {}, "something else"),
            (("--approle-file", "-"), "", {}, "two lines"),
            (("--token-file", str(written), "--approle-file", "-"), "rid", {}, "give one of them"),
        ):
            with self.subTest(part):
                self.assertIn(part, self.svc(URL, "--plan", *arguments, code=2, given=given, **environ).output)

    def test_unencrypted(self) -> None:
        """A token isn't sent over http (IMP-41)."""
        self.assertIn("use https", self.svc("http://vault.example.org", "--plan", code=2, VAULT_TOKEN=TOKEN).output)
        self.assertEqual(self.openbao.asked, [])

    def test_stopped(self) -> None:
        """A token that ends stops with what to do, and the next run goes on (IMP-46)."""

        def end(method: str, path: str) -> None:
            # The inventory is complete by then, and the load begins.
            if path.startswith("secret/data/") and ("LIST", "identity/entity/id") in self.openbao.asked:
                self.openbao.token = "s.other"

        self.openbao.before = end
        output = self.svc(URL, code=1, VAULT_TOKEN=TOKEN).output
        self.assertIn("takes the token no more; go on with a new token", output)
        self.assertIn("Nothing of it is half done", output)
        self.openbao.before, self.openbao.token = lambda method, path: None, TOKEN
        self.svc(URL, VAULT_TOKEN=TOKEN)
        self.assertEqual(self.value("secret/app/db/pw"), b"value-three")

    def test_options(self) -> None:
        """Secrets may be JSON, of one engine, and below a branch (IMP-42)."""
        self.svc(URL, "--as-json", "--into", "old/vault", "--mount", "secret", VAULT_TOKEN=TOKEN)
        self.assertEqual(self.value("old/vault/secret/app/db"), b'{"pw":"value-three"}')
