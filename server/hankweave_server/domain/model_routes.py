"""Model routes: which agent runs a model, as Hankweave's `selectHarness` decides it.

Hankweave has two harnesses: the Claude Agent SDK for Anthropic's models, also on Amazon Bedrock,
and Pi for all others. This server knows more agents: OpenAI's and Google's models go to their
makers' programs, and the rest to an agent that reaches many providers (OpenCode, Pi).

`known_as` and `is_known_to_ask` recognize ACP agents by name, and which of them ask before they
change something. That was found by running them (OpenCode 1.18, Gemini CLI 0.61); of any other
agent it is unknown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

AgentName: TypeAlias = Literal["claude", "codex", "gemini", "opencode", "pi"]

_CLAUDE_ALIASES = frozenset({"opus", "sonnet", "haiku", "opusplan", "default", "best"})
"""Claude Code's own names of its models; each may have the suffix `[1m]`."""

_CLAUDE_FAMILY = re.compile(
    r"(?:claude[- ])?(?P<family>opus|sonnet|haiku)(?:[- ]?(?P<major>\d)(?:[.-](?P<minor>\d))?)?"
    r"(?P<context>\[1m\])?"
)
_CLAUDE_ON_BEDROCK = re.compile(r"(?:[a-z-]+\.)?anthropic\.claude-|arn:aws[a-z-]*:bedrock:")
_OPENAI = re.compile(r"(?:gpt-|chatgpt-|o\d|codex(?:-|$))")
_GEMINI = re.compile(r"gemini(?:-|$)")
_GEMINI_ALIASES = {"flash": "gemini-3.8-flash"}
"""Hankweave's short names of Google's models; Gemini CLI offers full names only."""
_GLM = re.compile(r"glm(?:[\d./-]|$)")
_EFFORT = re.compile(r"(?P<model>.+)-(?P<effort>high|xhigh)")
"""Hankweave appends the effort to the names of OpenAI's models."""

_BEDROCK = ("amazon-bedrock", "bedrock")
_ZAI = ("zai", "z-ai", "zhipuai")
_MAKER_OF = {"claude": "anthropic", "codex": "openai", "gemini": "google"}
_MAKERS = ("anthropic", "openai", "google", "amazon-bedrock", "opencode", "codex", "gemini")


@dataclass(frozen=True, slots=True)
class Route:
    """An agent that runs a model."""

    agent: AgentName
    model: str
    """The agent's name of the model; empty for the agent's own default."""

    on_bedrock: bool = False
    """True if Claude Code must use Amazon Bedrock instead of Anthropic."""

    effort: str | None = None
    """Codex's `model_reasoning_effort`."""


def routes_of(model: str) -> tuple[Route, ...]:
    """Return the agents that can run a model, preferred first; none for an unknown name."""
    name = model.strip()
    provider, slash, rest = name.partition("/")
    if slash and not name.lower().startswith("arn:"):
        return _of_provider(provider.lower(), rest, name)

    return _of_bare(name)


def served_by(model: str) -> str | None:
    """Return the provider of a model; None if its name does not tell it."""
    route = next(iter(routes_of(model)), None)
    if route is not None and route.on_bedrock:
        return _BEDROCK[0]

    maker = None if route is None else maker_of(route.agent)
    return maker or model.strip().lower().rpartition("/")[0].rpartition("/")[2] or None


def maker_of(agent: str) -> str | None:
    """Return the maker of the models that an agent runs; None if it runs those of many."""
    return _MAKER_OF.get(agent)


def suggestion_for(model: str) -> str | None:
    """Return the provider that a misspelt one probably means."""
    provider, slash, rest = model.strip().partition("/")
    if not slash or provider.lower() in _MAKERS:
        return None

    close = difflib.get_close_matches(provider.lower(), _MAKERS, n=1, cutoff=0.8)
    return f"{close[0]}/{rest}" if close else None


def is_of_another_maker(model: str, agent: str) -> bool:
    """Return whether a model belongs to another maker, so that this agent cannot run it.

    OpenCode and Pi reach every provider. An unknown name counts as possible for every agent.
    """
    if agent in ("opencode", "pi"):
        return False

    known = {route.agent for route in routes_of(model)}
    return bool(known) and agent not in known


