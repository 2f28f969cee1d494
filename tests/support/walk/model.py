"""The files that must be on disk, or in a checkpoint, after the acts of a walk. It does no I/O.

For each path the model knows the contents that it may have; nearly always there is one. An act of a
person, a program or the agent changes it to what was written. Of the server's acts only their
reports change it: a report says to which checkpoint files were restored, and every other path stays
as it was. So a file that changes without a report is a violation, as is one that changes although
the report says that it was kept.

Automatic acts (a recovery, a retry) may take back what the agent wrote and nothing else.

A content that a person wrote is *owed* until a recorded checkpoint holds it, or the person or the
agent overwrites it. What is owed must be on disk.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Content: TypeAlias = bytes | None
"""None: there is no such file."""
Files: TypeAlias = Mapping[str, bytes]
Writer = Literal["person", "agent", "server", "both"]
"""Who wrote a path last; `both`, if a person and the agent did in the same step."""


@dataclass(frozen=True)
class Restored:
    """The restored files that an event names."""

    target: Files
    """The files of the checkpoint."""
    is_asked: bool
    """False for a recovery and a retry."""
    keeps_edits: bool = False
    is_finished_late: bool = False
    """True if a start finished it: people may have written in between."""
    paths: frozenset[str] | None = None
    """Files and folders to which it was limited."""
    named: frozenset[str] = frozenset()
    """Paths that it left as they were, and says so."""

    def reaches(self, path: str) -> bool:
        return self.paths is None or is_below(path, self.paths)


@dataclass(frozen=True)
class Owed:
    """A content that a person wrote."""

    path: str
    content: bytes
    where: str
    """The act."""


@dataclass
class Model:
    may_be: dict[str, set[Content]] = field(default_factory=dict)
    writer: dict[str, Writer] = field(default_factory=dict)
    owed: list[Owed] = field(default_factory=list)
    elsewhere: Container[str] = ()
    """Paths that the model does not follow."""
    untracked: Container[str] = ()
    """Paths that no checkpoint tracks: a rollback leaves them, unless its target holds them."""
    _before: dict[str, set[Content]] = field(default_factory=dict)
    """What people had written when the newest step began."""
    _of_agent: set[str] = field(default_factory=set)
    _of_person: set[str] = field(default_factory=set)
    """What was written since the newest step began, until it ended well."""
    _restored: dict[str, Content] = field(default_factory=dict)
    """What reports say was put into files, since the last comparison."""

    # --- acts -----------------------------------------------------------------------------------

    def person(self, path: str, before: Content, content: Content, where: str) -> None:
        """Note that a person replaced the content `before`, perhaps without having seen it."""
        self._overwritten(path, before)
        if content is not None:
            self.owed.append(Owed(path, content, where))

        self.may_be[path] = {content}
        self._of_person.add(path)
        self.writer[path] = "both" if path in self._of_agent else "person"

    def step_begins(self) -> None:
        self._of_agent.clear()
        self._of_person.clear()
        persons = (path for path, writer in self.writer.items() if writer == "person")
        self._before = {path: set(self.may_be[path]) for path in persons}

    def agent(self, path: str, content: Content, *, surely: bool = True) -> None:
        """Note that the agent wrote a path, or may have."""
        self._by_agent(path, {content}, surely=surely)

    def agent_moves(self, path: str, to: str, *, surely: bool = True) -> None:
        """Note that the agent renamed a file, if there is one, or may have."""
        contents = self.may_be.get(path, {None})
        if moved := contents - {None}:
            self._by_agent(path, {None}, surely=surely)
            self._by_agent(to, moved, surely=surely and moved == contents)

    def _by_agent(self, path: str, contents: set[Content], *, surely: bool) -> None:
        current = self.may_be.get(path, {None})
        for before in current:
            self._overwritten(path, before)

        self.may_be[path] = contents if surely else current | contents
        self._of_agent.add(path)
        self.writer[path] = "both" if path in self._of_person else "agent"

    def step_is_killed(self, *, at_once: bool) -> None:
        """Note that a step is cut short; `at_once`, so that its edits may seem the agent's."""
        if at_once:
            self.writer |= dict.fromkeys(self._of_person, "both")

    def step_ends(self) -> None:
        """Note that nothing takes back what the step did, unless a client asks for it."""
        self._of_agent.clear()
        self._of_person.clear()
        self._before.clear()

    def _overwritten(self, path: str, before: Content) -> None:
        self.owed = [each for each in self.owed if (each.path, each.content) != (path, before)]

    def restored(self, report: Restored) -> None:
        """Follow a report of the server."""
        for path in {*self.may_be, *report.target}:
            if path in self.elsewhere or not report.reaches(path) or path in report.named:
                continue

            if path in self.untracked and path not in report.target:
                continue

            current, to = self.may_be.get(path, {None}), report.target.get(path)
            allowed = self._after(path, report, to)
            self.may_be[path] = allowed
            if to not in current:
                self._restored[path] = to

    def _after(self, path: str, report: Restored, to: Content) -> set[Content]:
        current, writer = self.may_be.get(path, {None}), self.writer.get(path, "server")
        is_persons = writer == "person"
        if not report.is_asked:
            if is_persons:
                return current

            before = self._before.get(path, set())
            return {to} | before | (current if writer == "both" else set())

        if report.keeps_edits and is_persons and not report.is_finished_late:
            return current  # The person's edits stay, named or not.

        # A rollback removes what its target lacks, but no file that no checkpoint before it held.
        may_stay = writer in ("person", "both") and (report.is_finished_late or to is None)
        return {to} | (current if may_stay else set())

    # --- comparison -----------------------------------------------------------------------------

    def violations(self, files: Files, saved: Container[tuple[str, bytes]]) -> list[str]:
        """Compare the files with the model, which follows them from now on.

        `saved` has each path and content that a recorded checkpoint holds.
        """
        found = []
        for path in sorted({*self.may_be, *files}):
            if path in self.elsewhere:
                continue

            allowed, content = self.may_be.get(path, {None}), files.get(path)
            if content not in allowed:
                wanted = " or ".join(sorted(map(shown, allowed)))
                who = self.writer.get(path, "nobody")
                found.append(f"{path} is {shown(content)}, not {wanted} (last written by {who})")

            self.may_be[path] = {content}
            if path in self._restored and self._restored[path] == content:
                self.writer[path] = "server"

        self._restored.clear()
        self.owed = [each for each in self.owed if (each.path, each.content) not in saved]
        found += [
            f"{each.path}: {shown(each.content)}, written by a person ({each.where}), "
            "is neither on disk nor in a checkpoint"
            for each in self.owed
            if files.get(each.path) != each.content
        ]
        return found


def is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def shown(content: Content) -> str:
    """Return a content in a few words."""
    if content is None:
        return "absent"

    text = content[:12].decode(errors="replace")
    return f"{text!r} ({len(content)} bytes)" if len(content) > 12 else repr(text)
