"""Claims about a run of the example, checked with the raw text and the jsonschema library."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pathspec
import pytest
from jsonschema import Draft202012Validator

from support.example_run import DATA_FILE, SCHEMA, Execution, Step, data_rows, plan

Row = dict[str, Any]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    """The six steps of one whole run."""
    return Execution.create(tmp_path_factory.mktemp("execution")).run_all()


@pytest.fixture(scope="module")
def generated(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the package as the last review left it, imported."""
    return _imported(steps[-1], tmp_path_factory.mktemp("package"))


def test_the_profile_counts_what_the_raw_text_holds(steps: list[Step]) -> None:
    """Rows and nulls in the profile equal a count made on the text of the file, without parsing."""
    text = DATA_FILE.read_text(encoding="utf-8")
    profile = steps[0].json("notes/profile.json")
    nulls = {
        pointer: field["types"].get("null", 0)
        for pointer, field in profile["fields"].items()
        if pointer.startswith("/properties/")
    }

    assert profile["rows"] == text.count('{"type":"Feature",') == 1707
    assert profile["bytes"] == DATA_FILE.stat().st_size
    assert sum(nulls.values()) == text.count(":null")
    for pointer, count in nulls.items():
        assert text.count(f'"{pointer.rpartition("/")[2]}":null') == count


def test_types_and_missing_values_add_up_to_the_rows(steps: list[Step]) -> None:
    """For every field, present and missing make all rows, and the types make the present ones."""
    profile = steps[0].json("notes/profile.json")

    for field in profile["fields"].values():
        assert field["present"] + field["missing"] == profile["rows"]
        assert sum(field["types"].values()) == field["present"]


def test_the_schema_is_valid_and_holds_for_the_rows_it_was_drawn_from(steps: list[Step]) -> None:
    """The inferred document is a draft 2020-12 schema that accepts the first 200 rows."""
    schema = steps[1].json(SCHEMA)

    Draft202012Validator.check_schema(schema)
    assert _failing(schema, data_rows()[:200]) == []


def test_the_first_review_finds_exactly_the_rows_that_break_the_schema(steps: list[Step]) -> None:
    """Iteration 0 reports as many failing rows as another validator finds with the same schema."""
    report = steps[3].json("reports/review-0.json")
    expected = _failing(steps[1].json(SCHEMA), data_rows())

    assert report["rows"] == 1707
    assert report["failures"] == len(expected) > 0
    assert {finding["rule"] for finding in report["findings"]} >= {"type", "enum", "maximum"}
    for finding in report["findings"]:
        assert finding["mended"]
        assert {example["row"] for example in finding["examples"]} <= {*expected}


def test_the_second_review_is_clean_over_all_rows(steps: list[Step]) -> None:
    """Iteration 1 reports no failure in all rows, and another validator agrees."""
    report = steps[4].json("reports/review-1.json")

    assert report == {"iteration": 1, "rows": 1707, "failures": 0, "findings": []}
    assert _failing(steps[4].json(SCHEMA), data_rows()) == []


def test_a_clean_review_leaves_schema_and_code_alone(steps: list[Step]) -> None:
    """The only file that differs after iteration 1 is its report."""
    before, after = steps[3].files, steps[4].files

    assert {path for path in after if before.get(path) != after[path]} == {"reports/review-1.json"}


def test_the_generated_code_compiles_and_reads_a_row_as_typed_values(
    steps: list[Step], generated: Any
) -> None:
    """All generated files compile, and a parsed row has the row's values under typed names."""
    for path, content in steps[-1].files.items():
        if path.startswith("src/"):
            compile(content, path, "exec")

    row = data_rows()[0]
    event = generated.parse(row)
    assert event.properties.mag_type == row["properties"]["magType"]
    assert event.geometry.coordinates == tuple(row["geometry"]["coordinates"])
    assert type(event).__annotations__["id"] == "str"


