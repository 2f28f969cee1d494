"""Open a model by its name: `scripted/…`, `anthropic/…`, `openai/…`, or any endpoint.

Keys and addresses come from the environment. `HANKWEAVE_SENTINEL_ANTHROPIC_API_KEY` overrides
`ANTHROPIC_API_KEY`; the same holds for the other names. An unknown provider is assumed to speak
OpenAI's protocol: `HANKWEAVE_SENTINEL_GROQ_BASE_URL` has the address of `groq/…`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from hankweave_server.sentinels.providers.base import Model, ModelMissing
from hankweave_server.sentinels.providers.scripted import ScriptedModel

OWN_PREFIX = "HANKWEAVE_SENTINEL_"
NO_KEY = "none"
"""The key for a self-hosted endpoint that needs none."""

_BY_NAME = {"claude": "anthropic", "gpt": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}
"""Providers of models without a provider in their name, by the beginning of the name."""


@dataclass(frozen=True, slots=True)
class Models:
    """A factory of models; call it in a worker thread, because importing an SDK takes time."""

    environment: Mapping[str, str]
    timeout: timedelta = timedelta(seconds=120)
    """The longest silence of an endpoint."""

    def open(self, model: str) -> Model:
        """Return the model with a name; raises ModelMissing."""
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
            raise ModelMissing(_needs_package(model, error.name)) from None

    def faults(self, model: str) -> tuple[str, ...]:
        """Return all reasons why `open` would fail that can be seen without importing an SDK."""
        try:
            provider, _ = self._parts(model)
        except ModelMissing as missing:
            return (str(missing),)

        if provider == "scripted":
            return ()

        package = "anthropic" if provider == "anthropic" else "openai"
        found = importlib.util.find_spec(package)
        faults = [] if found is not None else [_needs_package(model, package)]
        try:
            self._key(provider, self._value(provider, "BASE_URL"))
        except ModelMissing as missing:
            faults.append(str(missing))

        return tuple(faults)

    def has_own_endpoint(self, model: str) -> bool:
        """Return whether the environment sends a model's calls elsewhere than to its maker."""
        try:
            provider, _ = self._parts(model)
        except ModelMissing:
            return False

        return self._value(provider, "BASE_URL") is not None

    def _parts(self, model: str) -> tuple[str, str]:
        provider, slash, name = model.partition("/")
        if slash and provider and name:
            return provider.lower(), name

        for start, known in _BY_NAME.items():
            if model.startswith(start):
                return known, model

        raise ModelMissing(
            f"{model!r} has no provider. Write it as provider/model, for example anthropic/…"
        )

    def _key(self, provider: str, base_url: str | None) -> str:
        key = self._value(provider, "API_KEY")
        if key is not None:
            return key

        if provider in ("anthropic", "openai"):
            raise ModelMissing(
                f"There is no API key for {provider!r}. Set {OWN_PREFIX}{_named(provider)}_API_KEY"
                f" or {_named(provider)}_API_KEY."
            )

        if base_url is None:
            raise ModelMissing(
                f"There is no endpoint for {provider!r}."
                f" Set {OWN_PREFIX}{_named(provider)}_BASE_URL to an endpoint that speaks OpenAI's"
                " protocol."
            )

        return NO_KEY

    def _value(self, provider: str, what: str) -> str | None:
        name = f"{_named(provider)}_{what}"
        found = self.environment.get(f"{OWN_PREFIX}{name}") or self.environment.get(name)
        return found or None


def _needs_package(model: str, package: str | None) -> str:
    return (
        f"{model!r} needs a package that is not installed ({package})."
        " Install it with \"pip install 'hankweave[llm]'\"."
    )


def _named(provider: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in provider).upper()
