"""Ask models of OpenAI and of compatible endpoints; imported only when such a model is used."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import openai

from hankweave_protocol.state import Tokens
from hankweave_server.sentinels.providers.base import CallFailed, ModelAnswer, ModelCall, refused
from hankweave_server.sentinels.providers.transport import BoundedClient, reason


class OpenAIModel:
    """A model behind chat completions, the part of the protocol that all endpoints share."""

    def __init__(
        self, name: str, key: str, base_url: str | None, timeout: timedelta, *, is_openai: bool
    ) -> None:
        self._name = name
        # OpenAI's newer models reject the old name of the limit, other endpoints the new one.
        self._limit = "max_completion_tokens" if is_openai else "max_tokens"
        self._client = openai.AsyncOpenAI(
            api_key=key,
            base_url=base_url,
            timeout=timeout.total_seconds(),
            http_client=BoundedClient(timeout),
        )

    async def ask(self, call: ModelCall) -> ModelAnswer:
        client = self._client.with_options(max_retries=call.max_retries)
        try:
            return _answer(await client.chat.completions.create(**self._request(call)))
        except openai.APIStatusError as error:
            raise refused("The endpoint", error.status_code, error.message) from None
        except openai.APIError as error:
            raise CallFailed(f"The endpoint: {reason(error)}", retriable=True) from None
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            message = f"The endpoint's response is malformed: {error}"
            raise CallFailed(message, retriable=True) from None

    async def aclose(self) -> None:
        await self._client.close()

    def _request(self, call: ModelCall) -> dict[str, Any]:
        system = [] if call.system is None else [{"role": "system", "content": call.system}]
        request: dict[str, Any] = {
            "model": self._name,
            "messages": [
                *system,
                *({"role": each.role, "content": each.content} for each in call.messages),
            ],
            self._limit: call.max_output_tokens,
        }
        if call.temperature is not None:
            request["temperature"] = call.temperature

        if (form := call.form) is not None:
            schema = {
                "name": form.name,
                "description": form.description,
                "schema": dict(form.schema),
                "strict": False,
            }
            request["response_format"] = {"type": "json_schema", "json_schema": schema}

        return request


def _answer(reply: Any) -> ModelAnswer:
    choice = reply.choices[0]
    if not choice.message.content:
        why = choice.message.refusal or choice.finish_reason
        raise CallFailed(f"The model returned no answer ({why}).", retriable=True)

    usage = reply.usage
    asked = 0 if usage is None else usage.prompt_tokens
    details = None if usage is None else usage.prompt_tokens_details
    cached = 0 if details is None else details.cached_tokens or 0
    return ModelAnswer(
        choice.message.content,
        Tokens(
            input_tokens=asked - cached,
            output_tokens=0 if usage is None else usage.completion_tokens,
            cache_creation_tokens=0,
            cache_read_tokens=cached,
        ),
    )
