"""What one sentinel has done in one codon, as state.json will have it (seed 002)."""

from __future__ import annotations

from dataclasses import dataclass

from hankweave_protocol.state import SentinelState


@dataclass(slots=True)
class Tally:
    """Counts; costs in USD, moments as text."""

    id: str
    model: str
    loaded_at: str
    calls: int = 0
    failed_calls: int = 0
    triggers: int = 0
    dropped: int = 0
    cost: float = 0.0
    last_call_at: str | None = None
    unloaded_at: str | None = None
    unload_reason: str | None = None

    @property
    def state(self) -> SentinelState:
        return SentinelState(
            id=self.id,
            model=self.model,
            loaded_at=self.loaded_at,
            llm_call_count=self.calls,
            failed_llm_calls=self.failed_calls,
            total_triggers=self.triggers,
            total_cost=self.cost,
            status="active" if self.unloaded_at is None else "unloaded",
            unloaded_at=self.unloaded_at,
            last_llm_call_at=self.last_call_at,
            unload_reason=self.unload_reason,
            dropped_triggers=self.dropped,
        )
