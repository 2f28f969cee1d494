"""The hanks of tests/compat: which public hank each stands for, and the model's part in it.

Every hank is written for these tests, with the constructs of the public one that it names. None of
them names an agent or has permissions. `Case.script` has the model's answers; the other fields have
the expected result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.models.script import Script
from support.models.turns import Calls, Fails, Runs, Says, Trouble, Turn, Writes

RUNTIME = "SouthBridgeAI/hankweave-runtime"
CONFIG = f"{RUNTIME} tests/config"


LIMITS_FAIL = {"HANKWEAVE_RUNTIME_MAX_WAIT": "0"}
"""Fail at an overload, as Hankweave does, instead of waiting for its end."""


@dataclass(frozen=True)
class Case:
    """One hank and its expected result."""

    name: str
    stands_for: str
    script: Callable[[Script, Path], None]
    """Add the turns of the model, for an execution with this work tree."""
    ended: tuple[str, ...]
    """Each codon's id and status, in the order in which they ran."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Contents in the work tree afterwards; the empty text for any content."""
    outputs: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    code: int = 0
    refused_tools: bool = False
    """True if a tool of the agent fails on purpose."""


@dataclass(frozen=True)
class Refused:
    """A hank that `validate` refuses, and the message."""

    name: str
    stands_for: str
    says: tuple[str, ...]


def _answers(words: str, *turns: Turn) -> Callable[[Script, Path], None]:
    return lambda script, tree: script.on(words, *turns)


def _reads(path: Path) -> Calls:
    return Calls("Read", {"file_path": str(path)})


def _edits(path: Path, old: str, new: str) -> Calls:
    return Calls("Edit", {"file_path": str(path), "old_string": old, "new_string": new})


def _formalization(script: Script, tree: Path) -> None:
    data, proofs = tree / "read_only_data_source", tree / "project" / "Proofs" / "Basic.txt"
    script.on(
        "ANALYZE-THE-PROOF",
        _reads(data / "task.md"),
        Runs("cat read_only_data_source/task.md > workspace/plan.md"),
        Says("The plan is written."),
    )
    script.on(
        "FILL-THE-PROOF",
        _reads(proofs),
        _edits(proofs, "lemma one : sorry", "lemma one : proved"),
        Says("One is left."),
    )
    script.on(
        "CHECK-AGAIN",
        _edits(proofs, "lemma two : sorry", "lemma two : proved"),
        Says("None is left."),
        Says("Nothing to do."),
    )
    script.on(
        "VALIDATE-THE-PROOF",
        Runs("mkdir -p output && cp project/Proofs/Basic.txt output/proof.txt"),
        Writes(tree / "output" / "result.md", "proved\n"),
        Says("Valid."),
    )


def _design(script: Script, tree: Path) -> None:
    page = tree / "workspace" / "artifact" / "index.html"
    script.on(
        "DESIGN-UNDERSTAND",
        _reads(tree / "read_only_data_source" / "brief.md"),
        Runs("grep -c sea read_only_data_source/brief.md > workspace/sea.txt"),
        Says("Understood."),
    )
    script.on(
        "DESIGN-BUILD",
        Runs("mkdir -p workspace/artifact"),
        Writes(page, "<h1>sea</h1>\n"),
        Says("Built."),
    )
    for number in (1, 2):
        script.on("DESIGN-REVIEW", _reads(page), Says(f"Review {number}."))
        old, new = ("sea", "the sea") if number == 1 else ("the sea", "The sea")
        script.on("DESIGN-FIX", _reads(page), _edits(page, old, new), Says("Fixed."))

    script.on("DESIGN-VERIFY", Runs("test -s workspace/artifact/index.html"), Says("Good."))


def _events(script: Script, tree: Path) -> None:
    script.on("PREFLIGHT", Says("ready"))
    for source in ("museum", "library"):
        script.on(
            "COLLECT-EVENTS",
            Runs(f"mkdir -p events && echo '[]' > events/{source}.json"),
            Says("Collected."),
        )


def _shim(script: Script, tree: Path) -> None:
    for number in (1, 2):
        script.on(
            "BUILD-THE-SHIM",
            Runs(f"test -f eval-suite/installed && echo {number} >> shim/main.sh"),
            Says("Built."),
        )
        script.on("EVALUATE-THE-SHIM", Runs(f"echo {number} >> research.md"), Says("Evaluated."))


