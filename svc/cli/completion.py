"""``svc completion``: scripts for a shell's completion of commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes `svc`.

    It goes where the shell looks for it; or try it in the running shell, with source <(svc completion bash):

    \b
        svc completion bash > ~/.local/share/bash-completion/completions/svc
        svc completion zsh > "${fpath[1]}/_svc"
        svc completion fish > ~/.config/fish/completions/svc.fish
    """  # noqa: D301 (click's mark for lines that stay as they are is a backspace)
    found = get_completion_class(shell)
    assert found is not None, "click knows these shells"
    click.echo(found(context.find_root().command, {}, "svc", "_SVC_COMPLETE").source())
