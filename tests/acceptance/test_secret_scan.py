"""Checkpoints that hold secrets: exact, and flagged once, without the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.commands import CheckpointCreate
from hankweave_protocol.events import CheckpointSecret
from hankweave_server.cli.output.event_lines import event_line
from support.git_facts import GitWitness
from support.running_server import running_server
from support.scripted_hank import codon, write_hank, writes
from support.watching import events_of, idle

KEY = "ghp_" + "aB3" * 12
VALUE = "correct horse battery"


@pytest.mark.story("A checkpoint with a secret is flagged once.", of="SECURITY.md")
async def test_a_checkpoint_with_a_secret_is_flagged_once(tmp_path: Path) -> None:
    """Path, line and rule are told for new content alone; the checkpoint has the exact file."""
    env_file = f"# access\nTOKEN='{KEY}'\nPASSWORD={VALUE}\n"
    hank = write_hank(tmp_path / "hank", codon("one", writes(".env", env_file)))
    execution, env = tmp_path / "execution", {"DEPLOY_PASSWORD": VALUE}
    async with running_server(hank, None, execution, env=env) as server:
        async with server.client(since_seq=0) as client:
            await idle(client)
            (execution / "agentRoot" / "other.txt").write_text("nothing secret\n")
            made = await client.send(CheckpointCreate())
            (execution / "agentRoot" / "copy.txt").write_text(f"once more: {KEY}\n")
            copied = await client.send(CheckpointCreate())

        assert await server.stop() == 0

    first, second = events_of(execution, CheckpointSecret)
    found = [(each.path, each.rule, each.line) for each in first.secrets]
    assert found == [(".env", "github-token", 2), (".env", "DEPLOY_PASSWORD", 3)]
    assert [(each.path, each.line) for each in second.secrets] == [("copy.txt", 1)]
    assert second.checkpoint.checkpoint_sha == copied.sha
    git = GitWitness(execution)
    assert git.run("show", f"{made.sha}:.env") == env_file
    journal = (execution / ".hankweave" / "events" / "events.jsonl").read_text()
    assert KEY not in journal
    assert VALUE not in journal
    line = event_line(first)
    assert "github-token in .env:2 and 1 more (hankweave redact removes it)" in line.message
