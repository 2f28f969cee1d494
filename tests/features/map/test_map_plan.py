"""The fold of a map's journal, and what runs next within the budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.executions import MapProgress
from hankweave_server.features.map.plan import (
    Item,
    ItemAdded,
    ItemEnded,
    ItemOutcome,
    ItemStarted,
    MapBegun,
    MapRecord,
    Start,
    WantedItem,
    figures,
    fold,
    free_of,
    is_due,
    next_start,
    outcome_of,
    runs_again,
    typical_cost,
)

AT = "2026-01-01T00:00:00.000Z"
HANK = "hank-1"


def added(name: str) -> ItemAdded:
    return ItemAdded(at=AT, item=name, key=f"/in/{name}", kind="file", path=f"/in/{name}")


def started(name: str, **fields: Any) -> ItemStarted:
    given = {"execution": f"items/{name}", "input_hash": "1", "hank_hash": HANK} | fields
    return ItemStarted(at=AT, item=name, **given)


def ended(name: str, outcome: ItemOutcome, cost: float = 0.0, **fields: Any) -> ItemEnded:
    return ItemEnded(at=AT, item=name, outcome=outcome, cost=cost, **fields)


def item_after(*records: MapRecord) -> Item:
    return fold([added("a"), *records]).items["a"]


def begun(*names: str) -> MapBegun:
    return MapBegun(at=AT, hank="/h", hank_hash=HANK, items=names, parallel=2)


@pytest.mark.parametrize(
    ("records", "input_hash", "retries", "due"),
    [
        ((), "1", False, True),
        ((started("a"),), "1", False, True),
        ((started("a"), ended("a", "completed")), "1", False, False),
        ((started("a"), ended("a", "completed")), "2", False, True),
        ((started("a", hank_hash="old"), ended("a", "completed")), "1", False, True),
        ((started("a"), ended("a", "failed")), "1", False, False),
        ((started("a"), ended("a", "failed")), "1", True, True),
        ((started("a"), ended("a", "failed")), "2", False, True),
        ((started("a"), ended("a", "failed", is_cut=True)), "1", False, True),
        ((started("a"), ended("a", "stopped")), "1", False, True),
        ((started("a"), ended("a", "crashed")), "1", False, True),
    ],
)
def test_an_item_is_due_unless_it_is_finished_with_this_hank_and_input(
    records: tuple[MapRecord, ...], input_hash: str, retries: bool, due: bool
) -> None:
    """A failed one is finished, unless it is to be retried or only lacked money."""
    item = item_after(*records)
    assert is_due(item, WantedItem("a", input_hash), HANK, retry_failed=retries) is due


def start_of(item: Item, input_hash: str = "1") -> Start:
    queue = [(item, WantedItem("a", input_hash))]
    start = next_start(queue, HANK, slots=1, free=None, typical=0.0)
    assert start is not None
    return start


def test_a_stopped_item_goes_on_in_its_execution() -> None:
    """A failed one as well, with the codon that failed."""
    assert start_of(item_after(started("a"), ended("a", "stopped"))).execution == "items/a"
    failed = start_of(item_after(started("a"), ended("a", "failed", codon="review")))
    assert (failed.execution, failed.codon) == ("items/a", "review")


def test_a_changed_item_begins_a_fresh_execution() -> None:
    """The execution of the former input stays as it is."""
    item = item_after(started("a"), ended("a", "failed", codon="review"))
    changed = start_of(item, "2")
    assert (changed.execution, changed.codon) == ("items/a~2", None)


def test_the_costs_of_all_executions_of_an_item_add_up() -> None:
    """A retry reports what its execution has cost in all, so only its newest report counts."""
    item = item_after(
        started("a"),
        ended("a", "failed", 1.0),
        started("a", prior=1.0, reserved=2.0),
        ended("a", "completed", 1.5),
        started("a", execution="items/a~2"),
        ended("a", "completed", 0.25),
    )
    assert item.spent == 1.75


def test_an_item_that_runs_counts_with_its_reservation() -> None:
    """Its cost from before is not counted twice."""
    item = item_after(
        started("a"), ended("a", "failed", 1.0), started("a", prior=1.0, reserved=2.0)
    )
    assert item.committed == 3.0
    assert free_of(10.0, [item]) == 7.0


def test_a_lost_server_is_restarted_a_few_times() -> None:
    """The next command gives the item another chance."""
    crash = (started("a"), ended("a", "crashed"))
    item = item_after(*crash, *crash)
    assert runs_again(item)
    assert item.crashes == 2
    assert item_after(*crash, *crash, begun("a")).crashes == 0


def queue_of(count: int) -> list[tuple[Item, WantedItem]]:
    items = fold([added(f"i{number}") for number in range(count)]).items.values()
    return [(item, WantedItem(item.name, "1")) for item in items]


@pytest.mark.parametrize(
    ("items", "typical", "reserved"),
    [(8, 0.0, 2.0), (1, 1.0, 8.0), (8, 3.0, 6.0)],
    ids=["an equal share at first", "all that is left for the last", "twice the typical cost"],
)
def test_an_item_has_its_share_of_the_budget(items: int, typical: float, reserved: float) -> None:
    """A share is more than an equal one if that is too little, or if fewer items are left."""
    start = next_start(queue_of(items), HANK, slots=4, free=8.0, typical=typical)
    assert start.reserved == reserved


def test_nothing_is_started_for_less_than_an_item_costs() -> None:
    """It would not be finished, and its costs would be lost."""
    assert next_start(queue_of(2), HANK, slots=2, free=2.9, typical=3.0) is None
    assert next_start(queue_of(2), HANK, slots=2, free=0.0, typical=0.0) is None
    assert next_start(queue_of(2), HANK, slots=0, free=9.0, typical=0.0) is None


def test_an_item_that_needed_more_waits_until_there_is_more() -> None:
    """Others that need less are started meanwhile."""
    cut = item_after(started("a", reserved=4.0), ended("a", "failed", 4.0, is_cut=True))
    cheap = queue_of(1)
    queue = [(cut, WantedItem("a", "1")), *cheap]
    start = next_start(queue, HANK, slots=2, free=5.0, typical=1.0)
    assert start.item == cheap[0][0]
    start = next_start(queue, HANK, slots=2, free=6.0, typical=1.0)
    assert (start.item, start.reserved) == (cut, 6.0)


@given(
    budget=st.floats(0.5, 50),
    parallel=st.integers(1, 6),
    wishes=st.lists(st.floats(0, 4), min_size=1, max_size=30),
    overshoot=st.floats(0, 0.5),
    order=st.randoms(use_true_random=False),
)
def test_a_budget_is_exceeded_at_most_by_the_last_messages_of_what_runs(
    budget: float, parallel: int, wishes: Sequence[float], overshoot: float, order: Any
) -> None:
    """Whatever items cost and in whatever order they end, and the work comes to an end.

    Each item costs what it wishes, but stops when its reservation is used up, at most an overshoot
    beyond it.
    """
    state = fold([added(f"i{number}") for number in range(len(wishes))])
    wish = {f"i{number}": cost for number, cost in enumerate(wishes)}
    queue, running = list(state.items), list[str]()
    for _ in range(50 * len(wishes)):
        items = list(state.items.values())
        start = next_start(
            [(state.items[name], WantedItem(name, "1")) for name in queue],
            HANK,
            slots=parallel - len(running),
            free=free_of(budget, items),
            typical=typical_cost(items),
        )
        if start is not None:
            name = start.item.name
            queue.remove(name)
            running.append(name)
            record = started(
                name,
                execution=start.execution,
                prior=start.item.spent,
                reserved=start.reserved,
            )
            state = fold([record], state)
        elif running:
            name = running.pop(order.randrange(len(running)))
            item = state.items[name]
            assert item.started.reserved is not None
            limit = item.started.prior + item.started.reserved
            is_cut = wish[name] >= limit
            cost = min(limit + overshoot, max(wish[name], item.started.prior))
            outcome: ItemOutcome = "failed" if is_cut else "completed"
            state = fold([ended(name, outcome, cost, is_cut=is_cut)], state)
            queue += [name] * is_cut
        else:
            break

        spent = sum(item.spent for item in state.items.values())
        assert spent <= budget + overshoot * parallel + 1e-6
        assert len(running) <= parallel

    assert not running
    committed = sum(item.committed for item in state.items.values())
    assert committed == pytest.approx(sum(item.spent for item in state.items.values()))


def test_figures_count_what_is_finished_and_estimate_the_rest() -> None:
    """Three of five are left, one of them half done, two at a time, ten seconds each."""
    records = [added(name) for name in "abcde"]
    work = [started("a"), ended("a", "completed", 0.5), started("b"), ended("b", "failed", 0.25)]
    state = fold([*records, *work, started("c")])
    counted = figures(list(state.items.values()), parallel=2, durations=[8.0, 12.0])
    assert counted.progress == MapProgress(inputs=5, completed=1, failed=1, running=1)
    assert counted.cost == 0.75
    assert counted.seconds_left == 12.5


@pytest.mark.parametrize(
    ("interrupted", "exhausted", "outcome"),
    [(False, False, "failed"), (True, False, "interrupted"), (False, True, "budget")],
)
def test_the_outcome_says_why_items_are_left(
    interrupted: bool, exhausted: bool, outcome: str
) -> None:
    """If none is left, there is nothing to say, whatever has happened meanwhile."""
    state = fold([added("a"), added("b"), started("a"), ended("a", "completed")])
    some = figures(list(state.items.values()), parallel=1, durations=())
    assert outcome_of(some, interrupted=interrupted, is_exhausted=exhausted) == outcome
    every = figures([state.items["a"]], parallel=1, durations=())
    assert outcome_of(every, interrupted=interrupted, is_exhausted=exhausted) == "completed"
