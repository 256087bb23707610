"""The meaning of the reasons for refusals, and remedies.

The texts are those of ``docs/reference/reasons.md``, which is part of the installed program.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final

_SECTION: Final = re.compile(r"^### (?P<code>[a-z-]+)\n(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)

#: The code that stands for those of answers that are no refusals: "http-404".
_HTTP_STATUS: Final = "http-status"

_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


@functools.cache
def read_reason_texts() -> Mapping[str, Sequence[str]]:
    """Return the meaning of each code, in the order in which checks are made, as paragraphs of plain text."""
    page = (resources.files("svc.model") / "reasons.md").read_text(encoding="utf-8")
    return {section["code"]: _plain_paragraphs(section["text"]) for section in _SECTION.finditer(page)}


def explain_code(code: str) -> Sequence[str]:
    """Return the meaning of a code from a server, which may be a newer one."""
    known = read_reason_texts()
    return known.get(_HTTP_STATUS if code.startswith("http-") else code, ("It has no explanation in this version of svc.",))


def _plain_paragraphs(text: str) -> Sequence[str]:
    """Return the paragraphs of a text without the marks of Markdown."""
    unmarked = _LINK.sub(r"\1", text).replace("**", "").replace("*", "").replace("`", "")
    return tuple(" ".join(paragraph.split()) for paragraph in unmarked.strip().split("\n\n"))
