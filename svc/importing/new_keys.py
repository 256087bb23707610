"""The files with the new API keys of what was moved, a file each, for handing them over.

Note [Interrupted]. A key is in the answer to the load that makes its host, and nowhere else. So the hosts of a load are
written down before it, and after it each gets its file; a later run finds those that have none, and gives them another key.
Nobody has had the first one.

Note [Names of others]. A source's writers choose the ids of hosts. A file is read by a shell, so that a login with a
character that means something there gets none. The name of a file says which login it is for, and no two logins have one
name: ``+`` is in no encoded login, and stands before the digest of a long one.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import string
import tempfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import attrs

from svc.importing.inventory import RecordId

#: The file with the hosts whose keys were in no answer yet.
EXPECTED: Final = ".expected"

#: The longest encoded login that names its file, in bytes; of a longer one so much of the beginning, and a digest.
_NAME: Final = 200
_BEGINNING: Final = 100

#: The logins that are themselves in each file that a shell or a program reads as variables (Note [Names of others]).
_SAFE: Final = re.compile(r"(?![~=])(?:[\w@%+=:,./-]|(?<!:)~)+")

#: The file for one host; `--key-template` names another one.
TEMPLATE: Final = """\
# The login of $login, which has moved to $url (account $account).
# Hand this over on a way that others can't read, have it stored where the old API key was, and delete this file.
# Clients of svc read:
SVC_URL=$url
SVC_ACCOUNT=$account
SVC_LOGIN=$login
SVC_API_KEY=$api_key
# Clients of Conjur read:
CONJUR_APPLIANCE_URL=$url
CONJUR_ACCOUNT=$account
CONJUR_AUTHN_LOGIN=$login
CONJUR_AUTHN_API_KEY=$api_key
"""


@attrs.define
class KeyFiles:
    """The files of one folder. ``fields`` has the texts of the template but for the login and the key."""

    folder: Path
    fields: Mapping[str, str]
    template: str = TEMPLATE
    written: int = attrs.field(default=0, init=False)

    def prepare(self) -> None:
        """Make the folder, which nobody else may open.

        :raises OSError: it can't be made, or is here and others may open it.
        :raises ValueError: the template has a field that there isn't.
        """
        try:
            self._fill("host/example", "example")
        except KeyError as error:
            raise ValueError(f"the template has ${error.args[0]}, and may have {_FIELDS}") from None
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.stat()
        if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
            why = "others may open it, and so read or replace keys: name a new folder, or make it yours with mode 0700"
            raise PermissionError(errno.EPERM, why, str(self.folder))

    @staticmethod
    def accepts(name: RecordId) -> bool:
        """Return whether there can be a file for this host or user (Note [Names of others])."""
        return _SAFE.fullmatch(_login(name)) is not None

    def has(self, name: RecordId) -> bool:
        """Return whether there is a file for this host or user."""
        return self._path(name).exists()

    def expect(self, names: Iterable[RecordId]) -> None:
        """Write down whose keys will come (Note [Interrupted]), each in a line, encoded as in a URL."""
        wanted = {*self.expected(), *filter(self.accepts, names)}
        lines = "".join(f"{quote(_login(name), safe='/')}\n" for name in sorted(wanted))
        _write_private(self.folder / EXPECTED, lines.encode())

    def expected(self) -> set[RecordId]:
        """Return those who were written down and have no file yet."""
        try:
            lines = (self.folder / EXPECTED).read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return set()
        names = {_parse_login(unquote(line)) for line in lines if line}
        return {name for name in names if not self.has(name)}

    def take(self, keys: Mapping[RecordId, str]) -> None:
        """Write a file for each of these that there can be one for."""
        for name, key in keys.items():
            if not self.accepts(name):
                continue
            _write_private(self._path(name), self._fill(_login(name), key).encode())
            self.written += 1

    def finish(self, without: Iterable[RecordId] = ()) -> None:
        """Forget whose keys were expected, but for those ``without`` one, if all of these have come."""
        if not self.expected() - set(without):
            (self.folder / EXPECTED).unlink(missing_ok=True)

    def _fill(self, login: str, key: str) -> str:
        return string.Template(self.template).substitute({**self.fields, "login": login, "api_key": key})

    def _path(self, name: RecordId) -> Path:
        stem = quote(_login(name), safe="")
        if len(stem) > _NAME:
            stem = f"{stem[:_BEGINNING]}+{sha256(stem.encode()).hexdigest()}"
        return self.folder / f"{stem}.env"


_FIELDS: Final = "$login, $api_key, $url and $account"


def _login(name: RecordId) -> str:
    return name.identifier if name.kind == "user" else f"{name.kind}/{name.identifier}"


def _parse_login(line: str) -> RecordId:
    kind, slash, rest = line.partition("/")
    return RecordId("host", rest) if slash and kind == "host" else RecordId("user", line)


def _write_private(path: Path, contents: bytes) -> None:
    """Write a file of mode 0600, whole or not at all."""
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=".new.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(contents)
        Path(fresh).replace(path)
    except BaseException:  # an interrupt leaves no key behind, either
        Path(fresh).unlink(missing_ok=True)
        raise
