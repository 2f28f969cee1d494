"""The condition language."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hankweave_server.domain.conditions import (
    DEEPEST,
    LONGEST,
    ConditionError,
    ParsedCondition,
    parse,
)
from support.outcomes import outcome

KNOWN = {
    "yes_text": "yes",
    "no_text": "no",
    "word": "ok",
    "three": "3",
    "ten": "10",
    "ver": "3.0",
    "empty": "",
    "log": "an error here\n",
    "spaced": " ok\n",
    "big": "True",
}


def holds(text: str) -> bool:
    return parse(text).holds(KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "word == 'ok'",
        'word == "ok"',
        "{{word}} == 'ok'",
        "'{{word}}' == 'ok'",
        "'{{word}}-{{three}}' == 'ok-3'",
        "spaced == word",
        "word != 'no'",
        "three < ten",
        "three == ver",
        "three >= 3 and three <= 3.0",
        "-1 < 0",
        "'abc' < 'abd'",
        "'10' > '9'",
        "'error' in log",
        "'panic' not in log",
        "big == true",
        "true == 'TRUE'",
        "not no_text",
        "not not word",
        "not word == 'no'",
        "no_text or word",
        "no_text and missing or word",
        "word and (no_text or three)",
        "defined(word) and not defined(missing)",
        "defined({{empty}})",
        "missing != 'a'",
        "missing != missing",
        "'a' not in missing",
        "empty == ''",
        r"'it\'s' == " '"it\'s"',
        "yes",
        "TRUE",
        "1",
        "'any other text'",
    ],
)
def test_it_holds(text: str):
    """Each of these conditions is true."""
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "missing",
        "{{missing}}",
        "'{{missing}}'",
        "'see {{missing}}'",
        "missing == missing",
        "missing == ''",
        "missing < 1",
        "missing >= 1",
        "'a' in missing",
        "missing in 'a'",
        "empty",
        "no",
        "False",
        "0",
        "'  off '",
        "'NONE'",
        "word == 'OK'",
        "word < 3",
        "not (word or missing)",
    ],
)
def test_it_does_not_hold(text: str):
    """Each of these conditions is false; an undefined name is false and equals nothing."""
    assert not holds(text)


def test_a_documented_comparison_is_a_comparison():
    """In Architect `run_review == 'true'` always ran, whatever the variable was (A4 [run])."""
    condition = parse("run_review == 'true'")
    assert condition.holds({"run_review": "true"})
    assert not condition.holds({"run_review": "false"})
    assert not condition.holds({})


def test_an_unfilled_placeholder_does_not_run_the_step():
    """An unknown placeholder is false; in Architect `{{missing}}` always ran (A4 [run])."""
    assert not parse("{{missing}}").holds({})
    assert not parse("{{missing}} == 'true'").holds({})


@pytest.mark.parametrize(
    ("values", "is_true"),
    [(("true", "YES", "1", "anything at all"), True), (("false", "No", "0", "", " \n"), False)],
)
def test_a_value_by_itself_means_what_it_means_in_architect(values: tuple[str, ...], is_true: bool):
    """False, no, 0 and empty values skip the step; any other text runs it."""
    assert [parse("flag").holds({"flag": value}) for value in values] == [is_true] * len(values)


@pytest.mark.parametrize(
    "text",
    ["test -f x", "exit 0", "grep -q a b", "[ -f x ]", "./check.sh", "npm test", "test -f a && b"],
)
def test_a_shell_command_is_no_condition(text: str):
    """The shell is never run for a condition: the error suggests `checks` for commands."""
    with pytest.raises(ConditionError) as caught:
        parse(text)

    assert caught.value.suggestion is not None
    assert "not a shell command" in caught.value.suggestion
    assert "'checks'" in caught.value.suggestion


@pytest.mark.parametrize(
    ("text", "offset", "words"),
    [
        ("", 0, "is empty"),
        ("a = 'b'", 2, "=="),
        ("a && b", 2, "'and'"),
        ("a || b", 2, "'or'"),
        ("!a", 0, "'not'"),
        ("a == 'b", 5, "quote"),
        ("1 < a < 3", 6, "chained"),
        ("a ==", 4, "value"),
        ("(a", 2, "')'"),
        ("a)", 1, "the end"),
        ("(a and b) == 'c'", 13, "values"),
        ("defined('a')", 8, "name"),
        ("{{a b}}", 0, "braces"),
        ("a == é", 5, "not allowed"),
        ("(" * (DEEPEST + 1) + "a" + ")" * (DEEPEST + 1), DEEPEST, "deeply"),
        ("a" * (LONGEST + 1), LONGEST, "characters"),
        ("__import__('os')", 10, "end"),
        ("a.b", 1, "not allowed"),
    ],
)
def test_a_fault_is_reported_with_its_place(text: str, offset: int, words: str):
    """The offset is that of the first unexpected character."""
    with pytest.raises(ConditionError) as caught:
        parse(text)

    assert caught.value.offset == offset
    assert words in f"{caught.value.message} {caught.value.suggestion}"


def test_parentheses_side_by_side_are_not_deep():
    """Only nested parentheses count against the depth limit."""
    assert holds(" and ".join(["(word)"] * (DEEPEST + 8)))


def test_the_names_are_those_that_are_read():
    """Quoted placeholders are included, and names inside `defined` are listed separately."""
    condition = parse("a == 'x{{b}}' and defined(c) and not {{d}} or 'e' in \"f\"")
    assert condition.names == {"a", "b", "c", "d"}
    assert condition.asked == {"c"}


class Watched(dict[str, str]):
    """A mapping of variables that records the names looked up."""

    def __init__(self, values: dict[str, str]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.read.add(name)
        return super().get(name, default)


@given(text=st.text(alphabet="ab(){}'\"=!<> \\01.-andortif", max_size=60) | st.text(max_size=40))
def test_a_text_is_a_condition_or_its_fault_is_reported(text: str):
    """Any text gives an answer that depends only on its listed names, or ConditionError."""
    condition = outcome(ConditionError, parse, text)
    if isinstance(condition, ConditionError):
        assert 0 <= condition.offset <= len(text)
        assert condition.message
        return

    variables = Watched({"a": "1", "b": "x"})
    assert condition.holds(variables) in (True, False)
    assert variables.read <= condition.names


# --- A reference model --------------------------------------------------------------------------

VARIABLES = {"p": "1", "q": "02", "r": "b", "s": "no", "t": ""}


@dataclass(frozen=True)
class Case:
    """A condition with its expected value."""

    text: str
    expected: bool


def values() -> st.SearchStrategy[tuple[str, str | None]]:
    variables = list(VARIABLES.items())
    braced = [(f"{{{{ {name} }}}}", value) for name, value in VARIABLES.items()]
    others = [("missing", None), ("'b'", "b"), ('"abc"', "abc"), ("2", "2"), ("1.0", "1.0")]
    return st.sampled_from([*variables, *braced, *others])


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def compared(sign: str, one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return sign in ("!=", "not in")

    if sign.endswith("in"):
        return (one in other) is (sign == "in")

    left, right = number(one), number(other)
    pair = (one, other) if left is None or right is None else (left, right)
    return {
        "==": pair[0] == pair[1],
        "!=": pair[0] != pair[1],
        "<": pair[0] < pair[1],  # type: ignore[operator]
        "<=": pair[0] <= pair[1],  # type: ignore[operator]
        ">": pair[0] > pair[1],  # type: ignore[operator]
        ">=": pair[0] >= pair[1],  # type: ignore[operator]
    }[sign]


@st.composite
def atoms(draw: st.DrawFn) -> Case:
    text, value = draw(values())
    if draw(st.booleans()):
        return Case(text, value is not None and value.lower() not in ("", "no", "0"))

    sign = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]))
    other, other_value = draw(values())
    return Case(f"{text} {sign} {other}", compared(sign, value, other_value))


def grown(children: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    return st.one_of(
        children.map(lambda case: Case(f"not ({case.text})", not case.expected)),
        st.tuples(children, children).map(
            lambda two: Case(
                f"({two[0].text}) and ({two[1].text})", two[0].expected and two[1].expected
            )
        ),
        st.tuples(children, children).map(
            lambda two: Case(
                f"({two[0].text}) or ({two[1].text})", two[0].expected or two[1].expected
            )
        ),
    )


@given(case=st.recursive(atoms(), grown, max_leaves=6))
def test_it_holds_as_a_reader_would_say(case: Case):
    """Every expression agrees with the straightforward evaluation of its parts."""
    condition: ParsedCondition = parse(case.text)
    assert condition.holds(VARIABLES) is case.expected


@given(parts=st.lists(st.tuples(atoms(), st.sampled_from(["and", "or"])), min_size=1, max_size=5))
def test_and_binds_tighter_than_or(parts: list[tuple[Case, str]]):
    """Without parentheses a condition is a disjunction of conjunctions."""
    groups: list[list[bool]] = [[]]
    text = ""
    for index, (case, word) in enumerate(parts):
        if index and word == "or":
            groups.append([])

        groups[-1].append(case.expected)
        text += f" {word} {case.text}" if index else case.text

    assert parse(text).holds(VARIABLES) is any(all(group) for group in groups)
