"""Generate COMMANDS.md from the commands.

`scripts/test --update-golden` writes it. A test compares the file with the output, so no option and
no example is missing.
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

This page is the output of `hankweave COMMAND --help` for every command.
[README.md](README.md#the-command-line) lists the commands in one table.

**Selecting an execution.** `-e`, `--execution`, `-w` and `--workspace` name a directory. Without
one, a command uses the execution or project of the current directory, else the only one with a
server, else the one used last. A command that changes something prints the execution on stderr.
Without a terminal, it refuses to choose among several, and `rollback`, `undo`, `redo`, `gc` with a
limit, `skip`, `stop` and `cleanup` require `--yes`.

**Times** are local and include the time zone; `--json` output is in UTC.

**With and without a server.** A command is sent to the running server, if there is one. Otherwise,
commands that only read use the files, `gc` and `pin` lock the directory while they work, and other
changes start a temporary server. `status`, `permissions`, `allow`, `deny`, `next`, `skip`, `stop`,
`retry` and `attach` need a running server and exit with code 69 without one. After a lost
connection, the command is sent again with the same id, and the server executes it only once.

**Terminals and pipes.** Colours, tables and progress bars appear on terminals only. In a pipe,
output is plain text, or JSON as in the protocol with `--json`. `NO_COLOR` is honoured. Control
characters in text from agents are escaped: ESC is shown as `\\x1b`. Operations that take longer
than half a second show their progress on stderr, except in a pipe or with `--json`.

**Completion.** Add `eval "$(hankweave completion bash)"` to `~/.bashrc`, or the same with `zsh` to
`~/.zshrc`; for `fish`, see [completion](#hankweave-completion). Commands, options, codons,
checkpoints and runs are completed.

**Settings** come from options of `run`, `HANKWEAVE_RUNTIME_*` variables, the `overrides` of the
hank and `hankweave.json` in the current directory, in this order of precedence. `hankweave config`
prints each with its value and source; [all settings](#settings) are listed below. An unknown
setting causes a warning; an invalid value ends the start with exit code 78.

**The command line of the original Hankweave** works as well: `hankweave [HANK] [DATA]` with its
options means `hankweave run`, where the data defaults to the directory of the hank. A single
argument is the hank if it ends in `.json` or is a directory with a `hank.json`, and the data
otherwise. `--validate`, `--init`, `--cleanup` and `--attach` run the commands of these names.
`--proxy`, `--replay`, `--diet-journal`, `--restore-journal`, remote hanks and `.hank` bundles are
not supported and cause an error.

**Exit codes.** 0 success, 1 failed or refused, 2 wrong usage or invalid hank, 3 invalid pipeline or
no such session, 65 damaged files, 66 no input, 69 no server, 70 lock lost, 73 cannot create a file,
74 disk error, 75 another server owns the directory, 78 a requirement or setting is not met, 130
interrupted, 141 the reader closed the pipe.
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
        "| hankweave.json | variable | option | default | description |",
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
    yield "| option | description |\n|---|---|"
    for names, told in rows:
        yield f"| `{_cell(names)}` | {_cell(told)} |"

    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    click.echo(manual(), nl=False)
