"""Inputs of a map: how they are named, recognised and compared."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hankweave_server.errors import ExitCode, Stop
from hankweave_server.features.map.inputs import (
    free_name,
    hank_hash,
    inputs_of,
    rows_of,
    variables_of,
)
from hankweave_server.features.map.plan import Item


def rows(folder: Path, *lines: str) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_files_and_folders_are_inputs(tmp_path: Path) -> None:
    """Their names are those of the last step of the path."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "folder").mkdir()
    found = list(inputs_of([tmp_path / "a.txt", tmp_path / "folder"]))
    assert [(each.label, each.kind) for each in found] == [("a.txt", "file"), ("folder", "folder")]


def test_an_input_that_is_missing_or_special_is_refused(tmp_path: Path) -> None:
    """The message names its path."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("gone", "pipe"):
        with pytest.raises(Stop, match=name) as stopped:
            list(inputs_of([tmp_path / name]))

        assert stopped.value.exit_code == ExitCode.NO_INPUT


def test_a_row_is_identified_by_its_id_or_by_its_content(tmp_path: Path) -> None:
    """Rows with an id keep their identity when they change, others when rows come before them."""
    first = rows(tmp_path, '{"id": "oslo", "n": 1}', '{"n": 2}')
    before = [each.key for each in rows_of(first)]
    again = rows(tmp_path, '{"n": 3}', '{"id": "oslo", "n": 9}', '{ "n":  2 }')
    after = [each.key for each in rows_of(again)]
    assert set(before) < set(after)


def test_equal_rows_without_an_id_are_different_inputs(tmp_path: Path) -> None:
    """Each is run."""
    keys = [each.key for each in rows_of(rows(tmp_path, '{"n": 2}', "", '{"n": 2}'))]
    assert len(set(keys)) == 2


@pytest.mark.parametrize(
    ("lines", "field", "place", "words"),
    [
        (['{"id": 1}', "{"], None, ":2:", "not JSON"),
        (['{"id": 1}', '{"id": 1}'], None, ":2:", "same id"),
        (['{"a": 1}'], "city", ":1:", "'city'"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_its_line(
    tmp_path: Path, lines: list[str], field: str | None, place: str, words: str
) -> None:
    """The hint says what helps."""
    with pytest.raises(Stop) as stopped:
        list(rows_of(rows(tmp_path, *lines), field))

    assert f"rows.jsonl{place}" in stopped.value.message
    assert words in stopped.value.message
    assert stopped.value.hint


@pytest.mark.parametrize(
    ("label", "taken", "name"),
    [
        ("report.pdf", (), "report.pdf"),
        ("report.pdf", ("report.pdf",), "report.pdf-2"),
        ("REPORT.pdf", ("report.pdf", "report.pdf-2"), "REPORT.pdf-3"),
        ("../../etc/passwd", (), "etc-passwd"),
        (".hidden", (), "hidden"),
        ("Größe/~2", (), "Gr-e-2"),
        ("...", (), "item"),
        ("x" * 300, (), "x" * 80),
    ],
)
def test_a_name_is_a_free_and_harmless_part_of_a_path(
    label: str, taken: tuple[str, ...], name: str
) -> None:
    """It cannot lead out of its folder, nor collide where case does not count."""
    assert free_name(label, set(taken)) == name


def test_a_hank_hash_covers_all_files_that_the_hank_names(tmp_path: Path) -> None:
    """Through the configurations of sentinels as well; other files do not count."""
    sentinel = {"id": "s", "systemPromptFile": "prompts/system.md"}
    hank = {"hank": [{"promptFile": "prompts/a.md", "sentinels": [{"sentinelConfig": "s.json"}]}]}
    (tmp_path / "prompts").mkdir()
    for name, text in {
        "hank.json": json.dumps(hank),
        "s.json": json.dumps(sentinel),
        "prompts/a.md": "a",
        "prompts/system.md": "be nice",
        "notes.md": "mine",
    }.items():
        (tmp_path / name).write_text(text)

    before = hank_hash(tmp_path / "hank.json")
    (tmp_path / "notes.md").write_text("changed")
    assert hank_hash(tmp_path / "hank.json") == before
    (tmp_path / "prompts" / "system.md").write_text("be strict")
    assert hank_hash(tmp_path / "hank.json") != before


def test_the_fields_of_a_row_are_variables(tmp_path: Path) -> None:
    """Lists and objects are JSON; a field whose name no variable can have is left out."""
    path = tmp_path / "row.json"
    path.write_text(json.dumps({"city": "Oslo", "n": 3, "tags": ["x"], "a b": 1, "none": None}))
    found = variables_of(Item("oslo", "k", "row", str(path)))
    assert found == {
        "city": "Oslo",
        "n": "3",
        "tags": '["x"]',
        "none": "",
        "map.item": "oslo",
        "map.input": "read_only_data_source/row.json",
    }


def test_the_input_of_a_folder_is_the_data_itself(tmp_path: Path) -> None:
    """A file is in a folder of its own, as with `hankweave run`."""
    folder = variables_of(Item("a", "k", "folder", str(tmp_path)))
    file = variables_of(Item("a", "k", "file", str(tmp_path / "a.txt")))
    assert folder["map.input"] == "read_only_data_source"
    assert file["map.input"] == "read_only_data_source/a.txt"


def csv_file(folder: Path, text: str) -> Path:
    path = folder / "rows.csv"
    path.write_bytes(text.encode())
    return path


def test_rows_of_a_csv_file_have_the_names_of_its_columns(tmp_path: Path) -> None:
    """With quotes and line breaks as in any CSV file, and a mark of the byte order or not."""
    path = csv_file(tmp_path, '\ufeffid,city\r\noslo,"Oslo, \nNorway"\r\n\r\nrom,Rome\r\n')
    found = list(rows_of(path))
    assert [each.label for each in found] == ["oslo", "rom"]
    assert json.loads(found[0].row or b"") == {"id": "oslo", "city": "Oslo, \nNorway"}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("id,id\n1,2\n", ":1:", "same name"),
        ("id,\n1,2\n", ":1:", "has none"),
        ("id,city\n1\n", ":2:", "1 fields"),
        ('id,city\n1,"x\n', ":2:", "not CSV"),
    ],
)
def test_a_csv_row_that_cannot_be_used_is_named_by_its_line(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    """The hint says what helps."""
    with pytest.raises(Stop) as stopped:
        list(rows_of(csv_file(tmp_path, text)))

    assert f"rows.csv{place}" in stopped.value.message
    assert words in stopped.value.message
    assert stopped.value.hint


def test_half_of_a_character_is_refused(tmp_path: Path) -> None:
    """No file and no variable can hold it."""
    with pytest.raises(Stop, match="half of a character"):
        list(rows_of(rows(tmp_path, '{"id": 1, "text": "\\ud83d"}')))