def test_the_generated_code_rejects_a_broken_row_with_every_problem(generated: Any) -> None:
    """A row that is wrong in three places is refused with three problems, each with its place."""
    row = copy.deepcopy(data_rows()[0])
    row["properties"]["mag"] = "strong"
    row["geometry"]["coordinates"][2] = 6371
    del row["id"]

    with pytest.raises(generated.Invalid) as caught:
        generated.parse(row)

    problems = [(problem.pointer, problem.rule) for problem in caught.value.problems]
    assert sorted(problems) == [
        ("/geometry/coordinates/2", "maximum"),
        ("/id", "required"),
        ("/properties/mag", "type"),
    ]


def _set(*path: str | int, value: object) -> Callable[[Row], None]:
    def change(row: Row) -> None:
        target: Any = row
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_set("properties", "felt", value=2.0), id="a whole number with a fraction"),
        pytest.param(_set("properties", "felt", value=2.5), id="a fraction for a whole number"),
        pytest.param(_set("properties", "sig", value=True), id="a boolean for a number"),
        pytest.param(_set("properties", "sig", value=None), id="a null where none is allowed"),
        pytest.param(_set("properties", "alert", value="mauve"), id="an unknown word"),
        pytest.param(_set("properties", "alert", value=7), id="a number for a word"),
        pytest.param(_set("properties", "mag", value=-99), id="below the minimum"),
        pytest.param(_set("properties", "depth", value=1), id="an unknown field"),
        pytest.param(_set("properties", value=[]), id="an array for an object"),
        pytest.param(_set("geometry", value=None), id="a null for an object"),
        pytest.param(_set("geometry", "coordinates", value="here"), id="text for an array"),
        pytest.param(_set("geometry", "coordinates", value=[1, 2]), id="too short an array"),
        pytest.param(_set("geometry", "coordinates", value=[1, 2, 3, 4]), id="too long an array"),
        pytest.param(lambda row: row.pop("geometry"), id="a missing object"),
    ],
)
def test_the_generated_code_judges_as_the_schema_does(
    change: Callable[[Row], None], steps: list[Step], generated: Any
) -> None:
    """For each kind of mistake the code names the same broken rules as a JSON Schema validator."""
    row = copy.deepcopy(data_rows()[0])
    change(row)

    expected = Draft202012Validator(steps[-1].json(SCHEMA)).iter_errors(row)
    assert sorted(problem.rule for problem in generated.problems_of(row)) == sorted(
        error.validator for error in expected
    )


def test_tracked_files_cover_everything_each_codon_leaves(steps: list[Step]) -> None:
    """After each codon, all files of the work tree match the patterns accumulated so far."""
    patterns: list[str] = []
    for codon, step in zip(plan(), steps, strict=True):
        patterns += codon.get("trackedFiles", [])
        tracked = pathspec.GitIgnoreSpec.from_lines(patterns)
        assert [path for path in step.files if not tracked.match_file(path)] == []


def test_the_same_run_leaves_the_same_bytes(steps: list[Step], tmp_path: Path) -> None:
    """A second run over the same data ends with identical files."""
    assert Execution.create(tmp_path).run_all()[-1].files == steps[-1].files


def test_every_step_speaks_the_stream_from_init_to_result(steps: list[Step]) -> None:
    """Each program exits 0 and prints one session: init first, a success with its cost last."""
    for step in steps:
        first, last = step.lines[0], step.lines[-1]
        assert step.exit_code == 0
        assert (first["type"], first["subtype"], first["model"]) == ("system", "init", "scripted")
        assert (last["type"], last["subtype"], last["is_error"]) == ("result", "success", False)
        assert {line["session_id"] for line in step.lines} == {first["session_id"]}
        assert last["total_cost_usd"] > 0
        usages = [line["message"]["usage"] for line in step.lines if line["type"] == "assistant"]
        assert last["num_turns"] == len(usages)
        for kind, tokens in last["usage"].items():
            assert tokens == sum(usage[kind] for usage in usages)


