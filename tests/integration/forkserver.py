"""A server that forks ``twistd``, ``svc`` and the server's own processes, so that each doesn't import all of it again.

Half of what the tests on real processes cost is Python reading the same modules, once for each start. So a test process
has one process that has imported them and does nothing else, and forks on request::

    fork(reactor, protocol, command, environ, path)     # like reactor.spawnProcess; see there

The child becomes the program as a start of its own does: its argument vector, environment, folder, descriptors, limits
and group are those asked for, its script runs as ``__main__``, and the interpreter ends as it always does. No reactor is
installed before. Its parent is the process that asked: that one is, for the time of a request, the reaper of orphans
(``prctl(2)``), and the process between is orphaned on purpose. A program that was forked so has such a server of its own,
which was forked before it began, so that the processes which it starts needn't import anything either.

A program for which a fork can't stand is started as users start it: see :func:`is_forkable`, and ``REAL`` for tests that
are about a start, about what it reads, how long it takes, or about processes themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import os
import pickle
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

#: Modules of tests whose programs start as users start them.
REAL: Final = frozenset(
    {
        # The start, and what may happen while modules load.
        *("first_steps", "interrupts", "main_job", "readiness", "start", "tap", "unit"),
        # The user whom a process runs as, its limits, its processes, its memory.
        *("connections", "embedded", "embedded_places", "platform", "processes", "worker"),
    }
)

_SCRIPTS: Final = tuple(str(Path(sys.executable).with_name(name)) for name in ("twistd", "svc"))
#: How the program starts processes of its own.
_OWN: Final = "import sys; sys.path.insert(0, sys.argv[1]); from svc."

#: What Python or a library reads from the environment before any of ours runs.
_EARLY: Final = ("GLIBC", "LC_", "LD_", "MALLOC", "OPENSSL", "PYTHON", "SSL")
_LANG: Final = "C.UTF-8"

_ROOM: Final = 1 << 20
_SUBREAPER: Final = 36
_SET_NAME: Final = 15
_PADDING: Final = "x" * 4096


class Client:
    """The way to a server that forks: the end of a connection, and whose children it makes."""

    def __init__(self, connection: socket.socket, python_path: str) -> None:
        self.connection = connection
        self.python_path = python_path
        self.owner = os.getpid()
        self._standing = _standing()

    def serves(self, environ: Mapping[str, str]) -> bool:
        """Return whether a program with this environment is what a fork of this process would be."""
        return (
            self.owner == os.getpid()
            and self._standing == _standing()
            and environ.get("PYTHONPATH", "") == self.python_path
            and environ.get("LANG", _LANG) == _LANG
            and not any(name.startswith(_EARLY) for name in environ if name != "PYTHONPATH")
        )

    def fork(self, command: Sequence[str], environ: Mapping[str, str], path: str, descriptors: Mapping[int, int]) -> int:
        """Fork a child of this process that becomes the program, and return its process id.

        :raises OSError: the server has ended.
        """
        order = {
            "command": list(command),
            "environ": dict(environ),
            "descriptors": list(descriptors),
            "group": os.getpgid(0),
            "limits": [(kind, resource.getrlimit(kind)) for kind in _limits()],
        }
        answer, answering = os.pipe()
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY)
        _become_reaper(yes=True)
        try:
            socket.send_fds(self.connection, [pickle.dumps(order)], [answering, folder, *descriptors.values()])
            os.close(answering)
            answering = -1
            with open(answer, "rb", closefd=False) as reading:
                text = reading.read()
        finally:
            _become_reaper(yes=False)
            os.close(answer)
            os.close(folder)
            if answering >= 0:
                os.close(answering)
        if not text:
            raise OSError("the server that forks has ended")
        return int(text)


#: The way to a server that forks for this process.
_clients: Final[list[Client]] = []


def client() -> Client:
    """Return the way to this process's server, which is started on first use."""
    if not _clients:
        _clients.append(_started())
    return _clients[0]


