"""Claims about commands that are imported only when they are used."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from codegen import command_index
from hankweave_protocol.codec import encode
from hankweave_protocol.ids import RunId, Sha
from hankweave_protocol.records import Coordinate, RollbackReport, TouchedFile
from hankweave_server import __version__
from hankweave_server.cli.app import PLACES, cli
from support.command_line import hankweave

NEEDED_ELSEWHERE = (
    *("rich", "structlog", "pygit2", "yaml", "pathspec", "zstandard", "jinja2", "jsonschema"),
    *("httpx2", "textual", "attr", "pygments"),
    *("hankweave_server.checkpoints", "hankweave_server.execution", "hankweave_server.hank.load"),
    *("hankweave_server.agents", "hankweave_server.daemon", "hankweave_server.api"),
)
"""What takes long to import, and neither reads a command line nor asks a server."""


def test_the_index_of_commands_is_up_to_date() -> None:
    """The command line offers the commands that the modules define, with their first sentences.

    If a change is meant, run `scripts/test --update-golden`.
    """
    for package, path in command_index.places().items():
        written = path.read_text() if path.exists() else None
        assert written == command_index.text(package)

    context = click.Context(cli)
    assert all(cli.get_command(context, name) for name in PLACES)
    assert cli.get_command(context, "fly") is None


def test_a_server_loads_only_what_it_is_going_to_need() -> None:
    """No templates or schemas are loaded before a sentinel, no table without a terminal.

    They account for a tenth of its memory and of its start time.
    """
    script = (
        "import sys; from hankweave_server.cli.shared import serving; "
        "rest = {'jinja2', 'jsonschema', 'regex', 'rich.live', 'rich.progress', "
        "'click.shell_completion', 'hankweave_client.client'}; "
        "print(sorted(rest & sys.modules.keys()))"
    )
    assert printed_by(script) == ["[]"]


@pytest.mark.parametrize("words", [("run", "--help"), ("run", "--nonsense")])
def test_help_and_usage_errors_load_no_server(words: tuple[str, ...]) -> None:
    """Not even of the command that serves: its options say it all."""
    script = (
        f"import sys; sys.argv[1:] = {words!r}\n"
        "from hankweave_server.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "server = {'asyncio', 'anyio', 'pygit2', 'structlog', 'websockets'}; "
        "print(sorted(server & sys.modules.keys()))"
    )
    assert printed_by(script)[-1] == "[]"


def test_who_presses_the_tab_key_waits_for_no_command() -> None:
    """Completing command names loads no command and no drawing library."""
    script = (
        "import sys, os; os.environ |= {'_HANKWEAVE_COMPLETE': 'bash_complete', "
        "'COMP_WORDS': 'hankweave r', 'COMP_CWORD': '1'}\n"
        "from hankweave_server.cli.app import PLACES, main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "places = {f'hankweave_server.{place}' for place in PLACES.values()}; "
        "places.remove('hankweave_server.cli.app'); "
        "print(sorted((places | {'rich', 'anyio', 'websockets'}) & sys.modules.keys()))"
    )
    printed = printed_by(script)
    assert (printed[0], printed[-1]) == ("plain,redact", "[]")


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_load_only_the_command_line(option: str) -> None:
    """They load no command, and nothing that only a command needs."""
    loaded = loaded_after(f"main(['{option}'])")
    assert not loaded & {"anyio", "asyncio", "msgspec", "websockets", *NEEDED_ELSEWHERE}
    assert not {name for name in loaded if name.startswith("hankweave_server.local")}


@pytest.mark.executed
def test_the_first_start_after_an_install_prints_the_version() -> None:
    """Nothing is compiled yet, and compiled code cannot be stored."""
    done = hankweave("--version", code=0, PYTHONPYCACHEPREFIX="/dev/null/nothing")
    assert (done.stdout, done.stderr) == (f"hankweave, version {__version__}\n", "")


def test_a_preview_loads_only_what_asks_a_server() -> None:
    """`rollback --preview` on a running server opens no journal and no checkpoints by itself."""
    sha = Sha("6dc2daae" * 5)
    at = Coordinate(
        checkpoint_sha=sha, event_seq=3, run_id=RunId("1-a-b"), codon_id=None, codon_state=None
    )
    report = RollbackReport(
        target=at,
        source=at,
        safety=None,
        added=(TouchedFile(path="a.txt", bytes=1),),
        updated=(),
        removed=(),
        kept=(),
        conflicts=(),
        skipped=(),
        recovered=False,
    )
    loaded = loaded_after(
        "from pathlib import Path; from hankweave_protocol.records import RollbackReport; "
        "from hankweave_server.cli import rollback; import msgspec; "
        f"report = msgspec.json.decode({encode(report)!r}, type=RollbackReport); "
        "rollback.run_read_only = lambda *_, **__: report; rollback.root_of = Path; "
        "main(['rollback', '--preview', '-e', '.'])"
    )
    assert "hankweave_client.client" in loaded
    assert not loaded & set(NEEDED_ELSEWHERE)


def test_reading_the_journal_loads_only_its_readers() -> None:
    """`log` and `events` open no checkpoints, and draw nothing."""
    loaded = loaded_after("import hankweave_server.cli.log, hankweave_server.cli.events")
    assert loaded & set(NEEDED_ELSEWHERE) == {"zstandard"}  # A foreign journal is compressed.


def loaded_after(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after some code."""
    script = (
        "import sys; from hankweave_server.cli.app import main\n"
        f"try: {code}\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    return set(printed_by(script)[-1].split())


def printed_by(script: str) -> list[str]:
    """Return the lines that a fresh interpreter prints."""
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
