"""Loading hank.json reports all faults at once, each with its place.

Most single faults are hanks in `tests/golden/invalid`, which `test_golden.py` loads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.hank import Codon, Loop
from hankweave_server.hank.load import HankInvalid, HankProblem, LoadedHank, hash_of, load
from support.sentinels import a_sentinel

Raw = dict[str, Any]

EXAMPLE = Path(__file__).parents[3] / "examples" / "earthquakes" / "hank.json"


def a_codon(name: str = "observe", /, **fields: Any) -> Raw:
    codon = {"id": name, "name": "N", "model": "m", "continuationMode": "fresh"}
    return codon | {"promptText": "Do it."} | fields


def a_loop(*codons: Raw, **fields: Any) -> Raw:
    end = {"type": "iterationLimit", "limit": 2}
    return {"type": "loop", "id": "l", "name": "L", "terminateOn": end, "codons": codons} | fields


class Author:
    """A writer that puts a hank and its files into one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.write("prompts/a.md", "A")
        self.write("templates/x.txt", "X")

    def write(self, name: str, content: str | bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def load(self, *steps: Raw, **fields: Any) -> LoadedHank:
        return self.load_text(json.dumps({"hank": steps} | fields, indent=2))

    def load_text(self, text: str | bytes) -> LoadedHank:
        self.write("hank.json", text)
        return load(self.directory / "hank.json")

    def problems(self, *steps: Raw, **fields: Any) -> tuple[HankProblem, ...]:
        with pytest.raises(HankInvalid) as invalid:
            self.load(*steps, **fields)

        return invalid.value.problems

    def problems_of_text(self, text: str | bytes) -> tuple[HankProblem, ...]:
        with pytest.raises(HankInvalid) as invalid:
            self.load_text(text)

        return invalid.value.problems


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path / "hank")


# --- Valid hanks --------------------------------------------------------------------------------


def test_the_example_loads() -> None:
    """The example hank for new users has no problem."""
    hank = load(EXAMPLE)
    assert [step.id for step in hank.hank.hank][:2] == ["observe", "infer"]
    assert hank.directory == EXAMPLE.parent
    assert set(hank.prompts) == {"observe", "infer", "generate", "review", "report"}


def test_a_hank_is_called_as_its_meta_says_or_as_its_directory(author: Author) -> None:
    """People see one name of a hank, whether its file has one or not."""
    assert author.load(a_codon()).name == author.directory.name
    meta = {"name": "Orders to model", "version": "1"}
    assert author.load(a_codon(), meta=meta).name == "Orders to model"


def test_a_step_without_a_type_is_a_codon(author: Author) -> None:
    """`type` may be omitted for codons, in the hank and in loops (Hankweave, hank.json)."""
    steps = author.load(a_codon("a"), a_loop(a_codon("b")), a_codon("c", type="codon")).hank.hank
    assert [type(step) for step in steps] == [Codon, Loop, Codon]
    assert isinstance(steps[1], Loop)
    assert steps[1].codons[0].id == "b"


def test_every_field_of_hankweave_loads(author: Author) -> None:
    """A hank that uses every documented Hankweave field has no problem."""
    author.write("sentinels/s.json", json.dumps(a_sentinel(id="s")))
    command = {"type": "command", "command": {"run": "true", "workingDirectory": "lastCopied"}}
    copy = {"type": "copy", "copy": {"from": "./templates", "to": "src"}, "archiveOnSuccess": True}
    codon = a_codon(
        description="d",
        promptFile=["prompts/a.md", "./prompts/a.md"],
        appendSystemPromptFile="prompts/a.md",
        rigSetup=[copy, command | {"allowFailure": True}],
        checkpointedFiles=["**/*.py"],
        trackedFiles=["*.md", "!x.md"],
        env={"A": "b"},
        outputFiles=[
            {"copy": ["out/**"], "beforeCopy": [{"type": "command", "command": {"run": "true"}}]}
        ],
        sentinels=[
            {"sentinelConfig": "sentinels/s.json", "settings": {"failCodonIfNotLoaded": True}},
            {"sentinelConfig": a_sentinel(id="x")},
        ],
        archiveOnSuccess=["src"],
        onFailure="retry",
        retryConfig={"maxAttempts": 10, "delayMs": 0, "maxDelayMs": 600000},
        exhaustWithPrompt="more",
        maxExtensions=3,
        autoCompact=True,
        shimIdleTimeout=1800,
        budget={"maxDollars": 1, "maxTimeSeconds": 0.5, "onExceeded": "fail"},
        agent={"type": "command", "command": ["cat"]},
    )
    loop = a_loop(
        a_codon("b", continuationMode="continue-previous"),
        terminateOn={"type": "contextExceeded"},
        budget={"maxDollars": 1.5, "allocation": "proportional", "shares": {"b": 1}},
        archiveOnSuccess=["x"],
    )
    loaded = author.load(
        codon,
        loop,
        **{"$schema": "https://example.com/schema.json"},
        meta={"name": "n", "version": "1"},
        overrides={
            "model": "m",
            "dataHashTimeLimit": 1,
            "sentinel": {"healthCheckGracePeriodMs": 1},
            "shimIdleTimeout": 1,
            "budget": {
                "maxDollars": 2,
                "allocation": "proportional-strict",
                "shares": {"observe": 0.5, "l": 0.5},
            },
        },
        requirements={"env": ["A"], "tools": ["git"]},
        globalSystemPromptText="g",
    )
    assert loaded.prompts["observe"].system_prompt == "g\n\nA"