def _plan(script: Script, tree: Path) -> None:
    task = tree / "plan" / "task.md"
    script.on(
        "PLAN-PREP",
        _reads(tree / "read_only_data_source" / "task.md"),
        Runs("tail -1 read_only_data_source/task.md > plan/background/request.md"),
        _reads(task),
        _edits(task, "# Task", "# The task"),
        Says("Prepared."),
    )
    script.on("PLAN-MERGE", Writes(tree / "plan" / "merged" / "plan.md", "merge\n"), Says("Ok."))
    for number in (1, 2):
        review = tree / "plan" / "reviews" / "current" / "review.md"
        script.on("PLAN-REVIEW", Writes(review, f"review {number}\n"), Says("Reviewed."))
        script.on("PLAN-UPDATE", Runs("echo more >> plan/merged/plan.md"), Says("Updated."))

    script.on("PLAN-IMPLEMENT", Runs("echo done > plan/implementations/log"), Says("Done."))


def _poems(script: Script, tree: Path) -> None:
    totals = {
        "totalInputTokens": 1,
        "totalOutputTokens": 1,
        "mostExpensiveCall": {"codonId": "codon-1", "cost": 0.1},
    }
    script.on("COST-ANALYSIS", *[Calls("answer", totals)] * 6)
    favorite = tree / "notes" / "favorite_poem.txt"
    script.on(
        "WRITE-POEMS",
        Runs("wc -l < read_only_data_source/readings.csv > notes/lines.txt"),
        Writes(favorite, "the sea\n"),
        Says("Written."),
    )
    second = tree / "notes" / "second_favorite_poem.txt"
    script.on("SECOND-POEM", Writes(second, "the lake\n"), Says("Another one."))
    script.on(
        "CONVERT-POEMS",
        Writes(tree / "code" / "src" / "poem1.ts", "export const poem = 1;\n"),
        Says("Converted."),
    )


def _notes(script: Script, tree: Path) -> None:
    script.on("SETUP-NOTES", Runs("echo setup > notes/setup.txt"), Says("Set up."))
    script.on("FINAL-NOTE", Runs("echo final > notes/final.txt"), Says("The end."))


def _loop(script: Script, tree: Path) -> None:
    _notes(script, tree)
    for number in (1, 2):
        write, review = f"notes/iteration_{number}.txt", f"notes/review_{number}.txt"
        script.on("WRITE-ITERATION", Runs(f"echo {number} > {write}"), Says("Written."))
        script.on("REVIEW-ITERATION", Runs(f"cat {write} > {review}"), Says("Reviewed."))


def _loop_rig(script: Script, tree: Path) -> None:
    _notes(script, tree)
    for number in (1, 2):
        message = f"echo {number} > notes/message_{number}.txt"
        script.on("WRITE-MESSAGE", Runs(message), Says("Written."))


def _loop_archive(script: Script, tree: Path) -> None:
    _notes(script, tree)
    for number in (1, 2):
        script.on(
            "PROCESS-ITERATION",
            Runs(f"mkdir -p temp results && echo {number} > temp/i.json && cp temp/i.json results"),
            Says("Processed."),
        )


def _extension(script: Script, tree: Path) -> None:
    _notes(script, tree)
    script.on("FIRST-POEM", Runs("echo 1 > notes/poem_1.txt"), Says("One."))
    for number in (2, 3, 4):
        script.on("ONE-MORE-POEM", Runs(f"echo {number} > notes/poem_{number}.txt"), Says("More."))


def _content(script: Script, tree: Path) -> None:
    script.on("START-CONTENT", Runs("mkdir -p content && touch content/start.txt"), Says("Go."))
    script.on("GENERATE-MUCH", Runs("echo much >> content/much.md"), Says("Much."))
    script.on("ANALYZE-ALL", Fails(Trouble.CONTEXT_FULL))
    script.on("SUM-UP", Runs("echo end > content/final.txt"), Says("The end."))


def _journal(script: Script, tree: Path) -> None:
    script.on(
        "THREE-FILES",
        Writes(tree / "root.md", "root\n"),
        Writes(tree / "deep" / "dir" / "nested.md", "deep\n"),
        Writes(tree / "output" / "tmp" / "ignored.md", "ignored\n"),
        Says("WRITES_DONE"),
    )
    script.on("READ-WATCHED", _reads(tree / "watched.md"), Says("READ_DONE"))
    script.on("WRITE-UNWATCHED", Writes(tree / "created-by-b.txt", "b\n"), Says("B_DONE"))


def _retried(script: Script, tree: Path) -> None:
    script.on(
        "FLAKY-WORK",
        Fails(Trouble.OVERLOAD, times=2),
        Runs("echo at last > result.txt"),
        Says("It works."),
    )


def _budget(script: Script, tree: Path) -> None:
    script.on(
        "SPEND-ALL", *[Runs(f"echo {name} > {name}.txt") for name in "abc"], Says("All spent.")
    )


