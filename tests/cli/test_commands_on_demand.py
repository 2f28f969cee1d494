"""Claims about commands that are imported only when they are asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import click

from hankweave_server.cli.app import PLACES, cli


def test_every_command_stands_where_it_is_looked_for() -> None:
    """What the modules define is what the command line offers, neither more nor less."""
    modules = {import_module(f"hankweave_server.cli.{place}") for place in PLACES.values()}
    defined = {command.name: command for module in modules for command in module.COMMANDS}
    assert defined.keys() == PLACES.keys()
    context = click.Context(cli)
    assert {name: cli.get_command(context, name) for name in PLACES} == defined
    assert cli.get_command(context, "fly") is None


def test_a_server_loads_no_templates_and_schemas_before_a_sentinel_needs_them() -> None:
    """They are a tenth of its memory: `hankweave run` imports neither jinja2 nor jsonschema."""
    script = (
        "import sys; from hankweave_server.cli import running; "
        "print(sorted({'jinja2', 'jsonschema', 'regex'} & sys.modules.keys()))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "[]"
