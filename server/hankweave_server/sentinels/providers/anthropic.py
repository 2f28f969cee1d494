"""Ask Anthropic's models through its SDK; imported only when such a model is used."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import anthropic

from hankweave_protocol.state import Tokens
from hankweave_server.sentinels.providers.base import CallFailed, ModelAnswer, ModelCall, refused
from hankweave_server.sentinels.providers.transport import BoundedClient, reason


class AnthropicModel:
    """A model behind the messages API; JSON is requested as the input of a single tool."""

    def __init__(self, name: str, key: str, base_url: str | None, timeout: timedelta) -> None:
        self._name = name
        self._client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=base_url,
            timeout=timeout.total_seconds(),
            http_client=BoundedClient(timeout),
        )

    async def ask(self, call: ModelCall) -> ModelAnswer:
        client = self._client.with_options(max_retries=call.max_retries)
        try:
            reply = await client.messages.create(**self._request(call))
            return _answer(reply, wants_json=call.form is not None)
        except anthropic.APIStatusError as error:
            raise refused("Anthropic", error.status_code, error.message) from None
        except anthropic.APIError as error:
            raise CallFailed(f"Anthropic: {reason(error)}", retriable=True) from None
        except (ValueError, TypeError, AttributeError) as error:
            raise CallFailed(
                f"Anthropic's response is malformed: {error}", retriable=True
            ) from None

    async def aclose(self) -> None:
        await self._client.close()

    def _request(self, call: ModelCall) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._name,
            "max_tokens": call.max_output_tokens,
            "messages": [{"role": each.role, "content": each.content} for each in call.messages],
        }
        if call.system is not None:
            request["system"] = call.system

        if call.temperature is not None:
            # Recent versions of the SDK have no parameter for it; older ones accept this too.
            request["extra_body"] = {"temperature": call.temperature}

        if (form := call.form) is not None:
            tool = {
                "name": form.name,
                "description": form.description,
                "input_schema": dict(form.schema),
            }
            request |= {"tools": [tool], "tool_choice": {"type": "tool", "name": form.name}}

        return request


def _answer(reply: Any, *, wants_json: bool) -> ModelAnswer:
    if wants_json:
        texts = [json.dumps(block.input) for block in reply.content if block.type == "tool_use"]
    else:
        texts = ["".join(block.text for block in reply.content if block.type == "text")]

    if not texts or not texts[0]:
        raise CallFailed(f"The model returned no answer ({reply.stop_reason}).", retriable=True)

    usage = reply.usage
    return ModelAnswer(
        texts[0],
        Tokens(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_creation_tokens=usage.cache_creation_input_tokens or 0,
            cache_read_tokens=usage.cache_read_input_tokens or 0,
        ),
    )
