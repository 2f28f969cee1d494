"""The meaning of permission patterns, and attempts to evade them."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hankweave_server.domain.permission_patterns import (
    Call,
    Kind,
    MalformedPattern,
    PatternPlace,
    arguments_of,
    commands_in,
    is_plain,
    parse,
)
from support.waiting import LIMIT


def bash(command: str) -> Call:
    return Call("Bash", texts=(command,))


def write(written: str, real: str | None = None) -> Call:
    return Call("Write", places=(PatternPlace(written, written if real is None else real),))


# --- Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "tool", "fits"),
    [
        ("Bash", "Bash", True),
        ("Bash", "bash", False),
        ("Bash", "BashOutput", False),
        ("Bash*", "BashOutput", True),
        ("mcp__server__*", "mcp__server__make", True),
        ("mcp__server__*", "mcp__servers__make", False),
        ("mcp__server__make", "mcp__server__make", True),
        ("*", "Anything", True),
    ],
)
def test_a_name_means_every_call_of_that_tool(pattern: str, tool: str, fits: bool) -> None:
    """The whole name has to match; a trailing star matches any suffix."""
    assert parse(pattern).allows(Call(tool)) is fits
    assert parse(pattern).denies(Call(tool)) is fits


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not a valid tool name"),
        ("(git *)", "not a valid tool name"),
        ("Ba sh", "not a valid tool name"),
        ("mcp__*__make", "not a valid tool name"),
        ("Bash(git *", "parentheses"),
        ("Bash)", "parentheses"),
        ("Bash(git) x", "parentheses"),
        ("Bash()", "empty"),
        ("Bash( git)", "space"),
        ("Bash(git; rm)", "plain command"),
        ("Bash(git > x)", "plain command"),
        ("Bash(echo $HOME)", "plain command"),
        ("Bash(it's)", "plain command"),
        ("Bash(a\nb)", "control"),
        ("Read(../x)", "'..'"),
        ("Read(./x)", "'.'"),
        ("Read(a//b)", "empty"),
        ("Read(src/)", "empty"),
        ("Read(a**)", "alone"),
        ("Read(src/*.{py,js})", "'{'"),
        ("Read(~/x)", "'~'"),
        ("Read(a\\b)", "'\\\\'"),
        ("Task(x)", "are not known"),
        ("mcp__a__b(x)", "are not known"),
        ("Bas*(x)", "are not known"),
    ],
)
def test_a_malformed_pattern_is_refused(text: str, fault: str) -> None:
    """A pattern without a meaning is an error and never silently matches nothing."""
    with pytest.raises(MalformedPattern) as raised:
        parse(text)

    assert fault in str(raised.value)


# --- Commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git",
        "  git status ",
        "git commit -m 'one; two && three | four > five $(six) `seven`'",
        'git commit -m "one; two & three | (four) > five"',
        "git log --format=%h\\;%s",
        "git log *.py",
        "git log # what came before",
    ],
)
def test_one_plain_command_is_allowed(command: str) -> None:
    """Quotes are parsed as in a shell: a metacharacter in a message chains nothing."""
    assert parse("Bash(git *)").allows(bash(command))


CHAINS = [
    "git status; rm -rf /",
    "git status;rm -rf /",
    "git status && rm -rf /",
    "git status || rm -rf /",
    "git status | rm -rf /",
    "git status & rm -rf /",
    "git status\nrm -rf /",
    "git status\rrm -rf /",
    "git status $(rm -rf /)",
    "git status `rm -rf /`",
    'git status "$(rm -rf /)"',
    'git status "`rm -rf /`"',
    "git log <(rm -rf /)",
    "git log #'\nrm -rf / #'",
    "git log $'\\'; rm -rf / #'",
    "git log \\\n; rm -rf /",
    "git log 'a'; rm -rf / 'b'",
    'git log "a\\""; rm -rf / ""',
]


@pytest.mark.parametrize("command", CHAINS)
def test_a_chain_slips_through_no_pattern_and_past_no_denial(command: str) -> None:
    """A chain that starts with git is not allowed as git, and an rm in it is found."""
    assert not parse("Bash(git *)").allows(bash(command))
    assert not parse("Bash(*)").allows(bash(command))
    assert parse("Bash(rm *)").denies(bash(command))
    assert parse("Bash(git *)").denies(bash(command))
    assert parse("Bash(git *)").would_allow_but_for_a_chain(bash(command))


@pytest.mark.parametrize(
    "command",
    [
        "git log > /etc/passwd",
        "git log >> x",
        "git apply < x",
        "git log 2>&1",
        "git log $HOME",
        'git log "${x@P}"',
        "git log 'open",
        'git log "open',
        "git log \\",
        "git log \0",
        "git (a)",
        "gitk",
        "X=1 git status",
        "/tmp/git status",
        "sudo git status",
    ],
)
def test_what_is_not_certainly_one_command_is_not_allowed(command: str) -> None:
    """Redirections, expansions, open quotes and other programs match no pattern that allows git."""
    assert not parse("Bash(git *)").allows(bash(command))


@pytest.mark.parametrize(
    "command",
    [
        "rm",
        "rm -rf x",
        "  rm   -rf   x",
        "sudo rm -rf x",
        "sudo -u root rm -rf x",
        "X=1 rm -rf x",
        "A=1 B=2 env rm -rf x",
        "/bin/rm -rf x",
        "\\rm -rf x",
        "r''m -rf x",
        '"rm" -rf x',
        "bash -c 'rm -rf x'",
        'sh -c "cd /; rm -rf x"',
        "timeout 5 rm -rf x",
        "ls | xargs rm",
        "find . -exec rm {} +",
        "{ rm -rf x; }",
        "if true; then rm -rf x; fi",
        "! rm x",
        "(rm x)",
        "eval rm x",
        "echo $(rm x)",
        "rm x > y",
        "r\\\nm x",
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(command: str) -> None:
    """A command is found behind wrappers and assignments, in quotes, brackets, by full path."""
    assert parse("Bash(rm *)").denies(bash(command))


@pytest.mark.parametrize("command", ["git rm x", "rmdir x", "echo norm x", "ls rm", "docker rm x"])
def test_another_command_is_not_denied(command: str) -> None:
    """A word that is an argument is not a command."""
    assert not parse("Bash(rm *)").denies(bash(command))


HOSTILE = st.lists(
    st.sampled_from(
        [
            *(" ", "'", '"', "\\", "\n", "\t", ";", "&", "|", "$(", "`", "(", ")", "{", "}", "#"),
            *("touch x", "touch 'x'", "<", ">", "$'", "!", "~", "*", "=", "$", "[", "]", ",", "x"),
            *("<<", "x\n", "touch", "${", "@P", "é", "\\\n", "; touch x", "&& touch x", "\r"),
        ]
    ),
    max_size=12,
).map("".join)


@settings(max_examples=250)
@given(rest=HOSTILE, shell=st.sampled_from(["sh", "bash"]))
def test_a_real_shell_does_nothing_else_for_a_plain_command(rest: str, shell: str) -> None:
    """For no line `: anything` that counts as plain does a real shell create a file."""
    command = f": {rest}"
    if not parse("Bash(: *)").allows(bash(command)):
        return

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([shell, "-c", command], cwd=folder, capture_output=True, timeout=LIMIT)
        assert list(Path(folder).iterdir()) == []


@given(first=HOSTILE, second=HOSTILE, joint=st.sampled_from([";", "&&", "||", "|", "&", "\n"]))
def test_no_command_hides_behind_another_one(first: str, second: str, joint: str) -> None:
    """A denial finds its command whatever comes before and after it."""
    assert parse("Bash(shred *)").denies(bash(f"{first}{joint} shred y {joint}{second}"))


@given(st.text())
def test_any_line_is_read(line: str) -> None:
    """No line of an agent raises an exception."""
    assert isinstance(is_plain(line), bool)
    assert line.strip() in set(commands_in(line))


# --- Paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "path", "allows", "denies"),
    [
        ("src/**", "src/a.py", True, True),
        ("src/**", "src/b/c.py", True, True),
        ("src/**", "src", False, True),
        ("src/**", "srcs/a.py", False, False),
        ("src/**", "a.py", False, False),
        ("src/**", "/src/a.py", False, False),
        ("src/*", "src/a.py", True, True),
        ("src/*", "src/b/c.py", False, False),
        ("src/*.py", "src/a.py", True, True),
        ("src/*.py", "src/a.pyc", False, False),
        ("**/*.py", "a.py", True, True),
        ("**/*.py", "b/c/a.py", True, True),
        ("**", "a/b", True, True),
        ("**", ".", True, True),
        ("**", "/etc/passwd", False, False),
        ("a/**/z", "a/z", True, True),
        ("a/**/z", "a/b/c/z", True, True),
        ("a/**/z", "a/b/zz", False, False),
        ("a.txt", "a.txt", True, True),
        ("a.txt", "b/a.txt", False, False),
        ("/etc/**", "/etc/passwd", True, True),
        ("/**", "/etc/passwd", True, True),
        ("*", ".env", True, True),
    ],
)
def test_a_path_is_matched_from_the_work_tree(
    pattern: str, path: str, allows: bool, denies: bool
) -> None:
    """One star stops at a slash, two do not; paths outside need an absolute pattern."""
    assert parse(f"Write({pattern})").allows(write(path)) is allows
    assert parse(f"Write({pattern})").denies(write(path)) is denies


def test_a_link_leads_nowhere_that_is_not_allowed() -> None:
    """To allow, both the written path and its target have to match; to deny, one is enough."""
    away, into = write("src/link", "/etc/passwd"), write("x", "secret/key")
    assert not parse("Write(src/**)").allows(away)
    assert parse("Write(/etc/**)").denies(away)
    assert parse("Write(secret/**)").denies(into)
    assert not parse("Write(secret/**)").allows(into)


def test_every_path_of_a_call_counts() -> None:
    """A call with two paths is allowed if both match, and denied if one does."""
    call = Call("Write", places=(PatternPlace("a", "a"), PatternPlace("b", "b")))
    assert not parse("Write(a)").allows(call)
    assert parse("Write(b)").denies(call)


def test_what_cannot_be_read_is_denied_and_not_allowed() -> None:
    """A call without its main argument matches every denial of its tool."""
    for tool in ("Write", "Bash", "WebFetch"):
        pattern = parse(f"{tool}(*)")
        assert not pattern.allows(Call(tool))
        assert pattern.denies(Call(tool))


@given(
    st.lists(st.sampled_from(["a", "b", "ab", ".", ".x"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "*", "**", "a*", "*b"]), min_size=1, max_size=5),
)
def test_what_is_allowed_is_also_what_would_be_denied(parts: list[str], wanted: list[str]) -> None:
    """A pattern never denies fewer calls than it allows."""
    pattern, call = parse(f"Write({'/'.join(wanted)})"), write("/".join(parts))
    assert pattern.denies(call) or not pattern.allows(call)


@given(st.text(), st.text())
def test_a_pattern_is_read_or_refused(text: str, argument: str) -> None:
    """Any text is parsed or raises MalformedPattern, and a parsed pattern can judge any call."""
    try:
        pattern = parse(text)
    except MalformedPattern:
        return

    for call in (bash(argument), write(argument), Call(argument)):
        assert pattern.denies(call) or not pattern.allows(call)


def test_texts_fit_as_a_whole() -> None:
    """A pattern has to match the whole address."""
    pattern = parse("WebFetch(https://example.org/*)")
    assert pattern.allows(Call("WebFetch", texts=("https://example.org/a/b",)))
    assert not pattern.allows(Call("WebFetch", texts=("https://example.org.evil.com/",)))
    assert not pattern.allows(Call("WebFetch", texts=("x https://example.org/a",)))


def test_a_long_text_is_matched_quickly() -> None:
    """A line of a megabyte is matched quickly by any pattern."""
    pattern = parse("Bash(" + "a*" * 20 + "b)")
    assert not pattern.allows(bash("a" * 1_000_000))
    assert not pattern.denies(bash("sudo " + "a " * 500_000))


# --- Arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "given_", "found"),
    [
        ("Bash", {"command": "ls", "description": "x"}, (Kind.COMMAND, ("ls",))),
        ("Write", {"file_path": "a", "content": "b"}, (Kind.PATH, ("a",))),
        ("NotebookEdit", {"notebook_path": "a"}, (Kind.PATH, ("a",))),
        ("Edit", {"path": "a", "file_path": "b"}, (Kind.PATH, ("b", "a"))),
        ("Edit", {"path": 3, "file_path": "b"}, (Kind.PATH, ())),
        ("Edit", {"file_path": "a\0b"}, (Kind.PATH, ())),
        ("Edit", {}, (Kind.PATH, ())),
        ("Grep", {"pattern": "x"}, (Kind.PATH, (".",))),
        ("Grep", {"path": "a"}, (Kind.PATH, ("a",))),
        ("Grep", {"file_path": "a"}, (Kind.PATH, ("a", "."))),
        ("Edit", {"file_path": "a", "file_paths": ["a", "b"]}, (Kind.PATH, ("a", "a", "b"))),
        ("Edit", {"file_path": "a", "file_paths": "b"}, (Kind.PATH, ("a", "b"))),
        ("Edit", {"file_path": "a", "file_paths": ["a", 3]}, (Kind.PATH, ())),
        ("WebSearch", {"query": "x"}, (Kind.TEXT, ("x",))),
        ("mcp__a__b", {"path": "x"}, None),
    ],
)
def test_the_main_argument_is_known_by_the_tool(
    tool: str, given_: dict[str, object], found: tuple[Kind, tuple[str, ...]] | None
) -> None:
    """A main argument of the wrong type makes the whole call unreadable."""
    assert arguments_of(tool, given_) == found
