"""Going on in the midst of a codon's work: a rollback took files and conversation back to there."""

from __future__ import annotations

import os

from hankweave_protocol.records import Conversation
from hankweave_protocol.state import PlanEntry
from hankweave_server.domain.history import conversation_of
from hankweave_server.execution.context import Surroundings


def taken_up(around: Surroundings, entry: PlanEntry) -> Conversation | None:
    """Where the codon's agent goes on in its own conversation; None where it begins anew.

    An agent that remembers nothing, or whose session is gone, begins anew on the files as they are.
    """
    conversation = conversation_of(around.state, entry.codon_id)
    if conversation is None:
        return None

    codon, agent = entry.codon, around.agent_for(entry.codon)
    files = agent.memory_of(conversation.session_id, around.layout.work_tree, codon.env)
    return conversation if any(os.path.lexists(path) for path in files) else None
