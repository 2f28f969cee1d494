"""Claims about `hankweave --help` and `help`."""

from __future__ import annotations

from click.testing import CliRunner

from hankweave_server.cli.app import GROUPS, OLD_NAMES, PLACES, SUMMARIES, cli


def printed(*words: str) -> str:
    done = CliRunner().invoke(cli, words, prog_name="hankweave")
    assert done.exit_code == 0, done.output
    return done.output


def test_the_help_shows_six_groups_on_one_screen() -> None:
    """At most 36 commands, no line is longer than 80 columns, and old names are not among them."""
    shown = [name for names in GROUPS.values() for name in names]
    assert len(GROUPS) == 6
    assert len(shown) == len(set(shown)) <= 36
    assert set(shown) <= PLACES.keys() - OLD_NAMES.keys()
    lines = printed("--help").splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:8]] == [name.split()[0] for name in GROUPS]
    assert printed("help") == printed("-h") == printed("--help")


def test_all_commands_are_listed_once_and_old_names_say_what_has_taken_their_place() -> None:
    listed = printed("help", "--all").splitlines()
    starts = [line.split()[0] for line in listed if line.startswith("  ")]
    for name in SUMMARIES:
        assert starts.count(name) == 1, name

    for old, new in OLD_NAMES.items():
        assert any(
            line.split()[0] == old and f"`hankweave {new}`" in line for line in listed if line
        )


def test_help_of_a_command_is_what_it_prints_itself() -> None:
    assert printed("help", "rollback") == printed("rollback", "--help")
    assert "There is no command 'nothing'" in CliRunner().invoke(cli, ["help", "nothing"]).output
