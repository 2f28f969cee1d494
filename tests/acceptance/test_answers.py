"""Claims about `file.blame`, `file.why`, `file.changes` and `file.pickaxe` on a running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from hankweave_protocol.commands import FileBlame, FilePickaxe, FileWhy, ListFileChanges
from support.git_facts import GitWitness
from support.scripted_hank import codon, write_hank, writes
from support.watching import after_plan, refused


@pytest.mark.command("file.blame", "file.changes", "file.why", "file.pickaxe")
async def test_clients_learn_who_wrote_a_line_and_when_a_text_came(tmp_path: Path) -> None:
    """The answers name codon, call and checkpoint; what does not exist is refused at its place."""
    hank = write_hank(
        tmp_path / "hank",
        codon("one", writes("a.txt", "one\ntwo\n")),
        codon("two", writes("a.txt", "one\nsecond\n")),
    )
    async with after_plan(hank, tmp_path / "execution") as (server, client):
        found = await client.send(FileBlame(path="a.txt"))
        assert (found.path, found.lines, found.next_line) == ("a.txt", 2, None)
        assert [(each.from_line, each.to_line, each.codon_id) for each in found.ranges] == [
            (1, 1, "one"),
            (2, 2, "two"),
        ]
        assert {(each.by, each.call) for each in found.ranges} == {("agent", "Write a.txt")}
        (part,) = (await client.send(FileBlame(path="a.txt", first=2, last=2))).ranges
        assert part == found.ranges[1]
        (before,) = (await client.send(FileBlame(path="a.txt", at="one"))).ranges
        assert (before.to_line, before.codon_id) == (2, "one")

        story = await client.send(FileWhy(path="a.txt", line=1))
        assert (story.text, story.author.codon_id) == ("one", "one")
        assert "+one" in story.patch
        assert [each.codon_id for each in story.later] == ["two"]

        listed = (await client.send(ListFileChanges(path="a.txt"))).changes
        assert [(each.codon_id, each.lines_added, each.lines_removed) for each in listed] == [
            ("two", 1, 1),
            ("one", 2, 0),
        ]
        last = await client.send(ListFileChanges(path="a.txt", limit=1))
        assert (last.changes, last.has_more) == (listed[:1], True)

        history = await client.send(FilePickaxe(text="second"))
        (change,) = history.changes
        assert (change.before, change.after, change.codon_id) == (0, 1, "two")
        assert (await client.send(FilePickaxe(text="two", limit=1))).has_more
        everywhere = await client.send(FilePickaxe(text="two", everywhere=True))
        assert [each.after for each in everywhere.changes] == [0, 1]

        for wrong, code, place in (
            ({"path": "none"}, "INVALID_PATH", "$.data.path"),
            ({"path": "../a"}, "INVALID_PATH", "$.data.path"),
            ({"path": "a.txt", "at": "ffffffff"}, "CHECKPOINT_NOT_FOUND", "$.data.at"),
            ({"path": "a.txt", "first": 3}, "INVALID_COMMAND", "$.data"),
        ):
            error = await refused(client, FileBlame(**wrong))
            assert (error.code, error.path) == (code, place)

        await server.stop()

    witness = GitWitness(server.execution)
    lines = witness.run("blame", "-s", "HEAD", "--", "a.txt").splitlines()
    ours = [each.checkpoint_sha[:8] for each in found.ranges]
    assert [line.split()[0].lstrip("^")[:8] for line in lines] == ours
