"""`hankweave completion`: print the shell script that enables tab completion."""

from __future__ import annotations

import os
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from hankweave_server.errors import ExitCode, Stop

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_HANKWEAVE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion(shell: str | None) -> None:
    """Print the script that enables tab completion in SHELL.

    SHELL defaults to the shell in $SHELL. Commands, options, codons, checkpoints and runs are
    completed. Names come from the files of the execution given by -e, or else of the one used last;
    no server is contacted.

    \b
    eval "$(hankweave completion bash)"                        # in ~/.bashrc
    eval "$(hankweave completion zsh)"                         # in ~/.zshrc, after compinit
    hankweave completion fish > ~/.config/fish/completions/hankweave.fish
    """
    wanted = shell or PurePath(os.environ.get("SHELL", "")).name
    if wanted not in SHELLS:
        raise Stop(
            f"There is no completion for {wanted or 'an unknown shell'}.",
            ExitCode.USAGE,
            hint=f"Name one of: {', '.join(SHELLS)}.",
        )

    from hankweave_server.cli.app import cli

    made = get_completion_class(wanted)
    assert made is not None, "click knows these three shells"
    click.echo(made(cli, {}, "hankweave", VARIABLE).source())


COMMANDS = (completion,)
