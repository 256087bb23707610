"""The quickstart: a server, a JWT provider beside it, perhaps a cloud platform too, and the main job done with them."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import stat
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import attrs
import click
from klein import Klein
from twisted.internet.defer import CancelledError
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.task import deferLater
from twisted.logger import FileLogObserver, ILogObserver, formatEvent, formatEventAsClassicLogText, globalLogBeginner
from twisted.web.server import Site
from zope.interface import implementer

from svc.cli.connection import ANSWER_LIMIT, ELSEWHERE_LIMIT, ApiAnswer, ApiConnection
from svc.cli.coroutines import Interrupted
from svc.cli.platform import METADATA_PATH, Identity, Platform
from svc.cli.provider import LOOPBACK, Provider, load_or_make_key
from svc.cli.quickstart_steps import Steps, Token
from svc.cli.reactor import run_reactor, until_stopped
from svc.crypto.keyfiles import admin_key_file
from svc.health.checks_loop import LONGEST_CHECK
from svc.model.errors import Refusal
from svc.model.interrupts import INTERRUPTED
from svc.server.start_cleanup import remove_directory
from svc.server.startup import describe_refusal
from svc.settings.reading import read_settings
from svc.tap import build_server
from svc.workload.exchange import Exchange, http_client
from svc.workload.faults import Fault
from svc.workload.metadata import Metadata

ACCOUNT: Final = "quickstart"

#: How the names of temporary folders begin.
PREFIX: Final = "svc-quickstart-"

_LOCK: Final = "lock"

#: A file in temporary folders, which distinguishes them from those that an operator named.
_TEMPORARY: Final = "temporary"

_SERVER: Final = "server"

#: All that a quickstart makes in its folder.
_OWN_FILES: Final = frozenset({_LOCK, _SERVER, "server.log", "audit.log", "provider.pem", "platform.pem"})


@click.command()
@click.option("--cloud", is_flag=True, help="Also let a virtual machine log in, on a stand-in for a cloud platform.")
@click.option("--once", is_flag=True, help="Stop after the steps; exit code 0 if every answer was the expected one.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to keep the state for the next time; a temporary directory by default.",
)
def quickstart(cloud: bool, once: bool, data_dir: Path | None) -> None:
    """See the service at work: start one, and do its main job step by step.

    Starts a server on a free loopback port, with its own PostgreSQL, and a JWT provider beside it. A workload exchanges a
    JWT for an access token and reads a secret; another is refused. With --cloud, a virtual machine does the same with
    nothing but its platform's identity token. Then the server goes on serving until Ctrl-C.
    """
    made = data_dir is None or not data_dir.exists()
    folder = data_dir.absolute() if data_dir else Path(tempfile.mkdtemp(prefix=PREFIX))
    if data_dir is None:
        (folder / _TEMPORARY).touch(0o600)
    before = frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()
    ready: list[str] = []
    interrupted: int | None = None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Held for the life of this process: the next quickstart removes folders whose owner is dead.
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A server's data directory has a lock of the same name, with the same contents.
            pid = os.pread(lock, 64, 0).decode(errors="replace").partition(" ")[0]
            raise click.ClickException(f"{folder} is in use by another svc, process {pid}") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()} quickstart\n".encode(), 0)
        if data_dir is not None:  # perhaps the temporary folder of a run that failed, which is kept from now on
            (folder / _TEMPORARY).unlink(missing_ok=True)
        if _run_reactor(folder, cloud, once, ready):
            # The folder is kept: the log in it has the cause.
            raise SystemExit(1)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    except Interrupted as signalled:
        interrupted = int(signalled.code or 0)
    except KeyboardInterrupt:  # before the reactor ran
        interrupted = INTERRUPTED
    if interrupted is not None and not ready:
        click.echo("svc was stopped before it was ready", err=True)
    if data_dir is None or (made and interrupted is not None and not ready):
        shutil.rmtree(folder, ignore_errors=True)
    elif interrupted is not None and not ready:
        _remove_new(folder, before)
    if interrupted is not None and (once or not ready):
        raise Interrupted(interrupted)


def _remove_new(folder: Path, before: frozenset[str]) -> None:
    """Remove what an interrupted quickstart has made in a folder that was there."""
    for name in _OWN_FILES - before:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name, ignore_errors=True)
        else:
            (folder / name).unlink(missing_ok=True)


async def remove_leftovers(reactor: Any, place: Path) -> None:
    """Remove the temporary folders of earlier runs, whose processes were killed; never another's, nor one in use, or that an
    operator named.
    """
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError, Refusal):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and os.path.lexists(folder / _TEMPORARY):
                await _remove_leftover(reactor, folder)


async def _remove_leftover(reactor: Any, folder: Path) -> None:
    # One without a lock has only just been made, and gets it at once.
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        server = folder / _SERVER
        if not server.is_dir() or await remove_directory(reactor, server):
            shutil.rmtree(folder)
    finally:
        os.close(lock)


def _run_reactor(folder: Path, cloud: bool, once: bool, ready: list[str]) -> bool:
    """Run the reactor until all is done; return whether anything was not as expected. ``ready`` gets the ready line."""
    refusals: list[str] = []
    wrong: list[int] = []
    log_file = folder / "server.log"

    @implementer(ILogObserver)
    def record_refusal(event: dict[str, Any]) -> None:
        if event.get("log_namespace") == "svc.audit.refusals":
            refusals.append(formatEvent(event))

    async def run_quickstart(reactor: Any) -> None:
        try:
            await remove_leftovers(reactor, Path(tempfile.gettempdir()))
            wrong.append(await _run_tours(reactor, folder, cloud, once, ready, lambda: list(refusals)))
        except Refusal as refusal:
            raise click.ClickException(describe_refusal(refusal)) from None
        except CancelledError:
            raise click.ClickException("the server was stopped before it was ready") from None

    with log_file.open("a", encoding="utf-8") as log:
        observer = FileLogObserver(log, formatEventAsClassicLogText)
        globalLogBeginner.beginLoggingTo([observer, record_refusal], redirectStandardIO=False)
        try:
            run_reactor(run_quickstart)
        except click.ClickException as fault:
            raise click.ClickException(f"{fault.message} (the server's log is {log_file})") from None
    return any(wrong)


async def _run_tours(
    reactor: Any, folder: Path, cloud: bool, once: bool, ready: list[str], refusals: Callable[[], list[str]]
) -> int:
    """Start everything and take the steps; return how many answers were not the expected ones."""
    click.echo(f"Starting PostgreSQL and the server; their state and log are in {folder} …")
    server_folder = folder / _SERVER
    settings = read_settings(
        {
            "data_dir": str(server_folder),
            "listen": f"tcp:0:interface={LOOPBACK}",
            "account": ACCOUNT,
            "console": True,
            "audit_file": str(folder / "audit.log"),
            "authenticators": f"authn,authn-jwt/{SERVICE_ID}{f',authn-cloud/{SERVICE_ID}' if cloud else ''}",
            # The providers of the quickstart are on this machine, which a server by default takes no keys from.
            "allow_http_providers": True,
            "allow_private_providers": "127.0.0.0/8",
        },
        {},
    )
    server = build_server(reactor, settings, None)
    server.startService()
    reactor.addSystemEventTrigger("before", "shutdown", server.stopService)
    started = await server.wait_until_ready()
    [url] = started.urls
    # A server opens its audit file again then; this one ends with its terminal, and its PostgreSQL with it.
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    admin_key = admin_key_file(server_folder, ACCOUNT).read_text().strip()

    provider = Provider.from_key_file(folder / "provider.pem", "https://provider.quickstart.example")
    keys_uri = f"{await _serve_app(reactor, provider.build_app())}/.well-known/jwks.json"
    ready.append(f"svc ready: {url}")
    click.echo(ready[-1])
    await started.announced()
    click.echo(f"JWT provider: {keys_uri}")
    click.echo(f"ADMIN_KEY={admin_key}")
    click.echo(f"Console: {url}/ui (account {ACCOUNT}, login admin, and that key)")

    steps = Steps(ApiConnection(url, ACCOUNT, None, None, Exchange(http_client(reactor), reactor, ANSWER_LIMIT)), refusals)
    path, policy = _read_sample("policy.yml")

    async def next_round() -> None:
        await deferLater(reactor, settings.health_interval + LONGEST_CHECK)

    admin = await Tour(steps, provider, keys_uri, admin_key, policy, path, next_round).run_steps()
    if cloud:
        platform = Platform(load_or_make_key(folder / "platform.pem"), steps.connection.wall, [MACHINE])
        base = await _serve_app(reactor, platform.build_app())
        click.echo(f"\nA stand-in for a cloud platform, its metadata service and its tenant, is at {base}")
        metadata = Metadata(Exchange(http_client(reactor), reactor, ELSEWHERE_LIMIT), {}, resource=AUDIENCE, base_url=base)
        path, policy = _read_sample("cloud.yml")
        await CloudTour(steps, platform, base, metadata, policy, path).run_steps(admin)
    verdict = (
        f"{steps.mismatches} answers were not the expected ones."
        if steps.mismatches
        else "Every answer was the expected one."
    )
    click.secho(f"\n{verdict}", fg="red" if steps.mismatches else "green")
    if not once:
        click.echo(f"The server goes on serving at {url}; Ctrl-C stops it.")
        click.echo("It is one process. `svc server --processes auto` has one serve on each core, when one is too busy.")
        await until_stopped()
    return steps.mismatches


async def _serve_app(reactor: Any, app: Klein) -> str:
    """Serve a web application on a free loopback port; return its address."""
    port = await TCP4ServerEndpoint(reactor, 0, interface=LOOPBACK).listen(Site(app.resource()))
    return f"http://{LOOPBACK}:{port.getHost().port}"


def _read_sample(name: str) -> tuple[str, bytes]:
    """Return the path of a sample policy, and the policy."""
    file = resources.files("svc.cli") / "sample" / name
    return str(file), file.read_bytes()


#: The ``<service-id>`` of the sample policies' authenticators.
SERVICE_ID: Final = "quickstart"

#: The ``aud`` that their tokens must carry.
AUDIENCE: Final = "svc-quickstart"

#: The variable that workloads read, and its value.
SECRET: Final = "workloads/database/password"
VALUE: Final = "correct horse battery staple"

_AUTHENTICATOR: Final = f"svc/authn-jwt/{SERVICE_ID}"

#: The virtual machine of the sample policy's host ``shop``, on the stand-in for the platform.
MACHINE: Final = Identity(
    "/subscriptions/0a6fc1d2-0000-4000-8000-000000000001/resourcegroups/shop-production"
    "/providers/Microsoft.Compute/virtualMachines/shop-1",
    "7c1e42b9-0000-4000-8000-000000000002",
)

_CLOUD_AUTHENTICATOR: Final = f"svc/authn-cloud/{SERVICE_ID}"


@attrs.frozen
class Tour:
    """A workload with a JWT gets its secret; ``policy`` is in the file ``policy_path``.

    ``next_round`` waits until the server's checks have had another round.
    """

    steps: Steps
    provider: Provider
    keys_uri: str
    admin_key: str = attrs.field(repr=False)
    policy: bytes
    policy_path: str
    next_round: Callable[[], Awaitable[None]]

    async def run_steps(self) -> Token:
        """Take all steps; return the admin's access token."""
        steps, account = self.steps, self.steps.connection.account
        steps.begin_step("The account's admin exchanges the API key for an access token, which lives for some minutes")
        path, key = f"/authn/{account}/admin/authenticate", self.admin_key.encode()
        answer = await steps.send_request("POST", path, key, body_as='"$ADMIN_KEY"', kept_as="ADMIN_TOKEN")
        steps.expect_answer(answer, 200)
        admin = Token("ADMIN_TOKEN", answer.body.decode("ascii", "replace"))
        steps.begin_step("The admin loads a policy: an authenticator, two workloads, a secret, and who may do what")
        await steps.load_policy(self.policy, self.policy_path, admin)
        steps.begin_step(
            "The admin says where the JWT provider's keys are and what its tokens must say, and sets the secret"
        )
        values = {
            f"{_AUTHENTICATOR}/jwks-uri": self.keys_uri,
            f"{_AUTHENTICATOR}/issuer": self.provider.issuer,
            f"{_AUTHENTICATOR}/audience": AUDIENCE,
            f"{_AUTHENTICATOR}/token-app-property": "workload",
            f"{_AUTHENTICATOR}/identity-path": "workloads",
            SECRET: VALUE,
        }
        await steps.set_variables(values, admin)
        steps.begin_step("The workload `billing` got a JWT from the provider, and exchanges it for an access token")
        claims = {"workload": "billing", "repository": "acme/billing", "environment": "production"}
        answer = await self._present_jwt(claims, "JWT", "TOKEN")
        steps.expect_answer(answer, 200)
        token = Token("TOKEN", answer.body.decode("ascii", "replace"))
        steps.begin_step("With the access token, the workload reads the secret")
        steps.expect_answer(await steps.send_request("GET", steps.variable_path(SECRET), None, token), 200, VALUE)
        steps.begin_step(
            "The workload `reporting` comes from `staging`, where its policy says `production`: it learns nothing but 401"
        )
        claims = {"workload": "reporting", "repository": "acme/reporting", "environment": "staging"}
        await steps.expect_refusal(self._present_jwt(claims, "OTHER_JWT", ""))
        steps.begin_step("Monitoring asks for the server's health, without a login")
        health = await steps.send_request("GET", "/health", None)
        if health.status != 200:
            # On a machine that is busy a round of checks may have been late, which is no fault of the server.
            click.echo("  A check has failed, or was late: the next round is waited for, once.")
            await self.next_round()
            health = await steps.send_request("GET", "/health", None)
        steps.expect_answer(health, 200, '"ok"')
        steps.begin_step("An operator asks who may use the authenticator: the members of its group `apps`")
        path = steps.connection.encode_path("roles", account, "group", f"{_AUTHENTICATOR}/apps") + "?members"
        steps.expect_answer(await steps.send_request("GET", path, None, admin), 200, "workloads/jwt-apps")
        return admin

    async def _present_jwt(self, claims: Mapping[str, str], jwt_name: str, token_name: str) -> ApiAnswer:
        connection = self.steps.connection
        jwt = self.provider.sign_token(claims, AUDIENCE, connection.wall.seconds())
        click.echo(f"  The JWT says {json.dumps(claims)}.")
        click.echo("  " + click.style(f"{jwt_name}={jwt}", fg="cyan"))
        path, body = f"/authn-jwt/{SERVICE_ID}/{connection.account}/authenticate", urlencode({"jwt": jwt}).encode()
        return await self.steps.send_request("POST", path, body, body_as=f'"jwt=${jwt_name}"', kept_as=token_name)


