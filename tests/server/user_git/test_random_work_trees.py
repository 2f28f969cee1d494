"""Claims about random work trees: a checkpoint equals `git add -A`, and undo restores all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hankweave_server.architect import CheckpointManager
from hankweave_server.user_git.errors import RollbackIncomplete
from support.person_repository import PersonRepository

pytestmark = pytest.mark.feature("architect")

IS_LONG = "HANKWEAVE_LONG_TIER" in os.environ
EXAMPLES = 400 if IS_LONG else 12

NAMES = st.sampled_from(
    [
        *(
            "a",
            "b",
            "x.txt",
            "y.bin",
            "z.c",
            "sp ace",
            "-n",
            'q"',
            "t\tb",
            "n\nl",
            "b\\s",
            "\udcff",
        ),
        *("[x]", "s*", "#h", "!n", ".hid", "trail ", "x.txt.", "build", "A"),
    ]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.sampled_from(
    [
        *(b"", b"one\n", b"two\r\nlines\r\n", b"mixed\r\nends\n", b"no end", b"\0bin\r\n"),
        *(b"lone\rcr\n", b"$Id$\n", b"$Id: old $\r\n", b"\x01\x02\r\n", b"x" * 200 + b"\x01\r\n"),
        b"\xef\xbb\xbfb\r\n",
    ]
)
PATTERN_NAMES = st.sampled_from(
    [
        *("a", "b", "x.txt", "*.txt", "*", "y.*", "[ab]", "[!a]", "build", "sp ace", "?", "\\#h"),
        *("\\!n", "s\\*", "é", "**", "trail\\ ", "a*", "*.[ch]", "\\[x\\]", "b\\\\s"),
    ]
)
PATTERNS = st.builds(
    lambda parts, negated, rooted, folder: (
        ("!" if negated else "") + ("/" if rooted else "") + "/".join(parts) + ("/" * folder)
    ),
    st.lists(PATTERN_NAMES, min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
).filter(lambda line: not line.rstrip("/").endswith("**"))
IGNORES = st.lists(PATTERNS | st.sampled_from(["# no", "", "  ", "a  "]), max_size=4).map(
    lambda lines: "\n".join(lines).encode() + b"\n"
)
ATTRIBUTED = ["*", "*.txt", "a", "/b", "**/a", "build/*", "[ab]", "a/b", "?", "*.[ch]"]
GIVEN = [
    *("text", "-text", "text=auto", "eol=crlf", "eol=lf", "binary", "ident", "-ident", "!text"),
    *("text eol=crlf", "text=auto eol=crlf", "crlf", "-crlf", "crlf=input", "!eol"),
]
ATTRIBUTES = st.lists(
    st.builds("{} {}".format, st.sampled_from(ATTRIBUTED), st.sampled_from(GIVEN)), max_size=3
).map(lambda lines: "\n".join(lines).encode() + b"\n")


@dataclass(frozen=True)
class Standing:
    """A regular file or a link in the work tree."""

    content: bytes
    permissions: int | None
    """None for a link."""


FILES = st.builds(Standing, CONTENTS, st.sampled_from([0o644, 0o755, 0o600, 0o700, 0o444, 0o640]))
LINKS = st.sampled_from([b"a", b"../x.txt", b"/nowhere", b"build"]).map(
    lambda to: Standing(to, None)
)
RULES = st.dictionaries(
    st.sampled_from([".gitignore", "a/.gitignore", "build/.gitignore", "a/b/.gitignore"]),
    IGNORES.map(lambda content: Standing(content, 0o644)),
    max_size=2,
)
SAID = st.dictionaries(
    st.sampled_from([".gitattributes", "a/.gitattributes", "build/.gitattributes"]),
    ATTRIBUTES.map(lambda content: Standing(content, 0o644)),
    max_size=2,
)
WORK_TREES = st.builds(
    lambda files, rules, said: {**files, **rules, **said},
    st.dictionaries(PATHS, FILES | LINKS, max_size=8),
    RULES,
    SAID,
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "core.autocrlf": st.sampled_from(["true", "input", "false"]),
        "core.eol": st.sampled_from(["crlf", "lf", "native"]),
        "core.filemode": st.sampled_from(["true", "false"]),
        "index.version": st.sampled_from(["2", "3", "4"]),
        "core.splitIndex": st.sampled_from(["true", "false"]),
        "core.untrackedCache": st.sampled_from(["true"]),
        "core.quotePath": st.sampled_from(["false"]),
        "core.trustctime": st.sampled_from(["false"]),
        "core.checkStat": st.sampled_from(["minimal"]),
        "feature.manyFiles": st.sampled_from(["true"]),
    },
)
MARKS = st.dictionaries(
    st.integers(0, 9),
    st.sampled_from(["--assume-unchanged", "--skip-worktree", "add", "add -N", "rm", "force"]),
    max_size=3,
)


def lay_out(root: Path, tree: dict[str, Standing]) -> None:
    """Make the work tree hold these files, except those whose place another one takes."""
    for entry in root.iterdir():
        if entry.name == ".git":
            continue

        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()

    for name, what in tree.items():
        path = root / name
        above = [each for each in path.parents if each != root and root in each.parents]
        if os.path.lexists(path) or any(each.is_symlink() or each.is_file() for each in above):
            continue

        path.parent.mkdir(parents=True, exist_ok=True)
        if what.permissions is None:
            path.symlink_to(os.fsdecode(what.content))
            # git keeps in its index the entries that lay below a link that leads back to itself.
            if goes_round(path):
                path.unlink()
        else:
            path.write_bytes(what.content)
            path.chmod(what.permissions)


def goes_round(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP

    return False


def visible_state(root: Path) -> dict[str, tuple[object, ...]]:
    """Return the visible state of a work tree, with the permissions of files and folders."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders.remove(".git")

        for name in names + [each for each in folders if Path(folder, each).is_symlink()]:
            path = Path(folder, name)
            shown = str(path.relative_to(root))
            if path.is_symlink():
                found[shown] = (path.readlink(),)
            else:
                found[shown] = (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))

    return found


