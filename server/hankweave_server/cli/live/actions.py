"""Send the requests of `keys` to the server, and return what to show afterwards."""

from __future__ import annotations

from typing import assert_never

from hankweave_client.client import Client
from hankweave_client.errors import CommandRefused
from hankweave_protocol import codec
from hankweave_protocol.records import RollbackReport
from hankweave_server.cli.live.keys import (
    Answer,
    Choosing,
    Confirming,
    Consider,
    Foresee,
    List,
    Mode,
    Quit,
    Reading,
    Steer,
    Travel,
    Watching,
    Wish,
)
from hankweave_server.cli.output.text import size_text
from hankweave_server.plain_text import harmless, one_line

CHOICE = 200
"""Maximum checkpoints in the list; `hankweave rollback --to` takes older ones."""

LONGEST_CALL = 8
"""Maximum lines of a tool call, to fit on any terminal."""

_LETTERS = 60

_NAMED = 6
"""Maximum files named under a question."""


async def perform(client: Client, wish: Wish) -> Mode:
    """Send a request and return what to show; a refusal or a lost connection is shown as well."""
    try:
        return await _done(client, wish)
    except CommandRefused as refused:
        hint = one_line(refused.hint or "")
        return Watching(one_line(refused.message), is_complaint=True, hint=hint)
    except ConnectionError as lost:
        return Watching(one_line(f"It may or may not have been done: {lost}"), is_complaint=True)


async def _done(client: Client, wish: Wish) -> Mode:
    match wish:
        case Steer():
            return await _steered(client, wish)
        case Consider(request_id=request):
            return await _considered(client, request)
        case Answer(request_id=request, decision=decision):
            await client.answer_permission(request, decision)
            return Watching("Allowed." if decision == "allow" else "Denied.")
        case List():
            page = await client.list_checkpoints(limit=CHOICE)
            return Choosing(page.checkpoints) if page.checkpoints else Watching("There is none.")
        case Foresee():
            return await _foreseen(client, wish)
        case Travel():
            return Watching(_told(await _travelled(client, wish)))
        case Quit():
            return Watching()
        case _:
            assert_never(wish)


async def _steered(client: Client, wish: Steer) -> Mode:
    match wish.what:
        case "next":
            await client.next_codon(expected_run_id=wish.run_id)
        case "skip":
            await client.skip_codon(expected_run_id=wish.run_id)
        case "stop":
            await client.force_stop_codon("stopped from a terminal", expected_run_id=wish.run_id)
        case "redo":
            await client.redo_codon(expected_run_id=wish.run_id)
        case _:
            assert_never(wish.what)

    return Watching({"next": "Started.", "redo": "Started again."}.get(wish.what, "Done."))


async def _considered(client: Client, request: str) -> Mode:
    """Show the complete call and ask; a call that is too long to show cannot be allowed here."""
    pending = (await client.status()).pending_permissions
    asked = next((each for each in pending if each.request_id == request), None)
    if asked is None:
        return Watching("It is answered already.")

    lines = [f"{one_line(asked.codon_id)} asks for {one_line(asked.tool_name)}:"]
    for name, value in asked.tool_input.items():
        text = value if isinstance(value, str) else codec.encode(value).decode()
        lines += [f"  {one_line(name)}: {line}" for line in _shown(text)]

    if len(lines) > LONGEST_CALL or sum(map(len, lines)) > LONGEST_CALL * _LETTERS:
        return Watching(
            "The call is too long to be shown here.",
            is_complaint=True,
            hint=f"`hankweave permissions --json` shows it; `hankweave allow {one_line(request)}`.",
        )

    wish = Answer(request, "allow")
    return Confirming("Allow it? It cannot be taken back. [y/N]", wish, tuple(lines))


def _shown(text: str) -> list[str]:
    return harmless(text).expandtabs(4).split("\n")


# --- rollback -------------------------------------------------------------------------------------


async def _foreseen(client: Client, wish: Foresee) -> Mode:
    """Show a preview and ask; the answer is valid only for the run that was current before it."""
    status = await client.status()
    report = await client.preview_rollback(checkpoint_sha=wish.sha, direction=wish.direction)
    lines = _lines_of(report)
    if client.mode == "readonly":
        return Reading(lines)

    active = status.active_codon_id
    what = {"undo": "Undo the rollback?", "redo": "Redo it?", None: "Go back?"}[wish.direction]
    stops = "" if active is None else f" {one_line(active)} runs, and is stopped first."
    go = Travel(
        wish.sha, wish.direction, status.current_run_id, "refuse" if active is None else "stop"
    )
    return Confirming(f"{what}{stops} [y/N]", go, lines)


async def _travelled(client: Client, wish: Travel) -> RollbackReport:
    run, on_running = wish.run_id, wish.on_running
    if wish.direction == "undo":
        return await client.undo(on_running=on_running, expected_run_id=run)

    if wish.direction == "redo":
        return await client.redo(on_running=on_running, expected_run_id=run)

    if wish.sha is None:
        return await client.roll_back_to_last_success(on_running=on_running, expected_run_id=run)

    return await client.roll_back_to_checkpoint(
        wish.sha, on_running=on_running, expected_run_id=run
    )


def _lines_of(report: RollbackReport) -> tuple[str, ...]:
    at = report.target
    of = f" of {one_line(at.codon_id)}" if at.codon_id else ""
    touched = (
        *((f"+ {one_line(file.path)}", file.bytes) for file in report.added),
        *((f"~ {one_line(file.path)}", file.bytes) for file in report.updated),
        *((f"- {one_line(file.path)}", file.bytes) for file in report.removed),
    )
    named = [f"  {name}  {size_text(size)}" for name, size in touched[:_NAMED]]
    more = len(touched) - len(named)
    return (
        f"to checkpoint {at.checkpoint_sha[:12]}{of}: {_count(report)}",
        *named,
        *([f"  and {more} more"] if more else []),
        *([f"  {len(report.conflicts)} edits by people are among them"] * bool(report.conflicts)),
    )


def _count(report: RollbackReport) -> str:
    added, updated, removed = len(report.added), len(report.updated), len(report.removed)
    return f"{added} files added, {updated} updated, {removed} removed"


def _told(report: RollbackReport) -> str:
    return f"At {report.target.checkpoint_sha[:12]}: {_count(report)}. u takes it back."
