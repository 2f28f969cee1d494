"""Claims about models: the official SDKs against a local endpoint, and the scripted model."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from hankweave_protocol.sentinels import StructuredOutput
from hankweave_server.sentinels.providers.base import (
    CallFailed,
    Message,
    ModelAnswer,
    ModelCall,
    ModelMissing,
)
from hankweave_server.sentinels.providers.registry import Models
from hankweave_server.sentinels.providers.scripted import ScriptedModel
from hankweave_server.sentinels.structured import form_of
from support.model_endpoint import (
    Endpoint,
    Trouble,
    malformed,
    model_endpoint,
    nonsense,
    overload,
    rate_limit,
    silence,
    wrong_key,
)
from support.waiting import LIMIT

NAMES = ("anthropic/claude-test", "openai/gpt-test", "local/some-model")
FORM = form_of(
    StructuredOutput(output="object"),
    {"type": "object", "properties": {"risk": {"enum": ["high", "low"]}}, "required": ["risk"]},
)
pytestmark = pytest.mark.parametrize("name", NAMES)


async def ask(
    endpoint: Endpoint, name: str, retries: int = 0, timeout: float = LIMIT, **fields: object
) -> ModelAnswer:
    model = Models(endpoint.environment, timeout=timedelta(seconds=timeout)).open(name)
    try:
        call = ModelCall((Message("user", "hello"),), max_retries=retries, **fields)  # type: ignore[arg-type]
        return await model.ask(call)
    finally:
        await model.aclose()


async def test_a_question_gets_its_answer_and_its_tokens(name: str) -> None:
    """Text, system prompt, token limit and token counts are transferred in both directions."""
    async with model_endpoint() as endpoint:
        answer = await ask(endpoint, name, system="be brief", max_output_tokens=99)
        assert answer.text == "heard hello"
        assert (answer.tokens.input_tokens, answer.tokens.cache_read_tokens) == (100, 7)
        (request,) = endpoint.requests
        assert request.body["model"] == name.partition("/")[2]
        assert request.body["max_tokens"] == 99
        assert "be brief" in json.dumps(request.body)
        assert "temperature" not in request.body


async def test_a_temperature_is_sent_as_it_was_configured(name: str) -> None:
    """`llmParams.temperature`, zero included, reaches the model through every SDK."""
    async with model_endpoint() as endpoint:
        await ask(endpoint, name, temperature=0.0)
        assert endpoint.requests[0].body["temperature"] == 0.0


async def test_json_is_asked_for_by_its_schema(name: str) -> None:
    """The schema is sent to the model, and the filled schema is returned as JSON."""
    async with model_endpoint() as endpoint:
        answer = await ask(endpoint, name, form=FORM)
        assert FORM.content_of(answer.text) == {"risk": "high"}
        assert '"risk"' in json.dumps(endpoint.requests[0].body)


@pytest.mark.parametrize("trouble", [rate_limit, overload], ids=["rate limit", "overload"])
async def test_what_passes_is_tried_again(name: str, trouble: Trouble) -> None:
    """A transient error is retried exactly `maxRetries` times."""
    async with model_endpoint(trouble, trouble) as endpoint:
        assert (await ask(endpoint, name, retries=2)).text == "heard hello"
        assert len(endpoint.requests) == 3

    async with model_endpoint(trouble, trouble) as endpoint:
        with pytest.raises(CallFailed) as failed:
            await ask(endpoint, name, retries=1)

        assert failed.value.retriable
        assert failed.value.fatal is None
        assert len(endpoint.requests) == 2


async def test_a_wrong_key_is_fatal_and_asked_once(name: str) -> None:
    """A retry cannot fix a wrong key."""
    async with model_endpoint(wrong_key) as endpoint:
        with pytest.raises(CallFailed) as failed:
            await ask(endpoint, name, retries=3)

        assert (failed.value.retriable, failed.value.fatal) == (False, "configuration")
        assert len(endpoint.requests) == 1


@pytest.mark.parametrize("trouble", [malformed, nonsense, silence])
async def test_an_answer_that_is_none_is_a_failed_call(name: str, trouble: Trouble) -> None:
    """Half a line of JSON, JSON of another form, or an empty body is an error, never a hang."""
    async with model_endpoint(trouble) as endpoint:
        with pytest.raises(CallFailed) as failed:
            await ask(endpoint, name, timeout=0.5 if trouble is silence else LIMIT)

        assert failed.value.retriable


async def test_an_endpoint_that_is_not_there_is_a_failed_call(name: str) -> None:
    """A refused connection fails the call, and may be retried."""
    async with model_endpoint() as endpoint:
        gone = endpoint

    with pytest.raises(CallFailed) as failed:
        await ask(gone, name)

    assert failed.value.retriable


def test_without_a_key_or_an_address_there_is_no_model(name: str) -> None:
    """The message names the variable to set."""
    with pytest.raises(ModelMissing, match=name.partition("/")[0].upper()):
        Models({}).open(name)


def test_the_sentinels_own_key_goes_first(name: str) -> None:
    """HANKWEAVE_SENTINEL_… is for sentinels only, the provider's variable for all uses."""
    provider = name.partition("/")[0].upper()
    environment = {f"{provider}_API_KEY": "everybody's", f"{provider}_BASE_URL": "http://x"}
    environment |= {f"HANKWEAVE_SENTINEL_{provider}_API_KEY": "ours"}
    model = Models(environment).open(name)
    assert model._client.api_key == "ours"  # type: ignore[attr-defined]


async def test_a_name_without_a_provider_is_known_or_refused(name: str) -> None:
    """`claude…` and `gpt…` imply their provider; other names must state it."""
    with pytest.raises(ModelMissing, match="provider/model"):
        Models({}).open(name.partition("/")[2].replace("claude", "x").replace("gpt", "y"))


async def test_the_scripted_model_says_what_its_prompt_says(name: str) -> None:
    """The model is deterministic.

    Its answer is its SAY lines, else the prompt, or the smallest JSON of a schema; FAIL fails.
    """
    model = Models({}).open("scripted/any")
    assert isinstance(model, ScriptedModel)
    answer = await model.ask(ModelCall((Message("user", f"{name}\nSAY: one\nSAY: two"),)))
    assert answer.text == "one\ntwo"
    assert (await model.ask(ModelCall((Message("user", name),)))).text == name
    filled = await model.ask(ModelCall((Message("user", name),), form=FORM))
    assert FORM.content_of(filled.text) == {"risk": "high"}
    given = await model.ask(ModelCall((Message("user", 'SAY: {"risk": "low"}'),), form=FORM))
    assert FORM.content_of(given.text) == {"risk": "low"}
    with pytest.raises(CallFailed) as failed:
        await model.ask(ModelCall((Message("user", "FAIL: refused"),)))

    assert failed.value.fatal == "configuration"
