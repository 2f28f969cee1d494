"""Claims about the screen of `hankweave attach`, in memory and with fixed replies."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from rich.console import Console
from rich.text import Text
from textual.app import App, ComposeResult

from hankweave_protocol import codec
from hankweave_protocol.commands import (
    CodonForceStop,
    CodonRedo,
    CodonSkip,
    PermissionAnswer,
    RollbackToCodon,
    RollbackUndo,
)
from hankweave_protocol.events import (
    PermissionRequested,
    PermissionResolved,
    ServerIdle,
    StateTransition,
)
from hankweave_protocol.transitions import RunStarted
from hankweave_server.cli.attach.block_view import BlockView
from hankweave_server.cli.attach.control import READ_ONLY
from hankweave_server.cli.attach.drawing import drawn
from hankweave_server.cli.attach.screen import Attached
from hankweave_server.cli.attach.transcript import PAGE, Block, ToolCall
from hankweave_server.domain.reducer import apply, resulting_state
from support.attached import (
    CHECK,
    PUSH,
    UNDOABLE,
    a_scene,
    at_rest,
    attached_to,
    call,
    message,
    pending,
    press,
    result,
    text_of,
    until,
)
from support.histories import failed, running, sha
from support.timelines import continued

OTHER = PermissionRequested(
    codon_id=CHECK,
    request_id="r2",
    tool_name="Bash",
    tool_input={"command": "rm -rf build"},
    expires_at=PUSH.expires_at,
    reason="",
)


# --- what is in sight -----------------------------------------------------------------------------


async def test_steps_files_and_transcript_are_on_80_by_24() -> None:
    """Loops are folded, reads too; times, costs and what is left are in their places."""
    async with attached_to(a_scene()) as pilot:
        shown = text_of(pilot)

    assert "Orders to model · run 1 · 3 of 5 · running 90 s, about 4 min left · $4 of $25" in shown
    assert re.search(r"✓ Review ×3 +7:30", shown)
    assert "review" not in shown.splitlines()[3].lower()
    assert re.search(r"· Report +~2:10", shown)
    assert "▸ read 2 files, searched once  2.1 s" in shown
    assert "  +    raw = row" in shown
    assert "notes.md        yours +2 −0" in shown
    assert "  1 failed, 4 passed" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(("columns", "lines"), [(20, 6), (40, 12), (80, 24), (160, 48)])
async def test_it_is_drawn_on_a_screen_of_any_size(columns: int, lines: int) -> None:
    """Every dialog as well; nothing fails, and nothing is wider than the screen."""
    async with attached_to(a_scene(asked=PUSH), columns, lines) as pilot:
        for keys in (("a", "escape"), ("z", "escape"), ("p", "escape"), ("c",), ("question_mark",)):
            await press(pilot, *keys)
            assert max(map(len, text_of(pilot).splitlines())) <= columns


async def test_a_wide_screen_shows_the_cost_of_each_step() -> None:
    async with attached_to(a_scene(), 160, 48) as pilot:
        shown = text_of(pilot)
        assert "$3.60" in shown
        assert "~$0.40" in shown


async def test_a_loop_unfolds_into_its_rounds() -> None:
    """Enter on it shows them, each with its own transcript; Enter again folds them."""
    async with attached_to(a_scene()) as pilot:
        await press(pilot, "up", "enter")
        assert "✓   Review #1" in text_of(pilot)
        await press(pilot, "enter")
        assert "Review #1" not in text_of(pilot)


async def test_a_failed_step_is_in_front_with_its_reason() -> None:
    """No key is needed to see which step has failed, and why."""
    async with attached_to(a_scene(failed("check"))) as pilot:
        shown = text_of(pilot)
        assert "failed at step 3 of 5" in shown
        assert "✗ Check" in shown
        assert "✗ API request timed out — 30 s" in shown


async def test_after_a_rollback_the_failure_is_no_longer_shown() -> None:
    """Neither in the heading nor beside the step, which is still to run."""
    client = a_scene(failed("check"))
    async with attached_to(client) as pilot:
        assert "API request timed out" in text_of(pilot)
        state = client.state_now
        back = continued("next", of=state.runs[0].run_id, after="review#2", at=sha(4))
        started = RunStarted(run=msgspec.structs.replace(back, status="running", end_time=None))
        client.publish(
            StateTransition(
                transition_type=RunStarted.TYPE,
                transition=codec.transition_body(started),
                resulting_state=resulting_state(apply(state, started, 1)),
            )
        )
        await until(pilot, lambda text: "timed out" not in text)
        shown = text_of(pilot)
        assert "failed at step" not in shown
        assert "· Check" in shown


async def test_what_happens_is_shown_at_the_end_until_the_reader_goes_back() -> None:
    """New words appear; after a step up the view stays where it is; `l` follows again."""
    client = a_scene()
    async with attached_to(client) as pilot:
        client.publish(message("Now I **know**."))
        await until(pilot, lambda text: "Now I know." in text)
        await press(pilot, "tab", "home")
        before = text_of(pilot)
        for number in range(40):
            client.publish(message(f"Line {number}."))

        await at_rest(pilot)
        assert text_of(pilot).splitlines()[2:6] == before.splitlines()[2:6]
        await press(pilot, "l")
        await until(pilot, lambda text: "Line 39." in text)


async def test_a_transcript_is_read_back_to_its_beginning() -> None:
    """Older events are read page by page, and only when the reader comes there."""
    events = tuple((80.0, message(f"Sentence {number}.")) for number in range(2 * PAGE + 50))
    async with attached_to(a_scene(events=events)) as pilot:
        assert f"Sentence {2 * PAGE + 49}." in text_of(pilot)
        await press(pilot, "tab", "home", "home", "home")
        await press(pilot, "home")
        assert "Sentence 0." in text_of(pilot)


async def test_a_view_that_follows_shows_its_end_at_once() -> None:
    """Also the first time that its content is longer, when it has no scroll bar yet."""
    view = BlockView(follows=True)

    class OneView(App[None]):
        def compose(self) -> ComposeResult:
            yield view

    async with OneView().run_test(size=(40, 10)):
        view.show([Block("note", number, text=f"Line {number}.") for number in range(50)])
        assert view.scroll_y == view.max_scroll_y > 0


async def test_a_text_is_found_wherever_it_stands_in_the_step() -> None:
    """The newest place comes first, also far back; Enter goes to the one above, Esc ends it."""
    events = tuple(
        (80.0, message(f"The needle {number}." if number in (3, 90) else f"Hay {number}."))
        for number in range(PAGE + 50)
    )
    async with attached_to(a_scene(events=events)) as pilot:
        await press(pilot, "slash", *"NEEDLE", "enter")
        assert "The needle 90." in text_of(pilot)
        assert "2 of 2" in text_of(pilot)
        await press(pilot, "enter")
        assert "The needle 3." in text_of(pilot)
        await press(pilot, "escape", "slash", "x", "enter")
        assert "x is not in this step." in text_of(pilot)


async def test_a_call_opens_into_all_of_it() -> None:
    """Enter shows all that was given, and Enter again the whole result."""
    long = result(7, "begin …", truncated=True, original_length=5000)
    events = ((80.0, call(7, "Bash", command="one\ntwo\nthree")), (79.0, long))
    async with attached_to(a_scene(events=events)) as pilot:
        assert "three" not in text_of(pilot)
        await press(pilot, "tab", "enter")
        await until(pilot, lambda text: "the whole result" in text)
        await press(pilot, "home")
        assert "three" in text_of(pilot)


# --- permissions ----------------------------------------------------------------------------------


async def test_an_answer_is_for_the_call_that_was_in_sight() -> None:
    """If another request has taken its place meanwhile, it is not answered."""
    client = a_scene(asked=PUSH)
    async with attached_to(client) as pilot:
        await press(pilot, "a")
        assert "command: git push origin main" in text_of(pilot)
        gone = PermissionResolved(
            codon_id=CHECK, request_id="r1", tool_name="Bash", decision="deny", by="timeout"
        )
        client.publish(gone, pending_permissions=(pending(OTHER),))
        client.publish(OTHER)
        await press(pilot, "a")
        assert client.sent == [PermissionAnswer(request_id="r1", decision="allow")]
        await until(pilot, lambda text: "rm -rf build" in text)


async def test_a_rule_is_proposed_and_can_be_edited() -> None:
    client = a_scene(asked=PUSH)
    async with attached_to(client) as pilot:
        await press(pilot, "A")
        assert "Bash(git push *)" in text_of(pilot)
        await press(pilot, "backspace", "backspace", *"origin *)", "enter")
        (sent,) = client.sent
        assert isinstance(sent, PermissionAnswer)
        assert (sent.decision, sent.always) == ("allow", "Bash(git push origin *)")


async def test_a_denial_has_a_reason_for_the_agent() -> None:
    client = a_scene(asked=PUSH)
    async with attached_to(client) as pilot:
        await press(pilot, "d", *"not today", "enter")
        assert client.sent == [
            PermissionAnswer(request_id="r1", decision="deny", message="not today")
        ]
        await press(pilot, "d", "escape")
        assert len(client.sent) == 1


async def test_a_long_call_is_shown_whole_before_it_can_be_allowed() -> None:
    """The question scrolls: its last line can be read on a low screen."""
    command = "\n".join(f"echo {number}" for number in range(60))
    asked = PermissionRequested(
        codon_id=CHECK,
        request_id="r3",
        tool_name="Bash",
        tool_input={"command": f"{command}\nrm -rf \x1b[2J /"},
        expires_at=PUSH.expires_at,
        reason="",
    )
    async with attached_to(a_scene(asked=asked)) as pilot:
        await press(pilot, "a", "end")
        assert r"rm -rf \x1b[2J /" in text_of(pilot)


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["n", "escape", "enter", "Y", "z"])
async def test_only_y_goes_back(key: str) -> None:
    """Any other key leaves everything as it is."""
    client = a_scene()
    async with attached_to(client) as pilot:
        await press(pilot, "z", key)
        assert client.sent == []


async def test_going_back_is_for_the_run_that_was_previewed_and_keeps_edits() -> None:
    """The consequences are named first; what runs is stopped or paused, as chosen."""
    client = a_scene()
    async with attached_to(client) as pilot:
        await press(pilot, "z")
        shown = text_of(pilot)
        for text in (
            "2 files return to earlier content",
            "1 file goes away",
            "1 edit of yours is kept",
            "1 step runs again: check, about $0.20 and 64 s",
            "check is running: it is stopped first.",
        ):
            assert text in shown

        await press(pilot, "e")
        assert "1 edit of yours is overwritten" in text_of(pilot)
        await press(pilot, "e", "o", "y")
        (sent,) = client.sent
        assert isinstance(sent, RollbackToCodon)
        assert (sent.codon_id, sent.checkpoint_type) == (CHECK, "start")
        assert (sent.keep_edits, sent.on_running) == (True, "pause")
        assert sent.expected_run_id == client.state_now.current_run_id


async def test_a_retry_begins_with_the_first_files_or_with_those_there_are() -> None:
    client = a_scene(failed("check"))
    async with attached_to(client) as pilot:
        await press(pilot, "r", "y")
        await press(pilot, "r", "w")
        first, second = client.sent
        assert isinstance(first, RollbackToCodon)
        assert first.auto_restart
        assert second == CodonRedo(expected_run_id=client.state_now.current_run_id)


@pytest.mark.parametrize(("key", "kind"), [("s", CodonSkip), ("x", CodonForceStop)])
async def test_what_ends_a_step_is_asked_about(key: str, kind: type[Any]) -> None:
    client = a_scene()
    async with attached_to(client) as pilot:
        await press(pilot, key, "n")
        assert client.sent == []
        await press(pilot, key, "y")
        assert [type(each) for each in client.sent] == [kind]


async def test_an_undo_shows_what_it_does_first() -> None:
    client = a_scene(undo=UNDOABLE)
    async with attached_to(client) as pilot:
        await press(pilot, "u")
        assert "Undo the last rollback" in text_of(pilot)
        await press(pilot, "y")
        assert [type(each) for each in client.sent] == [RollbackUndo]


@pytest.mark.parametrize("key", list("nsxrad"))
async def test_a_viewers_keys_change_nothing(key: str) -> None:
    client = a_scene(failed("check") if key == "r" else running("check"), mode="readonly")
    async with attached_to(client) as pilot:
        await press(pilot, key)
        await press(pilot, "y")
        assert client.sent == []
        assert READ_ONLY in text_of(pilot) or key in "ad"


async def test_a_lost_connection_is_shown_until_it_is_back() -> None:
    client = a_scene()
    async with attached_to(client) as pilot:
        client.is_up = False
        client.publish(ServerIdle(reason="stopped", message=""))
        await until(pilot, lambda text: "connection lost" in text)
        client.is_up = True
        client.publish(ServerIdle(reason="startup", message=""))
        await until(pilot, lambda text: "connection lost" not in text)


# --- mouse and colours ----------------------------------------------------------------------------


async def test_the_mouse_selects_steps_and_presses_keys() -> None:
    """A click on a step shows it; one on a key at the bottom presses it."""
    async with attached_to(a_scene()) as pilot:
        await pilot.click("#steps", offset=(3, 0))
        await at_rest(pilot)
        assert "│ Fetch · 2:30" in text_of(pilot)
        row = text_of(pilot).splitlines()[-1]
        await pilot.click(offset=(row.index("? keys"), 23))
        await at_rest(pilot)
        assert "╭" in text_of(pilot)


@pytest.mark.parametrize(("value", "theme"), [("0;15", "light"), ("15;0", "dark"), ("", "dark")])
async def test_colours_follow_the_terminal_and_can_be_changed(
    monkeypatch: pytest.MonkeyPatch, value: str, theme: str
) -> None:
    monkeypatch.setenv("COLORFGBG", value)
    async with attached_to(a_scene()) as pilot:
        assert pilot.app.theme == f"textual-{theme}"
        await press(pilot, "t")
        assert pilot.app.theme != f"textual-{theme}"


async def test_without_colour_signs_say_what_colours_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR every colour is a grey, and states and differences have signs."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with attached_to(a_scene(failed("check"))) as pilot:
        assert isinstance(pilot.app, Attached)
        assert pilot.app.no_color
        shown = text_of(pilot)
        assert "✗ Check" in shown
        assert "  -    depth = float" in shown


# --- blocks ---------------------------------------------------------------------------------------


def plain(block: Block, *, is_open: bool = False) -> str:
    console = Console(width=80, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(drawn(block, root="/work", is_open=is_open))

    return Text.from_ansi(captured.get()).plain


def test_control_characters_of_agents_are_shown_as_text() -> None:
    """In words, calls, results, output and patches alike."""
    evil = "a\x1b]0;title\x07b"
    blocks = [
        Block("words", 1, text=evil),
        Block("note", 2, text=evil),
        Block("output", 3, lines=[evil]),
        Block("patch", 4, text=evil, patch=f"--- a\n+++ b\n@@ -1 +1 @@\n+{evil}\n"),
        Block("call", 5, calls=[ToolCall(evil, {"command": evil, evil: [evil]})]),
        Block("call", 6, calls=[ToolCall("Write", {"file_path": evil, "content": evil})]),
        Block("reads", 7, calls=[ToolCall("Read", {"file_path": evil})]),
    ]
    for block in blocks:
        shown = plain(block, is_open=True)
        assert "\x1b" not in shown
        assert "\x07" not in shown


def test_a_denied_call_says_who_denied_it_and_why() -> None:
    answer = PermissionResolved(
        codon_id=CHECK,
        request_id="r1",
        tool_name="Bash",
        decision="deny",
        by="client",
        message="not today",
    )
    made = ToolCall("Bash", {"command": "git push"}, asked=PUSH, answer=answer)
    assert "denied by a person: not today" in plain(Block("call", 1, calls=[made]))
