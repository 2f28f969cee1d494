"""Claims about the short ids of executions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_server.errors import Stop
from hankweave_server.local import targeting
from hankweave_server.local.short_ids import LONGEST, named, short_ids

BASE = Path("/home/ann/.hankweave-executions")
ORDERS = BASE / "1795233600000-k3f9-a1b2c3"
QUAKES = BASE / "1795233600001-b81c-nodata"
ASIDE = Path("/srv/invoices/execution")
SAME = Path("/srv/orders/execution")
LONG = Path("/srv/the-invoices-of-all-last-years")
EVERY = (ORDERS, QUAKES, ASIDE, SAME, LONG)


def test_each_execution_has_a_short_id_that_means_it_alone() -> None:
    ids = short_ids(EVERY)
    assert (ids[ORDERS], ids[QUAKES]) == ("k3f9", "b81c")
    assert len(set(ids.values())) == len(EVERY)
    assert max(map(len, ids.values())) <= LONGEST
    for path, name in ids.items():
        assert named(name, EVERY) == [path]


def test_a_beginning_and_the_name_of_the_directory_are_understood() -> None:
    assert named("k3", EVERY) == [ORDERS]
    assert named(ORDERS.name, EVERY) == [ORDERS]
    assert named("the-inv", EVERY) == [LONG]
    assert sorted(named("execution", EVERY)) == [ASIDE, SAME]
    assert named("none", EVERY) == []


def test_a_path_comes_first_and_an_ambiguous_id_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal lists the paths that it may be; what is no id is a path that does not exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(targeting, "all_executions", lambda _root: list(EVERY))
    assert targeting.named(Path("k3f9")) == ORDERS
    assert targeting.named(Path("./none")) == tmp_path / "none"
    with pytest.raises(Stop, match="2 executions have an id that begins with execution") as stop:
        targeting.named(Path("execution"))

    assert str(ASIDE) in (stop.value.hint or "")
    (tmp_path / "k3f9").mkdir()
    assert targeting.named(Path("k3f9")) == tmp_path / "k3f9"
