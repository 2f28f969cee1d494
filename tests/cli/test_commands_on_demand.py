"""Claims about commands that are imported only when they are used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import click

from hankweave_server.cli.app import PLACES, cli


def test_every_command_stands_where_it_is_looked_for() -> None:
    """The command line offers exactly the commands that the modules define."""
    modules = {import_module(f"hankweave_server.cli.{place}") for place in PLACES.values()}
    defined = {command.name: command for module in modules for command in module.COMMANDS}
    assert defined.keys() == PLACES.keys()
    context = click.Context(cli)
    assert {name: cli.get_command(context, name) for name in PLACES} == defined
    assert cli.get_command(context, "fly") is None


def test_a_server_loads_only_what_it_is_going_to_need() -> None:
    """No templates or schemas are loaded before a sentinel, no table without a terminal.

    They account for a tenth of its memory and of its start time.
    """
    script = (
        "import sys; from hankweave_server.cli import run; "
        "rest = {'jinja2', 'jsonschema', 'regex', 'rich.live', 'rich.progress', "
        "'click.shell_completion', 'hankweave_client.client'}; "
        "print(sorted(rest & sys.modules.keys()))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "[]"


def test_who_presses_the_tab_key_waits_for_no_command() -> None:
    """Completing command names loads no command and no drawing library."""
    script = (
        "import sys, os; os.environ |= {'_HANKWEAVE_COMPLETE': 'bash_complete', "
        "'COMP_WORDS': 'hankweave r', 'COMP_CWORD': '1'}\n"
        "from hankweave_server.cli.app import PLACES, main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "places = {f'hankweave_server.cli.{place}' for place in PLACES.values()}; "
        "print(sorted((places | {'rich', 'anyio', 'websockets'}) & sys.modules.keys()))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert printed.stdout.splitlines()[0] == "plain,redact"
    assert printed.stdout.splitlines()[-1] == "[]"
