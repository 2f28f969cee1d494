"""The order of requests to an ACP agent, tested with an agent made of canned responses."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from acp.exceptions import RequestError

from hankweave_server.agents import stream_json
from hankweave_server.agents.acp.bridge import error_text
from hankweave_server.agents.acp.dialogue import Dialogue, Ended
from hankweave_server.agents.acp.events import AcpTranslator
from hankweave_server.agents.acp.json_lines import BridgeOrder, BridgeTools, from_line, to_line
from hankweave_server.domain.failures import classify, is_context_full
from support.waiting import limited

OPTION = {
    "id": "llm",
    "category": "model",
    "type": "select",
    "currentValue": "maker/small",
    "options": [{"group": "g", "options": [{"value": "maker/small"}, {"value": "maker/large"}]}],
}
OLDER = {"currentModelId": "small", "availableModels": [{"modelId": "small"}, {"modelId": "big"}]}


def an_update(text: str, kind: str = "message") -> dict[str, Any]:
    chunk = {"type": "text", "text": text}
    return {"sessionUpdate": f"agent_{kind}_chunk", "content": chunk}


class AnAgent:
    """An agent that returns canned responses and records the requests."""

    def __init__(self, translator: AcpTranslator, **answers: Any) -> None:
        self._translator = translator
        self._answers = {
            "initialize": {"protocolVersion": 1},
            "session/new": {"sessionId": "s1"},
            "session/prompt": {"stopReason": "end_turn", "updates": [an_update("done")]},
        } | answers
        self.asked: dict[str, Any] = {}

    async def send_request(self, method: str, params: Any = None) -> Any:
        self.asked[method] = params
        await anyio.lowlevel.checkpoint()
        answer = self._answers.get(method, {})
        if isinstance(answer, Exception):
            raise answer

        for update in answer.pop("updates", ()):
            self._translator.receive(update)

        return answer

    async def send_notification(self, method: str, params: Any = None) -> None:
        self.asked[method] = params


class RecordedOutput:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def emit(self, line: Any) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


class Talk:
    """One dialogue with its outcome and the recorded requests."""

    def __init__(self, order: dict[str, Any], answers: dict[str, Any]) -> None:
        fields = {"command": ("a",), "prompt": "do it", "work_tree": "/w", "model": "large"}
        self.output = RecordedOutput()
        self.translator = AcpTranslator(self.output.emit, lambda: None)
        self.agent = AnAgent(self.translator, **answers)
        self.began: list[tuple[str, str]] = []
        self.dialogue = Dialogue(
            BridgeOrder(**fields | order),
            self.agent,
            self.translator,
            self.output,
            lambda session, model: self.began.append((session, model)),
        )


async def talk(order: dict[str, Any] | None = None, **answers: Any) -> tuple[Ended, Talk]:
    held = Talk(order or {}, {name.replace("_", "/", 1): each for name, each in answers.items()})
    with limited():
        return await held.dialogue.run(), held


async def test_nothing_is_offered_that_the_bridge_does_not_do() -> None:
    """The bridge offers no file system or terminal: agents write and run commands themselves."""
    ended, held = await talk()
    assert ended == Ended(True, spent={})
    capabilities = held.agent.asked["initialize"]["clientCapabilities"]
    assert capabilities["fs"] == {"readTextFile": False, "writeTextFile": False}
    assert capabilities["terminal"] is False
    assert held.agent.asked["session/new"] == {"cwd": "/w", "mcpServers": []}
    assert held.agent.asked["session/prompt"]["prompt"] == [{"type": "text", "text": "do it"}]


@pytest.mark.parametrize(
    ("offer", "wanted", "method", "at_work"),
    [
        ({"configOptions": [OPTION]}, "maker/large", "session/set_config_option", "maker/large"),
        ({"configOptions": [OPTION]}, "large", "session/set_config_option", "maker/large"),
        ({"configOptions": [OPTION]}, "sonnet", None, "maker/small"),
        ({"models": OLDER}, "big", "session/set_model", "big"),
        ({"models": OLDER}, "sonnet", None, "small"),
        ({}, "sonnet", None, "sonnet"),
        ({"configOptions": [7, {"category": []}], "models": 3}, "sonnet", None, "sonnet"),
    ],
)
async def test_the_hanks_model_is_set_where_the_agent_has_it(
    offer, wanted, method, at_work
) -> None:
    """A full name or a unique short name selects; otherwise the agent's model stays, with a
    note."""
    _, held = await talk({"model": wanted}, session_new={"sessionId": "s1"} | offer)
    setting = {"session/set_config_option", "session/set_model"} & held.agent.asked.keys()
    assert setting == ({method} if method else set())
    assert held.began == [("s1", at_work)]
    assert bool(held.output.notes) == (method is None)


async def test_a_name_that_two_makers_have_is_nobodys() -> None:
    """A short name that two providers share selects no model, because it is ambiguous."""
    options = [{"value": "a/large"}, {"value": "b/large"}]
    offer = {"sessionId": "s1", "configOptions": [OPTION | {"options": options}]}
    _, held = await talk({"model": "large"}, session_new=offer)
    assert "session/set_config_option" not in held.agent.asked


@pytest.mark.parametrize(
    "offer",
    [
        {"modes": {"availableModes": [{"id": "bold"}]}},
        {"configOptions": [{"category": "mode", "type": "select", "options": [{"value": "bold"}]}]},
    ],
)
async def test_a_mode_is_set_before_the_prompt_or_the_codon_fails(offer) -> None:
    """A mode that cannot be set fails the codon: in another mode the agent could act unasked."""
    ended, held = await talk({"mode": "bold"}, session_new={"sessionId": "s1"} | offer)
    assert ended.success
    assert held.agent.asked["session/set_mode"] == {"sessionId": "s1", "modeId": "bold"}
    ended, held = await talk({"mode": "bald"}, session_new={"sessionId": "s1"} | offer)
    assert ended.text == "The agent has no mode 'bald'; it has: bold."
    assert held.began == []
    assert "session/prompt" not in held.agent.asked


@pytest.mark.parametrize(
    ("within", "load", "forks", "method"),
    [
        ({"resume": {}}, True, False, "session/resume"),
        ({"resume": {}, "fork": {}}, True, False, "session/resume"),
        ({"resume": {}, "fork": {}}, True, True, "session/fork"),
        ({"resume": {}}, False, True, "session/resume"),
        ({}, True, False, "session/load"),
        ({}, True, True, "session/load"),
    ],
)
async def test_a_session_is_taken_up_as_the_agent_can(within, load, forks, method) -> None:
    """A session is forked if that is requested and possible; otherwise it is resumed or loaded."""
    abilities = {"loadSession": load, "sessionCapabilities": within}
    order = {"resume": "s0", "forks": forks}
    answers = {"session/fork": {"sessionId": "s9"}}
    held = Talk(
        order, answers | {"initialize": {"protocolVersion": 1, "agentCapabilities": abilities}}
    )
    assert (await held.dialogue.run()).success
    assert held.agent.asked[method]["sessionId"] == "s0"
    assert held.began[0][0] == ("s9" if method == "session/fork" else "s0")


@pytest.mark.parametrize(
    "reason", ["max_turn_requests", "refusal", "cancelled", "of_tomorrow", None]
)
async def test_a_turn_that_does_not_end_well_has_failed(reason) -> None:
    """The failure has the protocol's stop reason, except for a cancelled turn."""
    ended, _ = await talk(session_prompt={"stopReason": reason})
    assert not ended.success
    assert reason is None or reason in ended.text
    assert not is_context_full(ended.text)


