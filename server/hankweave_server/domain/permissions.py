"""Permissions of agents: a hank's lists, and their verdict on a tool call. Deny wins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

from hankweave_protocol.hank import (
    AcpAgentSpec,
    AgentSpec,
    CodexAgentSpec,
    Codon,
    CommandAgentSpec,
    Overrides,
    Permissions,
)
from hankweave_protocol.ids import ClientId
from hankweave_server.domain.effects.tools import RISKY_TOOLS
from hankweave_server.domain.model_routes import is_known_to_ask
from hankweave_server.domain.permission_patterns import Call, MalformedPattern, Pattern, parse

OUR_TOOLS = "mcp__hankweave__"
"""The prefix of this server's own tools: `agentTools` lists them, and they are allowed."""

NEVER_ASK = (CommandAgentSpec, CodexAgentSpec)
"""Agents that call their tools without asking this server."""


@dataclass(frozen=True, slots=True)
class Permitted:
    rule: str
    """The pattern that matches, or `otherwise`."""


@dataclass(frozen=True, slots=True)
class Denied:
    rule: str


@dataclass(frozen=True, slots=True)
class NeedsAnswer:
    """A client has to decide; `reason` says why the lists do not."""

    reason: str


Judgement: TypeAlias = Permitted | Denied | NeedsAnswer


@dataclass(frozen=True, slots=True)
class PermissionPolicy:
    """The permissions of a codon, with parsed patterns."""

    allow: tuple[Pattern, ...]
    deny: tuple[Pattern, ...]
    otherwise: Literal["ask", "allow", "deny"]
    timeout: timedelta
    on_timeout: Literal["deny", "allow"]

    def judge(self, call: Call, added: Iterable[Pattern] = ()) -> Judgement:
        """Return the verdict on a call that the agent asks permission for.

        `added` are rules of earlier answers. They only spare a question: what the lists deny, or
        `otherwise` does, stays denied.
        """
        if (denied := self.denied(call)) is not None:
            return denied

        if call.tool.startswith(OUR_TOOLS):
            return Permitted("agentTools")

        for pattern in self.allow:
            if pattern.allows(call):
                return Permitted(pattern.text)

        match self.otherwise:
            case "allow":
                return Permitted("otherwise")
            case "deny":
                return Denied("otherwise")
            case _:
                fits = next((pattern for pattern in added if pattern.allows(call)), None)
                return NeedsAnswer(self._why(call)) if fits is None else Permitted(fits.text)

    def denied(self, call: Call) -> Denied | None:
        """Return the pattern of `deny` that denies a call, if there is one."""
        found = next((pattern for pattern in self.deny if pattern.denies(call)), None)
        return None if found is None else Denied(found.text)

    def _why(self, call: Call) -> str:
        for pattern in self.allow:
            if pattern.would_allow_but_for_a_chain(call):
                return f"{pattern.text} allows one plain command, and this is not one."

        return f"No rule covers this call of {call.tool}."


_FILE_TOOLS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Read", "Write"})
"""Tools that take a file: one in the same folder is the next that is likely."""

_LONGEST_SUGGESTION = 500
"""Characters; nobody reads a longer rule before it is accepted."""


def rule_from(text: str, call: Call) -> Pattern:
    """Return the rule that the answer to a call adds; raise MalformedPattern.

    It must name one tool, and allow the very call: a person has seen nothing else.
    """
    pattern = parse(text)
    if pattern.tool.endswith("*"):
        raise MalformedPattern(f"{text!r} names more than one tool.", "Name one: Bash(git diff *).")

    if not pattern.allows(call):
        raise MalformedPattern(
            f"{text!r} does not allow the call that is asked for.",
            "Write a rule that fits the whole call, as in 'Write(out/*)' or 'Bash(git diff *)'.",
        )

    return pattern


