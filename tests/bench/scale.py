"""The sizes of the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of one run of all benchmarks."""

    rounds: int
    durable_appends: int
    batched_appends: int
    clients: tuple[int, ...]
    deliveries: int
    """Frames in one round of the fan-out, over all clients."""
    messages: int
    """Messages by the agent of the long execution; each makes three events."""
    agent_lines: int
    """Lines of one agent, from its pipe to ten clients."""
    codons: int
    """Codons of the longest plan, which is started and resumed in its middle..."""
    middle_codons: int
    """...for this many codons, of which the later half is timed."""
    short_codons: int
    """Codons of the plan that is run from beginning to end."""
    loop_codons: int
    """Codons of the longest loop."""
    store_checkpoints: int
    """Checkpoints of one file."""
    trees: tuple[int, ...]
    """Files in the work trees that are checkpointed."""
    socket_trees: tuple[int, ...]
    """The same for the bench of the socket, which takes longer."""
    has_real_tree: bool
    documented_up_to: int
    """Files in the largest tree on which Hankweave's documented sequence is tried."""
    history: int
    """Checkpoints that are listed."""
    long_checkpoints: int
    """Checkpoints of a history of hours..."""
    long_events: int
    """...and the events in its journal."""
    questioned: int
    """Events of the journal that is queried."""
    page_checkpoints: int
    """Checkpoints of the execution that the page shows..."""
    page_events: int
    """...the events in its journal..."""
    page_transcript: int
    """...and the bytes of its last step's transcript."""
    many_files: int
    """Files in the checkpoint during which the server must answer; so must it during one of a..."""
    big_file: int
    """...file of this many bytes."""
    awaits_heartbeats: bool
    """A heartbeat takes half a minute."""
    is_busy: bool = False
    """Whether the bench of the socket is repeated on a busy disk."""
    has_all_peers: bool = False
    """Whether it has other peers than git."""
    runs: int = 1
    """How often it is repeated; the figures are medians of those of the runs."""
    profiles: Path | None = None
    """Folder for a profile of every row of checkpoints, each from one extra round."""

    def heavy_rounds(self, files: int) -> int:
        """Return fewer rounds where one takes a minute."""
        return min(self.rounds, max(2, 30_000 // files))


FULL = Scale(
    rounds=5,
    durable_appends=1_000,
    batched_appends=20_000,
    clients=(1, 100, 1_000),
    deliveries=30_000,
    messages=3_334,
    agent_lines=100_000,
    codons=10_000,
    middle_codons=20,
    short_codons=1_000,
    loop_codons=3_000,
    store_checkpoints=10_000,
    trees=(1_000, 10_000, 100_000),
    socket_trees=(1_000, 10_000),
    has_real_tree=True,
    documented_up_to=10_000,
    history=1_000,
    long_checkpoints=10_000,
    long_events=1_000_000,
    questioned=100_000,
    page_checkpoints=10_000,
    page_events=1_000_000,
    page_transcript=50_000_000,
    many_files=10_000,
    big_file=1 << 30,
    awaits_heartbeats=True,
)

SMALLEST = Scale(
    rounds=1,
    durable_appends=2,
    batched_appends=10,
    clients=(1,),
    deliveries=10,
    messages=10,
    agent_lines=30,
    codons=20,
    middle_codons=4,
    short_codons=12,
    loop_codons=6,
    store_checkpoints=110,
    trees=(110,),
    socket_trees=(110,),
    has_real_tree=False,
    documented_up_to=110,
    history=5,
    long_checkpoints=5,
    long_events=60,
    questioned=50,
    page_checkpoints=20,
    page_events=200,
    page_transcript=50_000,
    many_files=20,
    big_file=1 << 16,
    awaits_heartbeats=False,
    has_all_peers=True,
)
"""For the test that every benchmark still works; its figures mean nothing."""
