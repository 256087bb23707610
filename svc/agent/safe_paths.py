"""The way to a file, folder by folder (AGT-2, AGT-24).

Note [Links of others]. Anyone who may write to a folder may replace its entries by links, and so redirect a path: a template
to a file that only root reads, a file to a folder that root's programs search. So the path is walked step by step, each
folder by its descriptor, and a link is followed only if it belongs to root or to the agent's user. Linux opens links
themselves, so that none is replaced between its check and its reading.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from svc.agent.faults import FileFault

_OPEN_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW

#: Opens a link itself, and a folder without the right to list it; ``None`` where the system has no such way.
_O_PATH: Final[int | None] = getattr(os, "O_PATH", None)
_STEP_FLAGS: Final = _OPEN_FLAGS | os.O_DIRECTORY | (_O_PATH or os.O_RDONLY)

#: The most links of one way, as for Linux itself.
_MOST_LINKS: Final = 40

#: Checks a folder on the way: raises ``FileFault`` for one that must not be passed through.
CheckFolder = Callable[[Path, os.stat_result], None]


def open_checked(path: Path, flags: int, judge: CheckFolder = lambda *_: None) -> int:
    """Open what a path names (Note [Links of others]), and return its descriptor; ``judge`` checks all folders above.

    :raises FileFault: ``judge`` raises it, or a link on the way belongs to somebody else.
    :raises OSError: it can't be opened.
    """
    place, links = Path("/"), 0
    left = list(reversed(path.absolute().parts[1:]))
    here = os.open(place, _STEP_FLAGS)
    try:
        judge(place, os.fstat(here))
        while left:
            name = left.pop()
            target = _link_target(here, name, place / name)
            if target is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                left.extend(reversed(target.parts))
                continue
            if not left and name not in {"/", ".."}:
                return os.open(name, flags | _OPEN_FLAGS, dir_fd=here)
            # A link may begin with "/", or go back.
            below = os.open(name, _STEP_FLAGS, dir_fd=here)
            os.close(here)
            here, place = below, place.parent if name == ".." else place / name
            judge(place, os.fstat(here))
        return os.open(".", flags | _OPEN_FLAGS, dir_fd=here)
    finally:
        os.close(here)


def _link_target(folder: int, name: str, path: Path) -> Path | None:
    """Return where a link leads, ``None`` for what is no link.

    :raises FileFault: it is not to be followed.
    """
    if _O_PATH is None:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(found.st_mode) else None
    else:
        file = os.open(name, _OPEN_FLAGS | _O_PATH, dir_fd=folder)
        try:
            found = os.fstat(file)
            target = os.readlink("", dir_fd=file) if stat.S_ISLNK(found.st_mode) else None
        finally:
            os.close(file)
    if target is None:
        return None
    if found.st_uid not in {0, os.geteuid()}:
        raise FileFault(
            f"{path} is a symbolic link of user {found.st_uid}, who could lead it anywhere: name what it leads to instead"
        )
    return Path(target)
