"""Print errors to stderr: a message, and a hint below it."""

from __future__ import annotations

import click

from hankweave_server.hank.problems import HankInvalid


def complain(message: str, hint: str | None = None) -> None:
    click.echo(f"hankweave: {message}", err=True)
    if hint:
        click.echo(f"  hint: {hint}", err=True)


def complain_of(invalid: HankInvalid) -> None:
    """Print all problems of a hank or a pipeline, each with its location."""
    for problem in invalid.problems:
        complain(problem.located(invalid.file), problem.suggestion)
