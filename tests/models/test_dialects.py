"""The endpoint as independent clients see it: the SDKs of its providers, and plain HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")
httpx2 = pytest.importorskip("httpx2")

from support.models.endpoint import Endpoint, scripted_models  # noqa: E402
from support.models.turns import Calls, Fails, Held, Says, Trouble, Turn, Usage, Writes  # noqa: E402
from support.waiting import LIMIT  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string"},
        "content": {"type": "string"},
        "reason": {"type": "string"},
        "mode": {"type": "string", "enum": ["new", "old"]},
    },
    "required": ["file_path", "content", "mode"],
}
FILLED = {"file_path": "/w/a.txt", "content": "line\n", "mode": "new"}
WRITES = Writes(Path("/w/a.txt"), "line\n", saying="I write.", usage=Usage(11, 22, 33))
TOOL = {"name": "write_file", "description": "Writes.", "input_schema": SCHEMA}
FUNCTION = {"name": "write_file", "description": "Writes.", "parameters": SCHEMA}
ASKED: dict[str, Any] = {
    "model": "claude-x",
    "max_tokens": 10,
    "messages": [{"role": "user", "content": "Do it."}],
}
GEMINI_ASKED = {
    "contents": [{"role": "user", "parts": [{"text": "Do it."}]}],
    "tools": [{"functionDeclarations": [{"name": "write_file", "parametersJsonSchema": SCHEMA}]}],
}


def claude(endpoint: Endpoint, timeout: float = LIMIT) -> Any:
    """Return a client of Anthropic's SDK; leaving it closes its connections."""
    return anthropic.Anthropic(base_url=endpoint.url, api_key="k", max_retries=0, timeout=timeout)


def gpt(endpoint: Endpoint, timeout: float = LIMIT) -> Any:
    url = f"{endpoint.url}/v1"
    return openai.OpenAI(base_url=url, api_key="k", max_retries=0, timeout=timeout)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with scripted_models() as endpoint:
        yield endpoint


