"""Blocks as renderables; pure.

Everything comes from agents and programs, so control characters are escaped before it is drawn.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from itertools import islice

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.text import Text

from hankweave_protocol import codec
from hankweave_server.cli.attach.transcript import Block, ToolCall, summary_of_reads
from hankweave_server.cli.output.event_lines import call_text
from hankweave_server.cli.output.pictures import patch_lines
from hankweave_server.plain_text import counted, harmless, one_line

LINES = 12
"""Lines of a difference that are shown while its block is closed."""

_TAIL = 3
"""Lines of output that are shown while its block is closed."""

_MOST = 2_000
"""Lines that are compared, or shown of one result: more than a person reads."""

_SEVERITIES = {"info": "dim", "warning": "yellow", "degraded": "yellow", "error": "red"}


def drawn(block: Block, *, root: str, is_open: bool) -> RenderableType:
    """Return a block as a renderable; paths below the work tree `root` are relative to it."""
    match block.kind:
        case "words":
            return Markdown(harmless(block.text), hyperlinks=False)
        case "note":
            return Text(harmless(block.text), _SEVERITIES[block.severity])
        case "output":
            return Group(*_tail(block.lines, is_open=is_open))
        case "reads":
            return Group(*_reads(block, root, is_open=is_open))
        case "patch":
            return Group(*_patch(block, is_open=is_open))
        case "call":
            (call,) = block.calls
            return Group(*_call(call, root, is_open=is_open))


def _reads(block: Block, root: str, *, is_open: bool) -> Iterator[Text]:
    time = sum(call.result.execution_time_ms for call in block.calls if call.result is not None)
    text = f"{'▾' if is_open else '▸'} {summary_of_reads(block.calls)}  {_seconds(time)}"
    yield Text(text.rstrip(), "dim")
    for call in block.calls if is_open else ():
        yield from _call(call, root, is_open=len(block.calls) == 1)


def _call(call: ToolCall, root: str, *, is_open: bool) -> Iterator[Text]:
    lines = _edit(call)
    mark, style = _state(call)
    title = _title(call, root)
    numbers = ""
    if lines is not None:
        added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        numbers = f"  +{added} −{removed}"

    time = "" if call.result is None else _seconds(call.result.execution_time_ms)
    yield Text.assemble((f"{mark} ", style), (title, "bold"), numbers, (f"  {time}", "dim"))
    if lines is not None:
        yield from _difference(lines, is_open=is_open)
    elif is_open:
        yield from (Text(f"  {line}", "dim") for line in given_lines(call.given))

    if call.asked is not None and call.answer is None:
        yield Text(f"  waits for your permission: {one_line(call.asked.reason)}", "bold yellow")
    elif call.answer is not None:
        yield Text(f"  {_answered(call)}", "dim")

    is_bad = call.result is not None and call.result.is_error
    if call.result is not None and (lines is None or is_bad or is_open):
        text = call.result.result if call.whole is None else call.whole
        tail = text.rstrip("\n").split("\n") if text.strip() else []
        if call.whole is None and call.result.truncated and is_open:
            tail.append("… Enter again shows the whole result")

        yield from _tail(tail, is_open=is_open, style="red" if is_bad else "dim")


def _state(call: ToolCall) -> tuple[str, str]:
    if call.result is not None:
        return ("✗", "red") if call.result.is_error else ("✓", "green")

    if call.answer is not None and call.answer.decision == "deny":
        return "✗", "red"

    return ("?", "bold yellow") if call.asked is not None and call.answer is None else ("▸", "cyan")


def _title(call: ToolCall, root: str) -> str:
    path = call.given.get("file_path")
    if isinstance(path, str):
        return one_line(f"{call.tool} {path.removeprefix(f'{root}/')}")

    command = call.given.get("command")
    if isinstance(command, str):
        first, _, more = command.strip().partition("\n")
        return one_line(f"{call.tool} {first}{' …' if more else ''}")

    return call_text(call.tool, call.given)


def _answered(call: ToolCall) -> str:
    assert call.answer is not None, "it was answered"
    answer = call.answer
    by = {"client": "by a person", "policy": "by a rule", "timeout": "as the time was up"}
    text = f"{'allowed' if answer.decision == 'allow' else 'denied'} {by.get(answer.by, '')}"
    always = f", and every {answer.always} from now on" if answer.always else ""
    why = f": {answer.message}" if answer.message else ""
    return one_line(f"{text.rstrip()}{always}{why}")


def given_lines(given: dict[str, object]) -> Iterator[str]:
    """Yield the arguments of a call, whole and with control characters escaped."""
    for name, value in given.items():
        text = value if isinstance(value, str) else codec.encode(value).decode()
        first, *more = harmless(text).expandtabs(4).split("\n")
        yield f"{one_line(name)}: {first}"
        yield from (f"  {line}" for line in more)


def _edit(call: ToolCall) -> list[str] | None:
    """Return what a call changes in a file, as lines with `+`, `-` or a space before them."""
    edits = call.given.get("edits")
    parts = edits if isinstance(edits, list) else [call.given]
    lines: list[str] = []
    for part in parts:
        match part:
            case {"old_string": str(old), "new_string": str(new)}:
                lines += _compared(old, new)
            case {"content": str(new)} if "file_path" in call.given:
                lines += [f"+{line}" for line in new.splitlines()]
            case _:
                return None

    return lines


def _compared(old: str, new: str) -> Iterable[str]:
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _MOST:
        return [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]

    found = difflib.unified_diff(before, after, n=1, lineterm="")
    return [line for line in list(found)[2:] if not line.startswith("@@")]


def _difference(lines: list[str], *, is_open: bool) -> Iterator[Text]:
    shown = lines[: _MOST if is_open else LINES]
    for line in shown:
        style = {"+": "green", "-": "red"}.get(line[:1], "")
        yield Text(f"  {harmless(line).expandtabs(4)}", style)

    if len(lines) > len(shown):
        yield Text(f"  … {counted(len(lines) - len(shown), 'more line')}", "dim")


def _patch(block: Block, *, is_open: bool) -> Iterator[Text]:
    """Yield a patch; a closed one shows its title alone."""
    mark = "▾" if is_open else "▸"
    yield Text(f"{mark} {one_line(block.text)}", "bold")
    if is_open:
        lines = list(islice(patch_lines(block.patch), _MOST)) if block.patch else []
        yield from (Text("  ").append_text(line) for line in lines)


def _tail(lines: list[str], *, is_open: bool, style: str = "dim") -> Iterator[Text]:
    shown = lines[-_MOST:] if is_open else lines[-_TAIL:]
    if len(lines) > len(shown):
        yield Text(f"  … {counted(len(lines) - len(shown), 'line')} before", "dim italic")

    yield from (Text(f"  {harmless(line).expandtabs(4)}", style) for line in shown)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 100 else ""