@attrs.frozen
class CloudTour:
    """A virtual machine logs in; ``metadata`` is what it asks at the ``platform``, whose address is ``base``.

    ``policy`` is in the file ``policy_path``.
    """

    steps: Steps
    platform: Platform
    base: str
    metadata: Metadata
    policy: bytes
    policy_path: str

    async def run_steps(self, admin: Token) -> None:
        """Take all steps."""
        self.steps.begin_step(
            "The admin loads another policy: a cloud authenticator, and two workloads by the resources they are"
        )
        await self.steps.load_policy(self.policy, self.policy_path, admin)
        self.steps.begin_step("The admin says which tenant's tokens are accepted, and for whom they must be made")
        values = {
            f"{_CLOUD_AUTHENTICATOR}/provider-uri": self.platform.issuer_url(self.base),
            f"{_CLOUD_AUTHENTICATOR}/audience": AUDIENCE,
        }
        await self.steps.set_variables(values, admin)
        self.steps.begin_step("A virtual machine asks the metadata service of its platform for an identity token")
        query = urlencode({"api-version": "2018-02-01", "resource": AUDIENCE})
        asking = shlex.join(["curl", "-sS", "-H", "Metadata: true", f"{self.base}{METADATA_PATH}?{query}"])
        click.echo("  " + click.style(asking, fg="cyan"))
        try:
            identity = await self.metadata.token()
        except Fault as fault:
            self.steps.record_mismatch(f"expected a token: {fault}")
            return
        claims = {"xms_mirid": MACHINE.resource_id, "oid": MACHINE.object_id}
        click.echo(f"  Its field access_token is a JWT that says {json.dumps(claims)}.")
        click.echo("  " + click.style(f"IDENTITY={identity}", fg="cyan"))
        self.steps.begin_step("The machine exchanges it for an access token, as the host `cloud-workloads/shop`")
        answer = await self._present_identity(identity, "shop", "CLOUD_TOKEN")
        self.steps.expect_answer(answer, 200)
        token = Token("CLOUD_TOKEN", answer.body.decode("ascii", "replace"))
        self.steps.begin_step("With the access token, the machine reads the secret")
        self.steps.expect_answer(
            await self.steps.send_request("GET", self.steps.variable_path(SECRET), None, token), 200, VALUE
        )
        self.steps.begin_step("As the host `warehouse`, which is of another resource group, it learns nothing but 401")
        await self.steps.expect_refusal(self._present_identity(identity, "warehouse", ""))

    async def _present_identity(self, identity: str, host: str, kept_as: str) -> ApiAnswer:
        account = self.steps.connection.account
        path = f"/authn-cloud/{SERVICE_ID}/{account}/host%2Fcloud-workloads%2F{host}/authenticate"
        body = urlencode({"jwt": identity}).encode()
        return await self.steps.send_request("POST", path, body, body_as='"jwt=$IDENTITY"', kept_as=kept_as)
