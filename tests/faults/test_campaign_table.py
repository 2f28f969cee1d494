"""The table of the campaigns counts what was done, and cannot show 0 if there is a violation."""

from __future__ import annotations

import json

from support.tally import Tally


def test_the_table_ends_with_the_violations() -> None:
    """The table has a row for each campaign, their sum, each violation, and the violation count."""
    tally = Tally()
    tally.add("cuts", rounds=3, of="cuts", acknowledged=40)
    tally.add("cuts", of="cuts", acknowledged=2, violations=["Cut 4: lost."])
    tally.skip("mounts", "nothing mounts")
    lines = [line.split() for line in tally.table()]
    assert lines[1] == ["cuts", "4", "cuts", "42", "1"]
    assert lines[2] == ["mounts", "0", "rounds", "0", "0", "nothing", "mounts"]
    assert lines[3:] == [["all", "4", "42", "1"], ["Cut", "4:", "lost."], ["violations:", "1"]]
    assert json.loads(tally.as_json())["violations"] == 1
