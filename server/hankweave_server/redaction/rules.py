"""The formats of keys that are recognized, and which environment variables hold a secret.

A rule is an expression with a name; the name appears in the marker that takes the secret's place.
Rules are precise rather than complete, because redaction cannot be undone: each demands a prefix
that its provider documents, or the name of a header or a field, and enough characters after it. A
value without such a form is removed only if the server knows it, from its environment.

Most texts hold no secret, so a search for the literals of all rules comes first, and
where it finds one, `opening` decides whether it may be a secret.

All expressions take linear time: no rule begins with a repetition, and repetitions have a limit or
a set of characters that the next part does not share. They begin with a literal, which `re` finds
many times faster than an assertion.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_WORD = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
"""Start of a word, also after an escaped line break, whose last character is a letter."""

_QUOTES = rb"[\"'\\]{0,4}\s{0,3}"

BLOCK_BEGIN = rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
BLOCK_END = rb"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_BLOCK_LINES = rb"(?:(?:\\+[nr]|\s)+(?:[A-Za-z0-9+/=]+|[A-Za-z-]+: [^\n\"\\]*))*"


_ASSIGNED = _QUOTES + rb"[=:]\s{0,3}" + _QUOTES
_A_DIGIT = rb"(?=[A-Za-z+/_.-]{0,40}[0-9])"
_URL_USER = rb"://[^\s/:@\"'\\<>\[]{1,64}:"
_ASSIGNMENTS = (
    *(b"API_KEY=", b"APIKEY=", b"SECRET_KEY=", b"ACCESS_KEY=", b"PRIVATE_KEY="),
    *(b"_TOKEN=", b"SECRET=", b"PASSWORD=", b"PASSWD="),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """The format of one family of keys."""

    name: str
    pattern: re.Pattern[bytes]
    """Its group `keep`, if any, stays; the rest of a match is replaced by the marker."""
    literals: tuple[bytes, ...]
    """One of them is in each match, and `opening` matches where it begins."""
    opening: bytes


def _rule(name: str, pattern: bytes, opening: bytes, *literals: bytes) -> Rule:
    return Rule(name, re.compile(pattern), literals, opening)


def _key(name: str, prefix: bytes, rest: bytes) -> Rule:
    """Return the rule of a key at the start of a word.

    A `[set]` of characters may be in its prefix. The prefix comes first in the expression, because
    `re` searches for one quickly, and the start of the word is verified after it.
    """
    starts = rb"(?:(?<![A-Za-z0-9_]" + prefix + rb")|(?<=\\[nrt]" + prefix + rb"))"
    before, _, others = prefix.partition(b"[")
    letters, _, after = others.partition(b"]")
    literals = [before + bytes([each]) + after for each in letters] or [before]
    plain = (each.replace(b"\\", b"") for each in literals)
    pattern = prefix + starts + rest
    return _rule(name, pattern, pattern, *plain)


RULES: tuple[Rule, ...] = (
    # A whole block; in a text that ends too early, the lines that look like a part of one.
    _rule(
        "private-key",
        BLOCK_BEGIN + rb"(?:(?:(?!-----)[^\"]){0,20000}" + BLOCK_END + rb"|" + _BLOCK_LINES + rb")",
        BLOCK_BEGIN,
        b"-----BEGIN ",
    ),
    _key("private-key", rb"AGE-SECRET-KEY-1", rb"[0-9A-Z]{20,}"),
    _key("anthropic-key", rb"sk-ant-", rb"[A-Za-z0-9_-]{12,}"),
    # OpenAI and the providers that adopted its form: a digit sets a key apart from a CSS class.
    _key("openai-key", rb"sk-", rb"(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]{16,}"),
    _key("google-key", rb"AIza", rb"[A-Za-z0-9_-]{35}"),
    _key("google-key", rb"GOCSPX-", rb"[A-Za-z0-9_-]{20,}"),
    _key("google-token", rb"ya29\.", rb"[A-Za-z0-9_-]{20,}"),
    _key("aws-key", rb"A[KS]IA", rb"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _key("aws-key", rb"ABIA", rb"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _key("aws-key", rb"ACCA", rb"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _rule(
        "aws-secret",
        rb"(?P<keep>(?i:access_?key)(?:(?<=(?i:secret_access_key))|(?<=(?i:secretaccesskey)))"
        + _ASSIGNED
        + rb")[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
        rb"(?i:access_?key)" + _ASSIGNED,
        *(b"access_key", b"ACCESS_KEY", b"accesskey", b"AccessKey", b"accessKey", b"ACCESSKEY"),
    ),
    _key("github-token", rb"gh[pousr]_", rb"[A-Za-z0-9_]{20,}"),
    _key("github-token", rb"github_pat_", rb"[A-Za-z0-9_]{20,}"),
    _key("gitlab-token", rb"glpat-", rb"[A-Za-z0-9_-]{20,}"),
    _key("slack-token", rb"xox[abeoprs]-", rb"[A-Za-z0-9-]{10,}"),
    _key("slack-token", rb"xapp-", rb"[0-9]-[A-Za-z0-9-]{10,}"),
    _rule(
        "slack-webhook",
        rb"(?P<keep>https://hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9+/]{20,}",
        rb"https",
        b"https://hooks.slack.com/",
    ),
    _key("npm-token", rb"npm_", rb"[A-Za-z0-9]{36}"),
    _key("pypi-token", rb"pypi-AgE", rb"[A-Za-z0-9_-]{50,}"),
    _key("stripe-key", rb"[rs]k_live_", rb"[A-Za-z0-9]{16,}"),
    _key("stripe-key", rb"[rs]k_test_", rb"[A-Za-z0-9]{16,}"),
    _key("huggingface-token", rb"hf_", rb"[A-Za-z0-9]{30,}"),
    _key("groq-key", rb"gsk_", rb"[A-Za-z0-9]{40,}"),
    _key("xai-key", rb"xai-", rb"[A-Za-z0-9]{60,}"),
    _key("sendgrid-key", rb"SG\.", rb"[A-Za-z0-9_-]{20,24}\.[A-Za-z0-9_-]{39,50}"),
    _key("jwt", rb"eyJ", rb"[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    _rule(
        "authorization",
        rb"(?P<keep>[Aa](?:uthorization|UTHORIZATION)" + _ASSIGNED + rb""
        rb"(?i:bearer|basic|token)\s{1,3})[A-Za-z0-9._~+/=-]{8,}",
        rb"(?i:uthorization)" + _ASSIGNED + rb"(?i:bearer|basic|token)\s",
        *(b"uthorization", b"UTHORIZATION"),
    ),
    # A line of an .env file, or of what `env` prints; a digit sets a value apart from words.
    _rule(
        "assigned-secret",
        rb"(?P<keep>=(?:" + rb"|".join(rb"(?<=" + name + rb")" for name in _ASSIGNMENTS) + rb")"
        rb"[\"'\\]{0,3})" + _A_DIGIT + rb"[A-Za-z0-9+/_.-]{12,}",
        rb"[A-Z_]{1,12}=[\"'\\]{0,3}" + _A_DIGIT + rb"[A-Za-z0-9+/_.-]{12}",
        *_ASSIGNMENTS,
    ),
    _rule(
        "url-password",
        rb"(?P<keep>" + _URL_USER + rb")[^\s/:@\"'\\<>]{3,128}(?=@)",
        _URL_USER + rb"[^\s/:@\"'\\<>]{3,128}@",
        b"://",
    ),
)

CUT_OFF = re.compile(
    _WORD + rb"(?:sk-|AIza|GOCSPX-|ya29|AKIA|ASIA|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|xapp-"
    rb"|npm_|pypi-AgE|[rs]k_(?:live|test)_|hf_|gsk_|xai-|SG\.|eyJ)[A-Za-z0-9._-]*\Z"
    rb"|(?P<keep>(?i:secret_?access_?key|authorization)" + _ASSIGNED + rb")"
    rb"(?:[A-Za-z]{1,8}\s)?[A-Za-z0-9._~+/=-]+\Z"
    rb"|(?P<keep_url>" + _URL_USER + rb")(?![0-9]{1,5}\Z)[^\s/:@\"'\\<>]{1,128}\Z"
)
"""A key at the end of a text that was cut, whatever its length."""

MARKER = re.compile(rb"\[redacted:[A-Za-z0-9_.-]{1,80}\]")
"""What takes the place of a secret."""

# --- variables ------------------------------------------------------------------------------------

SHORTEST_SECRET = 8
"""Minimum length of a variable's value: a shorter one would match ordinary words."""

