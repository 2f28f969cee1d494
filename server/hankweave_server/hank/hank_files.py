"""The files of a hank: each is looked at once, however many codons name it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hankweave_server.hank.problems import did_you_mean
from hankweave_server.hank.prompts import PromptFault, PromptFile, read_prompt_file
from hankweave_server.hank.references import fault_of_relative, is_protected


class HankFiles:
    """What lies in the hank's directory, as it was when it was first asked for.

    Nothing is reached through a symbolic link, and nothing outside of the directory is read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._faults: dict[str, str | None] = {}
        self._obstacles: dict[str, str | None] = {}
        self._trees: dict[str, str | None] = {}
        self._prompts: dict[str, PromptFile | PromptFault] = {}

    def fault_of_file(self, reference: str) -> str | None:
        """Says what is wrong with a reference that must name a regular file of the hank."""
        if reference not in self._faults:
            fault = self._fault_of_way(reference)
            if fault is None and not os.path.isfile(self._place(reference)):
                fault = f"{reference!r} is not a file."

            self._faults[reference] = fault

        return self._faults[reference]

    def nearest(self, reference: str) -> str | None:
        """Suggests the file that was probably meant by a name that is not there."""
        above, _, name = reference.rpartition("/")
        if fault_of_relative(reference) is not None or (above and self._obstacle(above)):
            return None

        try:
            names = os.listdir(self._place(above))
        except (OSError, ValueError):
            return None

        beside = f"{above}/" if above else ""
        return did_you_mean(reference, [f"{beside}{each}" for each in names if each != name])

    def fault_of_rig(self, reference: str) -> str | None:
        """Says what is wrong with a file or tree of the hank that a rig copies."""
        fault = self._fault_of_way(reference)
        if fault is not None:
            return fault

        if os.path.normpath(reference) == ".":
            return "The hank's own directory cannot be copied; name something in it."

        if reference not in self._trees:
            self._trees[reference] = _fault_of_tree(self._place(reference), reference)

        return self._trees[reference]

    def prompt(self, reference: str) -> PromptFile:
        """Reads a prompt file; raises PromptFault where it cannot be used."""
        if reference not in self._prompts:
            try:
                self._prompts[reference] = read_prompt_file(Path(self._place(reference)))
            except PromptFault as fault:
                self._prompts[reference] = fault

        found = self._prompts[reference]
        if isinstance(found, PromptFault):
            raise found

        return found

    def text(self, reference: str) -> str:
        """Reads a file; raises OSError or UnicodeDecodeError."""
        return Path(self._place(reference)).read_bytes().decode("utf-8-sig")

    def _place(self, reference: str) -> str:
        return os.path.join(self.directory, reference)

    def _fault_of_way(self, reference: str) -> str | None:
        fault = fault_of_relative(reference)
        if fault is not None:
            return fault

        obstacle = self._obstacle(reference)
        return None if obstacle is None else obstacle.format(repr(reference))

    def _obstacle(self, reference: str) -> str | None:
        if reference not in self._obstacles:
            above, _, _ = reference.rpartition("/")
            found = self._obstacle(above) if above else None
            self._obstacles[reference] = found or self._obstacle_at(reference)

        return self._obstacles[reference]

    def _obstacle_at(self, reference: str) -> str | None:
        try:
            mode = os.lstat(self._place(reference)).st_mode
        except (OSError, ValueError):  # No file has half a surrogate pair in its name.
            return "There is no {} in the hank's directory."

        return "{} goes through a symbolic link." if stat.S_ISLNK(mode) else None


def _fault_of_tree(source: str, reference: str) -> str | None:
    waiting = [source]
    while waiting:
        place = waiting.pop()
        mode = os.lstat(place).st_mode
        if stat.S_ISDIR(mode):
            names = sorted(os.listdir(place), reverse=True)
            protected = next(filter(is_protected, names), None)
            if protected is not None:
                return f"{reference!r} holds {protected!r}, which is a protected name."

            waiting += [os.path.join(place, name) for name in names]
        elif not stat.S_ISREG(mode):
            kind = "symbolic link" if stat.S_ISLNK(mode) else "special file"
            return f"{reference!r} holds a {kind}: {os.path.relpath(place, source)}."

    return None
