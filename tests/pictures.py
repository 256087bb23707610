"""Draw the pictures of ``docs/architecture.md``: the layers, from the imports, and the path of a login, from a trace.

``python -m tests.pictures`` writes both into the page. ``tests/test_docs.py`` and ``tests/test_bench.py`` fail while the
page shows others.
"""

from __future__ import annotations

import itertools
import re
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any, Final

from tests.test_architecture import FLOORS, imported_modules, modules_of, room_of

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/architecture.md"

#: The longest line of a page.
_WIDTH: Final = 125

#: Packages that contain rooms and no code of their own.
_NO_ROOMS: Final = {"", "web"}


def room_imports() -> Mapping[str, Set[str]]:
    """Return the rooms that each room imports."""
    modules = modules_of()
    names = {module.name for module in modules}
    found: dict[str, set[str]] = {module.room: set() for module in modules if module.room not in _NO_ROOMS}
    for module in modules:
        rooms = {room_of(target) for target in imported_modules(module, names)}
        if module.room in found:
            found[module.room] |= rooms - {module.room} - _NO_ROOMS
    return found


def draw_layers() -> str:
    """Return the picture of the layers: each room with those of its imports that no other import of it leads to."""
    imports = room_imports()
    reached: dict[str, Set[str]] = {}
    lines: list[str] = []
    for number, layer in enumerate(FLOORS, 1):
        rows = []
        for room in sorted(layer):
            beyond = {far for below in imports[room] for far in reached[below]}
            reached[room] = beyond | imports[room]
            rows.append(f"{room:<18}{' '.join(sorted(imports[room] - beyond))}".rstrip())
        lines[:0] = [f"{number:>2}  {rows[0]}", *(f"    {row}" for row in rows[1:])]
    return "\n".join(lines)


def draw_path(files: Iterable[str]) -> str:
    """Return the picture of a path, given the file of each function that starts: a line for each stay in a room, without
    those in ``model``, whose values are used everywhere.
    """
    lines = []
    names = (Path(file).with_suffix("").as_posix().replace("/", ".") for file in files)
    outside = (name for name in names if room_of(name) != "model")
    for room, stay in itertools.groupby(outside, room_of):
        modules = dict.fromkeys(name.removeprefix(f"{room}.") for name in stay)
        lines += textwrap.wrap(f"{room:<18}{' '.join(modules)}", _WIDTH, subsequent_indent=" " * 18)
    return "\n".join(lines)


def draw_login() -> str:
    """Return the picture of the path of a login; Python 3.12 is needed at least."""
    # It is in no distribution, and on the import path only at the root of the repository.
    from bench import path  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        login: Any = path.trace_paths(Path(folder))["JWT login"]
    return draw_path(start.file for start in login.starts)


def shown(page: str, name: str) -> str:
    """Return the picture of this name that a page shows, without the end of its last line; empty if it shows none."""
    found = _pattern(name).search(page)
    return "" if found is None else found[2].removesuffix("\n")


def show(page: str, name: str, picture: str) -> str:
    """Return a page with another picture of this name."""
    return _pattern(name).sub(lambda found: f"{found[1]}{picture}\n{found[3]}", page)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?s)(<!-- {name}: .*?-->\n+```text\n)(.*?)(```\n)")


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    text = show(text, "layers", draw_layers())
    PAGE.write_text(show(text, "login", draw_login()), encoding="utf-8")
