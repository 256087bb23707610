"""A server as the shipped unit of systemd runs it, as far as that goes without systemd.

What the unit says is read from it, and done with what a shell has: its user's id and rights (``setpriv``), its limits and
mask (``ulimit``, ``umask``), its folders, and a file system of its own of which all else is read-only (``unshare``, bind
mounts). The variables of the environment are those that systemd gives a unit.

Not as there: the paths of the program and of its configuration, which are the test's; the user, who is the one that may
speak to the test's PostgreSQL; ``/tmp``, which is the machine's, since that PostgreSQL's socket is there; the journal, which
is a pipe. What only systemd can do is listed in ``ELSEWHERE``.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import svc
from tests.integration.process import DATA_KEY, PATIENCE

ROOT: Final = Path(__file__).resolve().parent.parent.parent
UNIT: Final = ROOT / "etc" / "systemd" / "svc.service"
SAMPLE: Final = ROOT / "etc" / "svc.toml"

#: The settings of the unit's section ``Service`` that are done here.
HERE: Final = frozenset(
    {
        "Type",
        "WatchdogSec",
        "User",
        "Group",
        "EnvironmentFile",
        "ExecStart",
        "ExecReload",
        "LimitNOFILE",
        "LimitCORE",
        "StateDirectory",
        "StateDirectoryMode",
        "LogsDirectory",
        "LogsDirectoryMode",
        "UMask",
        "NoNewPrivileges",
        "CapabilityBoundingSet",
        "AmbientCapabilities",
        "ProtectSystem",
    }
)

#: Those that are systemd's own business, or that take its filters and namespaces.
ELSEWHERE: Final = frozenset(
    {
        "Restart",
        "RestartSec",
        "TimeoutStopSec",
        "LogRateLimitIntervalSec",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectHostname",
        "ProtectClock",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
        "ProcSubset",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "RemoveIPC",
        "LockPersonality",
        "SystemCallArchitectures",
        "SystemCallFilter",
        "SystemCallErrorNumber",
    }
)

#: Makes the file system that the unit has, then becomes the server. $1 is the folder that holds the unit's.
_ENTER: Final = """
set -e
for place in log lib; do
    mount --bind "$1/$place" /var/$place
    mount --bind "$1/$place/svc" /var/$place/svc
done
awk '{print $5}' /proc/self/mountinfo | while read -r place; do
    case $place in
        /proc*|/sys*|/dev*|/tmp*|/var/log/svc|/var/lib/svc) ;;
        *) mount -o remount,bind,ro "$place" 2>/dev/null || test "$place" != / ;;
    esac
done
cd /
umask "$2"
ulimit -n "$3" 2>/dev/null || ulimit -n "$(ulimit -H -n)"  # as many as the machine allows
ulimit -c "$4"
export WATCHDOG_PID=$$
shift 4
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs --clear-groups "$@"
"""


def settings(section: str = "Service") -> dict[str, str]:
    """The settings of a section of the unit; each stands there once."""
    found: dict[str, str] = {}
    text = UNIT.read_text(encoding="utf-8").partition(f"[{section}]\n")[2].partition("\n[")[0]
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            assert name not in found, f"{name} stands twice in the unit"
            found[name] = value
    return found


def unavailable() -> str | None:
    """Why a unit can't be run here; ``None`` when it can."""
    if os.geteuid() != 0:
        return "only root may make a file system of a unit's own"
    trial = ["unshare", "--mount", "sh", "-c", "mount -o remount,bind,ro /"]
    try:
        done = subprocess.run(trial, capture_output=True, check=False)
    except FileNotFoundError:
        return "unshare isn't installed"
    return None if done.returncode == 0 else f"no mounts are allowed here: {done.stderr.decode().strip()}"


