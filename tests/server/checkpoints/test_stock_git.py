"""Every command that seed 000 documents works on the shadow repository without warnings."""

from __future__ import annotations

import configparser

import pytest

from hankweave_protocol.ids import RunId, Sha
from hankweave_server.checkpoints.commit_message import facts_of, written
from hankweave_server.git.repo import RawCommit


@pytest.fixture
def history(lab):
    """Make three checkpoints of two runs, with a note, an unusual mode and a rename."""
    lab.write("schema.ts", "one\ntwo\nthree\nfour\n")
    lab.write("secret", "s", 0o600)
    first = lab.checkpoint(run=RunId("r1"), name="Data Observation", codon="codon-1")
    lab.write("schema.ts", "one\ntwo\nthree\nfive\n")
    second = lab.checkpoint(run=RunId("r1"), kind="error", name="Build Zod", codon="build-schema")
    lab.detach(first.sha)
    lab.delete("schema.ts")
    lab.write("renamed.ts", "one\ntwo\nthree\nfour\n")
    third = lab.checkpoint(run=RunId("r2"), name="Again", codon="build-schema")
    return first, second, third


def test_log_shows_checkpoints_and_nothing_else(lab, history):
    """`git log --oneline --all` lists each checkpoint once, with its subject, and no notes."""
    lines = lab.git("log", "--all", "--format=%s").splitlines()

    assert sorted(lines) == [
        "completed:build-schema [run:r2] Again",
        "completed:codon-1 [run:r1] Data Observation",
        "error:build-schema [run:r1] Build Zod",
    ]
    assert len(lab.git("log", "--oneline", "--all").splitlines()) == 3
    assert lab.git("log", "--all", "--grep=build-schema", "--format=%s").count("\n") == 2


def test_the_message_is_the_seeds_to_the_letter(lab):
    """Subject, blank line, Codon, Status, Timestamp and Duration are followed by trailers."""
    lab.engine.checkpoint(lab.request(codon="build-schema", name="Build Zod Schemas", label="tea"))

    assert lab.git("log", "-1", "--format=%B").rstrip("\n").splitlines() == [
        "completed:build-schema [run:1736000000000-abc123-def456] Build Zod Schemas",
        "",
        "Codon: Build Zod Schemas",
        "Status: completed",
        "Timestamp: 2025-01-04T12:00:01.000Z",
        "Duration: 45000ms",
        "",
        "Op-Id: op-1",
        "Event-Seq: 1",
        "Session: session-1",
        "Memory-Epoch: 2",
        "Label: tea",
    ]
    assert lab.git("log", "-1", "--format=%(trailers:key=Op-Id,valueonly)").strip() == "op-1"
    assert lab.git("log", "-1", "--format=%an <%ae> %cn").strip() == (
        "Hankweave Runtime <froggie@southbridge.ai> Hankweave Runtime"
    )


def test_a_name_cannot_forge_a_trailer(lab):
    """Line ends in names become spaces, so that a name cannot add an operation id."""
    made = lab.checkpoint(name="x\n\nOp-Id: stolen\r\x00", label="a\nOp-Id: stolen")

    assert lab.engine.facts(made.sha).operation_id == "op-1"
    assert lab.engine.facts(made.sha).codon_name == "x Op-Id: stolen"


def test_a_commit_without_trailers_is_understood(lab):
    """Hankweave's own commits, which end after Duration, are read as checkpoints."""
    message = written(lab.request(name="Build"))
    seeds_part = message.split(b"\n\nOp-Id")[0] + b"\n"

    facts = facts_of(
        RawCommit(Sha("0" * 40), Sha("1" * 40), (), lab.request().timestamp, seeds_part)
    )

    assert facts is not None
    assert (facts.kind, facts.codon_name, facts.duration_ms) == ("completed", "Build", 45000)
    assert facts.operation_id is None


def test_show_diff_and_ls_tree_are_clean(lab, history):
    """The documented commands show exactly the differences between checkpoints."""
    first, second, third = history

    assert "-four\n+five\n" in lab.git("diff", first.sha, second.sha)
    assert "+five" in lab.git("show", second.sha)
    assert lab.git("ls-tree", "--name-only", first.sha) == "schema.ts\nsecret\n"
    assert lab.git("show", f"{first.sha}:secret") == "s"
    followed = lab.git("log", "--follow", "--format=%H", third.sha, "--", "renamed.ts")
    assert followed.split() == [third.sha, first.sha]


def test_fsck_and_gc_find_nothing_wrong(lab, history):
    """fsck is silent before and after gc, and gc loses neither checkpoint nor note."""
    lab.assert_sound()
    lab.git("gc", "-q", "--prune=now")
    lab.assert_sound()
    lab.reopen(forget=True)

    for made in history:
        assert lab.engine.verify(made.sha) == []
        assert '"secret": "0600"' in lab.git("notes", "--ref=hankweave", "show", made.sha)

    assert lab.engine.tree(history[0].sha)[1].mode == 0o100600
    lab.checkpoint(run=RunId("r2"))
    lab.assert_sound()


def test_status_is_clean_after_the_index_is_refreshed(lab, history):
    """Once the index is written, `git status` and `git diff` compare with the checkpoint."""
    third = history[2]
    lab.write_index(third.sha)

    assert lab.git("status", "--porcelain") == ""
    lab.write("renamed.ts", "edited")
    lab.write("new", "new")
    assert lab.git("status", "--porcelain") == " M renamed.ts\n?? new\n"


def test_status_is_true_in_place(in_place_lab):
    """In place, status lists neither the state folder nor the user's `.git`."""
    lab = in_place_lab
    lab.write("a", "1")
    lab.write("read_only_data_source/x", "1")
    made = lab.checkpoint()
    lab.write_index(made.sha)

    assert lab.git("status", "--porcelain") == ""


def test_the_identity_file_is_the_seeds(lab):
    """`checkpoints/.gitconfig` names the runtime and forbids signing."""
    config = configparser.ConfigParser()
    config.read(lab.layout.git_config)

    assert config["user"]["name"] == "Hankweave Runtime"
    assert config["user"]["email"] == "froggie@southbridge.ai"
    assert config["commit"]["gpgsign"] == "false"
    assert lab.git("config", "user.email").strip() == "froggie@southbridge.ai"


def test_a_plain_checkpoint_needs_no_note(lab):
    """A checkpoint with usual modes and nothing skipped has no manifest and no notes ref."""
    lab.write("a", "1", 0o644)
    lab.write("b", "1", 0o755)
    lab.checkpoint()

    assert lab.git("for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/run-1736000000000-abc123-def456"
    ]
