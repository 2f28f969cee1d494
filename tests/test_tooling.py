"""Tests of the files for other tools: pre-commit, GitHub Actions, EditorConfig."""

from __future__ import annotations

import configparser
import inspect
import os
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

import gate

TOP = Path(__file__).resolve().parent.parent


def parsed(name: str) -> Any:
    return yaml.safe_load((TOP / name).read_text())


def called_scripts(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w/])(?:\./)?(scripts/[\w-]+)", text))


def test_pre_commit_runs_the_commands_of_scripts_check() -> None:
    """The programs and arguments are the same, except that files are passed and fixed."""
    (repository,) = parsed(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    entries = {shlex.join(shlex.split(hook["entry"])) for hook in repository["hooks"]}
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    script = (TOP / "scripts" / "check").read_text()
    commands = re.findall(r"^\.venv/bin/.*$", script, re.MULTILINE)
    assert {entry.replace(" --force-exclude", "") for entry in entries} == {
        command.replace(" --check", "").removesuffix(" .") for command in commands
    }


def test_the_workflow_calls_the_scripts() -> None:
    """The workflow sets up the oldest supported Python, and runs scripts/check and scripts/test."""
    workflow = parsed(".github/workflows/test.yml")
    (job,) = workflow["jobs"].values()
    steps = job["steps"]
    versions = [step["with"]["python-version"] for step in steps if "setup-python" in str(step)]
    project = (TOP / "pyproject.toml").read_text()
    assert [f'requires-python = ">={version}"' in project for version in versions] == [True]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands == ["./scripts/check", "./scripts/test"]
    assert workflow[True]["push"]["branches"] == ["main"]  # YAML 1.1 reads `on` as true.


def test_every_script_that_is_called_exists() -> None:
    files = [".github/workflows/test.yml", ".pre-commit-config.yaml", ".ci/run", "scripts/test"]
    called = {script for name in files for script in called_scripts((TOP / name).read_text())}
    assert {"scripts/check", "scripts/test"} <= called
    for script in called:
        assert os.access(TOP / script, os.X_OK), script


def test_the_gate_is_what_the_readme_promises() -> None:
    """README, workflow and .ci/run name one command; it runs the gate, with the static checks."""
    assert "\n./scripts/test " in (TOP / "README.md").read_text()
    assert (TOP / ".ci" / "run").read_text().splitlines()[-1] == "exec ./scripts/test"
    script = (TOP / "scripts" / "test").read_text()
    assert "tools/gate.py" in script.splitlines()[-1]
    assert "--gate" in script
    assert inspect.signature(gate.main).parameters["checks"].default == ("scripts/check",)


def test_editors_and_ruff_agree_on_the_line_length() -> None:
    editor = configparser.ConfigParser()
    editor.read_string("[top]\n" + (TOP / ".editorconfig").read_text())
    assert editor["top"]["root"] == "true"
    assert (
        f"line-length = {editor['*']['max_line_length']}\n" in (TOP / "pyproject.toml").read_text()
    )
