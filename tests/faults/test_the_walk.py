"""The walk's model notices what was lost, and its scripts can be run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.walk.acts import Back, Edit, Map, Step, draw, parsed, script
from support.walk.model import Model, Restored
from support.walk.shrink import shrunk

WALKS = Path(__file__).with_name("walks")
NOWHERE: frozenset[tuple[str, bytes]] = frozenset()


def written() -> Model:
    """Return a model in which a person wrote a.txt, and the agent b.txt in an unfinished step."""
    model = Model()
    model.step_begins()
    model.person("a.txt", None, b"person's", "an edit")
    model.agent("b.txt", b"agent's")
    return model


ASKED = Restored({"a.txt": b"old", "b.txt": b"old"}, is_asked=True)
AUTOMATIC = replace(ASKED, is_asked=False)


def test_an_automatic_act_may_take_back_what_the_agent_wrote_and_nothing_else() -> None:
    model = written()
    model.restored(AUTOMATIC)
    assert model.violations({"a.txt": b"person's", "b.txt": b"old"}, NOWHERE) == []

    model = written()
    model.restored(AUTOMATIC)
    found = model.violations({"a.txt": b"old", "b.txt": b"old"}, {("a.txt", b"person's")})
    assert found == ["a.txt is 'old', not \"person's\" (last written by person)"]


def test_what_a_person_wrote_has_to_be_somewhere() -> None:
    """A rollback that was asked for takes it from the disk; then a checkpoint has to hold it."""
    for saved, number in (({("a.txt", b"person's")}, 0), (NOWHERE, 1)):
        model = written()
        model.restored(ASKED)
        found = model.violations({"a.txt": b"old", "b.txt": b"old"}, saved)
        assert [each.endswith("neither on disk nor in a checkpoint") for each in found] == [
            True
        ] * number


def test_what_the_person_or_the_agent_has_overwritten_is_not_missed() -> None:
    model = written()
    model.person("a.txt", b"person's", b"newer", "an edit")
    model.agent("a.txt", b"agent's")
    assert model.violations({"a.txt": b"agent's", "b.txt": b"agent's"}, NOWHERE) == []


def test_what_the_agent_moves_is_what_was_there() -> None:
    """After a restore it may be one of several contents, or none."""
    for contents, moved in (
        ({b"x"}, {b"x"}),
        ({b"x", b"y"}, {b"x", b"y"}),
        ({b"x", None}, {b"x", b"agent's"}),
        ({None}, {b"agent's"}),
    ):
        model = written()
        model.may_be["c.txt"] = contents
        model.agent_moves("c.txt", "b.txt")
        assert model.may_be["c.txt"] == {None}
        assert model.may_be["b.txt"] == moved


def test_a_file_changes_only_where_a_report_says_so() -> None:
    """Without a report, outside of its paths, and where it says that it kept a file, none may."""
    for report in (
        None,
        replace(ASKED, paths=frozenset({"d"})),
        replace(ASKED, named=frozenset({"a.txt", "b.txt"})),
    ):
        model = written()
        if report is not None:
            model.restored(report)

        found = model.violations({"a.txt": b"person's", "b.txt": b"old"}, NOWHERE)
        assert found == ["b.txt is 'old', not \"agent's\" (last written by agent)"]


def test_a_seed_draws_a_walk_and_its_script_repeats_it() -> None:
    """A longer walk begins with the shorter one."""
    assert parsed(script(draw(7, 20))) == draw(7, 20)
    assert draw(7, 20)[:5] == draw(7, 5) != draw(8, 5)
    assert draw(4, 20)[:5] == draw(4, 5)


async def test_a_script_is_made_smaller_as_long_as_it_goes_wrong() -> None:
    edits = tuple(Edit("a.txt", str(number)) for number in range(8))
    step = Step((), meanwhile=(*edits, Map("x"), Edit("b.txt", "x")))

    async def goes_wrong(rounds: object) -> bool:
        return "Map" in str(rounds) and "Back" in str(rounds)

    small = await shrunk([edits, (step, Back(1, undone=True)), edits], goes_wrong, tries=100)
    assert small == [(Step((), meanwhile=(Map("x"),)),), (Back(1),)]


@pytest.mark.parametrize("path", sorted(WALKS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_kept_script_says_what_it_is_about_and_can_be_walked(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# ")
    assert parsed(text)
    assert parsed(script(parsed(text))) == parsed(text)
