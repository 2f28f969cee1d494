"""Every code block of seed 003, verbatim: the documented result is the real one."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hankweave_protocol.hank import Codon
from hankweave_server import architect
from hankweave_server.architect import CHECKPOINT_PREFIX, Checkpoint, CheckpointManager
from hankweave_server.features.architect.yaml.load import compile_pipeline, load_pipeline
from hankweave_server.user_git.errors import UnknownCheckpoint
from hankweave_server.user_git.store import WorkspaceGit
from support.command_line import hankweave
from support.person_repository import PersonRepository, alone_with_git
from support.seed_003 import PIPELINE

SECONDS = 60

CONCEPT = """\
architect:checkpoint:step-1           ← After the first step
architect:checkpoint:step-2           ← After the second step
architect:checkpoint:implement        ← Pipeline step "implement"
"""

STEP = """\
git add -A
git commit -m "architect:checkpoint:<step_name>"
"""
"""The behavior of each step according to the text below the pipeline."""

LISTING = """\
git log --oneline --grep="architect:checkpoint"
"""

LISTED = """\
def5678 architect:checkpoint:optimize
abc1234 architect:checkpoint:implement
"""

MANAGER = '''\
class CheckpointManager:
    def __init__(self, workspace_root: str) -> None: ...

    def create(self, step: int, message: str = "") -> Checkpoint | None:
        """Creates a checkpoint. Returns None if there are no changes."""

    def list_checkpoints(self) -> list[Checkpoint]:
        """Lists checkpoints (most recent first)."""

    def rollback(self, step: int | None = None, commit: str | None = None) -> bool:
        """Rolls back to a checkpoint. Uses git reset --hard."""

    def get_latest(self) -> Checkpoint | None:
        """Gets the most recent checkpoint."""

    def has_changes_since(self, commit_hash: str) -> bool:
        """Checks if there are changes since a commit."""
'''

RECORD = """\
@dataclass(frozen=True)
class Checkpoint:
    step: int                          # Step number
    commit_hash: str                   # Full git hash
    message: str                       # Descriptive message
    timestamp: float                   # Unix timestamp
    files_changed: list[str]           # Modified files

    def short_hash(self) -> str:       # First 7 characters
"""

CONSTANT = """\
CHECKPOINT_PREFIX = "architect:checkpoint"
"""

CONFIGURATION = """\
checkpoints:
  enabled: false              # true = enable automatic checkpoints in AgentLoop
  every_n_steps: 5            # Create checkpoint every N steps (1-50)
"""

MANUAL = """\
# View checkpoints
git log --oneline --grep="architect:checkpoint"

# Revert to a specific checkpoint
git reset --hard <commit_hash>
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone_with_git(monkeypatch, tmp_path / "home")


@pytest.fixture(name="repo")
def _repo(tmp_path: Path) -> PersonRepository:
    repo = PersonRepository.made(tmp_path / "project")
    repo.commit("begin", {"app.py": "one\n"})
    return repo


def shell(repo: PersonRepository, script: str) -> str:
    """Run a script of the seed and return its output."""
    done = subprocess.run(
        ["sh", "-e"], cwd=repo.root, input=script, capture_output=True, text=True, check=True
    )
    return done.stdout


def subjects(listed: str) -> list[str]:
    """Return the lines of a `git log --oneline` without their hashes of seven digits."""
    hashes, found = zip(*(line.split(" ", 1) for line in listed.splitlines()), strict=True)
    assert all(len(each) == 7 and set(each) <= set("0123456789abcdef") for each in hashes)
    return list(found)


def steps_written(repo: PersonRepository) -> CheckpointManager:
    """Make two steps, each with a checkpoint that describes it."""
    manager = CheckpointManager(str(repo.root))
    for step in (1, 2):
        repo.write({"app.py": f"step {step}\n", f"made-{step}.txt": "new\n"})
        assert manager.create(step) is not None

    return manager


# --- Concept, usage in pipelines, listing -----------------------------------------------------


def test_checkpoints_are_called_as_the_concept_shows(repo: PersonRepository) -> None:
    """Numbered and named steps have exactly the three subjects in the seed."""
    steps_written(repo)
    repo.write({"app.py": "implemented\n"})
    WorkspaceGit(repo.root).commit(f"{CHECKPOINT_PREFIX}:implement")
    shown = [line.split()[0] for line in CONCEPT.splitlines()]
    assert list(reversed(repo.subjects("-3"))) == shown


