"""What an agent is asked in a codon: prompt, limits and the session it goes on from."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hankweave_protocol.hank import Codon
from hankweave_protocol.ids import RunId
from hankweave_protocol.records import Conversation
from hankweave_protocol.state import PlanEntry
from hankweave_server.agents.base import AgentError, AgentLimits, AgentTask
from hankweave_server.domain import variables
from hankweave_server.domain.history import previous_session
from hankweave_server.domain.permissions import can_refuse, permissions_of
from hankweave_server.execution.codon.environment import offered
from hankweave_server.execution.codon.notices import with_notice
from hankweave_server.execution.context import Surroundings
from hankweave_server.execution.taken_up import taken_up
from hankweave_server.execution.variables import known
from hankweave_server.hank.prompts import ResolvedPrompt, render

KILL_GRACE = timedelta(seconds=1.5)
"""Between INT and TERM, and between TERM and KILL: an orderly end has eight seconds in all."""


def assignment(around: Surroundings, run_id: RunId, entry: PlanEntry) -> AgentTask:
    """Gives the codon's own task; raises AgentError where the hank or the thread lack a part."""
    codon, prompt = entry.codon, prompt_of(around, entry)
    system_prompt = _rendered(around, prompt.system_prompt) if prompt.system_prompt else None
    idle = _idle_limit(around, codon)
    conversation = taken_up(around, entry)
    return AgentTask(
        prompt=_rendered(around, prompt.text),
        system_prompt=with_notice(system_prompt, around.state.notice),
        model=around.model_for(codon),
        work_tree=around.layout.work_tree,
        data_dir=around.layout.data_path,
        log_path=around.layout.agent_log(run_id, entry.codon_id),
        resume_session=_session_to_resume(around, entry, conversation),
        environment=codon.env,
        run_id=run_id,
        codon_id=entry.codon_id,
        processes_dir=around.layout.agent_processes,
        limits=AgentLimits(idle=idle, total=_limit(codon.timeout_seconds), kill_grace=KILL_GRACE),
        forks=True,
        fork_at=None if conversation is None else conversation.message_id,
        goes_on=conversation is not None,
        asks=_asks(around, entry),
        tools=offered(around, run_id, entry.codon_id),
    )


def _asks(around: Surroundings, entry: PlanEntry) -> bool:
    """Tells whether the codon has permissions; raises AgentError where its agent would not ask."""
    permissions = permissions_of(entry.codon, around.hank.hank.overrides)
    if permissions is None:
        return False

    agent = around.agent_for(entry.codon)
    if can_refuse(permissions) and not agent.can_ask:
        raise AgentError(
            f"Codon {entry.codon.id} has permissions, and {agent.name} asks nobody.",
            hint="Choose another agent, or take the permissions out.",
        )

    return True


def extension(around: Surroundings, task: AgentTask, session_id: str, prompt: str) -> AgentTask:
    """Gives the task that sends an agent on in its own session (`exhaustWithPrompt`)."""
    return replace(
        task,
        prompt=_rendered(around, prompt),
        resume_session=session_id,
        forks=False,
        fork_at=None,
        goes_on=False,
    )


def prompt_of(around: Surroundings, entry: PlanEntry) -> ResolvedPrompt:
    prompt = around.hank.prompts.get(entry.codon.id)
    if prompt is None:
        raise AgentError(
            f"Codon {entry.codon.id} is in the execution plan, but not in hank.json.",
            hint="Put it back, or begin anew with --new.",
        )

    return prompt


def _rendered(around: Surroundings, text: str) -> str:
    layout = around.layout
    text = render(text, agent_root=layout.work_tree, data_dir=layout.data_path)
    return variables.render(text, known(around))


def _idle_limit(around: Surroundings, codon: Codon) -> timedelta | None:
    """Return how long the agent may be silent.

    A codon's own limit counts first, then the one of this start, the hank's, and the default. The
    hank's was put into the codons that had none when the hank was loaded.
    """
    overrides = around.hank.hank.overrides
    of_hank = None if overrides is None else overrides.shim_idle_timeout
    own = codon.shim_idle_timeout
    if around.idle_override is not None and own in (None, of_hank):
        return around.idle_override

    return _limit(own) or around.idle_timeout


def _limit(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _session_to_resume(
    around: Surroundings, entry: PlanEntry, conversation: Conversation | None
) -> str | None:
    if conversation is not None:
        return conversation.session_id

    if entry.codon.continuation_mode == "fresh":
        return None

    session = previous_session(around.state, entry.codon_id)
    if session is None:
        raise AgentError(
            f"Codon {entry.codon_id} continues the previous session, but there is none.",
            hint="Run the codon before it first, or set continuationMode to fresh.",
        )

    return session