def _of_provider(provider: str, rest: str, name: str) -> tuple[Route, ...]:
    if suggestion_for(name) is not None or not rest:
        return ()

    match provider:
        case "anthropic":
            return (Route("claude", _claude_name(rest)),)
        case "openai" | "codex":
            return (_codex(rest),)
        case "google" | "gemini" if rest.lower() in _GEMINI_ALIASES:
            return (Route("gemini", _GEMINI_ALIASES[rest.lower()]),)
        case "google" | "gemini" if _GEMINI.match(rest.lower()):
            return (Route("gemini", rest),)
        case "opencode":
            # A bare name is a model of OpenCode's own provider; else this is the prefix of a shim.
            return (Route("opencode", rest if "/" in rest else name),)
        case "pi":
            return (Route("pi", rest), Route("opencode", rest))
        case _ if provider in _BEDROCK and "claude" in rest.lower():
            return (Route("claude", rest, on_bedrock=True),)
        case _ if provider in _ZAI and _GLM.match(rest.lower()):
            return _glm(rest)
        case _:
            return (Route("opencode", name), Route("pi", name))


def _of_bare(name: str) -> tuple[Route, ...]:
    lower = name.lower()
    if _CLAUDE_ON_BEDROCK.match(lower):
        return (Route("claude", name, on_bedrock=True),)

    is_alias = lower.removesuffix("[1m]") in _CLAUDE_ALIASES
    if is_alias or "claude" in lower or _CLAUDE_FAMILY.fullmatch(lower):
        return (Route("claude", _claude_name(name)),)

    if _OPENAI.match(lower):
        return (_codex(name),)

    if lower in _GEMINI_ALIASES:
        return (Route("gemini", _GEMINI_ALIASES[lower]),)

    if _GEMINI.match(lower):
        return (Route("gemini", "" if lower == "gemini" else name),)

    return _glm(name) if _GLM.match(lower) else ()


def _claude_name(name: str) -> str:
    """Return Claude Code's alias for a family, or Anthropic's ID for a version of it."""
    lower = name.lower()
    if lower == "claude":
        return "default"

    found = _CLAUDE_FAMILY.fullmatch(lower)
    if found is None:
        return lower if lower.removesuffix("[1m]") in _CLAUDE_ALIASES else name

    context = found["context"] or ""
    if found["major"] is None:
        return found["family"] + context

    version = "-".join(filter(None, (found["major"], found["minor"])))
    return f"claude-{found['family']}-{version}{context}"


def _codex(name: str) -> Route:
    if name.lower() == "codex":
        return Route("codex", "")

    found = _EFFORT.fullmatch(name)
    return Route("codex", name) if found is None else Route("codex", found[1], effort=found[2])


def _glm(name: str) -> tuple[Route, ...]:
    """Return routes for Z.AI's models, listed in lower case (Hankweave, `rewriteGlmModel`)."""
    model = f"zai/{name.lower()}"
    return Route("pi", model), Route("opencode", model)


KnownAgent: TypeAlias = Literal["gemini", "opencode", "claude", "codex", "pi"]

_ALIASES: Mapping[str, KnownAgent] = {
    "gemini": "gemini",
    "gemini-cli": "gemini",
    "opencode": "opencode",
    "opencode-ai": "opencode",
    "claude-agent-acp": "claude",
    "claude-code-acp": "claude",
    "codex-acp": "codex",
    "pi-acp": "pi",
}

_BOLD = frozenset({"autoEdit", "yolo"})
"""Modes of Gemini CLI in which it does not ask before every change."""


def known_as(command: Sequence[str]) -> KnownAgent | None:
    """Return the known agent in a command line: by name, by path, or behind npx or node."""
    names = (word.rpartition("/")[2] for word in command if not word.startswith("-"))
    found = (_ALIASES.get(name.partition("@")[0]) for name in names)
    return next(filter(None, found), None)


def is_known_to_ask(command: Sequence[str], mode: str | None) -> bool:
    """Return whether an agent asks in this mode before each tool that changes something."""
    known = known_as(command)
    return known == "opencode" or (known == "gemini" and mode not in _BOLD)
