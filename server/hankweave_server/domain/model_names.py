"""Recognize misspelt names of models.

A list of models is always older than the newest model, so a name that is not in the list need not
be wrong: `claude-sonnet-9` may be the model of next month. But its words are known. So a name is
misspelt if one of its words is a slip of the pen away from a word of the list (`sonet`, `claud`,
`gtp`): one letter too many, missing, wrong, or two exchanged. Any other name that is not listed is
only *unlisted*.

Only models of the makers in the list are judged; other providers have thousands.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

_WORD = re.compile(r"[a-z]+")
_SEPARATORS = re.compile(r"[ ._]+")
_OF_CLOUDS = re.compile(r"^(?:[a-z]+\.)?(?:anthropic|openai|google)\.|(?:-v\d+)?:\d+$|@\w+$")
_ADDITIONS = re.compile(r"\[\w+\]$|-(?:20\d{6}|20\d\d-\d\d-\d\d)$")

_OTHER_WORDS = frozenset(
    (
        *("claude", "gemini", "gpt", "chatgpt", "codex", "opus", "opusplan", "sonnet", "haiku"),
        *("audio", "auto", "best", "chat", "computer", "customtools", "deep", "default", "dialog"),
        *("embedding", "exp", "experimental", "fast", "gemma", "high", "image", "imagen"),
        *("instant", "instruct", "latest", "live", "low", "max", "medium", "minimal", "native"),
        *("multimodal", "oss", "preview", "realtime", "research", "robotics", "search", "spark"),
        *("text", "thinking", "tools", "tts", "turbo", "ultra", "use", "vision", "with", "xhigh"),
    )
)
"""Words of names that are correct, whether or not a listed model has them now."""

_SHORTEST = 4
"""Letters of a word from which a single wrong letter counts as a slip: `pre` is not `pro`."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """The verdict on the name of a model that is not listed."""

    is_misspelt: bool
    nearest: str | None
    """The corrected name, or the most similar one in the list."""


def spelling_of(model: str, listed: Collection[str]) -> Spelling | None:
    """Return what is wrong with a name; None for a listed model and for one of another maker.

    `listed` has the names of models, each with its provider, in lower case.
    """
    name = model.strip().lower()
    if name.startswith("arn:"):
        return None

    vocabulary = _vocabulary(frozenset(listed))
    provider, slash, bare = name.rpartition("/")
    if slash and not set(provider.split("/")) & vocabulary.makers:
        return None

    plain = _plain(bare)
    if not plain or plain in vocabulary.names or plain in _OTHER_WORDS:
        return None

    corrected = _corrected(bare, vocabulary.words)
    if corrected != bare:
        return Spelling(is_misspelt=True, nearest=provider + slash + corrected)

    near = difflib.get_close_matches(plain, sorted(vocabulary.names), n=1)
    return Spelling(is_misspelt=False, nearest=near[0] if near else None)


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    names: frozenset[str]
    """Without provider, in `_plain` form."""
    words: frozenset[str]
    makers: frozenset[str]


@lru_cache(maxsize=4)
def _vocabulary(listed: frozenset[str]) -> _Vocabulary:
    names = frozenset(_plain(name.rpartition("/")[2]) for name in listed)
    words = frozenset(word for name in names for word in _WORD.findall(name))
    makers = frozenset(name.partition("/")[0] for name in listed if "/" in name)
    return _Vocabulary(names, words | _OTHER_WORDS, makers)


def _plain(bare: str) -> str:
    """Return a name without additions of clouds, dates and efforts, and with `-` between words."""
    name = bare
    while (shorter := _ADDITIONS.sub("", _OF_CLOUDS.sub("", name))) != name:
        name = shorter

    name = _SEPARATORS.sub("-", name)
    return re.sub(r"-(?:high|xhigh|latest)$", "", name)


def _corrected(bare: str, words: Collection[str]) -> str:
    """Replace each word that is a slip away from a known one."""

    def replacement(found: re.Match[str]) -> str:
        word = found[0]
        if word in words:
            return word

        return next(_one_edit_away(word, sorted(words)), word)

    return _WORD.sub(replacement, bare)


def _one_edit_away(word: str, words: Iterable[str]) -> Iterator[str]:
    for known in words:
        if len(known) >= 3 and _is_one_edit(word, known):
            yield known


def _is_one_edit(word: str, known: str) -> bool:
    """Return whether two different words differ by one letter, or by two exchanged neighbours."""
    if abs(len(word) - len(known)) > 1:
        return False

    first = next((i for i, (a, b) in enumerate(zip(word, known, strict=False)) if a != b), None)
    if first is None:  # One is the beginning of the other.
        return min(len(word), len(known)) >= _SHORTEST

    if len(word) == len(known):
        exchanged = word[first : first + 2] == known[first : first + 2][::-1]
        if exchanged and word[first + 2 :] == known[first + 2 :]:
            return True

        return len(known) >= _SHORTEST and word[first + 1 :] == known[first + 1 :]

    longer, shorter = (word, known) if len(word) > len(known) else (known, word)
    return len(shorter) >= _SHORTEST and longer[first + 1 :] == shorter[first:]