def test_the_hash_is_of_the_content_and_not_of_its_layout(author: Author) -> None:
    """The hash ignores indentation, key order and `$schema`; any changed value changes it."""
    raw = {"hank": [a_codon()], "meta": {"name": "n", "version": "1"}}
    first = author.load_text(json.dumps(raw)).hank_hash
    turned = {"$schema": "x"} | dict(reversed(raw.items()))
    assert author.load_text(json.dumps(turned, indent=3)).hank_hash == first
    raw["meta"] = {"name": "n", "version": "2"}
    assert author.load_text(json.dumps(raw)).hank_hash != first
    assert len(first) == 64


def test_a_byte_order_mark_is_no_problem(author: Author) -> None:
    """A byte order mark, which some editors write, is accepted."""
    text = json.dumps({"hank": [a_codon()]}).encode()
    assert author.load_text(b"\xef\xbb\xbf" + text).hank == author.load_text(text).hank


# --- Invalid JSON -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"hank": ' + b"9" * 5000 + b"}",
        b'{"hank": Infinity}',
        b'"hank"',
        b'{"hank": [3, null, "x", []]}',
    ],
)
def test_any_wrong_content_of_a_file_is_reported_as_a_problem(author: Author, text: bytes) -> None:
    """Loading a file raises only HankInvalid, whatever the file contains."""
    assert author.problems_of_text(text)


def test_a_file_that_is_not_there_is_a_problem(author: Author) -> None:
    """A missing file is reported with the closest existing name."""
    author.write("hank.json", "{}")
    with pytest.raises(HankInvalid) as invalid:
        load(author.directory / "hnak.json")

    assert invalid.value.problems[0].suggestion == "Did you mean 'hank.json'?"


def test_a_key_that_is_there_twice_is_a_problem(author: Author) -> None:
    """Duplicate keys are refused, because JSON readers silently keep only the last one."""
    text = '{"hank": [{"id": "a",\n "name": "n", "model": "m", "id": "b",\n'
    text += '"continuationMode": "fresh", "promptText": "p"}]}'
    [problem] = author.problems_of_text(text)
    assert (problem.path, problem.line, problem.column) == ("$.hank[0].id", 2, 29)


# --- Shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"name": 3}, "name", "Expected a string; found 3."),
        ({"env": []}, "env", "Expected an object; found a list."),
        ({"promptFile": 1}, "promptFile", "Expected a string or a list; found 1."),
        ({"promptFile": [1]}, "promptFile[0]", "Expected a string; found 1."),
        ({"maxExtensions": True}, "maxExtensions", "Expected a whole number; found true."),
        ({"id": "a\n"}, "id", "'a\\n' cannot be an id."),
        ({"rigSetup": [{"type": ["copy"]}]}, "rigSetup[0].type", "Expected one of copy, command;"),
        ({"rigSetup": ["copy"]}, "rigSetup[0]", "Expected an object; found 'copy'."),
        ({"agent": {"type": "claude", "model": "x"}}, "agent.model", "There is no field 'model'"),
        ({"retryConfig": {}, "onFailure": "ignore"}, "retryConfig", "'retryConfig' has no effect"),
    ],
)
def test_a_wrong_shape_is_reported_with_its_path(
    author: Author, fields: Raw, path: str, message: str
) -> None:
    """Types, ranges, choices and names are checked as the protocol's classes define them."""
    [problem] = author.problems(a_codon(**fields))
    assert problem.path == f"$.hank[0].{path}"
    assert problem.message.startswith(message)


