"""Claims about a sentinel's files: the paths of outputs, and which histories are readable."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hankweave_protocol.hank import SentinelSettings
from hankweave_protocol.ids import CodonId
from hankweave_protocol.sentinels import MaxTokens, MaxTurns, SentinelConfig
from hankweave_server.paths import Layout
from hankweave_server.sentinels.conversation import ConversationDamaged, SentinelConversation
from hankweave_server.sentinels.outputs import SentinelOutputs, outputs_of
from support.sentinels import a_sentinel

NOW = "2025-01-04T12:00:00.000Z"


def outputs(root: Path, settings: dict[str, Any] | None = None, **fields: Any) -> SentinelOutputs:
    layout = Layout.of_execution(root)
    layout.work_tree.mkdir(exist_ok=True)
    config = msgspec.convert(a_sentinel(**fields), SentinelConfig)
    own = msgspec.convert(settings or {}, SentinelSettings)
    return outputs_of(config, own, layout, CodonId("observe#0"), 1736000001000)


def files(root: Path) -> dict[str, str]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_text() for path in found}


HOME = ".hankweave/sentinels/outputs/narrator"


def test_the_default_name_is_seed_001s(tmp_path: Path) -> None:
    """The default is {id}-{codonId}-{timestamp}.md, created empty and private to its owner."""
    chosen = outputs(tmp_path)
    chosen.begin()
    assert files(tmp_path) == {f"{HOME}/narrator-observe#0-1736000001000.md": ""}
    (path,) = (tmp_path / HOME).iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_entries_are_joined_as_the_author_says(tmp_path: Path) -> None:
    """The separator precedes each entry, the first included; escapes are interpreted."""
    chosen = outputs(tmp_path, joinString="\\n**\\\\\\t", output={"file": "log.md"})
    chosen.write("one", NOW)
    chosen.write("two", NOW)
    assert files(tmp_path) == {f"{HOME}/log.md": "\n**\\\tone\n\n**\\\ttwo\n"}


def test_jsonl_has_a_line_for_each_text(tmp_path: Path) -> None:
    """Each line has the text, its time and the sentinel."""
    chosen = outputs(tmp_path, output={"format": "jsonl"})
    chosen.write("one\ntwo", NOW)
    ((name, text),) = files(tmp_path).items()
    assert name.endswith(".jsonl")
    assert json.loads(text) == {"text": "one\ntwo", "timestamp": NOW, "sentinelId": "narrator"}


def test_the_codons_places_go_before_the_sentinels(tmp_path: Path) -> None:
    """outputPaths come first, then output, then the default; a slash means the work tree."""
    paths = {"outputPaths": {"logFile": "notes/log.md"}}
    own = {"file": "mine.md", "lastValueFile": "latest.txt"}
    chosen = outputs(tmp_path, paths, output=own)
    chosen.write("one", NOW)
    chosen.write("two", NOW)
    assert files(tmp_path) == {
        "agentRoot/notes/log.md": "\n---\none\n\n---\ntwo\n",
        f"{HOME}/latest.txt": "two",
    }
    assert chosen.in_the_work_tree


@pytest.mark.parametrize("kind", ["folder", "file", "fifo"])
def test_nothing_is_written_through_what_an_agent_put_there(tmp_path: Path, kind: str) -> None:
    """A link out of the work tree, or a pipe without a reader, is an error: no write, no hang."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "log.md").write_text("mine")
    chosen = outputs(tmp_path, {"outputPaths": {"logFile": "notes/log.md"}})
    notes = tmp_path / "agentRoot" / "notes"
    if kind == "folder":
        notes.symlink_to(outside)
    else:
        notes.mkdir()
        if kind == "file":
            (notes / "log.md").symlink_to(outside / "log.md")
        else:
            os.mkfifo(notes / "log.md")

    with pytest.raises(OSError, match=r"log\.md|notes"):
        chosen.write("x", NOW)

    assert (outside / "log.md").read_text() == "mine"


# --- histories --------------------------------------------------------------------------------

SEED = {
    "turns": [
        {"role": "user", "content": "q", "tokenCount": 5},
        {"role": "assistant", "content": "a", "tokenCount": 6},
    ],
    "metadata": {"trimStrategy": "maxTurns", "maxTurns": 10},
}
HANKWEAVE = [
    {"message": {"role": "user", "content": "q"}, "tokens": 5},
    {"message": {"role": "assistant", "content": "a"}, "tokens": 6},
]
BARE = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def conversation(
    path: Path, content: object, trimming: MaxTurns | MaxTokens
) -> SentinelConversation:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    found = SentinelConversation(path, trimming, persists=True)
    found.load("1")
    return found


@pytest.mark.parametrize("content", [SEED, HANKWEAVE, BARE], ids=["seed", "hankweave", "bare"])
def test_all_forms_of_a_history_are_read(tmp_path: Path, content: object) -> None:
    """The format of seed 001, Hankweave's list, and its older list are all read."""
    found = conversation(tmp_path / "h.json", content, MaxTurns(max_turns=10))
    assert [(each.role, each.content) for each in found.messages] == [
        ("user", "q"),
        ("assistant", "a"),
    ]


def test_a_few_bad_entries_are_passed_over(tmp_path: Path) -> None:
    """Up to a fifth of bad entries is tolerated; an answer without a question is left out."""
    content = [*HANKWEAVE * 2, {"message": "?"}]
    assert len(conversation(tmp_path / "h.json", content, MaxTurns(max_turns=9)).messages) == 4


@pytest.mark.parametrize("content", ["{", "3", '{"turns": 1}', json.dumps([*BARE, {}])])
def test_a_history_that_is_none_is_kept_aside(tmp_path: Path, content: str) -> None:
    """The file is kept under another name."""
    with pytest.raises(ConversationDamaged):
        conversation(tmp_path / "h.json", content, MaxTurns(max_turns=9))

    assert (tmp_path / "h.json.corrupt-1").read_text() == content


def test_trimming_by_tokens_never_parts_a_pair(tmp_path: Path) -> None:
    """Trimming keeps question and answer together.

    Hankweave may send an answer without its question.
    """
    found = SentinelConversation(tmp_path / "h.json", MaxTokens(max_tokens=20), persists=True)
    for number in range(4):
        found.add("question", f"answer {number}", answered=8)

    assert [each.content for each in found.messages] == [
        "question",
        "answer 2",
        "question",
        "answer 3",
    ]
    whole = json.loads((tmp_path / "h.json").read_bytes())
    assert whole["metadata"] == {"trimStrategy": "maxTokens", "maxTokens": 20}


def test_a_history_that_does_not_persist_writes_nothing(tmp_path: Path) -> None:
    """With `enablePersistence: false` the history lasts only as long as the codon runs."""
    found = SentinelConversation(tmp_path / "h.json", MaxTurns(max_turns=2), persists=False)
    found.add("q", "a")
    assert len(found.messages) == 2
    assert not (tmp_path / "h.json").exists()
