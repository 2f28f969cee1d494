"""Claims about takeovers in one process: a reused result equals what running would give."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hankweave_protocol.ids import CodonId
from hankweave_protocol.state import CompletedCodon
from hankweave_server.agents.preflight import AgentIdentities
from hankweave_server.agents.registry import AgentSelector
from hankweave_server.domain import plan as plans
from hankweave_server.execution.codon.run import CodonRun
from hankweave_server.execution.runs import Runs
from hankweave_server.paths import Layout
from hankweave_server.worktree.data_listing import DataListing
from intruders.tier import rounds
from support.components import Components, components
from support.running_server import tree
from support.scripted_hank import codon, rig_command, write_hank
from support.tally import Tally

MUTATIONS = rounds(fast=75, long=300)

SCRIPT = (
    "{ cat input.txt deep/more.txt copied.txt built.txt 2>/dev/null; echo $MODE $HANKWEAVE_MODEL; "
    "cat $HANKWEAVE_DATA_DIR/data.txt; stat -c %a input.txt; ls; } > out.txt; rm -f gone.txt"
)


@dataclass(frozen=True)
class World:
    """The inputs of one codon; each field has few values, so that worlds come again."""

    content: int = 0
    more: int = 0
    mode: int = 0
    executable: int = 0
    extra: int = 0
    rig_file: int = 0
    rig_command: int = 0
    data: int = 0
    model: int = 0
    variable: int = 0
    prompt: int = 0
    comment: int = 0
    """In the description of the codon: not an input."""

    def changed(self, chance: random.Random) -> World:
        name = chance.choice(list(self.__dataclass_fields__))
        return replace(self, **{name: (getattr(self, name) + 1) % 2})

    def lay_out(self, work_tree: Path) -> None:
        """Make the work tree what the codon begins from."""
        for path in work_tree.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

        (work_tree / "input.txt").write_text(f"content {self.content}\n")
        (work_tree / "input.txt").chmod(0o755 if self.executable else 0o644)
        (work_tree / "deep").mkdir()
        (work_tree / "deep" / "more.txt").write_text(f"more {self.more}\n")
        (work_tree / "gone.txt").write_text("removed by the agent")
        if self.extra:
            (work_tree / "extra.txt").write_text("listed")

    def hank(self, folder: Path) -> Path:
        step = {"run": SCRIPT + "; echo {{word}}" + " twice" * self.prompt + " >> out.txt"}
        folder.mkdir(exist_ok=True)
        (folder / "rig.txt").write_text(f"rig {self.rig_file}\n")
        fields: dict[str, Any] = {
            "description": f"comment {self.comment}",
            "model": f"model-{self.model}",
            "env": {"MODE": f"mode-{self.mode}"},
            "outputVar": "said",
            "rigSetup": [
                {"type": "copy", "copy": {"from": "rig.txt", "to": "copied.txt"}},
                rig_command(f"echo built {self.rig_command} > built.txt"),
            ],
        }
        work = codon("work", step, {"say": f"said {self.content}"}, **fields)
        return write_hank(folder, work, variables={"word": f"word-{self.variable}"})

    @property
    def output(self) -> bytes:
        """The content of out.txt that the agent leaves: the model of its result."""
        names = ["built.txt", "copied.txt", "deep", *["extra.txt"] * self.extra, "gone.txt"]
        lines = [
            f"content {self.content}",
            f"more {self.more}",
            f"rig {self.rig_file}",
            f"built {self.rig_command}",
            f"mode-{self.mode} model-{self.model}",
            f"data {self.data}",
            "755" if self.executable else "644",
            *names,
            "input.txt",
            "out.txt",
            "read_only_data_source",
            f"word-{self.variable}" + " twice" * self.prompt,
        ]
        return "".join(f"{line}\n" for line in lines).encode()


@dataclass
class Bench:
    """An execution whose only codon is run again and again, in one world or another."""

    folder: Path
    parts: Components
    data: DataListing

    @property
    def layout(self) -> Layout:
        return self.parts.layout

    async def run(self, world: World, *, may_reuse: bool = True) -> CompletedCodon:
        world.lay_out(self.layout.work_tree)
        self.layout.data_source.unlink(missing_ok=True)
        self.layout.data_source.symlink_to(self.folder / f"data-{world.data}")
        hank = world.hank(self.folder / "hank")
        selector = AgentSelector(
            chosen=None,
            hank_directory=hank.parent,
            sessions=self.layout.agent_sessions,
            homes=self.layout.agent_homes,
            asks_first=False,
        )
        ctx = self.parts.context(
            hank,
            agent_for=selector.agent_for,
            model_for=selector.model_for,
            identity_of=AgentIdentities(
                selector, self.layout.work_tree, may_run_programs=False
            ).identity_of,
            data_digest=self.data.digest,
            safe_points=frozenset(),
        )
        plan = plans.initial_plan(ctx.recorded.hank)
        run_id = await Runs(ctx).open_at(CodonId("work"), plan)
        entry = ctx.recorded.original_entry(ctx.state.execution_plan[0])
        run = CodonRun(ctx, run_id, entry, restored_rig=None, may_reuse=may_reuse)
        done = await run.run()
        assert isinstance(done, CompletedCodon), done
        return done


@asynccontextmanager
async def a_bench(folder: Path) -> AsyncIterator[Bench]:
    for number in range(2):
        data = folder / f"data-{number}"
        data.mkdir()
        (data / "data.txt").write_text(f"data {number}\n")

    layout = Layout.of_execution(folder / "execution")
    async with components(layout) as parts:
        with closing(DataListing(layout)) as data:
            yield Bench(folder, parts, data)


async def _walk(folder: Path, steps: int, seed: int) -> tuple[int, int]:
    """Change one input after the other; return how often the codon ran, and how often not."""
    chance, world = random.Random(seed), World()
    seen: dict[World, dict[str, bytes]] = {}
    ran = reused = 0
    async with a_bench(folder) as bench:
        for _ in range(steps):
            done = await bench.run(world)
            files = tree(bench.layout.work_tree)
            assert files["out.txt"] == world.output, f"a stale result: {world}, {done.reused}"
            assert "gone.txt" not in files
            assert done.captured is not None
            assert done.captured.value == f"said {world.content}"
            known = replace(world, comment=0)
            assert (done.reused is not None) == (known in seen)
            assert seen.setdefault(known, files) == files
            ran += done.reused is None
            reused += done.reused is not None
            world = world.changed(chance)

    return ran, reused


async def test_no_stale_result_is_taken_over_in_a_short_walk(tmp_path: Path) -> None:
    """After each of 25 changes of one input, the work tree is what an agent would have left."""
    ran, reused = await _walk(tmp_path, 25, seed=1)
    assert ran
    assert reused


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_no_stale_result_is_taken_over_in_a_long_walk(tmp_path: Path, tally: Tally) -> None:
    """Every kind of input is changed to and fro; a known world is never run again, 0 are stale."""
    ran, reused = await _walk(tmp_path, MUTATIONS, seed=21)
    assert ran + reused == MUTATIONS
    assert reused > MUTATIONS // 10
    tally.add("changes of a work tree", rounds=MUTATIONS, of=f"0 stale, {reused} reused")


async def test_a_pruned_or_partial_source_is_run_instead(tmp_path: Path) -> None:
    """A result whose checkpoint is gone is not offered; the codon simply runs."""
    async with a_bench(tmp_path) as bench:
        first = await bench.run(World())
        del bench.parts.checkpointer.known[first.completion_checkpoint]
        second = await bench.run(World())
        assert second.reused is None
        third = await bench.run(World())
        assert third.reused is not None
        assert third.reused.checkpoint_sha == second.completion_checkpoint


async def test_a_damaged_source_is_run_instead(tmp_path: Path) -> None:
    """A checkpoint with a lost object cannot be restored, so its result is made anew."""
    async with a_bench(tmp_path) as bench:
        first = await bench.run(World())
        objects = bench.layout.shadow_repository / "objects"
        for path in objects.rglob("*"):
            if path.is_file():
                path.chmod(0o600)
                path.write_bytes(b"damaged")

        bench.parts.engine.require_same_store()
        second = await bench.run(World())
        assert second.reused is None
        assert second.completion_checkpoint != first.completion_checkpoint
        assert (bench.layout.work_tree / "out.txt").read_bytes() == World().output


async def test_secrets_of_a_codon_are_not_in_the_journal(tmp_path: Path) -> None:
    """A secret in `env` is an input, and only the hash of everything is recorded."""
    async with a_bench(tmp_path) as bench:
        done = await bench.run(World())
        assert done.reuse_key is not None
        assert len(done.reuse_key) == 64
        assert json.dumps(done.reuse_key).encode() in bench.layout.journal.read_bytes()


@pytest.mark.parametrize(
    "count", [20, pytest.param(1_000, marks=[pytest.mark.full, pytest.mark.timeout(3_600)])]
)
async def test_unchanged_repetitions_are_all_reused(
    tmp_path: Path, count: int, tally: Tally
) -> None:
    """The first execution runs, and each of the others takes over its result."""
    async with a_bench(tmp_path) as bench:
        assert (await bench.run(World())).reused is None
        done = [await bench.run(World()) for _ in range(count)]

    assert sum(each.reused is not None for each in done) == count
    tally.add("unchanged repetitions", rounds=count, of="reused")