# --- References ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("prompts/none.md", "There is no"),
        ("prompts", "is not a file"),
        ("../outside.md", "leads outside its folder"),
        ("prompts/../../outside.md", "leads outside its folder"),
        ("/etc/hostname", "is absolute"),
        ("C:/x.md", "is absolute"),
        ("prompts\\a.md", "backslash"),
        ("prompts/a\0.md", "NUL"),
        ("  ", "empty"),
        ("link.md", "goes through a symbolic link"),
        ("linked/outside.md", "goes through a symbolic link"),
        ("x" * 5000, "There is no"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        lambda reference: a_codon(promptFile=reference),
        lambda reference: a_codon(appendSystemPromptFile=["prompts/a.md", reference]),
        lambda reference: a_codon(sentinels=[{"sentinelConfig": reference}]),
        lambda reference: a_codon(agent={"type": "scripted", "script": reference}),
    ],
)
def test_a_reference_stays_in_the_hanks_directory_and_names_a_file(
    author: Author, place: Callable[[str], Raw], reference: str, message: str
) -> None:
    """No file outside the hank's directory is read, not even through a link."""
    outside = author.directory.parent / "outside.md"
    outside.write_text("secret")
    (author.directory / "link.md").symlink_to(outside)
    (author.directory / "linked").symlink_to(author.directory.parent)
    [problem] = author.problems(place(reference))
    assert message in problem.message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("templates/..", "cannot be copied"),
        ("with-link", "contains a symbolic link: deep/link"),
    ],
)
def test_a_rig_source_is_a_plain_tree_of_the_hank(
    author: Author, source: str, message: str
) -> None:
    """A rig source that cannot be copied safely is reported before anything runs."""
    (author.directory / "with-link" / "deep").mkdir(parents=True)
    (author.directory / "with-link" / "deep" / "link").symlink_to("/etc")
    rig = {"type": "copy", "copy": {"from": source, "to": "x"}}
    [problem] = author.problems(a_codon(rigSetup=[rig]))
    assert problem.path == "$.hank[0].rigSetup[0].copy.from"
    assert message in problem.message


@pytest.mark.parametrize(
    "target", ["", ".", "./", "..", "/abs", "a/../..", "a/../b", ".git", "a/.GIT/x", ".hankweave"]
)
def test_a_rig_target_is_a_place_within_the_work_tree(author: Author, target: str) -> None:
    """A target is deleted before the copy, so it is never the whole tree or a state folder."""
    rig = {"type": "copy", "copy": {"from": "templates", "to": target}}
    [problem] = author.problems(a_codon(rigSetup=[rig]))
    assert problem.path == "$.hank[0].rigSetup[0].copy.to"


def test_a_prompt_that_is_too_large_is_reported_at_its_reference(author: Author) -> None:
    """Other faults inside a prompt file are among the malformed hanks of `test_golden.py`."""
    author.write("prompts/b.md", b"x" * (8 * 1024 * 1024 + 1))
    [problem] = author.problems(a_codon(promptFile=["prompts/a.md", "prompts/b.md"]))
    assert problem.path == "$.hank[0].promptFile[1]"
    assert "is larger than 8 MiB" in problem.message


# --- Rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"promptText": "<!-- later -->\n"}, "promptText"),
        ({"promptText": None}, "promptFile"),
        ({"promptFile": []}, "promptFile"),
        ({"promptFile": None}, "promptFile"),
        ({"promptFile": None, "promptText": None}, "promptFile"),
    ],
)
def test_a_codon_needs_a_prompt(author: Author, fields: Raw, place: str) -> None:
    """A codon without a file or text, or with an empty one, is refused."""
    codon = a_codon()
    del codon["promptText"]
    [problem] = author.problems(codon | fields)
    assert problem.path == f"$.hank[0].{place}"