def test_the_pipeline_loads_with_the_steps_that_it_shows(tmp_path: Path) -> None:
    """Names, prompts and checkpoint labels are those of the snippet."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    codons = [c for c in compile_pipeline(load_pipeline(file)).hank if isinstance(c, Codon)]
    assert [(c.id, c.prompt_text, c.checkpoint_label) for c in codons] == [
        ("implement", "Implementa la feature", "architect:checkpoint:implement"),
        ("optimize", "Optimiza el rendimiento", "architect:checkpoint:optimize"),
    ]


def test_the_pipeline_leaves_the_listing_that_the_seed_prints(repo: PersonRepository) -> None:
    """With --repository workspace both steps are commits, and the listing has its shape."""
    repo.commit("the pipeline", {"pipeline.yaml": PIPELINE})
    words = ("pipeline", "pipeline.yaml", "--agent", "scripted", "--repository", "workspace")
    hankweave(*words, cwd=repo.root, code=0)
    assert subjects(shell(repo, LISTING)) == subjects(LISTED)
    assert repo.status() == ""


def test_a_step_commits_what_git_add_and_commit_would(
    repo: PersonRepository, tmp_path: Path
) -> None:
    """The documented commands, run by a shell in a copy, make the same tree and subject."""
    repo.commit("more", {".gitignore": "*.log\n", "docs/old.md": "old\n", "run.sh": "#!/bin/sh\n"})
    repo.write({"app.py": "two\n", "new/deep/file.txt": "new\n", "noise.log": "noise\n"})
    (repo.root / "docs/old.md").unlink()
    (repo.root / "run.sh").chmod(0o755)
    (repo.root / "link").symlink_to("app.py")
    subprocess.run(["cp", "-a", repo.root, tmp_path / "copy"], check=True)
    copy = PersonRepository(tmp_path / "copy")
    shell(copy, STEP.replace("<step_name>", "implement"))
    assert WorkspaceGit(repo.root).commit(f"{CHECKPOINT_PREFIX}:implement") is not None
    assert repo.git("rev-parse", "HEAD^{tree}") == copy.git("rev-parse", "HEAD^{tree}")
    assert repo.subjects("-1") == copy.subjects("-1")
    assert repo.status() == copy.status() == ""


# --- Python API -------------------------------------------------------------------------------


def documented_methods() -> dict[str, ast.FunctionDef]:
    (documented,) = ast.parse(MANAGER).body
    assert isinstance(documented, ast.ClassDef)
    return {node.name: node for node in documented.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", documented_methods())
def test_a_method_has_the_documented_signature(name: str) -> None:
    """Names, order, annotations, defaults and results match; extra parameters have defaults."""
    documented = documented_methods()[name]
    found = inspect.signature(getattr(CheckpointManager, name))
    positional = [p for p in found.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional] == [arg.arg for arg in documented.args.args]
    assert found.return_annotation == ast.unparse(documented.returns or ast.Constant(None))
    for here, there in zip(positional[1:], documented.args.args[1:], strict=True):
        assert there.annotation is not None
        wanted = set(ast.unparse(there.annotation).split(" | "))
        assert wanted <= set(str(here.annotation).split(" | ")), f"{here.name} takes less"

    defaults = [p.default for p in positional if p.default is not p.empty]
    assert defaults == [ast.literal_eval(default) for default in documented.args.defaults]
    others = [p for p in found.parameters.values() if p not in positional]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in others)
    if name != "rollback":  # Its docstring describes the difference from `git reset --hard`.
        first = (ast.get_docstring(documented) or "").rstrip(".")
        assert first in (getattr(CheckpointManager, name).__doc__ or "")


def test_the_methods_do_what_their_docstrings_say(repo: PersonRepository) -> None:
    """One session calls each method as documented."""
    manager = CheckpointManager(workspace_root=str(repo.root))
    assert manager.create(1) is None, "there are no changes"
    assert manager.get_latest() is None
    repo.write({"app.py": "two\n"})
    first = manager.create(step=1, message="the first")
    repo.write({"app.py": "three\n"})
    second = manager.create(2)
    assert first is not None
    assert second is not None
    assert manager.list_checkpoints() == [second, first], "most recent first"
    assert manager.get_latest() == second
    assert not manager.has_changes_since(second.commit_hash)
    assert manager.has_changes_since(commit_hash=first.commit_hash)
    assert manager.rollback(step=1) is True
    assert (repo.root / "app.py").read_text() == "two\n"
    assert manager.rollback(commit=second.commit_hash) is True
    assert (repo.root / "app.py").read_text() == "three\n"
    assert manager.rollback() is manager.rollback(step=7) is manager.rollback(commit="0" * 40)
    assert manager.rollback() is False
    with pytest.raises(UnknownCheckpoint):
        manager.has_changes_since("not a hash")


def test_the_record_is_the_documented_one(repo: PersonRepository) -> None:
    """Fields and types match in order; the record is frozen, comparable and has a 7-digit hash."""
    (documented,) = ast.parse(RECORD + "        ...\n").body
    assert isinstance(documented, ast.ClassDef)
    fields = [node for node in documented.body if isinstance(node, ast.AnnAssign)]
    assert [(f.name, f.type) for f in dataclasses.fields(Checkpoint)] == [
        (ast.unparse(field.target), ast.unparse(field.annotation)) for field in fields
    ]
    assert inspect.signature(Checkpoint.short_hash).return_annotation == "str"
    repo.write({"app.py": "two\n", "näme.txt": "new\n"})
    made = CheckpointManager(str(repo.root)).create(3, "did it")
    assert made is not None
    assert dataclasses.is_dataclass(made)
    assert (made.step, made.commit_hash, made.message) == (3, repo.head(), "did it")
    assert made.timestamp == float(repo.git("log", "-1", "--format=%at"))
    assert made.files_changed == ["app.py", "näme.txt"]
    assert made.short_hash() == repo.head()[:7]
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.step = 4  # type: ignore[misc]


def test_the_constant_is_the_documented_one() -> None:
    """The constant has the documented name and value, in the manager's module."""
    (documented,) = ast.parse(CONSTANT).body
    assert isinstance(documented, ast.Assign)
    name, value = ast.unparse(documented.targets[0]), ast.literal_eval(documented.value)
    assert getattr(architect, name) == value == CHECKPOINT_PREFIX