def mark(repo: PersonRepository, marks: dict[int, str]) -> None:
    """Stage, mark or force some of the files that exist."""
    tracked = repo.git("ls-files", "-z").split("\0")[:-1]
    standing = sorted(visible_state(repo.root))
    marked: set[str] = set()
    for number, kind in sorted(marks.items(), key=lambda each: not each[1].startswith("--")):
        is_mark = kind.startswith("--")
        chosen = tracked if is_mark or kind == "rm" else standing
        # A mark on a path that another entry blocks is a special case of its own.
        chosen = [name for name in chosen if not is_mark or name in standing]
        names = [name for name in chosen if is_mark or name not in marked]
        if not names:
            continue

        name = names[number % len(names)]
        if is_mark:
            marked.add(name)
            repo.git("update-index", kind, "--", name)
        elif kind == "rm":
            repo.git("rm", "-q", "--cached", "--ignore-unmatch", "--", ":(literal)" + name)
        elif kind == "force":
            repo.git("add", "-f", "--", ":(literal)" + name)
        else:
            repo.git(*kind.split(), "-f", "--", ":(literal)" + name)


@pytest.mark.timeout(3600 if IS_LONG else 120)
@given(WORK_TREES, WORK_TREES, WORK_TREES, SETTINGS, MARKS, IGNORES, IGNORES)
@settings(
    max_examples=EXAMPLES,
    derandomize=not IS_LONG,  # Runs for each change use the same examples every time.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_checkpoint_is_what_git_add_makes_and_an_undo_brings_all_back(
    first: dict[str, Standing],
    second: dict[str, Standing],
    third: dict[str, Standing],
    configured: dict[str, str],
    marks: dict[int, str],
    excluded: bytes,
    personal: bytes,
) -> None:
    """The tree is git's; after rollback and undo the user has all files again."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        repo = PersonRepository.made(Path(folder) / "project")
        for name, value in configured.items():
            repo.git("config", name, value)

        (Path(folder) / "personal").write_bytes(personal)
        repo.git("config", "core.excludesFile", str(Path(folder) / "personal"))
        repo.git("config", "core.safecrlf", "false")
        (repo.root / ".git/info/exclude").write_bytes(excluded)
        lay_out(repo.root, first)
        repo.git("add", "-f", "-A")
        repo.git("commit", "-q", "--allow-empty", "-m", "begin")
        # What is staged while rules are removed depends on which of the two git meets first.
        rules = {name: what for name, what in first.items() if name.endswith(".gitattributes")}
        lay_out(repo.root, {**second, **(rules if marks else {})})
        mark(repo, marks)
        shutil.copytree(repo.root, Path(folder) / "copy", symlinks=True)
        twin = PersonRepository(Path(folder) / "copy")
        twin.git("add", "-A")
        expected = twin.git("write-tree").strip()

        manager = CheckpointManager(str(repo.root))
        before = visible_state(repo.root)
        made = manager.create(1)
        assert visible_state(repo.root) == before
        shown = repo.git("ls-tree", "-r", "-t", "HEAD")
        assert shown == twin.git("ls-tree", "-r", "-t", expected)
        assert made is None or repo.status() == twin_status(twin)

        lay_out(repo.root, {**third, **second} if len(third) % 2 else third)
        before = visible_state(repo.root)
        status, staged = repo.status(), repo.git("diff", "--cached")
        branch = repo.git("log", "--format=%H")
        # A file that is ignored, or that git was told not to check, blocks a restored file; it is
        # reported.
        with contextlib.suppress(RollbackIncomplete):
            assert manager.rollback(commit=repo.git("rev-list", "--max-parents=0", "HEAD").strip())

        with contextlib.suppress(RollbackIncomplete):
            assert manager.undo()

        assert visible_state(repo.root) == before
        assert repo.git("log", "--format=%H") == branch
        assert (repo.status(), repo.git("diff", "--cached")) == (status, staged)
        repo.assert_sound()


def twin_status(twin: PersonRepository) -> str:
    twin.git("commit", "-q", "--allow-empty", "-m", "theirs")
    return twin.status()
