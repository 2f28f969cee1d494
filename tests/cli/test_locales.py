"""Claims about locales: names of files are UTF-8 whatever the locale says."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import hankweave
from support.scripted_hank import codon, write_hank, writes

NAME = "d\u00e4ta/\u65e5\u672c.txt"
LOCALES = {
    "C, no UTF-8 mode": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "POSIX, no UTF-8 mode": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "C": {"LC_ALL": "C"},
}


@pytest.mark.parametrize("locale", LOCALES.values(), ids=LOCALES)
def test_a_name_that_is_not_ascii_is_rolled_back_in_any_locale(
    tmp_path: Path, locale: dict[str, str]
) -> None:
    """It is checkpointed, edited by a person, rolled back, undone and printed as what it is."""
    execution = tmp_path / "ex\u00e9cution"
    hank = write_hank(tmp_path, codon("one", writes(NAME, "1")), codon("two", writes(NAME, "2")))
    hankweave("run", str(hank), "-e", str(execution), "--headless", code=0, **locale)
    file = execution / "agentRoot" / NAME
    file.write_text("by a person")

    hankweave("rollback", "--codon", "one", "-e", str(execution), "--yes", code=0, **locale)
    assert file.read_text() == "1"
    shown = hankweave("events", "-e", str(execution), "--json", code=0, **locale).stdout
    assert NAME in shown

    hankweave("undo", "-e", str(execution), "--yes", code=0, **locale)
    assert file.read_text() == "by a person"
