"""Where the data keys come from: the environment, a file, a credential of systemd, or a command; never an argument.

Note [Bounded]. A command gets no input, and limited time and output. One that takes longer is killed, and nothing waits for
processes that it left behind. Its standard output is never shown; the first line of standard error may be.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from svc.crypto.keyfiles import data_key_file, read_data_keys, read_given_data_keys
from svc.crypto.vault import parse_data_keys
from svc.model.errors import ConfigurationInvalid, StartRefused
from svc.model.text import escape_unprintable
from svc.settings.config import Settings

#: Seconds that a command may take, and bytes that it may print (Note [Bounded]).
COMMAND_DEADLINE: Final = 30.0
OUTPUT_LIMIT: Final = 4096

#: The name of the credential of systemd.
CREDENTIAL: Final = "data-key"


@attrs.frozen
class DataKeySource:
    """The source that the settings name. ``where`` is what messages call it."""

    _reactor: Any
    where: str
    #: The file that can be looked at for a change, if the keys are in one.
    file: Path | None
    #: Reads the keys, the newest first; ``None`` when the server's own file is missing.
    _read: Callable[[], Any]

    @classmethod
    def from_settings(cls, reactor: Any, settings: Settings) -> DataKeySource:
        """Return the source; nothing is read yet."""
        if (text := settings.data_key) is not None:
            return cls(reactor, settings.name_of("data_key"), None, lambda: parse_data_keys(text))
        if (path := settings.data_key_file) is not None:
            return cls(reactor, f"{path}", path, lambda: read_given_data_keys(path))
        if (command := settings.data_key_command) is not None:
            key = settings.name_of("data_key_command")
            return cls(reactor, f"the command of {key}", None, lambda: _run_command(reactor, key, command))
        if (credential := _credential_path(settings)) is not None:
            return cls(reactor, f"{credential}", credential, lambda: read_given_data_keys(credential))
        own = data_key_file(settings.data_dir)
        return cls(reactor, f"{own}", own, lambda: read_data_keys(own))

    async def read_keys(self) -> tuple[bytes, ...] | None:
        """Return the keys, the newest first; ``None`` when the server's own file is missing.

        :raises ConfigurationInvalid: the environment's value has no valid keys.
        :raises StartRefused: the file can't be used, or the command failed; says why.
        """
        found = self._read()
        keys: tuple[bytes, ...] | None = await found if isinstance(found, Deferred) else found
        return keys

    def file_state(self) -> tuple[int, ...] | None:
        """Return what is another when the file has changed; ``None`` where there is none."""
        if self.file is None:
            return None
        try:
            status = self.file.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def is_key_given(settings: Settings) -> bool:
    """Return whether the operator gives the data key, so that none is to be made."""
    given = settings.data_key, settings.data_key_file, settings.data_key_command, _credential_path(settings)
    return any(each is not None for each in given)


def _credential_path(settings: Settings) -> Path | None:
    folder = settings.unit.credentials
    path = None if folder is None else folder / CREDENTIAL
    return path if path is not None and path.exists() else None


def parse_command(key: str, command: str) -> list[str]:
    """Return a command's words.

    :raises ConfigurationInvalid: there is no such program.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationInvalid(key, f"is no command: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise ConfigurationInvalid(key, f"names no program that can be run: {words[0] if words else 'it is empty'}")
    return words


def _run_command(reactor: Any, key: str, command: str) -> Deferred[tuple[bytes, ...]]:
    """Run a command and return the keys that it prints (Note [Bounded]); fails with ``StartRefused``."""
    words = parse_command(key, command)
    answer: Deferred[bytes] = Deferred()
    protocol = _KeyCommand(reactor, answer, key)
    try:
        reactor.spawnProcess(protocol, words[0], words, env=None)
    except OSError as error:
        raise StartRefused(f"the command of {key} can't be started: {error.strerror}") from None

    def parse_output(printed: bytes) -> tuple[bytes, ...]:
        try:
            return parse_data_keys(printed.decode("ascii", "replace"))
        except ConfigurationInvalid as refusal:
            raise StartRefused(f"the command of {key} printed something else: a data key {refusal.message}") from None

    return answer.addCallback(parse_output)


class _KeyCommand(ProcessProtocol):
    """The command's process."""

    transport: Any

    def __init__(self, reactor: Any, answer: Deferred[bytes], key: str) -> None:
        self._reactor, self._answer, self._key = reactor, answer, key
        self._printed, self._complaint = b"", b""

    def connectionMade(self) -> None:
        """Give it no input."""
        self._late = self._reactor.callLater(
            COMMAND_DEADLINE, self._fail_with, f"did not end within {COMMAND_DEADLINE:g} seconds"
        )
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        """Take what it prints."""
        self._printed += data
        if len(self._printed) > OUTPUT_LIMIT:
            self._fail_with(f"printed more than {OUTPUT_LIMIT} bytes")

    def errReceived(self, data: bytes) -> None:
        """Keep the beginning of what it complains of."""
        self._complaint = (self._complaint + data)[:OUTPUT_LIMIT]

    def processEnded(self, reason: Failure) -> None:
        """Take its answer, if it has ended well."""
        if self._late.active():
            self._late.cancel()
        if self._answer.called:
            return
        end: Any = reason.value
        if end.exitCode == 0:
            self._answer.callback(self._printed)
            return
        complaint = self._complaint.decode("utf-8", "replace").strip().partition("\n")[0]
        how = f"signal {end.signal}" if end.signal is not None else f"exit code {end.exitCode}"
        self._fail_with(f"failed with {how}" + (f": {escape_unprintable(complaint)}" if complaint else ""))

    def _fail_with(self, why: str) -> None:
        if self._answer.called:
            return
        self._answer.errback(StartRefused(f"the command of {self._key} {why}"))
        if self._late.active():
            self._late.cancel()
        try:
            self.transport.signalProcess("KILL")
        except ProcessExitedAlready:
            """It has ended by itself."""
        self.transport.loseConnection()  # to pipes that another process may hold
