"""Claims about prompts in Eta: byte for byte the output of Eta, and no access to the outside.

`tests/golden/templates/expected.json` was written by Eta 3.5.0 under Node (render.mjs beside it).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hankweave_server.sentinels.templates.base import (
    BadTemplate,
    NotRendered,
    RenderLimit,
    engine_of,
    has_only_jinja_tags,
)
from hankweave_server.sentinels.templates.javascript import MOST_EVENTS, EtaTemplate, QuickJs
from support.golden import GOLDEN

SET = json.loads((GOLDEN / "templates" / "cases.json").read_text())
EXPECTED = json.loads((GOLDEN / "templates" / "expected.json").read_text())
CASES: dict[str, str] = SET["cases"]


@pytest.fixture(scope="module")
def quickjs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickJs]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")  # The time zone in which expected.json was written.
        engine = QuickJs()
        engine.call("eta", "compile", {"template": ""})

    yield engine
    engine.close()


def rendered(source: str, quickjs: QuickJs, **more: Any) -> str:
    return EtaTemplate(source, quickjs).render(copy.deepcopy(SET["it"]) | more)


@pytest.mark.parametrize("name", CASES)
def test_a_template_renders_as_in_eta_itself(quickjs: QuickJs, name: str) -> None:
    """The output is the same as Eta's, and rendering fails where Eta fails."""
    expected = EXPECTED[name]
    if "text" in expected:
        assert rendered(CASES[name], quickjs) == expected["text"]
    else:
        with pytest.raises((BadTemplate, NotRendered)):
            rendered(CASES[name], quickjs)


def test_the_templates_that_are_compared_cover_the_language() -> None:
    """Each template was rendered by Eta, and there are enough of them to cover the language."""
    assert EXPECTED.keys() == CASES.keys()
    assert len(CASES) >= 25
    everything = "".join(CASES.values())
    for construct in ("Math.floor", ".reduce(", "for (let i", "`${", "new Set", "Object.keys"):
        assert construct in everything

    for tag in ("<%-", "<%~", "<%_", "{{x}}"):
        assert tag in everything


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<%= it.codon.id", "unclosed tag at line 1"),
        ("<% if (true) { %>x", "Bad template syntax"),
        ("<%= it. %>", "Bad template syntax"),
    ],
)
def test_a_syntax_error_is_found_at_loading(quickjs: QuickJs, source: str, words: str) -> None:
    """The message is one line, without the engine's stack."""
    with pytest.raises(BadTemplate, match=words) as caught:
        EtaTemplate(source, quickjs)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "require",
            "process",
            "fetch",
            "setTimeout",
            "WebAssembly",
            "Deno",
            "Bun",
            "XMLHttpRequest",
        ),
        *("std", "os", "importScripts", "module", "global", "__dirname"),
    ],
)
def test_a_template_reaches_nothing_outside(quickjs: QuickJs, name: str) -> None:
    """A template can use no modules, files, network, timers or processes."""
    assert rendered(f"<%= typeof {name} %>", quickjs) == "undefined"


@pytest.mark.parametrize(
    "source",
    [
        "<% import('fs').then(() => {}); %>x<%= it.nothing.at.all %>",
        "<%= include('../../etc/passwd') %>",
        "<%= includeFile('/etc/passwd') %>",
        "<%= it.constructor.constructor('return process')() %>",
    ],
)
def test_a_template_that_reaches_for_more_fails(quickjs: QuickJs, source: str) -> None:
    """A template that reaches for more fails as a faulty one does: only its trigger fails."""
    with pytest.raises(NotRendered):
        rendered(source, quickjs)


@pytest.mark.parametrize(
    "source",
    [
        "<% while (true) {} %>",
        "<% while (true) { try { throw 1 } catch {} } %>",
        "<%= /(a+)+$/.test('a'.repeat(50) + 'b') %>",
        "<% const all = []; while (true) all.push('x'.repeat(100000) + all.length); %>",
        "<% function f() { return f() + 1 } f(); %>",
        "<%= 'x'.repeat(5000000) %>",
    ],
)
def test_a_template_that_does_too_much_is_stopped(quickjs: QuickJs, source: str) -> None:
    """Loops, regular expressions, memory, recursion and size are bounded.

    The next template still works.
    """
    with pytest.raises(RenderLimit):
        rendered(source, quickjs)

    assert rendered("<%= it.codon.id %>", quickjs) == "observe#0"


def test_a_template_leaves_nothing_behind(quickjs: QuickJs) -> None:
    """Each rendering has its own context, with fresh globals and prototypes."""
    rendered("<% globalThis.seen = 1; Array.prototype.join = () => 'mine'; %>", quickjs)
    assert rendered("<%= typeof seen %> <%= [1, 2].join() %>", quickjs) == "undefined 1,2"


def test_texts_of_any_kind_arrive_whole(quickjs: QuickJs) -> None:
    """NUL, large integers and characters beyond the basic plane are kept.

    A lone surrogate is replaced.
    """
    codon = {"id": "a\0b", "name": "😀", "description": 2**40}
    source = "<%= it.codon.id.length %> <%= it.codon.id %> <%= it.codon.name.slice(0, 1) %>"
    assert rendered(source, quickjs, codon=codon) == "3 a\0b \ufffd"
    assert rendered("<%= it.codon.description + 1 %>", quickjs, codon=codon) == "1099511627777"


def test_a_template_sees_a_thousand_events_at_most(quickjs: QuickJs) -> None:
    """A template gets the first thousand events of the trigger, as in Hankweave."""
    events = [{"type": "info", "data": {"n": n}} for n in range(MOST_EVENTS + 1)]
    source = "<%= it.events.length %> <%= it.events.at(-1).data.n %>"
    assert rendered(source, quickjs, events=events) == "1000 999"


def test_a_text_without_tags_needs_no_engine(tmp_path: Path) -> None:
    """Plain text renders as itself, even where QuickJS is not installed."""
    engine = QuickJs()
    assert rendered("Say {{x}}.", engine) == "Say {{x}}."
    assert engine.is_idle


def test_without_quickjs_a_template_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The template is never interpreted in another language instead."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadTemplate, match=r"pip install 'hankweave\[sentinels-js\]'"):
        EtaTemplate("<%= 1 %>", QuickJs())


def test_eta_is_the_language_unless_the_sentinel_says_jinja() -> None:
    """The language comes from `templateEngine`, else from the name of a prompt's file."""
    assert engine_of(None, ()) == engine_of(None, ("a.md", "b.txt")) == "eta"
    assert engine_of(None, ("a.md", "b.md.j2")) == engine_of(None, ("x.jinja",)) == "jinja"
    assert engine_of("eta", ("a.j2",)) == "eta"
    assert engine_of("jinja", ("a.md",)) == "jinja"


@pytest.mark.parametrize(
    ("source", "is_jinja"),
    [("{{ x }}", True), ("{% if x %}", True), ("{{ x }} <%= 1 %>", False), ("plain", False)],
)
def test_a_text_that_was_meant_for_jinja_is_recognised(source: str, is_jinja: bool) -> None:
    """The author is warned, because Eta leaves braces unchanged."""
    assert has_only_jinja_tags(source) is is_jinja
