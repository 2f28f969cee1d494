"""The decision of permissions about a call, and the message to the agent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_protocol.hank import (
    AcpAgentSpec,
    ClaudeAgentSpec,
    CodexAgentSpec,
    Codon,
    CommandAgentSpec,
    Overrides,
    Permissions,
    ScriptedAgentSpec,
)
from hankweave_protocol.ids import ClientId
from hankweave_server.domain.permission_patterns import Call, MalformedPattern, PatternPlace, parse
from hankweave_server.domain.permissions import (
    Denied,
    NeedsAnswer,
    PermissionVerdict,
    Permitted,
    answer_on_expiry,
    by_policy,
    can_ask,
    can_refuse,
    is_asked_for,
    permissions_of,
    policy_of,
    refusal,
    rule_from,
    suggestion_for,
)

LS = Call("Bash", texts=("ls",))
CHAIN = Call("Bash", texts=("ls; rm x",))


def judge(call: Call, **fields: Any) -> object:
    return policy_of(Permissions(**fields)).judge(call)


def test_a_denial_wins() -> None:
    """A denial wins, whatever the order of the lists and however narrow it is."""
    assert judge(LS, allow=("Bash", "Bash(ls)"), deny=("Bash(ls)",)) == Denied("Bash(ls)")
    assert judge(CHAIN, allow=("Bash",), deny=("Bash(rm *)",)) == Denied("Bash(rm *)")


def test_the_first_pattern_that_fits_is_the_rule() -> None:
    """The rule is reported as written in the hank."""
    assert judge(LS, allow=("Write", "Bash(l*)", "Bash")) == Permitted("Bash(l*)")


@pytest.mark.parametrize(
    ("otherwise", "judged"),
    [("allow", Permitted("otherwise")), ("deny", Denied("otherwise"))],
)
def test_what_nothing_fits_is_as_the_hank_says(otherwise: str, judged: object) -> None:
    """If no pattern matches, `otherwise` decides and is reported as the rule."""
    assert judge(LS, allow=("Write",), deny=("Read",), otherwise=otherwise) == judged


def test_a_person_is_asked_where_no_list_matches() -> None:
    """The reason is that nothing matches, or that the matching pattern allows no chain."""
    assert judge(LS) == NeedsAnswer("No rule covers this call of Bash.")
    reason = "Bash(ls*) allows one plain command, and this is not one."
    assert judge(CHAIN, allow=("Bash(ls*)",)) == NeedsAnswer(reason)


@given(st.sampled_from(["Bash", "Write", "mcp__a__b"]), st.text())
def test_without_lists_and_askers_nothing_passes(tool: str, text: str) -> None:
    """Without lists, `otherwise: deny` denies every call."""
    assert judge(Call(tool, texts=(text,)), otherwise="deny") == Denied("otherwise")


def test_a_codons_permissions_win_as_a_whole() -> None:
    """A codon's permissions replace the hank's and are not merged with them."""
    own, common = Permissions(allow=("Read",)), Permissions(deny=("Bash",))
    fields: Any = {"id": "a", "name": "A", "model": "m", "continuation_mode": "fresh"}
    with_own, without = Codon(**fields, permissions=own), Codon(**fields)
    assert permissions_of(with_own, Overrides(permissions=common)) is own
    assert permissions_of(without, Overrides(permissions=common)) is common
    assert permissions_of(without, Overrides()) is None
    assert permissions_of(without, None) is None


def test_who_can_be_asked_and_what_for() -> None:
    """Agents that do not ask, and tools that never need permission, are known."""
    assert can_ask(ClaudeAgentSpec())
    assert can_ask(ScriptedAgentSpec())
    assert not can_ask(CodexAgentSpec())
    assert not can_ask(CommandAgentSpec(command=("x",)))
    assert can_ask(AcpAgentSpec(command=("gemini", "--acp")))
    assert not can_ask(AcpAgentSpec(command=("gemini", "--acp"), mode="yolo"))
    assert [is_asked_for(tool) for tool in ("Bash", "mcp__a__b", "Read")] == [True, True, False]
    assert not can_refuse(Permissions(otherwise="allow", allow=("Bash",)))
    assert can_refuse(Permissions(otherwise="allow", deny=("Bash",)))
    assert can_refuse(Permissions())


def test_our_own_tools_need_no_leave_but_can_be_denied() -> None:
    """The hank's `agentTools` selects an agent's tools; `deny` can remove more of them."""
    create = Call("mcp__hankweave__checkpoint_create")
    assert policy_of(Permissions(otherwise="deny")).judge(create) == Permitted("agentTools")
    assert not is_asked_for(create.tool)
    denied = policy_of(Permissions(deny=("mcp__hankweave__*",))).judge(create)
    assert denied == Denied("mcp__hankweave__*")


def test_silence_is_an_answer_too() -> None:
    """After `timeoutSeconds` the answer is `onTimeout`."""
    policy = policy_of(Permissions(timeout_seconds=1.5, on_timeout="allow"))
    assert policy.timeout == timedelta(seconds=1.5)
    answer = answer_on_expiry(policy)
    assert (answer.decision, answer.by, answer.rule) == ("allow", "timeout", "onTimeout")
    assert answer.message == "There was no answer within 1.5 s."


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (by_policy(Denied("Bash(rm *)")), "this codon's permissions deny Bash(rm *)."),
        (by_policy(Denied("otherwise")), "this codon's permissions do not allow such a call."),
        (
            PermissionVerdict("deny", "client", client_id=ClientId("c"), message="Not today."),
            "the user who is watching this run denied it. Not today.",
        ),
        (answer_on_expiry(policy_of(Permissions())), "it was not allowed. There was no"),
    ],
)
def test_an_agent_receives_who_refused_it_and_why(answer: PermissionVerdict, words: str) -> None:
    """Each kind of refusal has its own message."""
    assert words in refusal("Bash", answer)
    assert refusal("Bash", answer).startswith("Hankweave did not let Bash be called: ")


# --- rules that answers add -----------------------------------------------------------------------


def bash(command: str) -> Call:
    return Call("Bash", texts=(command,))


def at(tool: str, *paths: str, real: str | None = None) -> Call:
    return Call(tool, places=tuple(PatternPlace(path, real or path) for path in paths))


@pytest.mark.parametrize(
    ("call", "suggested"),
    [
        (at("Write", "out/summary.md"), "Write(out/*)"),
        (at("Edit", "src/a/b.py", "src/a/c.py"), "Edit(src/a/*)"),
        (at("Write", "summary.md"), "Write(summary.md)"),
        (at("Write", ".github/ci.yml"), "Write(.github/ci.yml)"),
        (at("Read", "/etc/hosts"), "Read(/etc/hosts)"),
        (at("Grep", "src/lib"), "Grep(src/lib)"),
        (bash(" git push origin main "), "Bash(git push origin main)"),
        (Call("WebFetch", texts=("https://a.example/x",)), "WebFetch(https://a.example/x)"),
        pytest.param(at("Grep", "."), None, id="the-whole-tree"),
        pytest.param(at("Edit", "a/x", "b/y"), None, id="several-folders"),
        pytest.param(at("Write", "out/a.md", real="/etc/passwd"), None, id="a-link-elsewhere"),
        pytest.param(at("Write", "out/a*.md"), None, id="a-star-in-a-path"),
        pytest.param(at("Write", "out*/a.md"), None, id="a-star-in-a-folder"),
        pytest.param(bash("rm *.log"), None, id="a-star-in-a-command"),
        pytest.param(bash("git status; rm x"), None, id="a-chain"),
        pytest.param(bash("x" * 501), None, id="too-long-to-be-read"),
        pytest.param(Call("mcp__mail__send"), None, id="only-the-whole-tool"),
        pytest.param(Call("Bash"), None, id="an-unreadable-call"),
    ],
)
def test_the_suggested_rule_is_the_narrowest_that_is_useful(
    call: Call, suggested: str | None
) -> None:
    """It allows the call. Where only a wider rule would, nothing is suggested."""
    assert suggestion_for(call) == suggested
    if suggested is not None:
        assert rule_from(suggested, call) == parse(suggested)


@given(st.text(max_size=30))
def test_no_suggestion_for_a_command_allows_another_command(command: str) -> None:
    """Whatever an agent writes into its command, the rule fits this command line alone."""
    suggested = suggestion_for(bash(command))
    if suggested is not None:
        rule = parse(suggested)
        assert rule.allows(bash(command))
        assert not rule.allows(bash(f"{command.strip()} x"))
        assert not rule.allows(bash(f"x{command.strip()}"))


@pytest.mark.parametrize(
    "rule", ["Bash(git push *)", "Write(**)", "*", "mcp__*", "Ba*", "Bash(", "Bash(*; ls)", "1"]
)
def test_a_rule_that_does_not_fit_the_call_is_refused(rule: str) -> None:
    """Nor is one that names several tools: a person has seen the call of one."""
    with pytest.raises(MalformedPattern):
        rule_from(rule, LS)


@pytest.mark.parametrize(
    ("permissions", "judged"),
    [
        (Permissions(otherwise="ask"), Permitted("Bash(ls)")),
        (Permissions(otherwise="ask", deny=("Bash(ls)",)), Denied("Bash(ls)")),
        (Permissions(otherwise="deny"), Denied("otherwise")),
    ],
)
def test_an_added_rule_spares_a_question_and_overrules_no_denial(
    permissions: Permissions, judged: object
) -> None:
    """A call that the lists of another codon deny, or its `otherwise`, stays denied."""
    assert policy_of(permissions).judge(LS, [parse("Bash(ls)")]) == judged
    assert isinstance(policy_of(Permissions()).judge(CHAIN, [parse("Bash(ls)")]), NeedsAnswer)