@pytest.mark.parametrize("updates", [[], [an_update("hm", "thought")]])
async def test_a_turn_without_an_answer_has_failed(updates) -> None:
    """A turn without an answer fails: an agent refused by its model may end the turn normally."""
    ended, _ = await talk(session_prompt={"stopReason": "end_turn", "updates": updates})
    assert not ended.success
    reason = classify(ended.text, 1, had_session=True)
    assert (reason.type, reason.retriable) == ("api-error", False)


async def test_a_full_context_is_known_as_one() -> None:
    """A full context is recognised by stop reason and error text, for loops and retries."""
    ended, _ = await talk(session_prompt={"stopReason": "max_tokens"})
    overflow = RequestError(
        -32603, "Internal error: too large", {"errorName": "ContextOverflowError"}
    )
    for text in (ended.text, error_text(overflow)):
        assert is_context_full(text)
        line = b'{"type":"result","is_error":true,"result":"%s"}' % text.encode()
        assert len(stream_json.parse(line)) == 2


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RequestError(-32603, "Internal error", {"details": "no luck"}), "Internal error: no luck"),
        (RequestError(-32603, "It broke", {"details": "broke"}), "It broke"),
        (RequestError(-32603, "It broke", "a text"), "It broke"),
        (RequestError(-32000, ""), "Error -32000"),
        (RequestError(401, "key", {"message": 3, "errorName": "APIError"}), "key: APIError"),
    ],
)
def test_an_error_says_all_that_it_knows(error: RequestError, text: str) -> None:
    """The error text has the message and the details from its data."""
    assert error_text(error) == text


