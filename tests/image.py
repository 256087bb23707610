"""Builds the image of the container file and runs it, without a registry; ``tox -e image`` does so as root on Debian.

Needs ``buildah podman runc debootstrap postgresql``, and says so where they are missing. The base is made by debootstrap,
under the name that the container file has for it, so that nothing is pulled. The server runs read-only, without
capabilities, beside a PostgreSQL of its own; it has to become well, to keep its admin's key out of the log, and to end well
when it is told to.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "etc" / "container" / "Containerfile"

#: Options of all commands of both programs; nothing stays on the machine.
STORE = ("--storage-driver", "vfs")


def run(*command: str | Path, **given: object) -> str:
    """Run a command, and return what it says; a failure ends all."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, **given)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout[-4000:]}")
    return str(done.stdout)


def built(folder: Path, store: tuple[str, ...]) -> None:
    """Build the base, and the image ``svc`` on it."""
    base = re.search(r"(?m)^ARG BASE=(.*)$", FILE.read_text(encoding="utf-8"))
    assert base is not None
    root = folder / "base"
    run("debootstrap", "--variant=minbase", "trixie", root, stderr=subprocess.STDOUT)
    recipe = folder / "Base"
    recipe.write_text("FROM scratch\nCOPY . /\n")
    run("buildah", *store, "bud", "--file", recipe, "--tag", base[1], root)
    shutil.rmtree(root)
    given: list[str | Path] = []
    if certificates := os.environ.get("PIP_CERT"):  # of a proxy in front of the index
        settings = folder / "pip.conf"
        settings.write_text("[global]\ncert = /run/pip-cert.pem\n")
        given = ["--volume", f"{settings}:/etc/pip.conf:ro", "--volume", f"{certificates}:/run/pip-cert.pem:ro"]
    options = ("--pull-never", "--isolation", "chroot", "--network", "host", "--format", "docker", "--ignorefile")
    ignore = FILE.with_name(f"{FILE.name}.dockerignore")
    run("buildah", *store, "bud", *options, ignore, *given, "--file", FILE, "--tag", "svc", ROOT, stderr=subprocess.STDOUT)


def database(folder: Path) -> Path:
    """Start a PostgreSQL in the folder, and return the folder of its socket."""
    [programs] = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
    place = folder / "postgresql"
    place.mkdir()
    shutil.chown(place, "postgres", "postgres")
    place.chmod(0o755)
    become = ("runuser", "-u", "postgres", "--")
    run(*become, programs / "initdb", "--auth=trust", "--encoding=UTF8", place / "data", cwd=place)
    options = f"-k {place} -c listen_addresses= -c fsync=off"
    run(*become, programs / "pg_ctl", "-D", place / "data", "-o", options, "-l", place / "log", "-w", "start", cwd=place)
    run(*become, "psql", "-h", place, "-c", "CREATE ROLE svc LOGIN", "-c", "CREATE DATABASE svc OWNER svc", cwd=place)
    return place


def served(store: tuple[str, ...], socket: Path) -> None:
    """Run the image, and see to it that it serves and ends."""
    podman = ("podman", *store, "--cgroup-manager", "cgroupfs", "--runtime", "runc")
    safe = ("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges")
    here = ("--network", "none", "--no-healthcheck", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=512:512")
    key = base64.b64encode(secrets.token_bytes(32)).decode("ascii")
    settings = {"SERVICE_DATA_KEY": key, "SERVICE_DATABASE_URL": "host=/database dbname=svc user=svc"}
    given = [word for name in settings for word in ("--env", name)]
    environ = {**os.environ, **settings}
    run(
        *podman,
        "run",
        "--detach",
        "--name",
        "svc",
        *safe,
        *here,
        *given,
        "--volume",
        f"{socket}:/database",
        "svc",
        env=environ,
    )
    try:
        while "svc ready: " not in (said := run(*podman, "logs", "svc", stderr=subprocess.STDOUT)):
            assert run(*podman, "inspect", "--format", "{{.State.Running}}", "svc").strip() == "true", said
            time.sleep(0.2)
        assert '"ok": true' in run(*podman, "exec", "svc", "svc", "health")
        key = run(*podman, "exec", "svc", "svc", "account", "create", "acme").strip().rpartition(" ")[2]
        assert len(key) > 40, key
        assert run(*podman, "exec", "svc", "sh", "-c", "touch /x /tmp/x 2> /dev/null || id -u").strip() == "10001"
        run(*podman, "stop", "--time", "30", "svc")
        assert run(*podman, "inspect", "--format", "{{.State.ExitCode}}", "svc").strip() == "0"
        assert key not in run(*podman, "logs", "svc", stderr=subprocess.STDOUT)
    finally:
        run(*podman, "rm", "--force", "svc")


def unavailable() -> str | None:
    """Why an image can't be built and run here; ``None`` when it can."""
    if os.geteuid() != 0:
        return "only root may make its base"
    missing = [name for name in ("buildah", "podman", "runc", "debootstrap") if shutil.which(name) is None]
    if missing or not list(Path("/usr/lib/postgresql").glob("*/bin")):
        return f"this machine lacks {', '.join(missing) or 'PostgreSQL'}"
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "this machine allows no namespaces"


def main() -> None:
    """Build, run, and say how long it took and how large it is."""
    if (why := unavailable()) is not None:
        print(f"The image is neither built nor run here: {why}")
        return
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="svc-image-", dir="/var/tmp"))
    folder.chmod(0o755)
    store = (*STORE, "--root", str(folder / "store"), "--runroot", str(folder / "run"))
    try:
        built(folder, store)
        size = run("buildah", *store, "images", "--format", "{{.Size}}", "svc").strip()
        made = time.monotonic()
        served(store, database(folder))
        print(f"built in {made - began:.0f} s, {size}; it served and ended in {time.monotonic() - made:.0f} s")
    finally:
        if (log := folder / "postgresql" / "data" / "postmaster.pid").exists():
            os.kill(int(log.read_text().split()[0]), 2)
            time.sleep(1)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
