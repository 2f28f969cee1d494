"""Secrets of every family that is recognized, each with a mark that a search finds again."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable

MARK = "QZCANARY7"
"""A part of every planted secret; it has capitals and a digit, so it fits all formats."""

_ALPHABET = string.ascii_letters + string.digits
_CAPITALS = string.ascii_uppercase + "234567"


def _text(source: random.Random, size: int, alphabet: str = _ALPHABET) -> str:
    """Return `size` random characters with the mark among them."""
    before = source.randrange(size - len(MARK) + 1)
    after = size - len(MARK) - before
    pick = source.choices
    return "".join([*pick(alphabet, k=before), MARK, *pick(alphabet, k=after)])


def _block(source: random.Random, kind: str, lines: int = 4) -> str:
    body = "\n".join(_text(source, 64, _ALPHABET + "+/") for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


FAMILIES: dict[str, Callable[[random.Random], str]] = {
    "anthropic-key": lambda s: f"sk-ant-api03-{_text(s, 93)}AA",
    "openai-key": lambda s: f"sk-proj-{_text(s, 48)}",
    "google-key": lambda s: f"AIza{_text(s, 35)}",
    "google-token": lambda s: f"ya29.{_text(s, 60)}",
    "aws-key": lambda s: f"AKIA{_text(s, 16, _CAPITALS)}",
    "aws-secret": lambda s: f"aws_secret_access_key = {_text(s, 40)}",
    "github-token": lambda s: f"ghp_{_text(s, 36)}",
    "gitlab-token": lambda s: f"glpat-{_text(s, 20)}",
    "slack-token": lambda s: f"xoxb-{s.randrange(10**11)}-{_text(s, 24)}",
    "slack-webhook": lambda s: f"https://hooks.slack.com/services/T0{_text(s, 40)}",
    "npm-token": lambda s: f"npm_{_text(s, 36)}",
    "pypi-token": lambda s: f"pypi-AgEIcHlwaS5vcmc{_text(s, 60)}",
    "stripe-key": lambda s: f"sk_live_{_text(s, 24)}",
    "huggingface-token": lambda s: f"hf_{_text(s, 34)}",
    "groq-key": lambda s: f"gsk_{_text(s, 52)}",
    "xai-key": lambda s: f"xai-{_text(s, 80)}",
    "sendgrid-key": lambda s: f"SG.{_text(s, 22)}.{_text(s, 43)}",
    "jwt": lambda s: f"eyJ{_text(s, 30)}.eyJ{_text(s, 60)}.{_text(s, 43)}",
    "authorization": lambda s: f"Authorization: Bearer {_text(s, 32)}",
    "assigned-secret": lambda s: f"SERVICE_API_KEY={_text(s, 24)}",
    "url-password": lambda s: f"postgres://me:{_text(s, 20)}@db/x",
    "private-key": lambda s: _block(s, s.choice(["PRIVATE KEY", "RSA PRIVATE KEY"])),
}
"""A generator for each rule; the names are those of the rules."""

SENTENCES = ("The key is {} here.", "{}", "got '{}', ok", "x={}", "(see {})", "a\t{}\tb")


def sentence(source: random.Random, secret: str) -> str:
    return source.choice(SENTENCES).format(secret)


def output_line(source: random.Random, secret: str) -> str:
    """Return what an agent may print: plain text, or one of Claude's messages, with a secret."""
    text = sentence(source, secret)
    match source.randrange(4):
        case 0:
            return text
        case 1:
            block: dict[str, object] = {"type": "text", "text": text}
            return json.dumps({"type": "assistant", "message": {"content": [block]}})
        case 2:
            call = f"call-{source.randrange(10**9)}"
            given = {"command": text, "nested": [{"deeper": text}]}
            block = {"type": "tool_use", "id": call, "name": "Read", "input": given}
            used = json.dumps({"type": "assistant", "message": {"content": [block]}})
            result = {"type": "tool_result", "tool_use_id": call, "content": json.dumps([text])}
            returned = json.dumps({"type": "user", "message": {"content": [result]}})
            return f"{used}\n{returned}"
        case _:
            block = {"type": "thinking", "thinking": json.dumps({"quoted": text})}
            return json.dumps({"type": "assistant", "message": {"content": [block]}})
