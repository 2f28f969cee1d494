"""What an agent is told when it was rolled back, so that it does not trust what it remembers."""

from __future__ import annotations

from hankweave_protocol.events import RollbackTold
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import Notice
from hankweave_protocol.transitions import AgentTold
from hankweave_server.ledger.batch import Entry


def text_of(notice: Notice) -> str:
    """Says where to and why, and what to do about it."""
    what = "The files in your working directory were"
    if notice.paths is not None:
        what = f"These files in your working directory were: {', '.join(notice.paths)};"

    moved = {"back": "rolled back to", "undo": "put back to", "redo": "taken again to"}
    where = f"checkpoint {notice.target.checkpoint_sha[:12]}"
    if notice.target.codon_id is not None:
        where += f" of {notice.target.codon_id}"

    reason = "" if notice.reason is None else f" The reason given: {notice.reason}"
    return (
        f"Note from Hankweave ({notice.timestamp}): {what} {moved[notice.direction]} {where}."
        f"{reason} Read files again before you rely on what you remember of them."
    )


def with_notice(system_prompt: str | None, notice: Notice | None) -> str | None:
    """Adds the notice, where one is due, to what an agent is told at its start."""
    if notice is None:
        return system_prompt

    return text_of(notice) if system_prompt is None else f"{system_prompt}\n\n{text_of(notice)}"


def told(notice: Notice, codon_id: CodonId, *, live: bool) -> tuple[Entry, ...]:
    """What is journaled once an agent has it."""
    return (
        AgentTold(operation_id=notice.operation_id),
        RollbackTold(
            operation_id=notice.operation_id,
            codon_id=codon_id,
            target=notice.target,
            text=text_of(notice),
            how="live" if live else "prompt",
        ),
    )