async def test_an_agent_of_another_protocol_is_refused() -> None:
    """An agent with another protocol version is refused before a session starts."""
    with pytest.raises(RequestError, match="speaks ACP 2"):
        await talk(initialize={"protocolVersion": 2})


async def test_a_session_without_a_name_is_none() -> None:
    """A response without a session id starts no session, whatever else it contains."""
    ended, _ = await talk(session_new={"sessionId": 7})
    assert ended.text == "The agent answered session/new without a session."


USAGE = {"inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 1, "cachedWriteTokens": None}
QUOTA = {
    "token_count": {"input_tokens": 5, "output_tokens": 2},
    "model_usage": [{"model": "m", "token_count": {"input_tokens": 5, "output_tokens": 2}}, 7],
}


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"usage": USAGE}, (5, 2, 1)),
        ({"_meta": {"quota": QUOTA}}, (5, 2, 0)),
        ({"usage": 3, "_meta": []}, None),
    ],
)
async def test_tokens_are_counted_as_the_agent_reports_them(answer, tokens) -> None:
    """Tokens are counted in the protocol's form and in Gemini CLI's form."""
    ended, _ = await talk(
        session_prompt={"stopReason": "end_turn", "updates": [an_update("done")]} | answer
    )
    counted = ended.spent.get("usage")
    if tokens is None:
        assert counted is None
    else:
        read = counted.get("cache_read_input_tokens", 0)
        assert (counted["input_tokens"], counted["output_tokens"], read) == tokens


@pytest.mark.parametrize(
    ("resumed", "before", "cost"), [(False, [], 3.0), (True, [1], 2.0), (True, [], None)]
)
async def test_a_cost_is_that_of_this_conversation(resumed, before, cost) -> None:
    """Agents report a session's total cost: without its earlier cost, no cost is reported."""

    def usage(amount: float) -> dict[str, Any]:
        return {"sessionUpdate": "usage_update", "cost": {"amount": amount, "currency": "USD"}}

    abilities = {"sessionCapabilities": {"resume": {}}}
    answers = {
        "initialize": {"protocolVersion": 1, "agentCapabilities": abilities},
        "session/resume": {"updates": [usage(each) for each in before]},
        "session/prompt": {"stopReason": "end_turn", "updates": [an_update("done"), usage(3)]},
    }
    held = Talk({"resume": "s0"} if resumed else {}, answers)
    assert (await held.dialogue.run()).spent.get("total_cost_usd") == cost


async def test_a_cancel_before_the_prompt_ends_the_dialogue() -> None:
    """A cancel before the prompt ends the dialogue, since there is no turn to cancel."""
    held = Talk({}, {})
    await held.dialogue.cancel()
    assert await held.dialogue.run() == Ended(False, "The agent's turn was cancelled.")


def test_an_order_arrives_as_it_was_given() -> None:
    """An order survives encoding as one line, whatever it contains."""
    order = BridgeOrder(
        command=("a", "b"),
        prompt="two\nlines \u2028",
        work_tree="/w",
        model="m",
        tools=(BridgeTools("t", ("run",), {"A": "b"}),),
    )
    line = to_line(order)
    assert line.count("\n") == 1
    assert from_line(line.encode()) == order