def _started() -> Client:
    import svc  # noqa: PLC0415 - only here, since this module is run by its path, too

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    python_path = str(Path(svc.__file__).resolve().parent.parent)
    environ = {"PYTHONPATH": python_path, "PATH": os.defpath, "HOME": "/nonexistent", "LANG": _LANG}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno()), _PADDING],
            pass_fds=[theirs.fileno()],
            env=environ,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def end() -> None:
        ours.close()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()

    atexit.register(end)
    return Client(ours, python_path)


def is_forkable(command: Sequence[str]) -> bool:
    """Return whether a command is one of the programs that a server forks."""
    if command[0] in _SCRIPTS or tuple(command[:3]) == (sys.executable, "-m", "svc"):
        return True
    return tuple(command[:3]) == (sys.executable, "-P", "-c") and command[3].startswith(_OWN)


@functools.cache
def process_class() -> Any:
    """Return Twisted's process, whose children are forked where that is possible."""
    from twisted.internet.process import Process  # noqa: PLC0415 - it mustn't be imported before a reactor is chosen

    class Forked(Process):
        def _fork(self, path: Any, uid: Any, gid: Any, executable: Any, args: Any, environment: Any, **given: Any) -> None:
            command = [os.fsdecode(word) for word in args]
            given_environ = os.environ if environment is None else environment
            environ = {os.fsdecode(name): os.fsdecode(value) for name, value in given_environ.items()}
            if uid is None and gid is None and os.fsdecode(executable) == command[0] and is_forkable(command):
                way = client()
                if way.serves(environ):
                    with contextlib.suppress(OSError):  # the server may have been killed with others
                        self.pid = way.fork(command, environ, os.fsdecode(path or "."), given["fdmap"])
                        return
            super()._fork(path, uid, gid, executable, args, environment, **given)

    return Forked


def _become_reaper(*, yes: bool) -> None:
    if ctypes.CDLL(None).prctl(_SUBREAPER, int(yes), 0, 0, 0):
        raise OSError("this process may not adopt others")


def _standing() -> tuple[object, ...]:
    """Return what a child inherits and a server can't give it: users, groups, session, root, file mode mask."""
    root = os.stat("/")
    mask = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask"))
    ids = (os.getresuid(), os.getresgid(), tuple(os.getgroups()), os.getsid(0))
    return (*ids, root.st_dev, root.st_ino, mask, os.readlink("/proc/self/ns/net"), os.readlink("/proc/self/ns/mnt"))


def _limits() -> list[int]:
    return sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})


# The functions below run in the server that forks.


def _preload() -> None:
    """Import what the programs import, but no reactor."""
    import twisted.internet  # noqa: PLC0415

    # klein binds the reactor, for a function that nobody calls.
    sys.modules["twisted.internet.reactor"] = types.ModuleType("twisted.internet.reactor")
    for name in ("twisted.internet.epollreactor", "twisted.scripts.twistd", "svc.tap", "svc.server.process"):
        importlib.import_module(name)
    for name in ("svc.worker.main", "svc.server.serving", "svc.cli.main", "pydoc"):
        importlib.import_module(name)
    import svc.cli  # noqa: PLC0415
    from svc.cli.main import COMMANDS  # noqa: PLC0415

    for module in sorted({module for module, _ in COMMANDS.values()}):
        importlib.import_module(f"{svc.cli.__name__}.{module}")
    del sys.modules["twisted.internet.reactor"]
    vars(twisted.internet).pop("reactor", None)