SHORTEST_UNNAMED = 16
"""The same for a variable whose name does not say that it holds a secret."""

_SECRET_NAME = re.compile(
    r"(?i)(?:key|token|secret|password|passwd|passphrase|credential|cookie)s?$|_(?:pat|dsn|pwd)$"
)
_GIVEN = "HANKWEAVE_"
_LOCATION = re.compile(r"[/~.][^\s]*|[A-Za-z]:\\[^\s]*")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://(?P<user>[^/@\s]*@)?\S*", re.IGNORECASE)
_PART = re.compile(r"[A-Za-z]+|[0-9]{1,8}|[A-Za-z0-9]{1,6}")
_LEAST_ENTROPY = 3.0


def secrets_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold a secret, by the name that their readers see.

    Those are the variables with the name of a secret, and the HANKWEAVE_X whose value looks
    like one: they are meant for agents, and often are keys whatever their names are.
    """
    return {_seen_as(name): value for name, value in _secret(environment)}


def named_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose name says that they hold a secret."""
    return {name: value for name, value in environment.items() if _is_named(name, value)}


def _secret(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if _is_named(name, value) or (name.startswith(_GIVEN) and is_key_like(value)):
            yield name, value


def _seen_as(name: str) -> str:
    return name.removeprefix(_GIVEN) or name


def _is_named(name: str, value: str) -> bool:
    is_secret = _SECRET_NAME.search(name) is not None
    return is_secret and len(value) >= SHORTEST_SECRET and not _is_place(value)


def _is_place(value: str) -> bool:
    """Return whether a value is a path, or a URL without a password."""
    url = _URL.fullmatch(value)
    return _LOCATION.fullmatch(value) is not None or (url is not None and url["user"] is None)


def is_key_like(value: str) -> bool:
    """Return whether a value looks like a key: long, of one piece, and not made of words.

    Words, versions, regions, models and dates are not: their parts are letters alone, or digits
    alone, or short.
    """
    if len(value) < SHORTEST_UNNAMED or _is_place(value):
        return False

    if (url := _URL.fullmatch(value)) is not None:
        return url["user"] is not None

    if "-----BEGIN" in value:
        return True

    if any(each.isspace() for each in value):
        return False

    parts = re.split(r"[^A-Za-z0-9]+", value)
    return not all(_PART.fullmatch(part) for part in parts if part) and _entropy(value) > (
        _LEAST_ENTROPY
    )


def _entropy(value: str) -> float:
    """Return the entropy of a value's characters, in bits for each."""
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
