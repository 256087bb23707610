"""Check the subjects of commits: a verb, what and where, in at most 72 characters.

``python tests/subjects.py`` checks the commits since the one that ``.ci/history-base`` names; with a file, as git's hook
``commit-msg`` gives one, the message that it holds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MOST: Final = 72
#: Words with which a subject begins that has no verb, or not in front.
_NO_VERBS: Final = re.compile(
    "An?|All|And|Any|At|Before|Both|But|By|Each|Every|Few|For|From|How|If|In|Its?|Less|Many|More|Most|Much|No|Nobody|None|Not"
    "|Nothing|Of|On|Only|One|Our|Several|So|Some|Such|Than|Th(at|e|eir|ere|ese|ey|is|ose)|To|Under|Until|Up|Very|Wh[a-z]+"
    "|With|Without|[A-Z][a-z]*([^s]s|ed|ing)"
)
#: Verbs that look like other forms of one.
_VERBS: Final = frozenset({"Bring", "Embed", "Exceed", "Feed", "Focus", "Need", "Proceed", "Seed", "Shed", "Speed"})


def find_fault(subject: str) -> str | None:
    """Return what is wrong with a subject, ``None`` if nothing is."""
    first = subject.partition(" ")[0]
    if len(subject) > MOST:
        return f"has {len(subject)} characters; say less, at most {MOST}, and the rest in the body"
    is_word = re.fullmatch(r"[A-Z][a-z]+(-[a-z]+)?|Don't", first)
    if not is_word or (_NO_VERBS.fullmatch(first) and first not in _VERBS):
        return f"begins with {first!r}; begin with a verb, as in 'Cap an invalidation poll at 5,000 rows'"
    if " " not in subject or subject.endswith("."):
        return "names no thing, or ends with a full stop; say what is changed and where"
    return None


def _subjects() -> list[str]:
    base = (ROOT / ".ci" / "history-base").read_text(encoding="utf-8").strip()
    known = subprocess.run(["git", "merge-base", "--is-ancestor", base, "HEAD"], cwd=ROOT, check=False, capture_output=True)
    if known.returncode:
        print(f"The commit {base} isn't in this clone's history, whose subjects weren't checked.")
        return []
    command = ["git", "log", "--no-merges", "--format=%s", f"{base}..HEAD"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def main(arguments: list[str]) -> int:
    """Print what is wrong; return the exit code."""
    subjects = [Path(arguments[0]).read_text(encoding="utf-8").partition("\n")[0]] if arguments else _subjects()
    faults = [f"{subject}\n    {fault}" for subject in subjects if (fault := find_fault(subject)) is not None]
    if faults:
        print("Subjects of commits (CONTRIBUTING.md, What a good change has):", *faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
