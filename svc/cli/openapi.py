"""The command that prints the OpenAPI document of this program's HTTP interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from svc.model.dialect import CONJUR, NATIVE, find_dialect
from svc.web.openapi.document import build_document
from svc.web.openapi.served_routes import routes_of_dialect

_NAMES: Final = [NATIVE.name, CONJUR.name]


@click.command()
@click.option(
    "--dialect",
    type=click.Choice(_NAMES),
    default=NATIVE.name,
    show_default=True,
    help="Print the document of a server that speaks this dialect.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to FILE instead of printing it.",
)
def openapi(dialect: str, output: Path | None) -> None:
    """Print the HTTP interface as an OpenAPI 3.1 document, in JSON.

    It is what a running server of this version serves at /openapi.json, and needs none. Client libraries can be generated
    from it, and tools can try requests with it.

    Example: svc openapi --output svc.json
    """
    spoken = find_dialect(dialect)
    text = json.dumps(build_document(routes_of_dialect(spoken), spoken), indent=2)
    if output is None:
        click.echo(text)
        return
    try:
        output.write_text(f"{text}\n", encoding="ascii")
    except OSError as error:
        raise click.ClickException(f"{output} can't be written: {error.strerror}") from None