def _models(script: Script, tree: Path) -> None:
    script.on("STEP-ONE", Runs("echo 1 > output/step1.txt"), Says("One."))
    for number in (1, 2):
        script.on("LOOP-A", Runs(f"echo a > output/loop_a_{number}"), Says("A."))
        script.on("LOOP-B", Runs(f"echo b > output/loop_b_{number}"), Says("B."))

    script.on("FINISH", Runs("echo all > output/final.txt"), Says("All."))


def _edit(script: Script, tree: Path) -> None:
    notes, data = tree / "notes.md", tree / "read_only_data_source"
    script.on(
        "SURVEY-DATA",
        Runs("sort read_only_data_source/readings.csv | tail -1 > notes.md"),
        Runs("echo overwritten > read_only_data_source.txt && rm read_only_data_source.txt"),
        Says("Surveyed."),
    )
    script.on(
        "EDIT-NOTES",
        _reads(data / "readings.csv"),
        _reads(notes),
        _edits(notes, "depth", "depth in km"),
        Says("Edited."),
    )


CASES = (
    Case(
        "formalization",
        "hrishioa/tao-formalization-hank",
        _formalization,
        ("analyze completed", "fill completed", "validate completed"),
        {
            "task.md": "# Task\n\nProve it.\n",
            "workspace/plan.md": "# Task\n\nProve it.\n",
            "project/Proofs/Basic.txt": "lemma one : proved\nlemma two : proved\n",
            "sentinel-notes/latest-warning.md": "",
        },
        outputs=("output/proof.txt", "output/result.md"),
    ),
    Case(
        "design",
        "SouthBridgeAI/polymorphic-design-hank",
        _design,
        (
            "understand completed",
            "build completed",
            *(f"{name}#{n} completed" for n in (0, 1) for name in ("review", "fix")),
            "verify completed",
        ),
        {
            "workspace/inventory.txt": "brief.md\nreadings.csv\ntask.md\n",
            "workspace/sea.txt": "1\n",
            "workspace/artifact/index.html": "<h1>The sea</h1>\n",
        },
        outputs=("workspace/artifact/index.html", "workspace/artifact/fonts.css"),
        archived=("review-loop-loop/workspace/backup/index.html",),
    ),
    Case(
        "events",
        "ergest/boston-events",
        _events,
        ("preflight completed", "src-museum completed", "src-library completed"),
        {"events/museum.json": "[]\n", "events/library.json": "[]\n"},
        options=("--model", "sonnet"),
    ),
    Case(
        "shim-builder",
        f"{RUNTIME} learning/examples/clausetta",
        _shim,
        (
            "build completed",
            "build-again#0 completed",
            "eval#0 completed",
            "eval#1 completed",
        ),
        {"shim/main.sh": "1\n2\n", "research.md": "1\n2\n"},
    ),
    Case(
        "plan-pipeline",
        f"{RUNTIME} learning/examples/plan-gen-v2-general",
        _plan,
        (
            "prep completed",
            "merge completed",
            *(f"{name}#{n} completed" for n in (0, 1) for name in ("review", "update")),
            "implement completed",
        ),
        {
            "plan/task.md": "# The task\n",
            "plan/background/request.md": "Prove it.\n",
            "plan/merged/plan.md": "merge\nmore\nmore\n",
            "plan/reviews/current/review.md": "review 2\n",
            "plan/implementations/observations.md": "",
        },
    ),
    Case(
        "poems",
        f"{CONFIG}/test-codons.config.json",
        _poems,
        ("codon-1 completed", "codon-2 completed", "codon-3 completed"),
        {"notes/lines.txt": "3\n", "code/src/poem1.ts": "export const poem = 1;\n"},
        outputs=("notes/favorite_poem.txt", "notes/second_favorite_poem.txt"),
        archived=("codon-2/notes/beforecopy_log.txt",),
    ),
    Case(
        "before-copy-fails",
        f"{CONFIG}/test-codons.config.json, second codon",
        _answers("WRITE-RESULT", Runs("echo 1 > result.txt"), Says("Written.")),
        ("codon-1 completed",),
        code=1,
    ),
    Case(
        "loop",
        f"{CONFIG}/test-codons-with-loop.config.json",
        _loop,
        (
            "setup-codon completed",
            *(f"{n}-iteration#{i} completed" for i in (0, 1) for n in ("write", "review")),
            "final-codon completed",
        ),
        {"notes/review_2.txt": "2\n", "notes/final.txt": "final\n"},
    ),
    Case(
        "loop-error",
        f"{CONFIG}/test-codons-with-loop-error.config.json",
        _loop,
        (
            "setup-codon completed",
            "write-iteration#0 completed",
            "review-iteration#0 completed",
            "write-iteration#1 completed",
            "review-iteration#1 failed",
        ),
        {"notes/review_1.txt": "1\n"},
        code=1,
    ),
    Case(
        "loop-rig",
        f"{CONFIG}/test-codons-with-loop-rig-setup.config.json",
        _loop_rig,
        (
            "setup-codon completed",
            "loop-codon#0 completed",
            "loop-codon#1 completed",
            "final-codon completed",
        ),
        {"notes/setup_log.txt": "Rig setup for iteration\n" * 2, "notes/message_2.txt": "2\n"},
    ),
    Case(
        "loop-archive",
        f"{CONFIG}/test-codons-loop-with-archive.config.json",
        _loop_archive,
        (
            "setup-codon completed",
            "process#0 completed",
            "process#1 completed",
            "final-codon completed",
        ),
        {"results/i.json": "2\n"},
        archived=("archive-loop-0/process-0/temp/i.json", "archive-loop-1/process-1/temp/i.json"),
    ),
    Case(
        "extension",
        f"{CONFIG}/test-codon-extension.config.json",
        _extension,
        ("setup-codon completed", "extending completed", "final-codon completed"),
        {"notes/poem_4.txt": "4\n"},
    ),
    Case(
        "context-exhaustion",
        f"{CONFIG}/test-context-exhaustion.config.json",
        _content,
        (
            "initial completed",
            "generate#0 completed",
            "analyze#0 completed",
            "final completed",
        ),
        {"content/final.txt": "end\n"},
    ),
    Case(
        "context-without-end",
        f"{CONFIG}/test-context-exhaustion-with-iteration-terminate.config.json",
        _content,
        ("initial completed", "generate#0 completed", "analyze#0 failed"),
        code=1,
    ),
    Case(
        "rig-env",
        f"{CONFIG}/test-env-in-rig-setup.config.json",
        _answers("SAY-OK", Says("OK")),
        ("env-rig completed",),
        {"env_test/result.txt": "MY_VAR=hello-world\n"},
    ),
    Case(
        "journal",
        f"{CONFIG}/test-events-journal-integrity.config.json",
        _journal,
        ("matcher completed", "reader completed", "unwatched completed"),
        {"root.md": "root\n", "created-by-b.txt": "b\n"},
    ),
    Case(
        "failure-ignored",
        f"{CONFIG}/test-failure-ignore.hank.json",
        _answers("WRITE-SUCCESS", Runs("echo success > output.txt"), Says("Success.")),
        ("failing failed", "continuation completed"),
        {"output.txt": "success\n"},
    ),
    Case(
        "failure-retried",
        f"{CONFIG}/test-failure-retry.hank.json",
        _retried,
        ("flaky failed", "flaky completed"),
        {"result.txt": "at last\n"},
        environment=LIMITS_FAIL,
    ),
    Case(
        "failure-in-loop",
        f"{CONFIG}/test-failure-loop-ignore.hank.json",
        lambda script, tree: None,
        # The first iteration has no earlier one to continue.
        tuple(f"loop-codon#{n} failed" for n in range(3)),
    ),
    Case(
        "rig-failure-in-loop",
        f"{CONFIG}/test-failure-loop-rig-setup-ignore.hank.json",
        lambda script, tree: None,
        ("rig-failure#0 failed", "rig-failure#1 failed"),
    ),
    Case(
        "budget",
        f"{CONFIG}/test-budget-resume.config.json",
        _budget,
        ("budget-codon completed", "followup completed"),
    ),
    Case(
        "models",
        f"{CONFIG}/test-model-override.config.json",
        _models,
        (
            "codon-1 completed",
            *(f"codon-{name}#{n} completed" for n in (0, 1) for name in "ab"),
            "codon-2 completed",
        ),
        {"output/loop_b_2": "b\n", "output/final.txt": "all\n"},
        options=("--model", "sonnet"),
    ),
    Case(
        "edits",
        "the defaults of Claude Code: a shell, reading of data, edits",
        _edit,
        ("survey completed", "edit completed"),
        {"notes.md": "id,depth in km\n"},
    ),
)

REFUSED = (
    Refused(
        "events",
        "ergest/boston-events, where no pi is installed",
        ("Pi is not installed", "src-museum"),
    ),
    Refused(
        "models",
        f"{CONFIG}/test-model-override.config.json, without an override",
        ("continuationMode", "opus"),
    ),
    Refused(
        "keyless",
        f"{CONFIG}/test-codons-keyless.config.json",
        ("Pi is not installed", "codon-1"),
    ),
)
