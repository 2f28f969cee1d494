"""Claims about shell completion: real shells, the real console script, a real execution."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from hankweave_server.cli.app import OLD_NAMES, PLACES
from support.command_line import Done, hankweave
from support.git_facts import GitWitness
from support.running_server import command, environment, tree
from support.scripted_hank import codon, write_hank, writes
from support.waiting import LIMIT


@pytest.fixture(scope="module")
def execution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an execution whose server has ended."""
    place = tmp_path_factory.mktemp("completion")
    hank = write_hank(place / "hank", codon("one", writes("a.txt", "a")), codon("other"))
    run = command("run", str(hank), "-e", str(place / "execution"), "--headless")
    subprocess.run(run, env=environment(), check=True, capture_output=True, timeout=LIMIT)
    return place / "execution"


def completed(*words: str) -> list[str]:
    """Return fish's completions of the last word, without their descriptions."""
    return [line.split("\t")[0].removeprefix("plain,") for line in offered(*words) if line]


def offered(*words: str) -> list[str]:
    *before, last = words
    env = environment(
        _HANKWEAVE_COMPLETE="fish_complete",
        COMP_WORDS=" ".join(("hankweave", *before)),
        COMP_CWORD=last,
    )
    done = subprocess.run(
        command(), env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_commands_and_options_are_completed() -> None:
    """An empty word offers all but old names, a prefix the matching ones, a dash the options."""
    assert completed("") == sorted(PLACES.keys() - OLD_NAMES.keys())
    assert completed("ru") == ["run", "runs"]
    assert "--dry-run" in completed("gc", "--")


def test_codons_checkpoints_and_runs_are_completed_from_the_files(execution: Path) -> None:
    """The names belong to the named execution; checkpoints have their kind; nothing is written."""
    before = tree(execution)
    here = ("-e", str(execution))
    assert completed("rollback", *here, "--codon", "o") == ["one", "other"]
    assert completed("preview", *here, "--codon", "oth") == ["other"]
    known = GitWitness(execution).run("log", "--all", "--format=%H").splitlines()
    newest = sorted(sha[:12] for sha in known)
    for words in (("rollback", *here, "--to"), ("show", *here), ("diff", *here), ("pin", *here)):
        assert sorted(completed(*words, "")) == newest

    assert completed("show", *here, newest[0][:5]) == [newest[0]]
    output = "\n".join(offered("branch", *here, ""))
    assert "completed one" in output
    assert "initial -" in output
    (run,) = completed("checkpoints", *here, "--run", "")
    assert (execution / ".hankweave" / "runs" / run).is_dir()
    assert tree(execution) == before


def test_where_nothing_is_nothing_is_completed(tmp_path: Path) -> None:
    """Without an execution, or with damaged files, there are no names, messages or failures."""
    for verb, option in (("rollback", "--codon"), ("rollback", "--to"), ("checkpoints", "--run")):
        assert completed(verb, "-e", str(tmp_path), option, "") == []

    state = tmp_path / ".hankweave" / "state.json"
    state.parent.mkdir()
    state.write_text("{")
    assert completed("rollback", "-e", str(tmp_path), "--codon", "") == []


def printed(*words: str, **env: str) -> Done:
    return hankweave("completion", *words, **env)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_takes_what_is_printed_for_it(shell: str) -> None:
    """The script is for the named shell, or the one in $SHELL, and parses there."""
    named = printed(shell)
    assert (named.returncode, named.stderr) == (0, "")
    assert f"_HANKWEAVE_COMPLETE={shell}_complete" in named.stdout
    assert printed(SHELL=f"/usr/bin/{shell}").stdout == named.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=named.stdout, text=True, check=True, timeout=LIMIT)


@pytest.mark.story("Shell completion knows the codons of an execution.")
def test_bash_completes_in_earnest(execution: Path, tmp_path: Path) -> None:
    """A real bash that evaluates the script completes the codons of the plan."""
    typed = f"hankweave rollback -e {execution} --codon o"
    words = typed.split(" ")
    script = (
        f'eval "$(hankweave completion bash)"; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; '
        '_hankweave_completion hankweave; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = environment()
    script_of_ours = tmp_path / "hankweave"
    script_of_ours.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
    script_of_ours.chmod(0o755)
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env=env, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert done.stdout.split() == ["one", "other"]


def test_an_unknown_shell_is_reported() -> None:
    """The exit code is 2, and the message names the known shells."""
    done = printed(SHELL="/bin/tcsh")
    assert done.returncode == 2
    assert "bash, zsh, fish" in done.stderr
    assert printed("tcsh").returncode == 2