def suggestion_for(call: Call) -> str | None:
    """Return the narrowest rule that is useful after this call; None if there is none.

    For a file, these are the files beside it; for a command or an address, it alone. A `*` in the
    call itself would mean more in a rule than in the call.
    """
    argument = _folder_of(call) if call.places else "".join(call.texts[:1]).strip()
    words = (*call.texts, *(place.written for place in call.places))
    text = f"{call.tool}({argument})"
    if not argument or len(text) > _LONGEST_SUGGESTION or any("*" in word for word in words):
        return None

    try:
        return rule_from(text, call).text
    except MalformedPattern:
        return None


def _folder_of(call: Call) -> str:
    """Return a pattern for the places of a call: what is beside them, or the only one itself.

    Nothing outside of the work tree, or in a hidden folder, is allowed besides the very file.
    """
    folders = {place.written.rpartition("/")[0] for place in call.places}
    folder = folders.pop()
    is_plain_folder = folder and not folder.startswith("/")
    is_plain_folder = is_plain_folder and not any(e.startswith(".") for e in folder.split("/"))
    if not folders and is_plain_folder and call.tool in _FILE_TOOLS:
        return f"{folder}/*"

    return call.places[0].written if len(call.places) == 1 else ""


def policy_of(permissions: Permissions) -> PermissionPolicy:
    """Parse the patterns; raise MalformedPattern, which cannot happen for a loaded hank."""
    return PermissionPolicy(
        allow=tuple(map(parse, permissions.allow)),
        deny=tuple(map(parse, permissions.deny)),
        otherwise=permissions.otherwise,
        timeout=timedelta(seconds=permissions.timeout_seconds),
        on_timeout=permissions.on_timeout,
    )


def permissions_of(codon: Codon, overrides: Overrides | None) -> Permissions | None:
    """Return the permissions of a codon: its own, as a whole, or else the hank's."""
    if codon.permissions is not None or overrides is None:
        return codon.permissions

    return overrides.permissions


def is_asked_for(tool: str) -> bool:
    """Return whether an agent's settings may not allow a tool without asking this server."""
    is_of_others = tool.startswith("mcp__") and not tool.startswith(OUR_TOOLS)
    return tool in RISKY_TOOLS or is_of_others


def can_refuse(permissions: Permissions) -> bool:
    """Return whether these permissions can deny any call."""
    return permissions.otherwise != "allow" or bool(permissions.deny)


def can_ask(agent: AgentSpec) -> bool:
    """Return whether an agent is known to ask this server before it calls a tool."""
    if isinstance(agent, AcpAgentSpec):
        return is_known_to_ask(agent.command, agent.mode)

    return not isinstance(agent, NEVER_ASK)


@dataclass(frozen=True, slots=True)
class PermissionVerdict:
    """The answer to a permission request, and its source."""

    decision: Literal["allow", "deny"]
    by: Literal["policy", "client", "timeout", "ended"]
    rule: str | None = None
    client_id: ClientId | None = None
    message: str | None = None
    causes: tuple[int | str, ...] = ()
    """Causes of the event that reports it."""
    always: str | None = None
    """The rule that it adds."""


def by_policy(judged: Permitted | Denied) -> PermissionVerdict:
    decision: Literal["allow", "deny"] = "allow" if isinstance(judged, Permitted) else "deny"
    return PermissionVerdict(decision, "policy", rule=judged.rule)


def answer_on_expiry(policy: PermissionPolicy) -> PermissionVerdict:
    waited = f"There was no answer within {policy.timeout.total_seconds():g} s."
    return PermissionVerdict(policy.on_timeout, "timeout", rule="onTimeout", message=waited)


def refusal(tool: str, answer: PermissionVerdict) -> str:
    """Return the text that tells an agent who denied its call, and why."""
    match answer.by:
        case "policy" if answer.rule == "otherwise":
            why = "this codon's permissions do not allow such a call"
        case "policy" if answer.rule is not None:
            why = f"this codon's permissions deny {answer.rule}"
        case "client":
            why = "the user who is watching this run denied it"
        case _:
            why = "it was not allowed"

    said = "" if answer.message is None else f" {answer.message}"
    return f"Hankweave did not let {tool} be called: {why}.{said}"
