"""Claims about the identity of commands: the version that the hank names, and their files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hankweave_protocol.hank import Codon, CommandAgentSpec
from hankweave_server.agents.preflight import AgentIdentities
from hankweave_server.agents.registry import AgentSelector
from hankweave_server.domain.reuse.key import AgentIdentity

COMMAND = ("worker", "-B", "tools/work.py", "--rules=rules.toml", "50", "x" * 5_000)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for path in (tree / "tools" / "work.py", tree / "rules.toml", tmp_path / "bin" / "worker"):
        path.write_text("content")
        path.chmod(0o755)

    return tree


@pytest.fixture
def identify(tmp_path: Path, tree: Path) -> Callable[[CommandAgentSpec], AgentIdentity]:
    selector = AgentSelector(
        chosen=None, hank_directory=tmp_path, sessions=tmp_path, homes=tmp_path, asks_first=False
    )
    identities = AgentIdentities(selector, tree, may_run_programs=False)
    env = {"PATH": str(tmp_path / "bin")}

    def identified(spec: CommandAgentSpec) -> AgentIdentity:
        codon = Codon(
            id="one", name="One", model="m", continuation_mode="fresh", agent=spec, env=env
        )
        return identities.identity_of(codon)

    return identified


def test_a_command_has_the_version_that_its_hank_names(
    identify: Callable[[CommandAgentSpec], AgentIdentity],
) -> None:
    """Without one it is unknown, and the files of the command are not read."""
    unknown = identify(CommandAgentSpec(command=COMMAND))
    assert (unknown.version, unknown.files) == (None, {})
    known = identify(CommandAgentSpec(command=COMMAND, version="1"))
    assert known.version == "1"
    assert known.files.keys() == {"worker", "tools/work.py", "rules.toml"}
    assert known.spec == unknown.spec
    assert identify(CommandAgentSpec(command=COMMAND, version="2")) != known


@pytest.mark.parametrize("name", ["tree/tools/work.py", "tree/rules.toml", "bin/worker"])
def test_a_file_of_a_command_that_changes_makes_it_another(
    tmp_path: Path, identify: Callable[[CommandAgentSpec], AgentIdentity], name: str
) -> None:
    """Even if its author forgets to change the version, and size and time stay the same."""
    spec, path = CommandAgentSpec(command=COMMAND, version="1"), tmp_path / name
    before = identify(spec)
    status = path.stat()
    path.write_text("another"[: status.st_size])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identify(spec) != before