@pytest.mark.parametrize(
    ("confinement", "path", "message", "suggestion"),
    [
        ("workspaces", "", "Expected one of none, readonly, workspace", "'workspace'"),
        (["none"], "", "Expected a string or an object; found a list", None),
        ({"profil": "none"}, ".profil", "There is no field", "'profile'"),
        ({"profile": "all"}, ".profile", "Expected one of none", None),
        ({"extraRead": "~/x"}, ".extraRead", "Expected a list", None),
        ({"extraRead": [""]}, ".extraRead[0]", "empty", None),
        ({"extraWrite": ["$HOME/x"]}, ".extraWrite[0]", "variable or a pattern", "'~'"),
        ({"extraWrite": ["/data/*"]}, ".extraWrite[0]", "variable or a pattern", "folder"),
        ({"extraWrite": ["~ann/x"]}, ".extraWrite[0]", "another user's", "absolute"),
        ({"extraWrite": ["/"]}, ".extraWrite[0]", "everything", "'none'"),
        ({"connect": [0]}, ".connect[0]", "at least 1", None),
        ({"connect": [65536]}, ".connect[0]", "at most 65535", None),
        ({"profile": "readonly", "extraWrite": ["/x"]}, ".extraWrite", "no effect", "Remove"),
        ({"profile": "none", "connect": [80]}, ".connect", "no effect", "Remove"),
    ],
)
def test_a_confinement_that_makes_no_sense_is_reported_at_its_place(
    author: Author, confinement: Any, path: str, message: str, suggestion: str | None
) -> None:
    """Wrong profiles, fields, paths and ports are errors, for a codon as for the whole hank."""
    for problems, place in (
        (author.problems(a_codon(confinement=confinement)), "$.hank[0]"),
        (author.problems(a_codon(), overrides={"confinement": confinement}), "$.overrides"),
    ):
        (problem,) = problems
        assert problem.path == f"{place}.confinement{path}"
        assert message in problem.message
        assert suggestion is None or suggestion in (problem.suggestion or "")


def test_every_form_of_a_confinement_loads(author: Author) -> None:
    """A profile alone, and an object with paths and ports, are valid."""
    full = {"profile": "workspace", "extraRead": ["~/x", "../y"], "extraWrite": ["/z"]}
    for each in ("workspace", "readonly", "none", {}, full, {"connect": []}, {"connect": [443]}):
        loaded = author.load(a_codon(confinement=each), overrides={"confinement": each}).hank
        assert loaded.hank[0].confinement == loaded.overrides.confinement
        assert loaded.overrides.confinement is not None


# --- All problems at once -----------------------------------------------------------------------


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(author: Author) -> None:
    """Faults of JSON keys, shapes, references and rules are reported together."""
    problems = author.problems(
        a_codon("a", modle="x", promptFile="none.md"),
        a_codon("a", maxExtensions="many", retryConfig={}),
        meta={"name": "n"},
    )
    assert [problem.path for problem in problems] == [
        "$.hank[0].modle",
        "$.hank[0].promptFile",
        "$.hank[1].id",
        "$.hank[1].maxExtensions",
        "$.hank[1].retryConfig",
        "$.meta.version",
    ]
    assert [problem.line for problem in problems] == sorted(
        problem.line or 0 for problem in problems
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def one_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hank")


@given(data=st.data())
def test_any_value_in_any_place_is_loaded_or_reported(
    one_directory: Path, data: st.DataObject
) -> None:
    """Any value anywhere in a hank gives a hank or problems, never another exception."""
    raw = deepcopy(
        {
            "hank": [
                a_codon(
                    rigSetup=[{"type": "copy", "copy": {"from": "a", "to": "b"}}],
                    budget={"maxDollars": 1},
                ),
                a_loop(a_codon("b"), budget={"shares": {"b": 1}}),
            ],
            "meta": {"name": "n", "version": "1"},
        }
    )
    owner: Any = raw
    while True:
        key = data.draw(st.sampled_from(sorted(owner) if isinstance(owner, dict) else [0]))
        if not isinstance(owner[key], dict | list) or data.draw(st.booleans()):
            break

        owner = owner[key]

    owner[key] = data.draw(JSON)
    file = one_directory / "hank.json"
    file.write_text(json.dumps(raw).replace("Infinity", "1e999"))
    assert _hash_or_problems(file)


def _hash_or_problems(file: Path) -> str | tuple[HankProblem, ...]:
    try:
        loaded = load(file)
    except HankInvalid as invalid:
        return invalid.problems

    assert loaded.hank_hash == hash_of(json.loads(file.read_text()))
    return loaded.hank_hash
