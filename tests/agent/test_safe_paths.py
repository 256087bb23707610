"""Tests of ``svc.agent.safe_paths``."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import SkipTest

from svc.agent import safe_paths
from svc.agent.faults import FileFault
from svc.agent.safe_paths import open_checked
from tests.agent.scene import AgentCase

NOBODY = 65534


class WaysTests(AgentCase):
    """Files that are found by going from folder to folder."""

    def setUp(self) -> None:
        """Have a file in a folder."""
        super().setUp()
        self.inner = self.folder / "inner"
        self.inner.mkdir()
        (self.inner / "x").write_bytes(b"found")

    def content(self, path: Path) -> bytes:
        """Read what a path names."""
        with open(open_checked(path, os.O_RDONLY), "rb") as file:
            return file.read()

    def test_followed(self) -> None:
        """Links of root's and the agent's own are followed, wherever they stand and lead: AGT-2, AGT-24."""
        for target in ("inner", str(self.inner), "./inner/../inner", f"{self.folder}/inner/"):
            link = self.folder / "link"
            link.symlink_to(target)
            self.assertEqual(self.content(link / "x"), b"found")
            link.unlink()
        (self.inner / "y").symlink_to("../inner/x")
        (self.inner / "z").symlink_to("y")
        self.assertEqual(self.content(self.inner / "z"), b"found")
        self.assertEqual(self.content(self.inner / ".." / "inner" / "x"), b"found")
        for folder in (Path("/"), self.inner, self.inner / ".."):
            file = open_checked(folder, os.O_RDONLY | os.O_DIRECTORY)
            self.addCleanup(os.close, file)
            self.assertTrue(os.path.samestat(os.fstat(file), folder.stat()))

    def test_nowhere(self) -> None:
        """What isn't there, what is no folder and links in a circle are errors of the system, and leave nothing open."""
        (self.folder / "circle").symlink_to("circle")
        before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
        for path, error in (
            (self.folder / "none" / "x", FileNotFoundError),
            (self.inner / "x" / "y", NotADirectoryError),
            (self.folder / "circle", OSError),
        ):
            self.assertRaises(error, open_checked, path, os.O_RDONLY)
        self.assertEqual(len(os.listdir("/proc/self/fd")) if before else 0, len(before))

    def test_judged(self) -> None:
        """Each folder above is judged, those that a link leads through too: AGT-24."""
        deep = self.inner / "deep"
        deep.mkdir()
        (deep / "x").touch()
        (self.folder / "link").symlink_to(deep)
        seen: list[Path] = []
        os.close(open_checked(self.folder / "link" / "x", os.O_RDONLY, lambda path, _: seen.append(path)))
        self.assertEqual(seen[0], Path("/"))
        self.assertEqual(seen[-3:], [self.folder, self.inner, deep])

    def test_links_of_others(self) -> None:
        """A link of somebody else's isn't followed, also where links themselves can't be opened: AGT-2, AGT-24."""
        if os.geteuid() != 0:
            raise SkipTest("only root gives links to others")
        link = self.folder / "link"
        link.symlink_to(self.inner)
        for itself in (safe_paths._O_PATH, None):
            self.patch(safe_paths, "_O_PATH", itself)
            os.chown(link, 0, 0, follow_symlinks=False)
            self.assertEqual(self.content(link / "x"), b"found")
            os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
            told = str(self.assertRaises(FileFault, open_checked, link / "x", os.O_RDONLY))
            self.assertIn(f"{link} is a symbolic link of user {NOBODY}", told)
