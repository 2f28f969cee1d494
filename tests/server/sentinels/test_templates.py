"""Claims of templates: Eta's translated, jinja's as they are, and neither beyond its bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.sentinels import eta
from hankweave_server.sentinels.templates import BadTemplate, NotRendered, RenderLimit, Template
from support.outcomes import outcome

EVENTS = [
    {"type": "tool.result", "data": {"toolName": "Bash", "isError": True, "items": 3}},
    {"type": "file.updated", "data": {"path": "a.md", "isError": False, "items": 4}},
]
CONTEXT: dict[str, Any] = {
    "events": EVENTS,
    "codon": {"id": "observe#0", "name": "Observe"},
    "world": {"currentTime": "now"},
}


def rendered(source: str) -> str:
    return Template(source).render(CONTEXT)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<%= it.codon.id %>", "observe#0"),
        ("{<%= it.codon.id %>}", "{observe#0}"),
        ("{{ x }} {% y %} {# z #} <%= it.events.length %>", "{{ x }} {% y %} {# z #} 2"),
        ("<%= JSON.stringify(it.events) %>", json.dumps(EVENTS)),
        ("<%= JSON.stringify(it.events, null, 2) %>", json.dumps(EVENTS, indent=2)),
        ("<%= JSON.stringify(it.events[0].data.items) %>", "3"),
        (
            "<%= JSON.stringify({ id: it.codon.id, n: [1, 'a'] }) %>",
            '{"id": "observe#0", "n": [1, "a"]}',
        ),
        (
            "<% it.events.forEach(function(e, i) { %><%= i %><%= e.type %>;<% }) %>",
            "0tool.result;1file.updated;",
        ),
        ("<% it.events.forEach((e) => { %><%= e.data.items %><% }); %>", "34"),
        ("<% it.events.forEach(e => { %><%= e['type'] %> <% }) %>", "tool.result file.updated "),
        (
            "<% for (const e of it.events) { if (e.data.isError) { %>E<% } else { %>-<% } } %>",
            "E-",
        ),
        (
            "<% if (it.events.length === 0) { %>a<% } else if (it.events.length > 1) { %>b<% } %>",
            "b",
        ),
        ("<% const n = it.events.filter(e => e.data.isError).length; %><%= n %>", "1"),
        ("<%= it.events.map(e => e.data.toolName).join('+') %>", "Bash+"),
        ("<%= it.events.filter(e => e.type !== 'tool.result').length %>", "1"),
        ("<%= it.events[0].data.isError ? 'bad ' + it.codon.name : 'ok' %>", "bad Observe"),
        ("<%= it.events[1].data.missing %>", ""),
        ("<%= it.events[1].data.missing || 'none' %>", "none"),
        ("<%= (1 / it.events.length * 100).toFixed(1) %>%", "50.0%"),
        ("<%= it.events.slice(0, 1).length %>", "1"),
        ("<%= it.codon.name.toUpperCase() %>", "OBSERVE"),
        ("<%= it.events[0].data.isError %>", "true"),
        ("<% /* nothing */ %>x", "x"),
    ],
)
def test_eta_that_prompts_are_made_of_is_translated(source: str, text: str) -> None:
    """What Eta would have written is what the template writes."""
    assert rendered(source) == text


@pytest.mark.parametrize(
    "source",
    [
        "<%= require('fs').readFileSync('/etc/passwd') %>",
        "<%= process.env.HOME %>",
        "<%= it.events.reduce((a, e) => a + 1, 0) %>",
        "<%= `a ${it.codon.id}` %>",
        "<% while (true) { %><% } %>",
        "<% for (let i = 0; i < 3; i++) { %><% } %>",
        "<% it.events.forEach(e => { %>",
        "<% } %>",
        "<%= it.codon.id",
        "<% fetch('http://x') %>",
        "<%= (function () { return 1 })() %>",
        "<%= it.constructor.constructor('return 1')() %>",
    ],
)
def test_what_is_not_translated_is_refused_with_a_hint(source: str) -> None:
    """When the sentinel loads, with what to write instead; nothing is ever executed."""
    with pytest.raises(BadTemplate, match=r"Known are|is not closed|too many|has no"):
        Template(source)


@given(st.text())
def test_any_text_is_a_template_or_is_refused(text: str) -> None:
    """No text makes the loader raise anything else."""
    for source in (text, f"<%= {text} %>", f"<% {text} %>"):
        template = outcome(BadTemplate, Template, source)
        assert not isinstance(template, BadTemplate) or str(template)


@given(st.text().filter(lambda text: "<%" not in text and "%>" not in text))
def test_text_around_a_tag_is_left_as_it_is(text: str) -> None:
    """Whatever jinja would see in it."""
    assert rendered(f"{text}<%= 1 %>") == f"{text}1".replace("\r\n", "\n").replace("\r", "\n")


def test_jinja_is_jinja() -> None:
    """A template without Eta's marks is jinja's own, with the same three names."""
    source = "{% for e in events %}{{ e.data.path or '-' }}{% endfor %} {{ it.codon.id }}"
    assert rendered(source) == "-a.md observe#0"
    assert rendered("{{ events[0] | tojson }}") == json.dumps(EVENTS[0])


def test_a_syntax_error_is_found_at_loading() -> None:
    """With the line it is in."""
    with pytest.raises(BadTemplate, match="Line 2"):
        Template("fine\n{% if %}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ 'x' * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 2 ** 100000 }}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:1000000000}'['format'](1) }}",
        "{% for i in range(90000) %}{{ 'x' * 1 }}{{ '" + "y" * 200 + "' }}{% endfor %}",
        "{% for i in range(99999999) %}{% endfor %}",
        "{{ events.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    """Neither the interpreter nor the memory can be reached from a template."""
    with pytest.raises(NotRendered):
        rendered(source)


def test_a_template_is_stopped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that writes nothing and calls nothing, and would go on for hours."""
    monkeypatch.setattr("hankweave_server.sentinels.templates.LONGEST_RENDER", 0.1)
    with pytest.raises(RenderLimit):
        rendered("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")


def test_the_translation_can_be_read() -> None:
    """A person who wants to move on to jinja sees what to write."""
    assert eta.to_jinja("<%= it.codon.id %>") == "{{ it['codon']['id'] }}"
