"""From a model's name to a model: `scripted/…`, `anthropic/…`, `openai/…`, or any endpoint.

Keys and addresses come from the environment. `HANKWEAVE_SENTINEL_ANTHROPIC_API_KEY` goes before
`ANTHROPIC_API_KEY`, and so for each name. A provider that is not known by itself is one of the many
that speak OpenAI's protocol: `HANKWEAVE_SENTINEL_GROQ_BASE_URL` says where `groq/…` is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from hankweave_server.sentinels.providers.base import Model, ModelMissing
from hankweave_server.sentinels.providers.scripted import ScriptedModel

OWN_PREFIX = "HANKWEAVE_SENTINEL_"
NO_KEY = "none"
"""Sent where an endpoint of one's own wants no key."""

_BY_NAME = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}
"""Providers of models that are named without one, by how the name begins."""


@dataclass(frozen=True, slots=True)
class Models:
    """Opens models; called in a worker thread, since an SDK takes its time to be imported."""

    environment: Mapping[str, str]
    timeout: timedelta = timedelta(seconds=120)
    """How long an endpoint may be silent."""

    def open(self, model: str) -> Model:
        """Returns the model of a name; raises ModelMissing."""
        provider, name = self._parts(model)
        if provider == "scripted":
            return ScriptedModel()

        base_url = self._value(provider, "BASE_URL")
        key = self._key(provider, base_url)
        try:
            if provider == "anthropic":
                from hankweave_server.sentinels.providers.anthropic import AnthropicModel

                return AnthropicModel(name, key, base_url, self.timeout)

            from hankweave_server.sentinels.providers.openai import OpenAIModel

            return OpenAIModel(
                name, key, base_url, self.timeout, is_openai=provider == "openai" and not base_url
            )
        except ImportError as error:
            raise ModelMissing(
                f"{model!r} needs a package that is not installed ({error.name})."
                " Install hankweave with its extra 'llm'."
            ) from None

    def _parts(self, model: str) -> tuple[str, str]:
        provider, slash, name = model.partition("/")
        if slash and provider and name:
            return provider.lower(), name

        for start, known in _BY_NAME.items():
            if model.startswith(start):
                return known, model

        raise ModelMissing(
            f"{model!r} names no provider. Write it as provider/model, for instance anthropic/…"
        )

    def _key(self, provider: str, base_url: str | None) -> str:
        key = self._value(provider, "API_KEY")
        if key is not None:
            return key

        if provider in ("anthropic", "openai"):
            raise ModelMissing(
                f"There is no key for {provider!r}. Set {OWN_PREFIX}{_named(provider)}_API_KEY"
                f" or {_named(provider)}_API_KEY."
            )

        if base_url is None:
            raise ModelMissing(
                f"There is no endpoint for {provider!r}."
                f" Set {OWN_PREFIX}{_named(provider)}_BASE_URL to an address that speaks OpenAI's"
                " protocol."
            )

        return NO_KEY

    def _value(self, provider: str, what: str) -> str | None:
        name = f"{_named(provider)}_{what}"
        found = self.environment.get(f"{OWN_PREFIX}{name}") or self.environment.get(name)
        return found or None


def _named(provider: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in provider).upper()
