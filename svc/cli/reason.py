"""``svc explain-reason``: the meaning of a reason of a refusal, and what to do."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence

import click

from svc.cli.table import print_table
from svc.model.reasons import explain_code as paragraphs_of
from svc.model.reasons import read_reason_texts


def explain_all_reasons() -> dict[str, str]:
    """Return the meaning of each code, in the order in which checks are made, for a terminal."""
    return {code: _wrap_paragraphs(text) for code, text in read_reason_texts().items()}


def describe_reason(code: str) -> str:
    """Return the meaning of a code from a server, which may be a newer one."""
    return _wrap_paragraphs(paragraphs_of(code))


def _wrap_paragraphs(paragraphs: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(paragraph, 100, subsequent_indent="  ") for paragraph in paragraphs)


@click.command()
@click.argument("code", required=False)
def explain_reason(code: str | None) -> None:
    """Say what the reason CODE means, for which something is refused, and what to do. Without CODE, list them all.

    The reason of a refusal stands in the server's log and audit, and is what `svc authenticator explain` ends with.

    Example: svc explain-reason key-unknown
    """
    known = explain_all_reasons()
    if code is None:
        print_table(("REASON",), [(each,) for each in known])
        return
    if code not in known:
        near = difflib.get_close_matches(code, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`svc explain-reason` lists them all"
        raise click.ClickException(f"{code} is no reason: {hint}")
    click.echo(known[code])
