"""`hankweave init`: write an example hank that runs as it is."""

from __future__ import annotations

import shlex
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click
import msgspec

from hankweave_protocol import codec
from hankweave_protocol.schema import hank_schema
from hankweave_server.errors import ExitCode, Stop

SCHEMA_FILE = "hank.schema.json"
EXAMPLES = {
    "first-steps": "three codons, a loop, a rig, a retry, and data to work on",
    "minimal": "one codon with its prompt in the hank.json",
}
DEFAULT = "first-steps"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--example",
    type=click.Choice(list(EXAMPLES)),
    default=DEFAULT,
    show_default=True,
    help=" ".join(f"{name}: {text}." for name, text in EXAMPLES.items()),
)
def init(directory: Path, example: str) -> None:
    """Write an example hank to DIRECTORY.

    DIRECTORY defaults to the current directory. The example runs without a key or a network, since
    its agents are scripted. Existing files are never overwritten: if one is in the way, nothing is
    written at all.

    \b
    hankweave init
    hankweave init ~/quakes --example minimal
    """
    files = _files_of(example)
    _refuse_taken(directory, files)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)

    click.echo(f"Wrote {len(files)} files of the example {example!r} to {directory}:")
    for name in files:
        click.echo(f"  {directory / name}")

    click.echo("Next:")
    for line in next_commands(directory, has_data=any(name.startswith("data/") for name in files)):
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


def _files_of(example: str) -> dict[str, bytes]:
    root = resources.files(__package__) / "starters" / example
    files = dict(sorted(_walk(root, "")))
    schema = msgspec.json.format(codec.encode(hank_schema()))
    return files | {SCHEMA_FILE: schema + b"\n"}


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for item in folder.iterdir():
        name = prefix + item.name
        if item.is_dir():
            found += _walk(item, f"{name}/")
        else:
            found.append((name, item.read_bytes()))

    return found


def _refuse_taken(directory: Path, files: dict[str, bytes]) -> None:
    if directory.exists() and not directory.is_dir():
        raise Stop(f"{directory} is a file.", ExitCode.CANNOT_CREATE, hint="Name a directory.")

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
