"""`hankweave init`: write an example hank that runs as it is."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.schema import hank_schema
from hankweave_server.cli.shared import starter_files
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.plain_text import counted

SCHEMA_FILE = "hank.schema.json"
EXAMPLES = {
    "agent": "three codons for a coding agent, a cost cap, a check, and data to work on",
    "first-steps": "three codons of a scripted agent, a loop, a rig, a retry, and data to work on",
    "minimal": "one codon of a scripted agent, with its prompt in the hank.json",
}
DEFAULT = "agent"
WITHOUT_MODEL = "first-steps"
"""The default for the scripted agent."""

MODELS = {
    "claude": "sonnet",
    "codex": "gpt-5.4",
    "gemini": "gemini-3.8-flash",
    "opencode": "opencode/anthropic/claude-haiku-4-5",
    "pi": "pi/anthropic/claude-haiku-4-5",
}
"""For each agent, a model that selects it; `agent` of a codon is then not needed."""

_NOTES = (
    ("budget", "the run ends when it has cost 2 dollars, or taken half an hour of work"),
    ("model", "selects the agent as well: another model may be run by another agent"),
    ("trackedFiles", "what checkpoints contain from this codon on; ** is everything"),
    ("continue-previous", "the same conversation goes on; fresh begins a new one"),
    ("checks", "commands that must succeed, or the codon has failed"),
    ("onFailure", "retry tries again from the files that the codon began with"),
)
"""The meanings of some fields of hank.json, which cannot have comments."""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--agent",
    type=click.Choice([*MODELS, "scripted"]),
    help="Coding agent that the hank is for; scripted needs no model. Default: claude.",
)
@click.option(
    "--example",
    type=click.Choice(list(EXAMPLES)),
    help=" ".join(f"{name}: {text}." for name, text in EXAMPLES.items())
    + f" Default: {DEFAULT}, or {WITHOUT_MODEL} with --agent scripted.",
)
def init(directory: Path, agent: str | None, example: str | None) -> None:
    """Write an example hank to DIRECTORY.

    DIRECTORY defaults to the current directory. The example is for Claude Code, or the agent that
    --agent names. It runs as it is if that agent is installed and logged in; otherwise, the output
    says what is missing. With --agent scripted, the example runs without a model, a key or a
    network. Existing files are never overwritten: if one is in the way, nothing is written at all.

    \b
    hankweave init my-hank
    hankweave init my-hank --agent codex
    hankweave init ~/quakes --example minimal
    """
    if example is None:
        example = WITHOUT_MODEL if agent == "scripted" else DEFAULT

    if (example != DEFAULT) != (agent == "scripted") and agent is not None:
        raise click.UsageError(
            f"The example {example} is not for {agent}; `hankweave init --agent {agent}` writes "
            "one that is."
        )

    files = _files_of(example, MODELS.get(agent or "claude", ""))
    _refuse_taken(directory, files)
    starter_files.write(directory, files)
    click.echo(f"Wrote {counted(len(files), 'file')} of the example {example!r} to {directory}:")
    for name in files:
        click.echo(f"  {directory / name}")

    if example == DEFAULT:
        _print_notes(directory)

    click.echo("Next:")
    for line in next_commands(directory, has_data=any(name.startswith("data/") for name in files)):
        click.echo(f"  {line}")


def _print_notes(directory: Path) -> None:
    """Explain the fields of the hank, and print what keeps it from running on this machine."""
    # Imported here so that `--help` and usage errors do not load the agents.
    from hankweave_server.cli.shared import hank_loading
    from hankweave_server.hank.price_files import packaged_prices

    click.echo("In hank.json:")
    for field, meaning in _NOTES:
        click.echo(f"  {field:<18} {meaning}")

    checks = hank_loading.agents_of(hank_loading.read(directory), None, None, packaged_prices())
    missing = list(hank_loading.problem_lines(checks))
    if missing:
        click.echo("Before it can run:")
        for line in missing:
            click.echo(f"  {line}")


def next_commands(directory: Path, *, has_data: bool) -> list[str]:
    """Return the next commands to try, relative to the current directory."""
    place = shlex.quote(str(directory))
    data = " " + shlex.quote(str(directory / "data")) if has_data else ""
    return [
        f"hankweave validate {place}{data}",
        f"hankweave run {place}{data}",
        "hankweave log",
        "hankweave runs",
    ]


def _files_of(example: str, model: str) -> dict[str, bytes]:
    files = starter_files.files_of(example)
    hank = files["hank.json"]
    files["hank.json"] = hank.replace(b'"model": "sonnet"', f'"model": "{model}"'.encode())
    schema = msgspec.json.format(codec.encode(hank_schema()))
    return files | {SCHEMA_FILE: schema + b"\n"}


def _refuse_taken(directory: Path, files: dict[str, bytes]) -> None:
    starter_files.require_directory(directory)
    tops = sorted({name.partition("/")[0] for name in files})
    taken = [
        name for name in tops if (directory / name).exists() or (directory / name).is_symlink()
    ]
    if taken:
        raise Stop(
            f"{directory} already contains {', '.join(taken)}; nothing was written.",
            ExitCode.CANNOT_CREATE,
            hint="Name a new or an empty directory: `hankweave init my-hank`.",
        )


COMMANDS = (init,)
