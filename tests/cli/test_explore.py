"""`hankweave explore` and its attempts on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.errors import Stop
from hankweave_server.features.exploration.command import read_variant
from support.command_line import Done, hankweave, started
from support.running_server import tree
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT, eventually_blocking

pytestmark = pytest.mark.feature("exploration")


def written(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_variant_has_the_name_of_its_file(tmp_path: Path) -> None:
    """Unless it has one of its own."""
    assert read_variant(written(tmp_path, "short.json", {"model": "haiku"})).name == "short"
    assert read_variant(written(tmp_path, "b.json", {"name": "bold"})).name == "bold"


def test_a_prompt_file_is_relative_to_the_variant(tmp_path: Path) -> None:
    """Its text is sent, so the server need not find it."""
    (tmp_path / "prompt.md").write_text("Be brief.")
    variant = read_variant(written(tmp_path, "a.json", {"promptFile": "prompt.md"}))
    assert (variant.prompt_text, variant.prompt_file) == ("Be brief.", None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ([], "not an object"),
        ({"promptTxt": "a"}, "'promptTxt' is unknown"),
        ({"model": 3}, "Expected `str"),
        ({"promptText": "a", "promptFile": "b"}, "exclude each other"),
        ({"promptFile": "gone.md"}, "gone.md"),
    ],
)
def test_a_variant_that_cannot_be_used_is_named(tmp_path: Path, content: Any, words: str) -> None:
    """The error has the path of the file, what is wrong, and what a variant may have."""
    path = written(tmp_path, "bad.json", content)
    with pytest.raises(Stop) as stopped:
        read_variant(path)

    assert str(path) in stopped.value.message
    assert words in stopped.value.message
    assert stopped.value.hint


def a_finished_execution(tmp_path: Path) -> Path:
    hank = write_hank(
        tmp_path / "hank",
        codon("draft", writes("draft.txt", "draft")),
        codon("answer", writes("answer.txt", "the first")),
    )
    execution = tmp_path / "executions" / "parent"
    ran("run", str(hank), "--headless", "-e", str(execution))
    return execution


def ran(*words: str, status: int = 0) -> Done:
    done = hankweave(*words)
    assert done.returncode == status, done.stderr
    return done


def a_variant(folder: Path, name: str, text: str) -> str:
    prompt = json.dumps({"steps": [writes("answer.txt", text)]})
    return str(written(folder, f"{name}.json", {"promptText": prompt}))


def test_from_the_shell_attempts_are_made_compared_adopted_undone_and_discarded(
    tmp_path: Path,
) -> None:
    """No server runs in between: each command starts one for as long as it needs it."""
    execution = a_finished_execution(tmp_path)
    here, before = ("-e", str(execution)), tree(execution / "agentRoot")
    variants = [a_variant(tmp_path, "short", "no"), a_variant(tmp_path, "long", "a long answer")]
    words = [word for variant in variants for word in ("--variant", variant)]
    score = ("--score", "wc -c < answer.txt")
    done = ran("explore", "--codon", "answer", *words, *score, "--json", *here)
    *_, last = done.stdout.splitlines()
    found = json.loads(last)
    assert [each["score"] for each in found["attempts"]] == [2.0, 13.0]
    assert set(found["attempts"][0]) >= {"id", "score", "cost", "durationMs", "executionPath"}
    assert [each["files"] for each in found["attempts"]] == [1, 1]
    first, best = (each["id"] for each in found["attempts"])
    assert found["best"] == best

    table = ran("attempts", *here).stdout
    assert "short" in table
    assert f"`hankweave adopt {best}" in table
    assert "+a long answer" in ran("compare", first, best, "--patch", *here).stdout

    assert "1 file returns to earlier content" in ran("adopt", best, "--preview", *here).stdout
    assert tree(execution / "agentRoot") == before
    ran("adopt", best, "--yes", *here)
    assert tree(execution / "agentRoot")["answer.txt"] == b"a long answer"
    assert "adopted" in ran("attempts", *here).stdout
    ran("undo", "--yes", *here)
    assert tree(execution / "agentRoot") == before

    places = [Path(each["executionPath"]) for each in found["attempts"]]
    assert all(place.is_dir() for place in places)
    ran("discard", found["explorationId"], "--yes", *here)
    assert not any(place.exists() for place in places)
    ran("compare", first, best, *here)


def test_an_attempt_is_discarded_while_explore_waits_for_the_others(tmp_path: Path) -> None:
    """Other commands share the server that `explore` has started."""
    execution = a_finished_execution(tmp_path)
    here = ("-e", str(execution))
    endless = {"promptText": json.dumps({"steps": [{"waitForFile": "/never"}]})}
    words = ["--variant", str(written(tmp_path, "endless.json", endless))]
    words += ["--variant", a_variant(tmp_path, "short", "no")]
    with started("explore", "--codon", "answer", *words, "--json", *here) as exploring:

        def with_one_at_work() -> list[dict[str, Any]] | None:
            assert exploring.poll() is None
            done = hankweave("attempts", "--json", *here)
            found = json.loads(done.stdout)["attempts"] if done.returncode == 0 else []
            has_come = [each.get("status") for each in found] == ["running", "completed"]
            return found if has_come else None

        attempts = eventually_blocking(with_one_at_work)
        ran("discard", attempts[0]["attemptId"], "--yes", *here)
        printed, _ = exploring.communicate(timeout=LIMIT)

    ended = json.loads(printed.splitlines()[-1])["attempts"]
    assert [each["status"] for each in ended] == ["discarded", "completed"]


def test_without_a_successful_attempt_the_exit_code_is_1(tmp_path: Path) -> None:
    """The hint leads to the reasons."""
    execution = a_finished_execution(tmp_path)
    broken = {"promptText": json.dumps({"steps": [{"fail": {"message": "out of ideas"}}]})}
    variant = str(written(tmp_path, "broken.json", broken))
    done = ran("explore", "--codon", "answer", "--variant", variant, "-e", str(execution), status=1)
    assert "No attempt has succeeded." in done.stderr
    assert "out of ideas" in ran("attempts", "-e", str(execution)).stdout


def test_what_is_unknown_is_refused_with_what_there_is(tmp_path: Path) -> None:
    """The names of explorations and attempts are listed."""
    execution = a_finished_execution(tmp_path)
    here = ("-e", str(execution))
    assert "No exploration yet." in ran("attempts", *here).stdout
    assert "No exploration is called 'abc'" in ran("attempts", "abc", *here, status=1).stderr
    unknown = ran("attempts", "abc", "--json", *here, status=1).stderr
    assert "No exploration is called 'abc'" in unknown
    variant = str(written(tmp_path, "typo.json", {"agent": "cluade"}))
    refused = ran("explore", "--codon", "answer", "--variant", variant, *here, status=1).stderr
    assert "Variant typo: There is no agent 'cluade'. Did you mean 'claude'?" in refused
    assert "No attempt is called 'abc-1'" in ran("compare", "abc-1", *here, status=1).stderr
    assert "No attempt is called 'abc-1'" in ran("adopt", "abc-1", "-y", *here, status=1).stderr
    assert "No exploration is called 'abc'" in ran("discard", "abc", "-y", *here, status=1).stderr
