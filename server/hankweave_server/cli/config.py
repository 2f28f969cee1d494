"""`hankweave config`: print every setting, its value and its source."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from hankweave_protocol.shapes import Value
from hankweave_server import config
from hankweave_server.cli.output.text import console
from hankweave_server.cli.remote import json_option, print_json
from hankweave_server.cli.run import run
from hankweave_server.cli.shared import hank_loading
from hankweave_server.cli.shared.run_settings import from_layers, variables_of
from hankweave_server.plain_text import one_line


class SettingShown(Value, kw_only=True, omit_defaults=False):
    """One setting, as `hankweave config --json` prints it."""

    key: str
    value: object
    source: str
    """`the environment`, a file, or `default`."""
    name: str | None
    """The name of the setting in that source; null for a default."""
    variable: str
    option: str | None
    about: str
    no_effect: str | None
    """Why the setting has no effect here; null if it has one."""


@click.command(name="config")
@click.argument("hank", type=click.Path(path_type=Path), required=False)
@json_option
def show_config(hank: Path | None, as_json: bool) -> None:
    """Print every setting, its value and its source.

    The sources, in order of precedence: options of `hankweave run`, HANKWEAVE_RUNTIME_* variables,
    the overrides of HANK (default: the hank.json in the current directory), hankweave.json in the
    current directory, defaults.

    \b
    hankweave config
    HANKWEAVE_RUNTIME_PORT=7777 hankweave config my-project --json
    """
    file = hank_loading.in_folder(Path.cwd()) if hank is None else hank_loading.file_of(hank)
    found = from_layers(config.of_command_line({}), file, variables_of(run))
    shown = [_shown(each) for each in found.values()]
    if as_json:
        print_json(shown)
    else:
        console().print(_table(shown))


def _shown(each: config.Resolved) -> SettingShown:
    setting = each.setting
    return SettingShown(
        key=setting.key,
        value=str(each.value) if isinstance(each.value, Path) else each.value,
        source=each.source,
        name=each.name,
        variable=setting.variable,
        option=setting.option,
        about=setting.about,
        no_effect=setting.no_effect,
    )


def _table(shown: list[SettingShown]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("setting", "value", "from", "about"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")

    for each in shown:
        origin = each.source if each.name is None else f"{each.source} ({each.name})"
        about = each.about if each.no_effect is None else f"No effect here: {each.no_effect}."
        table.add_row(
            Text(each.key, "" if each.name is None else "bold"),
            Text("-" if each.value is None else one_line(_text(each.value))),
            Text(one_line(origin), "dim" if each.name is None else ""),
            Text(about, "dim"),
        )

    return table


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


COMMANDS = (show_config,)