# --- configuration ----------------------------------------------------------------------------


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "plain"
    folder.mkdir()
    return folder


def in_the_pipeline(folder: Path, block: str) -> tuple[str, ...]:
    (folder / "pipeline.yaml").write_text(block + PIPELINE)
    return ()


def in_a_file(folder: Path, block: str) -> tuple[str, ...]:
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "config.yaml").write_text(block)
    return ("-c", "config.yaml")


@pytest.mark.parametrize("place", [in_the_pipeline, in_a_file])
@pytest.mark.parametrize(
    ("enabled", "expected"), [("false", None), ("true", "Checkpoints: every 5 agent steps")]
)
def test_the_configuration_is_read_where_a_pipeline_or_c_has_it(
    folder: Path,
    place: Callable[[Path, str], tuple[str, ...]],
    enabled: str,
    expected: str | None,
) -> None:
    """As written it is off; with `enabled: true` there is a checkpoint every five steps."""
    options = place(folder, CONFIGURATION.replace("enabled: false", f"enabled: {enabled}"))
    done = hankweave("pipeline", "pipeline.yaml", "--dry-run", *options, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line for line in done.stdout.splitlines() if line.startswith("Checkpoints:")]
    assert lines == ([] if expected is None else [expected])


@pytest.mark.parametrize("number", ["0", "51", "five"])
def test_the_number_of_steps_is_one_to_fifty(folder: Path, number: str) -> None:
    """A number outside `(1-50)` is an error with its line, and nothing runs."""
    options = in_a_file(folder, CONFIGURATION.replace("5  ", f"{number}  "))
    done = hankweave("pipeline", "pipeline.yaml", "--dry-run", *options, cwd=folder, code=3)
    assert "config.yaml" in done.stderr
    assert "3:" in done.stderr


def test_every_n_steps_are_really_counted(repo: PersonRepository) -> None:
    """Enabled, an agent's steps leave numbered checkpoints; off, they leave none."""
    step = '{ "run": "echo more >> log.txt" }'
    script = f'{{ "steps": [{", ".join([step] * 6)}] }}'
    agents = "agents:\n  build: {type: scripted, script: script.json}\n"
    block = CONFIGURATION.replace("enabled: false", "enabled: true")
    repo.write({"script.json": script, "pipeline.yaml": block + agents + PIPELINE})
    hankweave("pipeline", "pipeline.yaml", cwd=repo.root, code=0)
    rows = hankweave("history", cwd=repo.root).stdout.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["optimize", "5", "implement", "5"]


# --- manual rollback --------------------------------------------------------------------------


def test_the_manual_rollback_works_on_our_checkpoints(repo: PersonRepository) -> None:
    """Stock git lists and resets the checkpoints; afterwards the manager reports the new state."""
    manager = steps_written(repo)
    second, first = manager.list_checkpoints()
    script = MANUAL.replace("<commit_hash>", first.commit_hash)
    printed = shell(repo, script).splitlines()
    assert [line.split(" ", 1)[1] for line in printed[:2]] == [
        "architect:checkpoint:step-2",
        "architect:checkpoint:step-1",
    ]
    assert (repo.head(), repo.status()) == (first.commit_hash, "")
    assert (repo.root / "app.py").read_text() == "step 1\n"

    assert manager.get_latest() == first
    assert first in manager.list_checkpoints()
    assert not manager.has_changes_since(first.commit_hash)
    assert manager.undo() is False, "it was not our rollback"
    repo.write({"app.py": "another way\n"})
    third = manager.create(3)
    assert third is not None
    assert manager.rollback(commit=second.commit_hash), "git's reflog still has it"
    assert (repo.root / "app.py").read_text() == "step 2\n"
    assert manager.undo() is True
    assert (repo.root / "app.py").read_text() == "another way\n"
    assert repo.head() == third.commit_hash
    repo.assert_sound()


def test_the_caution_does_not_hold_for_our_rollback(repo: PersonRepository) -> None:
    """`git reset --hard` discards uncommitted changes; `rollback` keeps them for undo."""
    manager = steps_written(repo)
    repo.write({"app.py": "not committed\n", "mine.txt": "not known to git\n"})
    assert manager.rollback(step=1)
    assert (repo.root / "app.py").read_text() == "step 1\n"
    assert not (repo.root / "mine.txt").exists()
    assert manager.undo()
    assert (repo.root / "app.py").read_text() == "not committed\n"
    assert (repo.root / "mine.txt").read_text() == "not known to git\n"
