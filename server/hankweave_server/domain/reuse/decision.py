"""Whether a codon may take over an earlier result, and which results there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hankweave_protocol.hank import Codon, Confinement, Overrides, RigCommand
from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon, ReusedResult, State
from hankweave_server.domain.effects.commands import programs_in

TAKING_OVER = "before taking over "
"""The beginning of the label of the checkpoint before a takeover; the sha of its source follows."""


@dataclass(frozen=True, slots=True)
class ReuseSettings:
    """Whether codons take over earlier results, as this start of the server says."""

    chosen: bool | None = None
    """What the command line or the environment says; None: the hank decides."""
    default: bool = False
    """If the hank does not say either."""


HANK_DECIDES = ReuseSettings()


def is_wanted(
    codon_id: CodonId,
    codon: Codon,
    overrides: Overrides | None,
    settings: ReuseSettings,
    reuse_after: CodonId | None,
) -> bool:
    """Return whether a codon is to take over an earlier result.

    `reuse_after` is that of its run: the codon that is run again, for the sake of a change.
    A codon that refuses reuse itself is never reused: it may do more than write files.
    """
    if codon.reuse is False or codon_id == reuse_after:
        return False

    if reuse_after is not None:
        return True

    if settings.chosen is not None:
        return settings.chosen

    of_hank = None if overrides is None else overrides.reuse
    return next((each for each in (codon.reuse, of_hank) if each is not None), settings.default)


_LOCAL = frozenset(
    (
        *("[", "basename", "cat", "cd", "chmod", "cmp", "cp", "cut", "diff", "dirname", "echo"),
        *("exit", "export", "false", "grep", "gunzip", "gzip", "head", "jq", "ln", "ls", "mkdir"),
        *("mv", "popd", "printf", "pushd", "pwd", "rm", "rmdir", "sed", "set", "sleep"),
        *("sort", "stat", "tail", "tar", "tee", "test", "touch", "tr", "true", "uniq", "unzip"),
        *("wc", "xz", "zip", "for", "done", "fi", "}"),
    )
)
"""Programs and shell commands that read no network, whatever their arguments."""


def obstacle(codon: Codon, wished: Confinement, *, is_enforced: bool) -> str | None:
    """Return why no result of a codon may be taken over, as a clause; None if nothing prevents it.

    `wished` is the confinement that the hank sets for it; `is_enforced` is whether this machine
    keeps commands from ports that it does not list.
    """
    if codon.sentinels:
        return "it has sentinels, which watch an agent at work"

    if wished.extra_read or wished.extra_write:
        return "its confinement opens files outside the work tree"

    if wished.profile == "none":
        return "its hank lets it reach everything"

    if wished.connect == () and is_enforced:
        return None

    for item in codon.rig_setup:
        if isinstance(item, RigCommand):
            strange = next((p for p in programs_in(item.command.run) if p not in _LOCAL), None)
            if strange is not None:
                return (
                    f"its rig runs {strange!r}, which may read the network "
                    '("confinement": {"connect": []} keeps it from doing so)'
                )

    return None


def is_offered(codon: CompletedCodon) -> bool:
    """Return whether a completed codon was neither cut short nor held up."""
    return (
        codon.exit_code == 0
        and codon.result_message_received
        and not codon.context_exceeded
        and codon.budget_exceeded is None
        and not codon.waited_ms
        and not codon.warnings
    )


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """A completed codon whose inputs were the same."""

    codon: CompletedCodon
    reused: ReusedResult


def candidates(state: State, key: str) -> Iterator[EarlierResult]:
    """Yield the completed codons of all timelines with this key, the newest first.

    A result that was taken over itself counts too: it has a checkpoint of its own.
    """
    for run in state.runs:
        for codon in reversed(run.codons):
            if isinstance(codon, CompletedCodon) and codon.reuse_key == key:
                sha = codon.completion_checkpoint
                reused = ReusedResult(
                    run_id=run.run_id, codon_id=codon.codon_id, checkpoint_sha=sha
                )
                yield EarlierResult(codon, reused)
