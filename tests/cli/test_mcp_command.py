"""Claims about `hankweave mcp` that need no server: refusals and long answers."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from hankweave_protocol.hank import AgentTools, Hank, Overrides
from hankweave_protocol.ids import CodonId, RunId, Sha
from hankweave_protocol.replies import DiffPage, DiffStats, FileDifference, FileRange
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.execution.codon import environment
from hankweave_server.features.mcp import command
from hankweave_server.paths import Layout

pytestmark = pytest.mark.feature("mcp")


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints one sentence and the hint; its exit code means an unavailable service."""
    monkeypatch.setattr(command, "find_spec", lambda _name: None)
    done = CliRunner().invoke(command.mcp, ["--execution", str(tmp_path)])
    assert isinstance(done.exception, Stop)
    assert done.exception.exit_code is ExitCode.UNAVAILABLE
    assert done.exception.hint == "pip install 'hankweave[mcp]'"


@pytest.mark.parametrize(
    ("overrides", "is_installed", "count"),
    [
        (None, True, 1),
        (Overrides(), True, 1),
        (Overrides(agent_tools=AgentTools(enabled=False)), True, 0),
        (None, False, 0),
    ],
)
def test_tools_are_offered_where_they_can_be_and_may_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: Overrides | None,
    is_installed: bool,
    count: int,
) -> None:
    """The daemon looks for the package without importing it, and heeds the hank."""
    if not is_installed:
        monkeypatch.setattr(environment, "find_spec", lambda _name: None)
    elif environment.find_spec("mcp") is None:
        pytest.skip("the extra mcp is not installed")

    ctx = SimpleNamespace(
        hank=SimpleNamespace(hank=Hank(hank=(), overrides=overrides)),
        layout=Layout.of_execution(tmp_path),
    )
    socket = tmp_path / "agent.sock"
    found = environment.offered(cast("Any", ctx), RunId("r"), CodonId("one"), socket)
    assert len(found) == count
    for server in found:
        assert server.name == "hankweave"
        assert server.command[-3:] == ("mcp", "--socket", str(socket))
        assert server.environment == {"HANKWEAVE_RUN_ID": "r", "HANKWEAVE_CODON_ID": "one"}


# --- answers, which need the extra ----------------------------------------------------------------


def page(*patches: str | None) -> DiffPage:
    files = tuple(
        FileDifference(path=f"{number}.txt", status="modified", added=1, removed=1, patch=patch)
        for number, patch in enumerate(patches)
    )
    stats = DiffStats(files=len(files), added=1, removed=1)
    return DiffPage(from_sha=Sha("a" * 40), to_sha=None, files=files, stats=stats)


def test_patches_share_the_room_that_there_is() -> None:
    """The first patches come first, none exceeds its share, and each cut one says so."""
    answers = pytest.importorskip("hankweave_server.features.mcp.server")
    long = "x" * 100_000
    found = answers.Differences.of(page("short", long, long, long, long, None), patch=True).files
    part = answers.PATCH_CHARACTERS
    assert [len(each.patch or "") for each in found] == [5, part, part, part - 5, 0, 0]
    assert found[0].note is None
    assert "100000 characters" in found[1].note
    assert "omitted" in found[4].note
    assert "too large" in found[5].note
    (alone,) = answers.Differences.of(page(long), patch=True).files
    assert len(alone.patch) == answers.PAGE_CHARACTERS


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_content_ends_with_a_whole_character(missing: int) -> None:
    """A range that ends within a character is text up to there, and the next read starts there."""
    answers = pytest.importorskip("hankweave_server.features.mcp.server")
    data = "aé".encode() + "😀".encode()[:missing]
    found = FileRange(
        content=base64.b64encode(data).decode(),
        encoding="base64",
        size=100,
        mode=0o100644,
        next_offset=len(data),
    )
    content = answers.Content.of("a", found)
    assert (content.encoding, content.text, content.next_offset) == ("utf-8", "aé", 3)


@pytest.mark.parametrize("data", [b"\0abc", b"\xff\xff\xff\xff\xff"])
def test_what_is_no_text_stays_in_base64(data: bytes) -> None:
    """Bytes are never truncated until they look like text."""
    answers = pytest.importorskip("hankweave_server.features.mcp.server")
    text = base64.b64encode(data).decode()
    found = FileRange(content=text, encoding="base64", size=9, mode=0o100644, next_offset=5)
    content = answers.Content.of("a", found)
    assert (content.encoding, content.text, content.next_offset) == ("base64", text, 5)


def test_text_of_an_agent_comes_in_one_line() -> None:
    """No line break and no control character reaches a label, a reason or a log."""
    daemon = pytest.importorskip("hankweave_server.features.mcp.daemon")
    assert daemon.one_line(" a\nb\t\x1b[2J\u202ec ", 100) == "a b [2Jc"
    assert daemon.one_line("x" * 20, 10) == "x" * 9 + "…"
