"""The files that a hank names, for those who take it elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hankweave_server.hank.load import load
from hankweave_server.hank.references import references_in

EXAMPLE = Path(__file__).parents[3] / "examples" / "earthquakes" / "hank.json"


def test_the_files_that_a_hank_names_are_all_that_it_needs(tmp_path: Path) -> None:
    """The example loads from a copy of them: prompts, programs, sentinels and their prompts."""
    shutil.copy(EXAMPLE, tmp_path)
    for reference, path in references_in(EXAMPLE):
        copy = tmp_path / reference
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, copy, dirs_exist_ok=True)
        else:
            shutil.copy(path, copy)

    assert load(tmp_path / "hank.json").hank_hash == load(EXAMPLE).hank_hash


def test_a_file_names_others_from_its_own_folder_or_that_of_the_hank(tmp_path: Path) -> None:
    """Each is given as from the folder of the hank, and once."""
    (tmp_path / "sentinels" / "texts").mkdir(parents=True)
    hank, sentinel = tmp_path / "hank.json", tmp_path / "sentinels" / "one.json"
    hank.write_text(json.dumps({"sentinelConfig": "sentinels/one.json"}))
    sentinel.write_text(json.dumps({"a": "texts/a.md", "b": "b.md", "c": "../../outside.md"}))
    for name in ("sentinels/texts/a.md", "b.md"):
        (tmp_path / name).write_text("x")

    assert dict(references_in(hank)) == {
        "sentinels/one.json": sentinel,
        "sentinels/texts/a.md": tmp_path / "sentinels" / "texts" / "a.md",
        "b.md": tmp_path / "b.md",
    }