def post(endpoint: Endpoint, path: str, body: Any) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=LIMIT)
    try:
        connection.request("POST", path, json.dumps(body), {"x-goog-api-key": "k"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


# --- a tool, then words ---------------------------------------------------------------------------


def test_anthropics_sdk_puts_a_streamed_tool_call_together(endpoint: Endpoint) -> None:
    """Text, arguments, reason and usage arrive whole, streamed or not."""
    endpoint.script.add(WRITES, WRITES)
    with claude(endpoint) as sdk:
        with sdk.messages.stream(**ASKED, tools=[TOOL]) as stream:
            streamed = stream.get_final_message()

        whole = sdk.messages.create(**ASKED, tools=[TOOL])

    for message in (streamed, whole):
        text, call = message.content
        assert (text.text, call.name, call.input) == ("I write.", "write_file", FILLED)
        assert message.stop_reason == "tool_use"
        assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 22)
        assert message.usage.cache_read_input_tokens == 33


def test_openais_sdk_puts_streamed_responses_together(endpoint: Endpoint) -> None:
    """A function call arrives with its arguments, and usage includes the cached tokens."""
    endpoint.script.add(WRITES)
    asked = {"model": "gpt-x", "input": "Do it.", "tools": [{"type": "function", **FUNCTION}]}
    with gpt(endpoint) as sdk, sdk.responses.stream(**asked) as stream:
        response = stream.get_final_response()

    message, call = response.output
    assert message.content[0].text == "I write."
    assert (call.name, json.loads(call.arguments)) == ("write_file", FILLED)
    assert (response.usage.input_tokens, response.usage.output_tokens) == (44, 22)


def test_openais_sdk_puts_streamed_chat_together(endpoint: Endpoint) -> None:
    """Chat completions arrive whole: arguments in pieces, or unstreamed."""
    endpoint.script.add(WRITES, WRITES)
    asked = {
        "model": "gpt-x",
        "messages": ASKED["messages"],
        "tools": [{"type": "function", "function": FUNCTION}],
    }
    with gpt(endpoint) as sdk:
        with sdk.chat.completions.stream(**asked) as stream:
            streamed = stream.get_final_completion()

        whole = sdk.chat.completions.create(**asked)

    for completion in (streamed, whole):
        message = completion.choices[0].message
        (call,) = message.tool_calls
        assert message.content == "I write."
        assert (call.function.name, json.loads(call.function.arguments)) == ("write_file", FILLED)
        assert completion.choices[0].finish_reason == "tool_calls"
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (44, 22)


def test_geminis_stream_has_text_and_a_call(endpoint: Endpoint) -> None:
    """Each event is one JSON document, the last with the reason; unstreamed it is one."""
    endpoint.script.add(WRITES, WRITES)
    path = "/v1beta/models/gemini-x"
    _, streamed = post(endpoint, f"{path}:streamGenerateContent?alt=sse", GEMINI_ASKED)
    events = [
        json.loads(event.removeprefix(b"data: ")) for event in streamed.split(b"\r\n\r\n")[:-1]
    ]
    _, whole = post(endpoint, f"{path}:generateContent", GEMINI_ASKED)
    for answer in (events, [json.loads(whole)]):
        parts = [p for event in answer for p in event["candidates"][0]["content"]["parts"]]
        assert "".join(part.get("text", "") for part in parts) == "I write."
        assert parts[-1]["functionCall"] == {"name": "write_file", "args": FILLED}
        assert answer[-1]["candidates"][0]["finishReason"] == "STOP"
        assert answer[-1]["usageMetadata"]["promptTokenCount"] == 44


# --- troubles -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (Trouble.RATE_LIMIT, "RateLimitError"),
        (Trouble.OVERLOAD, ("OverloadedError", "InternalServerError")),
        (Trouble.BILLING, ("BadRequestError", "RateLimitError")),
        (Trouble.WRONG_KEY, "AuthenticationError"),
        (Trouble.CONTEXT_FULL, "BadRequestError"),
        (Trouble.SILENCE, "APITimeoutError"),
    ],
)
def test_the_sdks_know_each_trouble(trouble: Trouble, error: str | tuple[str, ...]) -> None:
    """A refused or unanswered request raises the error that the provider's own SDK has for it."""
    expected = (error,) if isinstance(error, str) else error
    timeout = 0.5 if trouble is Trouble.SILENCE else LIMIT
    with scripted_models(Fails(trouble)) as endpoint:
        with claude(endpoint, timeout) as sdk, pytest.raises(anthropic.APIError) as refused:
            sdk.messages.create(**ASKED, tools=[TOOL])

        assert type(refused.value).__name__ in expected
        with gpt(endpoint, timeout) as sdk, pytest.raises(openai.APIError) as refused_too:
            sdk.responses.create(
                model="x", input="Do it.", tools=[{"type": "function", **FUNCTION}]
            )

        assert type(refused_too.value).__name__ in expected


@pytest.mark.parametrize("trouble", [Trouble.DROPPED_STREAM, Trouble.MALFORMED_STREAM])
def test_a_stream_that_breaks_is_no_answer(trouble: Trouble) -> None:
    """A broken stream begins as an answer, and the SDK does not reach its end."""
    with scripted_models(Fails(trouble)) as endpoint, claude(endpoint) as sdk:
        types = []
        with (
            contextlib.suppress(anthropic.APIError, httpx2.TransportError, ValueError),
            sdk.messages.create(**ASKED, tools=[TOOL], stream=True) as stream,
        ):
            types.extend(event.type for event in stream)

        assert "message_stop" not in types


@pytest.mark.parametrize(
    ("trouble", "status", "word"),
    [
        (Trouble.RATE_LIMIT, 429, "RESOURCE_EXHAUSTED"),
        (Trouble.OVERLOAD, 503, "UNAVAILABLE"),
        (Trouble.BILLING, 403, "BILLING_DISABLED"),
        (Trouble.WRONG_KEY, 400, "API_KEY_INVALID"),
        (Trouble.CONTEXT_FULL, 400, "INVALID_ARGUMENT"),
        (Trouble.REFUSAL, 200, "SAFETY"),
    ],
)
def test_gemini_has_a_message_for_what_it_refuses(trouble: Trouble, status: int, word: str) -> None:
    """Google's error document has code and status; a refusal is an answer with a safety reason."""
    with scripted_models(Fails(trouble)) as endpoint:
        got, answer = post(endpoint, "/v1beta/models/gemini-x:generateContent", GEMINI_ASKED)

    assert (got, f'"{word}"' in answer.decode()) == (status, True)


