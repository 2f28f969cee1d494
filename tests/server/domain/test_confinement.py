"""Claims about confinement that need no process: whose settings count, and refusals in texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hankweave_protocol.hank import Codon, Confinement, ConfinementProfile, Overrides
from hankweave_server.domain.confinement import (
    confinement_of,
    outer_path,
    refusals_in,
    setting_for,
)

LISTS = Confinement(extra_read=("/r",), connect=(443,))


def a_codon(own: ConfinementProfile | Confinement | None = None) -> Codon:
    return Codon(id="one", name="One", model="m", continuation_mode="fresh", confinement=own)


@pytest.mark.parametrize(
    ("own", "hank", "chosen", "expected"),
    [
        (None, None, None, Confinement()),
        (None, "none", None, Confinement(profile="none")),
        ("readonly", "none", None, Confinement(profile="readonly")),
        (LISTS, "none", None, LISTS),
        (None, LISTS, "none", Confinement(profile="none", extra_read=("/r",), connect=(443,))),
        ("none", None, "workspace", Confinement()),
    ],
)
def test_the_codon_counts_before_the_hank_and_the_command_line_before_both(
    own: Any, hank: Any, chosen: Any, expected: Confinement
) -> None:
    """A codon's confinement replaces the hank's; the command line replaces the profile alone."""
    overrides = Overrides(confinement=hank)
    assert confinement_of(a_codon(own), overrides, chosen=chosen) == expected


def test_without_any_setting_the_default_counts() -> None:
    """The default comes from hankweave.json; a hank's own setting beats it."""
    assert confinement_of(a_codon(), None, default="readonly").profile == "readonly"
    assert confinement_of(a_codon("workspace"), None, default="none").profile == "workspace"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/a//b/", "/a/b"),
        ("~", "/home/u"),
        ("~/x", "/home/u/x"),
        ("..", "/hanks"),
        ("data", "/hanks/mine/data"),
    ],
)
def test_paths_are_absolute_or_relative_to_the_hank(written: str, meant: str) -> None:
    """`~` is the user's home; other relative paths begin at the hank's directory."""
    assert outer_path(written, home="/home/u", hank_directory="/hanks/mine") == meant


@pytest.mark.parametrize(
    ("own", "hank", "operation", "line"),
    [
        (None, None, "read", '"overrides": {"confinement": {"extraRead": ["/p"]}}'),
        (None, LISTS, "read", '"extraRead": ["/r","/p"], "connect": [443]}}'),
        (None, "readonly", "write", '"overrides": {"confinement": {"extraWrite": ["/p"]}}'),
        (None, "readonly", "read", '{"profile": "readonly", "extraRead": ["/p"]}}'),
        (LISTS, "none", "write", '"extraWrite": ["/p"], "connect": [443]} in codon one'),
        (None, Confinement(connect=()), "read", '"extraRead": ["/p"], "connect": []}}'),
    ],
)
def test_the_setting_for_a_path_keeps_what_is_allowed_already(
    own: Any, hank: Any, operation: Any, line: str
) -> None:
    """The line can be pasted as it is; a codon with its own confinement is named."""
    found = setting_for("/p", operation, a_codon(own), Overrides(confinement=hank))
    assert found.endswith(line)
    json.loads(f"{{{found.removesuffix(' in codon one')}}}")


@pytest.mark.parametrize(
    ("text", "path", "operation", "is_missing"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/h/.ssh/id'", "/h/.ssh/id", None, False),
        ("OSError: [Errno 30] Read-only file system: '/etc/x y'", "/etc/x y", "write", False),
        ("/bin/sh: 1: cannot create /etc/x: Read-only file system", "/etc/x", "write", False),
        ("/bin/sh: 1: cannot create /t/x: Directory nonexistent", "/t/x", "write", True),
        ("bash: line 1: /h/z: Permission denied", "/h/z", None, False),
        ("rm: cannot remove '/h/a b': Read-only file system", "/h/a b", "write", False),
        ("mkdir: cannot create directory ‘/x/y’: Permission denied", "/x/y", "write", False),
        ("ls: cannot open directory '/root': Permission denied", "/root", "read", False),
        ("cat: /t/x: No such file or directory", "/t/x", None, True),
        ("Error: EACCES: permission denied, open '/h/.npm/_x'", "/h/.npm/_x", None, False),
        ("EROFS: read-only file system, mkdir '/h/.npm'", "/h/.npm", "write", False),
        ("open /h/go/x.mod: permission denied", "/h/go/x.mod", None, False),
        ("could not lock /h/.gitconfig: Read-only file system", "/h/.gitconfig", "write", False),
        ("Cannot connect to the Docker daemon at unix:///r/d.sock. Is", "/r/d.sock", None, True),
        ("permission denied … at unix:///var/d.sock: Get http", "/var/d.sock", None, False),
        ("chmod: permissions of '/h/../h/x': Operation not permitted", "/h/x", "write", False),
    ],
)
def test_refusals_are_recognised_in_the_messages_of_programs(
    text: str, path: str, operation: str | None, is_missing: bool
) -> None:
    """Shells, coreutils, Python, Node.js, Go, git and docker name the path that was refused."""
    (found,) = refusals_in(f"before\n{text}\nafter")
    assert (found.path, found.operation, found.is_missing) == (path, operation, is_missing)


@pytest.mark.parametrize(
    "text",
    [
        "Permission denied (os error 13)",
        "cat: notes.txt: Permission denied",
        "All is well in /home/u.",
        "permission denied\n/home/u/x",
        "",
    ],
)
def test_other_texts_report_no_path(text: str) -> None:
    """A line without an absolute path, or without an error, reports nothing."""
    assert list(refusals_in(text)) == []


def test_a_long_text_is_searched_at_both_ends() -> None:
    """Megabytes of output cost little: only the first and last lines are searched."""
    error = "cat: /h/{}: Permission denied"
    lines = [error.format("first"), *["x" * 100] * 5_000, error.format("middle")]
    lines += [*["y" * 100] * 5_000, error.format("last"), "/" * 5_000_000]
    assert [each.path for each in refusals_in("\n".join(lines))] == ["/h/first", "/h/last"]
