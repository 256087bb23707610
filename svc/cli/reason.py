"""``svc explain-reason``: what a reason for which a login is refused means, and what to do.

The texts are those of ``docs/reference/reasons.md``, which is part of the installed program.
"""

from __future__ import annotations

import difflib
import re
import textwrap
from importlib import resources
from typing import Final

import click

_SECTION: Final = re.compile(r"^### (?P<code>[a-z-]+)\n(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[([^]]*)\]\([^)]*\)")


def explanations() -> dict[str, str]:
    """Return the meaning of each code, in the order in which checks are made, as paragraphs of plain text."""
    page = (resources.files("svc.cli") / "reasons.md").read_text(encoding="utf-8")
    return {section["code"]: _plain(section["text"]) for section in _SECTION.finditer(page)}


def _plain(text: str) -> str:
    """Return a text without the marks of Markdown, filled to lines that fit a terminal."""
    unmarked = _LINK.sub(r"\1", text).replace("**", "").replace("*", "").replace("`", "")
    paragraphs = (" ".join(paragraph.split()) for paragraph in unmarked.strip().split("\n\n"))
    return "\n".join(textwrap.fill(paragraph, 100, subsequent_indent="  ") for paragraph in paragraphs)


@click.command()
@click.argument("code", required=False)
def explain_reason(code: str | None) -> None:
    """Say what the reason CODE means, for which a login is refused, and what to do. Without CODE, list them all.

    The reason of a refusal stands in the server's log and audit, and is what `svc authenticator explain` ends with.

    Example: svc explain-reason key-unknown
    """
    known = explanations()
    if code is None:
        click.echo("\n".join(known))
        return
    if code not in known:
        near = difflib.get_close_matches(code, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`svc explain-reason` lists them all"
        raise click.ClickException(f"{code} is no reason: {hint}")
    click.echo(known[code])