# --- the script -----------------------------------------------------------------------------------


def ask(endpoint: Endpoint, words: str, *, tools: bool = True) -> str:
    body = {**ASKED, "messages": [{"role": "user", "content": words}]}
    with claude(endpoint) as sdk:
        message = sdk.messages.create(**body, tools=[TOOL] if tools else [])

    return "".join(block.text for block in message.content if block.type == "text")


def test_what_an_agent_asks_aside_uses_no_turn(endpoint: Endpoint) -> None:
    """Titles, counts of tokens and lists of models are answered, and recorded as such."""
    endpoint.script.add(Says("hello"))
    assert "title" in ask(endpoint, "A title, please.", tools=False)
    with claude(endpoint) as sdk:
        assert sdk.messages.count_tokens(model="m", messages=ASKED["messages"])

    with gpt(endpoint) as sdk:
        assert list(sdk.models.list()) == []

    assert not endpoint.script.is_done
    assert ask(endpoint, "Work, please.") == "hello"
    assert endpoint.script.is_done
    assert [seen.turn for seen in endpoint.seen[:-1]] == [None] * 3
    assert [(seen.shown, seen.keys) for seen in endpoint.turns] == [
        ("Work, please.", {"k"}),
    ]


def test_a_trouble_stands_for_as_many_requests_as_it_says(endpoint: Endpoint) -> None:
    """Then the next turn follows; without a number it stays."""
    overload = Fails(Trouble.OVERLOAD, times=2)
    turns: tuple[Turn, ...] = (overload, Says("at last"), Fails(Trouble.WRONG_KEY))
    endpoint.script.add(*turns)
    for _ in range(2):
        with pytest.raises(anthropic.APIStatusError):
            ask(endpoint, "Again.")

    assert ask(endpoint, "Again.") == "at last"
    for _ in range(3):
        with pytest.raises(anthropic.AuthenticationError):
            ask(endpoint, "Again.")

    assert endpoint.script.is_done


def test_the_last_marker_in_the_conversation_chooses_the_script(endpoint: Endpoint) -> None:
    """If words of two scripts occur, the later ones decide; else the common turns apply."""
    endpoint.script.add(Says("common"))
    endpoint.script.on("APPLE", Says("an apple"), Says("two apples"))
    endpoint.script.on("PEAR", Says("a pear"))
    assert ask(endpoint, "An APPLE.") == "an apple"
    assert ask(endpoint, "An APPLE, then a PEAR.") == "a pear"
    assert ask(endpoint, "A PEAR, then an APPLE.") == "two apples"
    assert ask(endpoint, "Nothing.") == "common"
    assert not endpoint.script.has_run_over
    assert ask(endpoint, "And now?")
    assert endpoint.script.has_run_over


def test_an_answer_that_is_held_comes_when_it_is_let_go(endpoint: Endpoint) -> None:
    """The request is recorded before, so that a test can wait for it."""
    until = threading.Event()
    endpoint.script.add(Held(Says("now"), until))
    with ThreadPoolExecutor(1) as agent:
        answer = agent.submit(ask, endpoint, "When?")
        endpoint.wait_for(lambda: len(endpoint.turns) == 1)
        assert not answer.done()
        until.set()
        assert answer.result(5) == "now"


def test_a_tool_that_is_not_offered_fails_the_test() -> None:
    """The agent gets an error, and the end of the endpoint's block an assertion."""
    with (
        pytest.raises(AssertionError, match="no_such_tool"),
        scripted_models(Calls("no_such_tool")) as endpoint,
        pytest.raises(anthropic.AuthenticationError),
    ):
        ask(endpoint, "Call it.")
