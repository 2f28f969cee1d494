"""Find what a shell command may have done outside the work tree, from its words.

A command line is divided into words and simple commands with `shlex`. Programs that reach other
machines or services are recognised by name, and programs that write files by paths that lead out
of the work tree. Targets are named without user, password, query and fragment.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from urllib.parse import urlsplit

LONGEST_TARGET = 200
_DEEPEST = 3
"""Levels of commands in commands, as in `bash -c "..."`."""
_LONGEST_COMMAND = 20_000

_REACHING: Mapping[str, frozenset[str] | None] = {
    **dict.fromkeys(("curl", "wget", "http", "https", "xh", "aria2c", "nc", "telnet"), None),
    **dict.fromkeys(("ssh", "scp", "sftp", "rsync", "gh", "glab", "twine"), None),
    **dict.fromkeys(("aws", "gcloud", "gsutil", "az", "kubectl", "helm", "heroku"), None),
    **dict.fromkeys(("fly", "flyctl", "vercel", "netlify", "wrangler", "firebase"), None),
    **dict.fromkeys(("ansible", "ansible-playbook"), None),
    **dict.fromkeys(("psql", "mysql", "mariadb", "mongosh", "redis-cli"), None),
    **dict.fromkeys(("mail", "mailx", "mutt", "sendmail", "msmtp"), None),
    **dict.fromkeys(("terraform", "tofu"), frozenset({"apply", "destroy", "import"})),
    **dict.fromkeys(("docker", "podman", "buildah"), frozenset({"push"})),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn"), frozenset({"publish", "unpublish", "deprecate", "dist-tag"})
    ),
    **dict.fromkeys(("poetry", "uv", "flit", "hatch", "cargo"), frozenset({"publish"})),
    "pip": frozenset({"upload"}),
    "gem": frozenset({"push"}),
    "git": frozenset({"push", "send-email"}),
    "pulumi": frozenset({"up", "destroy"}),
    "skopeo": frozenset({"copy", "delete", "sync"}),
}
"""Programs that reach other machines or services; with subcommands, only with these."""

_WITH_PATHS = frozenset({"rm", "rmdir", "unlink", "tee", "touch", "mkdir", "mv", "chmod", "chown"})
_WITH_PATHS_TOO = frozenset({"truncate", "shred"})
_INTO_THE_LAST = frozenset({"cp", "ln", "install", "rsync"})
_WRITERS = _WITH_PATHS | _WITH_PATHS_TOO | _INTO_THE_LAST | {"sed", "dd"}

_WRAPPERS = frozenset(
    (
        *("!", "{", "builtin", "command", "do", "doas", "elif", "else", "env", "eval", "exec"),
        *("if", "ionice", "nice", "nohup", "setsid", "stdbuf", "sudo", "then", "time"),
        *("timeout", "until", "while", "xargs"),
    )
)
_INTERPRETERS = frozenset({"bash", "dash", "sh", "zsh", "ksh"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_OPTIONS_OF_WRAPPERS = re.compile(r"-|[0-9.]+[smhd]?$")
_NO_FILES = re.compile(r"/dev/(?:null|zero|std(?:in|out|err)|tty|fd/.*)$")
_SEPARATORS = ";&|()\n"
_SUBSTITUTION = re.compile(r"\$\(|`")

_WITH_EFFECTS = {word for name, words in _REACHING.items() for word in words or {name}} | _WRITERS
_NAMES = "|".join(map(re.escape, sorted(_WITH_EFFECTS, key=len, reverse=True)))
_SUSPECT = re.compile(rf"(?<![\w-])(?:{_NAMES})(?![\w-])|>")
"""Without a match there is no effect to find, and the line is not divided into words."""


def of_command(command: str, roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a shell command that runs in the work tree may have done outside."""
    return tuple(dict.fromkeys(_effects_in(command, roots)))


def programs_in(command: str, depth: int = 0) -> Iterator[str]:
    """Yield the names of all programs that a command line runs, and each word that hides one.

    A path is no name: it is yielded as it stands. So is a line that cannot be divided into words.
    """
    try:
        commands = _divided(command.replace("\\\n", " "))
    except ValueError:
        commands = [[command]]

    if depth > _DEEPEST:
        commands = [[command]]

    for words in commands:
        words, targets = _redirected(words)
        for word in (*words, *targets):
            for inner in _SUBSTITUTION.split(word)[1:]:
                yield from programs_in(inner, depth + 1)

        words = _unwrapped(words)
        if not words or words[0].startswith("#"):
            continue

        script = _script_of(words[1:]) if words[0] in _INTERPRETERS else ""
        if script:
            yield from programs_in(script, depth + 1)
        else:
            yield words[0]


