"""The server as a container runs it, as far as that goes without an engine: by what the manifests for Kubernetes say.

The container's user, rights, files and variables are read from the manifests and the container file, and made with what a
shell has: namespaces of its own for mounts, processes and the network (``unshare``), rights (``setpriv``), volumes that are
bind mounts, and a file system of which all else is read-only. The server is the first process there.

Not as there: the program, which is that of the tests instead of the image's; and seccomp, since there is no engine.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import svc
from tests import manifests
from tests.integration.process import PATIENCE
from tests.programs import explain_missing

#: Makes the file system that the container has, then becomes its process. $1 is the folder of the volumes, $2 lists them.
_ENTER: Final = """
set -e
ip link set lo up
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=755 none /var/lib
for place in $2; do
    path=${place#*=}
    mkdir -p "$path"
    mount --bind "$1/${place%%=*}" "$path"
done
awk '{print $5}' /proc/self/mountinfo | while read -r place; do
    case " $3 " in *" $place "*) continue ;; esac
    case $place in
        /proc*|/sys*|/dev*) ;;
        *) mount -o remount,bind,ro "$place" 2>/dev/null || test "$place" != / ;;
    esac
done
cd "$4"
shift 4
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs --clear-groups "$@"
"""


class Container:
    """A container of the deployment, with files for its secrets; ``said`` is what its server wrote to standard output."""

    def __init__(self, python: str, database_url: str, files: Mapping[str, Mapping[str, bytes]]) -> None:
        """``files``: what each volume that isn't an empty folder holds."""
        self._python = python
        spec = manifests.found("Deployment")["spec"]["template"]["spec"]
        self._user, self._group = spec["securityContext"]["runAsUser"], spec["securityContext"]["fsGroup"]
        self._places = {mount["name"]: mount["mountPath"] for mount in manifests.container()["volumeMounts"]}
        self.folder = Path(tempfile.mkdtemp(prefix="svc-container-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.empty = [volume["name"] for volume in spec["volumes"] if "emptyDir" in volume]
        for volume in spec["volumes"]:
            path = self.folder / volume["name"]
            path.mkdir()
            if "emptyDir" in volume:
                os.chown(path, 0, self._group)
                path.chmod(0o2777)
                continue
            for name, content in files[volume["name"]].items():
                (path / name).write_bytes(content)
                os.chown(path / name, 0, self._group)
                (path / name).chmod(volume["secret"]["defaultMode"] if "secret" in volume else 0o644)
        environment = manifests.container_environment({("svc-database", "url"): database_url})
        path = environment["PATH"]
        self._home = environment["SERVICE_DATA_DIR"]
        source = str(Path(svc.__file__).resolve().parent.parent)
        self._environment = {**environment, "HOME": self._home, "PATH": path, "PYTHONPATH": source}
        self.said = b""
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command of ``svc`` in a container of its own, as an init container does; its exit code and what it says."""
        done = subprocess.run(
            self._command(*arguments), env=self._environment, capture_output=True, check=False, timeout=PATIENCE
        )
        return done.returncode, (done.stdout + done.stderr).decode()

    def start(self) -> None:
        """Start the server."""
        arguments = manifests.container()["args"]
        self._process = subprocess.Popen(
            self._command(*arguments), env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        threading.Thread(target=self._read, daemon=True).start()

    def ready(self) -> bool:
        """Whether it serves.

        :raises AssertionError: it ended.
        """
        assert self._process is not None
        assert self._process.poll() is None, f"it ended: {self.said.decode(errors='replace')}"
        return re.search(rb"(?m)^svc ready: ", self.said) is not None

    @property
    def pid(self) -> int:
        """The id of the server's process outside of its namespace."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        [child] = children
        return int(child)

    def inside(self, *command: str) -> tuple[int, str]:
        """Run a command in the running container, with its user and environment; its exit code and what it says."""
        user = [f"--setuid={self._user}", f"--setgid={self._group}"]
        home = ["sh", "-c", 'cd "$0" && exec "$@"', self._home]
        done = subprocess.run(
            ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", *user, *home, *command],
            env=self._environment,
            capture_output=True,
            check=False,
            timeout=PATIENCE,
        )
        return done.returncode, (done.stdout + done.stderr).decode()

    def svc(self, *arguments: str) -> tuple[int, str]:
        """Run ``svc`` in the running container."""
        return self.inside(self._python, "-m", "svc", *arguments)

    def stop(self) -> int:
        """Ask it to stop, as an engine does, and wait for its end; its exit code."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGTERM)
        return self._process.wait(PATIENCE)

    def remove(self) -> None:
        """Leave nothing."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()  # and so the server, by --kill-child
            self._process.wait()
        shutil.rmtree(self.folder)

    def _command(self, *arguments: str) -> list[str]:
        places = " ".join(f"{name}={path}" for name, path in self._places.items())
        writable = " ".join(self._places[name] for name in self.empty)
        spaces = ["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
        become = [f"--reuid={self._user}", f"--regid={self._group}", self._python, "-m", "svc", *arguments]
        script = ["sh", "-c", _ENTER, "enter", str(self.folder), places, writable, self._home]
        # The path is that of the image, which has no programs of root.
        return ["/usr/bin/unshare", *spaces, "env", f"PATH=/usr/sbin:/sbin:{self._environment['PATH']}", *script, *become]

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with self._process.stdout as stream:
            while piece := os.read(stream.fileno(), 65536):
                self.said += piece


def user() -> pwd.struct_passwd:
    """The user of the image."""
    uid, _, gid = manifests.image()["USER"].partition(":")
    return pwd.struct_passwd(("svc", "x", int(uid), int(gid), "", "/var/lib/svc", "/usr/sbin/nologin"))


def unavailable() -> str | None:
    """Why a container's surroundings can't be made here; ``None`` when they can."""
    if os.geteuid() != 0:
        return "only root may make the file system of a container without an engine"
    if missing := explain_missing("ip"):
        return missing
    trial = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "sh", "-c", "mount -o remount,bind,ro /"]
    try:
        done = subprocess.run(trial, capture_output=True, check=False)
    except FileNotFoundError:
        return "unshare isn't installed"
    return None if done.returncode == 0 else f"no namespaces are allowed here: {done.stderr.decode().strip()}"
