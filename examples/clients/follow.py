"""Follow an execution until its work is done, then roll it back to the end of a codon.

    python examples/clients/follow.py EXECUTION CODON

Uses hankweave_client, which finds the server, decodes JSON, and reconnects after a lost connection.
"""

import sys
from pathlib import Path

import anyio

from hankweave_client.client import Client, CommandRefused, connect_to
from hankweave_client.discovery import NotRunning
from hankweave_protocol.commands import RollbackToCodon
from hankweave_protocol.events import CodonCompletedEvent, CodonStartedEvent, ServerIdle
from hankweave_protocol.ids import CodonId


async def follow(client: Client) -> None:
    """Print the start and end of codons; return when no more will start."""
    is_over = False
    async for event in client.events():
        match event.data:
            case CodonStartedEvent(codon_id=codon) | CodonCompletedEvent(codon_id=codon):
                is_over = False
                print(event.seq, event.type, codon, flush=True)
            case ServerIdle(reason=reason, message=message):
                # After these two, the plan may continue by itself.
                is_over = is_over or reason not in ("startup", "rollback-completed")
                print(event.seq, event.type, message, flush=True)

        # Earlier events are history: more work may have followed.
        if is_over and event.seq >= client.snapshot.last_event_seq:
            return


async def go_back(client: Client, codon: CodonId) -> None:
    report = await client.send(
        RollbackToCodon(codon_id=codon, checkpoint_type="end", reason="An example went back.")
    )
    counts = report.counts
    changes = f"{counts.added} added, {counts.updated} updated, {counts.removed} removed"
    print(f"back at the end of {codon}: {changes}")
    if report.safety:
        print("what was there is kept in", report.safety.checkpoint_sha)


async def main(execution: Path, codon: CodonId) -> int:
    try:
        async with connect_to(execution, since_seq=0, name="follow.py") as client:
            print("connected as", client.client_id, flush=True)
            await follow(client)
            await go_back(client, codon)
    except CommandRefused as refused:
        print(f"{refused.code}: {refused}", refused.hint or "", file=sys.stderr)
        return 1
    except (NotRunning, ConnectionError) as error:
        print(error, file=sys.stderr)
        return 69

    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: follow.py EXECUTION CODON")

    sys.exit(anyio.run(main, Path(sys.argv[1]), CodonId(sys.argv[2])))