def _effects_in(command: str, roots: tuple[str, ...], depth: int = 0) -> Iterator[str]:
    if len(command) > _LONGEST_COMMAND or depth > _DEEPEST or not _SUSPECT.search(command):
        return

    folder = roots[0]
    for words in _simple_commands(command.replace("\\\n", " ")):
        words, targets = _redirected(words)
        for target in targets:
            if is_outside(target, folder, roots):
                yield f"written to {shortened(target)}"

        for word in words:
            for inner in _SUBSTITUTION.split(word)[1:]:
                yield from _effects_in(inner, roots, depth + 1)

        words = _unwrapped(words)
        if not words:
            continue

        program, arguments = posixpath.basename(words[0]), words[1:]
        if program in ("cd", "pushd") and arguments:
            folder = posixpath.normpath(posixpath.join(folder, arguments[-1]))
        elif program in _INTERPRETERS:
            if script := _script_of(arguments):
                yield from _effects_in(script, roots, depth + 1)
        else:
            yield from _reached(program, arguments)
            for path in _written(program, arguments):
                if is_outside(path, folder, roots):
                    there = path if folder == roots[0] else posixpath.join(folder, path)
                    yield f"changed {shortened(there)} with {program}"


def _simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of each simple command; line by line where the quotes do not match."""
    try:
        yield from _divided(command)
    except ValueError:
        for line in command.splitlines():
            try:
                yield from _divided(line)
            except ValueError:
                continue


def _divided(command: str) -> list[list[str]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=_SEPARATORS + "<>")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    found: list[list[str]] = [[]]
    for word in lexer:
        if word and set(word) <= set(_SEPARATORS) | set("<>") and not set(word) & set("<>"):
            found.append([])
        else:
            found[-1].append(word)

    return found


def _redirected(words: list[str]) -> tuple[list[str], list[str]]:
    """Take the redirections out of a command; return the rest, and the files written to."""
    rest: list[str] = []
    targets: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not word or set(word) - set("<>&|"):
            rest.append(word)
            continue

        target = next(waiting, "")
        if ">" in word and not word.endswith("&"):
            targets.append(target)

    return rest, targets


def _unwrapped(words: list[str]) -> list[str]:
    """Remove assignments, and words and options that only precede a command."""
    start, is_wrapped = 0, False
    for start, word in enumerate(words):
        if word in _WRAPPERS:
            is_wrapped = True
        elif not (
            _ASSIGNMENT.match(word) or (is_wrapped and _OPTIONS_OF_WRAPPERS.match(word)) or not word
        ):
            return words[start:]

    return []


def _script_of(arguments: list[str]) -> str:
    """Return the script of `sh -c SCRIPT`."""
    for at, word in enumerate(arguments):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return next(iter(arguments[at + 1 :]), "")

    return ""


def _reached(program: str, arguments: list[str]) -> Iterator[str]:
    if program not in _REACHING:
        if program.startswith("python") and arguments[:2] == ["-m", "twine"]:
            yield "reached a package index with twine"

        return

    words = [word for word in arguments if not word.startswith("-")]
    subcommands = _REACHING[program]
    if subcommands is None:
        if program == "rsync" and not any(_HOST_AND_PATH.match(word) for word in words):
            return

        target = next(filter(None, map(_host, words)), "")
        yield f"reached {target} with {program}" if target else f"acted elsewhere with {program}"
    elif done := next((word for word in words if word in subcommands), None):
        target = next(iter(words[words.index(done) + 1 :]), "")
        where = f" to {address_of(target)}" if target and program == "git" else ""
        yield f"acted elsewhere with {program} {done}{where}"


_HOST_AND_PATH = re.compile(r"(?:[^/\s@:]+@)?([A-Za-z0-9][A-Za-z0-9.-]*):(?!//|\d+$)")
_PLAIN_HOST = re.compile(
    r"(?:[^/\s@:]+@)?((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}|localhost|[\d.]{7,15})(?=[:/?]|$)"
)


def _host(word: str) -> str:
    """Return the address or the host that a word names; empty for any other word."""
    if "://" in word:
        return address_of(word)

    if named := _HOST_AND_PATH.match(word) or _PLAIN_HOST.match(word):
        return shortened(named[1])

    user, at, host = word.partition("@")
    return shortened(host) if at and user and "/" not in user else ""


def _written(program: str, arguments: list[str]) -> Iterator[str]:
    """Yield the paths that a known program writes to."""
    if program not in _WRITERS:
        return

    if program == "dd":
        yield from (word[3:] for word in arguments if word.startswith("of="))
        return

    if program == "sed" and not any(re.match(r"-[a-zA-Z]*i|--in-place", w) for w in arguments):
        return

    words = [word for word in arguments if not word.startswith("-")]
    if program in _INTO_THE_LAST:
        into = [w for option, w in pairwise(arguments) if option == "-t"]
        words = into or words[-1:]

    yield from words


def is_outside(path: str, folder: str, roots: Iterable[str]) -> bool:
    """Return whether a path, relative to a folder, leads to none of the roots or below."""
    if not path or _NO_FILES.match(path) or "\0" in path or "://" in path:
        return False

    if path.startswith(("~", "$HOME", "${HOME}")):
        return True

    if path.startswith("$"):
        return False  # Not known; reports say that commands are not fully seen.

    found = posixpath.normpath(posixpath.join(folder, path))
    return not any(found == root or found.startswith(root.rstrip("/") + "/") for root in roots)


def address_of(text: str) -> str:
    """Return a URL without user, password, query and fragment; a text without scheme unchanged."""
    if "://" not in text:
        return shortened(text.rpartition("@")[2].partition("?")[0]) if text else ""

    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""

    return shortened(f"{parts.scheme}://{host}{parts.path}")


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TARGET else text[:LONGEST_TARGET] + "..."
