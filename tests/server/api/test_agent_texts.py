"""Whole results of tools, and the prompts of codons, of which the journal has a part or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol.commands import CodonReadPrompt, CodonReadResult
from hankweave_protocol.errors import Refused
from hankweave_protocol.events import AssistantAction, ToolResult
from hankweave_server.agents.agent_log import AgentLog
from hankweave_server.api.inspect import whole_result
from hankweave_server.paths import Layout
from support.running_server import journal
from support.scripted_hank import codon, write_hank
from support.watching import after_plan, refused

NOW = "2025-01-04T12:00:00.000Z"


def journal_line(result: str, *, truncated: bool = True) -> bytes:
    """Return the journal line of a result of the call `t1` of codon `one`."""
    data = {
        "codonId": "one",
        "toolUseId": "t1",
        "toolName": "Bash",
        "result": result,
        "truncated": truncated,
        "originalLength": 9_000,
        "executionTimeMs": 5,
        "isError": False,
    }
    event = {"seq": 7, "type": ToolResult.TYPE, "data": data, "runId": "r", "codonId": "one"}
    return msgspec.json.encode(event)


def logged(root: Path, *contents: object, call: str = "t1", derived: bool = False) -> Layout:
    """Write a log in which results of calls with this id have these contents."""
    layout = Layout.of_execution(root)
    with AgentLog(layout.agent_log("r", "one"), limit=10_000_000) as log:  # type: ignore[arg-type]
        for content in contents:
            block = {"type": "tool_result", "tool_use_id": call, "content": content}
            inside: dict[str, Any] = {"message": {"content": [block]}}
            if derived:
                inside = {"content": [block], "derived": True}

            entry = {"type": "user", **inside}
            log.append([b"not JSON, with t1 in it", msgspec.json.encode(entry)], NOW)

    return layout


def test_a_long_result_is_read_whole_range_by_range(tmp_path: Path) -> None:
    """The ranges together are the text, which the agent's log has, whatever it is derived from."""
    text = "äöü\n" * 2_000
    for derived in (False, True):
        layout = logged(tmp_path / str(derived), text, derived=derived)
        found, offset = "", 0
        while True:
            part = whole_result(
                layout,
                journal_line(text[:50] + "..."),
                CodonReadResult(seq=7, offset=offset, length=3_000),
            )
            assert (part.size, part.offset) == (len(text), offset)
            found += part.content
            if part.next_offset is None:
                break

            offset = part.next_offset

        assert found == text


def test_of_two_calls_with_one_id_the_result_is_the_journaled_one(tmp_path: Path) -> None:
    """An agent may count its calls anew in each conversation of a codon."""
    layout = logged(tmp_path, "first " * 2_000, "second " * 2_000, "third " * 2_000)
    found = whole_result(layout, journal_line("second sec..."), CodonReadResult(seq=7))
    assert found.content == "second " * 2_000


def test_pictures_come_beside_the_text(tmp_path: Path) -> None:
    """A block with a picture is no text; its bytes come with the first range alone."""
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    content = [{"type": "text", "text": "a chart"}, {"type": "image", "source": source}]
    layout = logged(tmp_path, content)
    found = whole_result(layout, journal_line("a chart\n..."), CodonReadResult(seq=7))
    assert found.content == "a chart"
    [image] = found.images
    assert (image.media_type, image.data) == ("image/png", "iVBORw0KGgo=")
    assert (
        whole_result(layout, journal_line("a chart"), CodonReadResult(seq=7, offset=3)).images == ()
    )


@pytest.mark.parametrize("has_log", [False, True], ids=["no log", "a log without it"])
def test_a_result_that_no_log_has_is_refused(tmp_path: Path, has_log: bool) -> None:
    """The journal of a branch has events of its parent, whose logs stay where they are."""
    layout = logged(tmp_path, "x", call="t2") if has_log else Layout.of_execution(tmp_path)
    with pytest.raises(Refused) as refused:
        whole_result(layout, journal_line("x"), CodonReadResult(seq=7))

    assert (refused.value.code, refused.value.path) == ("INVALID_COMMAND", "$.data.seq")


@pytest.mark.command("codon.readResult", "codon.readPrompt")
async def test_a_viewer_reads_whole_results_and_prompts_and_is_refused_others(
    tmp_path: Path,
) -> None:
    """The journal has 2,500 characters of a result and no prompt; the server has both."""
    hank = write_hank(tmp_path / "hank", codon("one", {"run": "seq 3000"}))
    async with after_plan(hank, tmp_path / "execution", since_seq=0) as (server, viewer):
        events = journal(server.execution)
        [result] = [each for each in events if isinstance(each.data, ToolResult)]
        [call] = [each for each in events if isinstance(each.data, AssistantAction)]
        whole = await viewer.send(CodonReadResult(seq=result.seq))
        assert whole.content.split() == [str(n) for n in range(1, 3_001)]
        prompt = await viewer.send(CodonReadPrompt(codon_id="one"))
        assert "seq 3000" in prompt.text
        assert prompt.size == len(prompt.text)
        for seq in (call.seq, 10**6):
            error = await refused(viewer, CodonReadResult(seq=seq))
            assert (error.code, error.path) == ("INVALID_COMMAND", "$.data.seq")

        error = await refused(viewer, CodonReadPrompt(codon_id="two"))
        assert error.code == "UNKNOWN_CODON"
