"""Variables in texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.domain.variables import names_in, render, text_of

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,6}", fullmatch=True)


def test_a_name_between_braces_stands_for_its_value():
    """White space inside the braces is ignored."""
    assert render("{{a}}, {{ b.c-d }} and {{\ta\n}}", {"a": "1", "b.c-d": "2"}) == "1, 2 and 1"


def test_an_unknown_name_stays_as_it_is():
    """An unknown name stays literal, as do braces around what is not a name."""
    text = "{{ missing }} {{}} {{a b}} {{1}} { {a} } {{a}"
    assert render(text, {"a": "x"}) == text


def test_what_was_put_in_is_not_put_in_again():
    """A value, such as an agent's answer, is not expanded again."""
    assert render("{{a}}{{b}}", {"a": "{{b}}", "b": "{{a}}", "c": "x"}) == "{{b}}{{a}}"
    assert render("{{{a}}}", {"a": "b", "b": "never"}) == "{b}"


def test_backslashes_in_a_value_are_text():
    """A value is not used as a template of a regular expression."""
    assert render("{{a}}", {"a": r"\1\g<0>"}) == r"\1\g<0>"


@given(text=st.text(alphabet="{} ab._-\n\\", max_size=40), value=st.text(max_size=5))
def test_exactly_the_names_of_a_text_are_looked_up(text: str, value: str):
    """A text without known names is unchanged; if all names are known, none remains."""
    assert render(text, {}) == text
    assert render(text, dict.fromkeys(names_in(text), "")).count("{{") <= text.count("{{")
    assert names_in(render(text, dict.fromkeys(names_in(text), "%"))) == frozenset()


@given(names=st.lists(names, max_size=4))
def test_names_in_lists_each_name_once(names: list[str]):
    """Each name is listed once, in any order."""
    assert names_in(" ".join(f"{{{{{name}}}}}" for name in names)) == frozenset(names)


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (3, "3"), (1.5, "1.5"), (None, ""), ("a", "a")],
)
def test_a_scalar_becomes_the_text_that_yaml_has_for_it(value: object, text: str):
    """An integer raises no error, unlike in Architect (A8 19)."""
    assert text_of(value) == text


@pytest.mark.parametrize("value", [[1], {"a": 1}, (1,)])
def test_a_variable_holds_no_list_and_no_map(value: object):
    """Lists and maps have no obvious text, so they are refused."""
    with pytest.raises(TypeError):
        text_of(value)
