"""``svc man``: the manual pages of all commands, made from the texts of ``--help``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from svc._version import VERSION
from svc.cli.main import CommandGroups


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.pass_context
def man(context: click.Context, folder: Path) -> None:
    """Write the manual pages of all commands below FOLDER, in its folder man1.

    They are found there by `man svc` and `man svc-policy-load`:

    \b
        svc man /usr/local/share/man
        svc man ~/.local/share/man
    """  # noqa: D301 (click's mark for lines that stay as they are is a backspace)
    place = folder / "man1"
    root = context.find_root().command
    try:
        place.mkdir(parents=True, exist_ok=True)
        written = 0
        for page in _all_contexts(click.Context(root, info_name="svc")):
            (place / f"{_page_name(page)}.1").write_text(manual_page(page), encoding="utf-8")
            written += 1
    except OSError as error:
        raise click.ClickException(f"cannot write to {place}: {error.strerror}") from None
    click.echo(f"{written} pages are in {place}", err=True)


def manual_page(context: click.Context) -> str:
    """Return the page of a command, in the macros that man(7) describes."""
    command = context.command
    lines = [
        f'.TH "{_escape_roff(_page_name(context).upper())}" "1" "" "svc {VERSION}" "svc"',
        ".SH NAME",
        f"{_escape_roff(_page_name(context))} \\- {_format_line(command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f"\\fB{_escape_roff(context.command_path)}\\fR {_escape_roff(' '.join(command.collect_usage_pieces(context)))}",
        ".SH DESCRIPTION",
        *_format_paragraphs(inspect.cleandoc(command.help or "")),
    ]
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    options = [record for record in records if record is not None]
    if options:
        lines.append(".SH OPTIONS")
        for names, text in options:
            lines += [".TP", f"\\fB{_escape_roff(names)}\\fR", _format_line(text) or "\\&"]
    inner = {each.info_name or "": each for each in _subcommand_contexts(context)}
    if inner:
        lines.append(".SH COMMANDS")
        grouped = command.headings() if isinstance(command, CommandGroups) else [("", list(inner))]
        for heading, members in grouped:
            lines += [f".SS {_escape_roff(heading)}"] if heading else []
            for each in map(inner.__getitem__, members):
                lines += [
                    ".TP",
                    f"\\fB{_escape_roff(_page_name(each))}\\fR(1)",
                    _format_line(each.command.get_short_help_str(200)),
                ]
    if context.parent is not None:
        lines += [".SH SEE ALSO", f"\\fB{_escape_roff(_page_name(context.parent))}\\fR(1)"]
    return "\n".join(lines) + "\n"


def _all_contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield the contexts of a command and of all below it."""
    yield context
    for inner in _subcommand_contexts(context):
        yield from _all_contexts(inner)


def _subcommand_contexts(context: click.Context) -> Iterator[click.Context]:
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if command is not None and not command.hidden:
                yield click.Context(command, info_name=name, parent=context)


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _format_paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a help text; a paragraph that begins with a backspace stays as it is, as click has it."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip("\n").replace("\f", ""))):
        if number:
            yield ".PP"
        if paragraph.lstrip().startswith("\b"):
            yield ".nf"
            yield from map(_format_line, paragraph.lstrip().removeprefix("\b").strip("\n").split("\n"))
            yield ".fi"
        else:
            yield _format_line(" ".join(paragraph.split()))


def _format_line(text: str) -> str:
    """Return a line of text; text between backticks becomes bold."""
    return re.sub("`([^`]+)`", r"\\fB\1\\fR", _escape_roff(text))


def _escape_roff(text: str) -> str:
    """Return a text whose characters mean nothing to roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