def _serve(connection: socket.socket) -> list[str]:
    """Fork on request, until nobody can ask any more; return in each child, with the command that it becomes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        text, received, _, _ = socket.recv_fds(connection, _ROOM, 64)
        if not text:
            os._exit(0)
        answering, folder, *descriptors = received
        between = os.fork()
        if between == 0:
            orphaned, held = os.pipe()
            made = os.fork()
            if made:
                os.write(answering, b"%d" % made)
                os._exit(0)
            # Its parent is the one that asked as soon as the process between has ended.
            os.close(held)
            os.close(answering)
            os.read(orphaned, 1)
            os.close(orphaned)
            connection.close()
            return _become(pickle.loads(text), folder, descriptors)
        os.waitpid(between, 0)
        for number in received:
            os.close(number)


def _become(order: dict[str, Any], folder: int, descriptors: list[int]) -> list[str]:
    assert "twisted.internet.reactor" not in sys.modules
    os.setpgid(0, order["group"])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if _starts_processes(order["command"]) and os.fork() == 0:
        # The server of this program; nothing that was passed to the program stays open in it.
        ours.close()
        for number in (folder, *descriptors):
            os.close(number)
        return _serve(theirs)
    theirs.close()
    for kind, limits in order["limits"]:
        if resource.getrlimit(kind) != limits:
            resource.setrlimit(kind, limits)
    os.fchdir(folder)
    os.close(folder)
    targets = order["descriptors"]
    above = max([*targets, 2]) + 1
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, above) for number in descriptors]
    kept = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, above)
    os.closerange(0, above)
    for number in range(above, 256):
        if number not in {*high, kept}:
            with contextlib.suppress(OSError):
                os.close(number)
    ours.detach()
    for target, number in zip(targets, high, strict=True):
        os.dup2(number, target)
        os.close(number)
    lowest = fcntl.fcntl(kept, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(kept)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number not in targets:
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
    os.environ.clear()
    os.environ.update(order["environ"])
    time.tzset()
    _clients[:] = [Client(socket.socket(fileno=lowest), order["environ"].get("PYTHONPATH", ""))]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return list(order["command"])


def _starts_processes(command: Sequence[str]) -> bool:
    """Return whether a program starts processes that a server could fork."""
    return command[0] == _SCRIPTS[0] or any("svc.server.process" in word for word in command[:4])


def _show(command: Sequence[str]) -> None:
    """Have the system list this process under the program's name and arguments."""
    libc = ctypes.CDLL(None)
    name = Path(command[0] if command[0] in _SCRIPTS else sys.executable).name
    libc.prctl(_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    shown = [sys.executable, *command] if command[0] in _SCRIPTS else list(command)
    line = b"".join(word.encode() + b"\0" for word in shown)[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, line, len(line))


def _program(command: list[str]) -> Callable[[], object]:
    """Return a function that runs the program as ``python`` does."""
    import twisted.internet.process  # noqa: PLC0415

    twisted.internet.process.Process = process_class()  # type: ignore[misc]
    _show(command)
    main = types.ModuleType("__main__")
    if command[0] in _SCRIPTS:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).parent))
        vars(main)["__file__"] = command[0]
        code = compile(Path(command[0]).read_bytes(), command[0], "exec")
    elif command[1] == "-m":
        sys.argv = ["-m", *command[3:]]
        sys.path.insert(0, os.getcwd())
        return lambda: runpy.run_module("svc", run_name="__main__", alter_sys=True)
    else:
        at = command.index("-c")
        sys.argv = command[at:]
        del sys.argv[1]
        if "-P" not in command[:at]:
            sys.path.insert(0, "")
        code = compile(command[at + 1], "<string>", "exec")
    sys.modules["__main__"] = main
    return lambda: exec(code, vars(main))


def _run(program: Callable[[], object]) -> None:
    """Run it, and end as Python does, but for taking all modules apart."""
    try:
        program()
        code: object = None
    except SystemExit as ending:
        code = ending.code
    if code is not None and not isinstance(code, int):
        raise SystemExit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(int(code or 0) & 0xFF)


if __name__ == "__main__":
    _preload()
    gc.collect()
    gc.disable()
    gc.freeze()
    _command = _serve(socket.socket(fileno=int(sys.argv[1])))
    gc.enable()
    _run(_program(_command))
