"""Ask a model which of several results is the best; see `domain/judging.py`."""

from __future__ import annotations

import anyio.to_thread

from hankweave_protocol.attempts import AttemptRecord, Exploration, Judgement
from hankweave_protocol.state import Tokens
from hankweave_server.domain import plan as plans
from hankweave_server.domain.judging import (
    AttemptSummary,
    ChangedFile,
    JudgeAnswer,
    JudgePrompt,
    JudgingFailed,
    combined,
    prompts,
    read_answer,
)
from hankweave_server.execution.context import ExecutionContext
from hankweave_server.sentinels.providers.base import (
    CallFailed,
    Message,
    Model,
    ModelCall,
    ModelMissing,
)
from hankweave_server.worktree.names import shown


async def judged(ctx: ExecutionContext, exploration: Exploration) -> Judgement:
    """Return a model's comparison of the completed attempts, or why there is none."""
    assert exploration.judge is not None, "the exploration has a judge"
    done = [each for each in exploration.attempts if each.status == "completed"]
    if len(done) < 2:
        return Judgement(model=exploration.judge, error="There is nothing to compare.")

    try:
        model = await anyio.to_thread.run_sync(ctx.models.open, exploration.judge)
    except ModelMissing as missing:
        return Judgement(model=exploration.judge, error=str(missing))

    try:
        asked = prompts(
            _task(ctx, exploration), [await _summary(ctx, exploration, a) for a in done]
        )
        first, second = [await _answer(ctx, model, exploration.judge, each) for each in asked]
        return combined(exploration.judge, first, second)
    except (CallFailed, JudgingFailed) as failed:
        return Judgement(model=exploration.judge, error=str(failed))
    finally:
        await model.aclose()


async def _answer(
    ctx: ExecutionContext, model: Model, name: str, prompt: JudgePrompt
) -> JudgeAnswer:
    answer = await model.ask(ModelCall(messages=(Message("user", prompt.text),)))
    return read_answer(prompt, answer.text, cost=_price(ctx, name, answer.tokens))


def _price(ctx: ExecutionContext, model: str, tokens: Tokens) -> float:
    return ctx.price(model.rpartition("/")[2], tokens) or 0.0


def _task(ctx: ExecutionContext, exploration: Exploration) -> str:
    """Return what the explored codon is told, and what it is called."""
    entry = plans.entry(ctx.state.execution_plan, exploration.codon_id)
    name = exploration.codon_id if entry is None else entry.codon.name
    prompt = ctx.hank.prompts.get(exploration.codon_id.partition("#")[0])
    return name if prompt is None else f"{name}\n\n{prompt.text}"


async def _summary(
    ctx: ExecutionContext, exploration: Exploration, attempt: AttemptRecord
) -> AttemptSummary:
    assert attempt.checkpoint_sha is not None, "a completed attempt has a checkpoint"
    files = await ctx.checkpointer.diff(
        exploration.checkpoint_sha, attempt.checkpoint_sha, lambda: (), None, patch=True
    )
    changes = b"".join(each.patch or b"" for each in files).decode("utf-8", "replace")
    listed = tuple(ChangedFile(shown(each.path), each.added, each.removed) for each in files)
    return AttemptSummary(attempt, ctx.checkpointer.clean(changes), listed)