def test_every_tool_use_is_answered_under_an_id_of_its_own(steps: list[Step]) -> None:
    """Tool uses and tool results pair up in order, and no id occurs twice in the whole run."""
    for step in steps:
        used = [use["id"] for use in step.tool_uses]
        assert used == [result["tool_use_id"] for result in step.tool_results]

    ids = [use["id"] for step in steps for use in step.tool_uses]
    assert len(ids) == len(set(ids))


def test_every_file_written_is_announced_with_its_content(steps: list[Step]) -> None:
    """The files that differ after a step are the ones its Write calls named, byte for byte."""
    for step in steps:
        writes = [use["input"] for use in step.tool_uses if use["name"] == "Write"]
        root = Path(step.lines[0]["cwd"])
        for write in writes:
            path = Path(write["file_path"]).relative_to(root).as_posix()
            assert step.files[path].decode() == write["content"]

    written = {path for path in steps[-1].files if not path.startswith("tools/")}
    announced = {
        Path(use["input"]["file_path"]).relative_to(Path(step.lines[0]["cwd"])).as_posix()
        for step in steps
        for use in step.tool_uses
        if use["name"] == "Write"
    }
    assert written == announced


def test_a_continued_codon_keeps_the_session_it_is_given(tmp_path: Path) -> None:
    """With a session to resume, every line carries that session's id."""
    step = Execution.create(tmp_path).run("observe", HANKWEAVE_RESUME_SESSION="earlier-session")

    assert {line["session_id"] for line in step.lines} == {"earlier-session"}


def test_a_step_without_its_input_fails_and_says_so(tmp_path: Path) -> None:
    """A program whose input is missing ends with an error result and a non-zero exit code."""
    step = Execution.create(tmp_path).run("generate")

    assert step.exit_code == 1
    assert step.lines[-1]["is_error"]
    assert "schema/earthquake.schema.json" in step.lines[-1]["result"]


def test_a_row_of_the_wrong_structure_is_reported_and_stays_reported(tmp_path: Path) -> None:
    """The reviews do not adapt the schema to a row without coordinates; both of them name it."""
    rows = data_rows()[:300]
    rows[250]["geometry"]["coordinates"] = "nowhere"
    execution = _execution_on(rows, tmp_path)

    *_, first, second, report = execution.run_all()
    for review, path in ((first, "reports/review-0.json"), (second, "reports/review-1.json")):
        findings = {each["pointer"]: each for each in review.json(path)["findings"]}
        assert findings["/geometry/coordinates"]["mended"] is False
        assert findings["/geometry/coordinates"]["examples"][0]["row"] == 250
    assert second.json("reports/review-1.json")["failures"] == 1
    assert report.lines[-1]["result"].startswith("299 of 300 rows are valid")


def test_a_field_that_some_rows_lack_becomes_optional(tmp_path: Path) -> None:
    """A field seen missing is no longer required after the review, and the code reads None."""
    rows = data_rows()[:300]
    del rows[250]["properties"]["felt"]
    execution = _execution_on(rows, tmp_path)

    *_, second, report = execution.run_all()
    assert second.json("reports/review-1.json")["failures"] == 0
    assert "felt" not in second.json(SCHEMA)["properties"]["properties"]["required"]
    package = _imported(report, tmp_path / "package")
    assert package.parse(rows[250]).properties.felt is None


def _execution_on(rows: list[Row], tmp_path: Path) -> Execution:
    data = tmp_path / "data"
    data.mkdir()
    (data / DATA_FILE.name).write_text(json.dumps({"features": rows}), encoding="utf-8")
    (tmp_path / "execution").mkdir()
    return Execution.create(tmp_path / "execution", data)


def _failing(schema: dict[str, Any], rows: list[Row]) -> list[int]:
    validator = Draft202012Validator(schema)
    return [number for number, row in enumerate(rows) if not validator.is_valid(row)]


def _imported(step: Step, directory: Path) -> Any:
    """Import the generated package of a step under a unique name."""
    for path, content in step.files.items():
        if path.startswith("src/earthquakes/"):
            target = directory / Path(path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    name = f"generated_{abs(hash(directory))}"
    spec = importlib.util.spec_from_file_location(name, directory / "__init__.py")
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return package
