"""Models that sentinels ask.

Modules, in reading order:

- `base`: the interface of a model
- `registry`: from a model's name to a model; keys and endpoints
- `anthropic`: Anthropic's models, through its SDK
- `openai`: models of OpenAI, and endpoints that speak its protocol
- `transport`: the HTTP client of both SDKs, with bounded responses
- `scripted`: a model for tests that answers from the prompt's own text
"""
