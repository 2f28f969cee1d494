"""Generate COMMANDS.md from the commands.

    python -m hankweave_server.cli.manual > COMMANDS.md

A test compares the file with the output, so no option and no example is missing.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from hankweave_server import config
from hankweave_server.cli.app import PLACES, cli

HEAD = """\
# The commands of hankweave

Each of these is what `hankweave COMMAND --help` says. [README.md](README.md#the-command-line) has
them in one table.

**Which execution.** `-e`, `--execution`, `-w` and `--workspace` name a directory. Without one a
command takes the execution or project that the shell stands in, else the only one with a server,
else the one used last. A command that changes something names its execution on stderr. Where there
is no terminal it refuses to choose among several, and what moves or removes files, ends a codon or
prunes checkpoints needs `--yes`: `rollback`, `undo`, `redo`, `gc` with a limit, `skip`, `stop`,
`cleanup`.

**Times** are local, with their zone; `--json` has UTC.

**With and without a server.** Commands go through the server that lives there. Where none does,
what looks at the past reads the files, `gc` and `pin` own the directory for as long as they work,
and what changes more starts a server for just as long. `status`, `permissions`, `allow`, `deny`,
`next`, `skip`, `stop`, `retry` and `attach` are for a server that runs, and end with 69 where none
does. A connection that is cut off is opened anew, and the command is sent again under its id: the
server carries it out once.

**On a terminal and elsewhere.** Colours, tables and progress are for terminals; a pipe gets plain
text, and with `--json` what the protocol says. `NO_COLOR` is honoured. What agents wrote is
shown, never sent to a terminal as it is: ESC becomes `\\x1b`. What takes longer than half a
second says on stderr how far it is, as a server or the command itself counts it: never in a pipe,
never with `--json`.

**Completion.** `eval "$(hankweave completion bash)"` in `~/.bashrc`, and so for `zsh`; for `fish`
see [completion](#hankweave-completion). Commands, options, codons, checkpoints and runs are
completed.

**Settings** come from options of `run`, from `HANKWEAVE_RUNTIME_*` variables, from the `overrides`
of the hank and from `hankweave.json` in the current directory, and count in this order.
`hankweave config` prints each with its value and its source; [all of them](#settings) are listed
below. An unknown one is warned about; a value that cannot be ends a start with exit code 78.

**Hankweave's own command line** works as it stands: `hankweave [HANK] [DATA]` with its options
means `hankweave run`, where the data is the folder of the hank unless it is named. One argument
alone is the hank if it ends in `.json` or is a directory with a `hank.json`, else the data.
`--validate`, `--init`, `--cleanup` and `--attach` are the commands of these names. `--proxy`,
`--replay`, `--diet-journal`, `--restore-journal`, remote hanks and `.hank` bundles are refused by
name.

**Exit codes.** 0 done, 1 failed or refused, 2 usage or a broken hank, 3 a broken pipeline or no
such session, 65 damaged files, 66 no input, 69 no server, 70 lock lost, 73 cannot create, 74 disk
error, 75 another server owns the directory, 78 a requirement is missing, 130 interrupted, 141
nobody reads the output any more.
"""

_EXAMPLE = re.compile(r"(hankweave|eval|cd) ")


def manual() -> str:
    """Return the whole page."""
    context = click.Context(cli, info_name="hankweave")
    pages = (_page(name, cli.get_command(context, name)) for name in sorted(PLACES))
    return "\n".join((HEAD, _contents(), *pages, _settings()))


def _settings() -> str:
    """Return the table of all settings."""
    rows = [
        "## Settings\n",
        "| in hankweave.json | variable | option | default | what it does |",
        "|---|---|---|---|---|",
    ]
    for each in config.SETTINGS.values():
        about = each.about
        if each.no_effect is not None:
            about = f"{about} No effect here: {each.no_effect}."

        if (why := each.refusal(True)) is not None:
            about = f"{about} Cannot be set: {why}."

        default = "" if each.default is None else f"`{_default(each.default)}`"
        option = "" if each.option is None else f"`{each.option}`"
        cells = (f"`{each.key}`", f"`{each.variable}`", option, default, _cell(about))
        rows.append(f"| {' | '.join(cells)} |")

    return "\n".join((*rows, ""))


def _default(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _contents() -> str:
    names = sorted(PLACES)
    return " · ".join(f"[{name}](#hankweave-{name})" for name in names) + "\n"


def _page(name: str, command: click.Command | None) -> str:
    assert command is not None, "the places are where the commands are"
    parent = click.Context(cli, info_name="hankweave", help_option_names=["-h", "--help"])
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join((f"hankweave {name}", *command.collect_usage_pieces(context)))
    blocks = (
        f"## hankweave {name}\n",
        f"```text\n{usage}\n```\n",
        *_told(inspect.cleandoc(command.help or "")),
    )
    return "\n".join((*blocks, *_options(command, context)))


def _told(text: str) -> Iterator[str]:
    """Yield paragraphs unchanged, and blocks that begin with `\\b` as code blocks."""
    for block in re.split(r"\n\s*\n", text):
        lines = block.split("\n")
        if lines[0].strip() != "\b":
            yield f"{block}\n"
        elif all(map(_is_of_an_example, lines[1:])):
            yield "\n".join(("```bash", *lines[1:], "```\n"))
        else:
            yield "\n".join(("```text", *lines[1:], "```\n"))


def _is_of_an_example(line: str) -> bool:
    return bool(_EXAMPLE.match(line)) or line.startswith("        ")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    records = (
        parameter.get_help_record(context)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
    )
    rows = [(names, told) for names, told in filter(None, records)]
    yield "| option | what it does |\n|---|---|"
    for names, told in rows:
        yield f"| `{_cell(names)}` | {_cell(told)} |"

    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    click.echo(manual(), nl=False)
