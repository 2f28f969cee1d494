"""The formats of keys: what is recognized, and what is not."""

from __future__ import annotations

import random
import time

import pytest

from hankweave_server.redaction.redactor import NOTHING_KNOWN
from hankweave_server.redaction.rules import RULES, is_key_like, secrets_in
from support.planted import FAMILIES, MARK, sentence

HARMLESS = [
    "The token bucket holds ten tokens, and the password prompt is secret no more.",
    "task-oriented-programming-with-long-names-1234567890",
    "risk-adjusted-return-1234567890 and desk-sharing-policy-2024-version",
    '<div class="sk-folding-cube sk-circle-fade-dot-animated">',
    "sk-learn and sk-short1",
    "AKIA and ASIA are prefixes; AKIAIOSFODNN7EXAMPLEX has seventeen characters too many",
    "AIzaSyTooShort",
    "ghp_short and github_pat_short",
    "npm_config_registry=https://registry.example.org/",
    "xoxb- is a prefix of Slack",
    "hf_hub_download(repo_id='a/b')",
    "gsk_settings_get_default and SG.Reader",
    "https://example.org/a:b/c@d and git@github.com:me/repo.git",
    "https://[redacted:url-password]@example.org",
    "eyJub3Q.a.token",
    "Authorization: a short history",
    "API_KEY=${KEY} TOKEN_COUNT=12 MY_TOKEN=<your token here> X_SECRET=changeme",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "6dc2daae6dc2daae6dc2daae6dc2daae6dc2daae is a commit",
    "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_recognized_by_its_own_rule(family: str) -> None:
    """Fifty keys of each family leave no trace, and the marker names the rule."""
    source = random.Random(family)
    for _ in range(50):
        text = sentence(source, FAMILIES[family](source))
        redacted = NOTHING_KNOWN.text(text)
        assert MARK not in redacted, text
        assert f"[redacted:{family}]" in redacted


def test_there_is_a_generator_for_every_rule() -> None:
    """No rule is untested; more than eight families are covered."""
    assert {rule.name for rule in RULES} == FAMILIES.keys()
    assert len(FAMILIES) >= 8


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_stay_as_they_are(text: str) -> None:
    """Prose, code, hashes and placeholders are no keys."""
    assert NOTHING_KNOWN.text(text) == text


@pytest.mark.parametrize("family", FAMILIES)
def test_the_screen_misses_no_rule(family: str) -> None:
    """Whatever a rule matches, the quick search finds, at the start of a text as well."""
    source = random.Random(family)
    for _ in range(50):
        assert NOTHING_KNOWN.is_needed(FAMILIES[family](source).encode())


def test_redacting_twice_changes_nothing_more() -> None:
    """A marker is no secret."""
    source = random.Random(1)
    for make in FAMILIES.values():
        once = NOTHING_KNOWN.text(sentence(source, make(source)))
        assert NOTHING_KNOWN.text(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "sk-",
        "sk-a1",
        "ghp_",
        "AKIA",
        "eyJ" + "a" * 12 + ".",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIB\n",
        "://a:",
        "://" + "a" * 60 + ":",
        "API_KEY=",
        "API_KEY=aaaaaaaaaaaa",
        "authorization: ",
        "secret_access_key",
        "SG.aaaaaaaaaaaaaaaaaaaa.",
    ],
)
@pytest.mark.full
def test_no_repetition_takes_long(piece: str) -> None:
    """The rules take linear time: a megabyte of the worst text takes seconds at most."""
    text = (piece * (1_000_000 // len(piece))).encode()
    started = time.process_time()
    NOTHING_KNOWN.data(text)
    NOTHING_KNOWN.cut_off(text)
    assert time.process_time() - started < 20


def test_variables_that_hold_secrets_are_known_by_name_or_form() -> None:
    """A name such as TOKEN, and a random value that is meant for agents, make a secret."""
    found = secrets_in(
        {
            "ANTHROPIC_API_KEY": "abcdefgh",
            "HANKWEAVE_DB_PASSWORD": "correct horse",
            "HANKWEAVE_LICENSE": "a9F3kd83jf0aKd93",
            "HANKWEAVE_DSN_URL": "postgres://me:pw@db/x",
            "HANKWEAVE_REGION": "eu-central-1-frankfurt",
            "HANKWEAVE_MODEL": "claude-sonnet-4-20250514",
            "HANKWEAVE_PYTHONPATH": "/usr/lib/python3.11/site-packages",
            "HANKWEAVE_ENDPOINT": "https://example.org/v1/chat",
            "SSH_KEY": "/home/me/.ssh/id_ed25519",
            "SHORT_TOKEN": "1234",
            "LICENSE": "a9F3kd83jf0aKd93",
        }
    )
    assert found.keys() == {"ANTHROPIC_API_KEY", "DB_PASSWORD", "LICENSE", "DSN_URL"}


@pytest.mark.parametrize(
    ("value", "is_random"),
    [
        ("550e8400-e29b-41d4-a716-446655440000", True),
        ("wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY", True),
        ("Zm9vYmFyYmF6cXV4MTIz", True),
        ("a plain sentence of words 123abc456def", False),
        ("gpt-4o-mini-2024-07-18", False),
        ("0123456789", False),
    ],
)
def test_random_values_are_distinguished_from_words(value: str, is_random: bool) -> None:
    """Letters alone, or digits alone, are words, dates and versions."""
    assert is_key_like(value) is is_random