class Unit:
    """One run. ``logs`` is what the unit sees as ``/var/log/svc``; ``journal`` collects its standard output.

    ``told`` are the messages to systemd. ``folder`` and ``python`` are such as the account can reach.
    """

    def __init__(self, folder: Path, account: pwd.struct_passwd, python: str) -> None:
        self.settings = settings()
        self.folder = folder
        self.account = account
        self._python = python
        self.logs = folder / "log" / self.settings["LogsDirectory"]
        self.state = folder / "lib" / self.settings["StateDirectory"]
        self.config = folder / "svc.toml"
        for place, mode in ((self.logs, "LogsDirectoryMode"), (self.state, "StateDirectoryMode")):
            place.mkdir(parents=True)
            place.chmod(int(self.settings[mode], 8))
            os.chown(place, account.pw_uid, account.pw_gid)
        self.journal = b""
        self.told: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, config: str, environ: Mapping[str, str]) -> None:
        """Start it with these settings in its file; ``environ`` is what its file of the environment has besides the key."""
        self.config.write_text(config, encoding="utf-8")
        program, *arguments = shlex.split(self.settings["ExecStart"])
        assert Path(program).name == "twistd"
        arguments = [str(self.config) if word == "/etc/svc/svc.toml" else word for word in arguments]
        twistd = [self._python, "-c", "from twisted.scripts.twistd import run; run()"]
        reader, writer = os.pipe()
        stream = os.fstat(writer)
        given = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": "/var/lib/svc",
            "LOGNAME": self.account.pw_name,
            "USER": self.account.pw_name,
            "INVOCATION_ID": "0123456789abcdef0123456789abcdef",
            "JOURNAL_STREAM": f"{stream.st_dev}:{stream.st_ino}",
            "STATE_DIRECTORY": f"/var/lib/{self.settings['StateDirectory']}",
            "LOGS_DIRECTORY": f"/var/log/{self.settings['LogsDirectory']}",
            "PYTHONPATH": str(Path(svc.__file__).resolve().parent.parent),
            "SERVICE_DATA_KEY": DATA_KEY,
            "NOTIFY_SOCKET": self._listen(),
            "WATCHDOG_USEC": str(int(self.settings["WatchdogSec"]) * 1_000_000),
            **environ,
        }
        limits = [self.settings["UMask"], self.settings["LimitNOFILE"], self.settings["LimitCORE"]]
        become = [f"--reuid={self.account.pw_uid}", f"--regid={self.account.pw_gid}", *twistd, *arguments]
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--propagation=private", "sh", "-c", _ENTER, "enter", str(self.folder), *limits, *become],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            env=given,
        )
        os.close(writer)
        threading.Thread(target=self._read, args=(reader,), daemon=True).start()

    def _listen(self) -> str:
        """Hear what systemd would be told, and return the socket's path."""
        assert self.settings["Type"] == "notify"
        path, hearing = self.folder / "notify", socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        hearing.bind(str(path))
        path.chmod(0o777)

        def hear() -> None:
            with hearing:
                while (text := hearing.recv(4096)) != b"over":
                    self.told += text.decode().splitlines()

        threading.Thread(target=hear, daemon=True).start()
        return str(path)

    def _read(self, reader: int) -> None:
        with os.fdopen(reader, "rb") as stream:
            while piece := stream.read1(65536):
                self.journal += piece

    def url(self) -> str | None:
        """Where it serves, once it is ready.

        :raises AssertionError: it ended.
        """
        ready = re.search(rb"(?m)^svc ready: (\S+)", self.journal)
        if ready is not None:
            return ready[1].decode()
        assert self._process is not None
        assert self._process.poll() is None, f"it ended: {self.journal.decode(errors='replace')}"
        return None

    @property
    def reload(self) -> str:
        """What ``systemctl reload`` runs."""
        assert self._process is not None
        return self.settings["ExecReload"].replace("$MAINPID", str(self._process.pid))

    def stop(self) -> int | None:
        """Ask it to stop, as systemd does, and wait for its end; its exit code."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.terminate()
        code = process.wait(PATIENCE)  # systemd would kill it
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"over", str(self.folder / "notify"))
        return code
