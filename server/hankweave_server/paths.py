"""The paths of an execution: its directory, its work tree, and its state directory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state_directory import (
    REMOVED_STATE,
    STATE_DIRECTORY,
    existing_private_folder,
)

SHADOW_REPOSITORY = ".hankweavecheckpoints"
DATA_SOURCE = "read_only_data_source"
RIG_ARCHIVE = "rigArchive"
HANK_FILE = "hank.json"
MAP_JOURNAL = "map.jsonl"
REMOVED_MAP = "map.jsonl.removing"
"""The journal of a map while the map is being removed."""

MAP_ITEMS = "items"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one execution; in in-place mode the work tree is the root itself."""

    root: Path
    work_tree: Path
    private_folder: Path | None = None
    """The folder of the state directory, if that is not the root; see `state_directory`."""

    @classmethod
    def of_execution(cls, root: Path) -> Layout:
        return cls(root, root / "agentRoot", existing_private_folder(root))

    @classmethod
    def in_place(cls, workspace: Path) -> Layout:
        return cls(workspace, workspace, existing_private_folder(workspace))

    @property
    def is_in_place(self) -> bool:
        """True if the work tree is the execution directory itself: a user's own project."""
        return self.root == self.work_tree

    @property
    def _beside_the_work_tree(self) -> Path:
        """The folder of data and archive; in a user's own project that is the state directory."""
        return self.state_directory if self.is_in_place else self.root

    @property
    def data_source(self) -> Path:
        """The data itself: a link to it, or a copy, beside the work tree."""
        return self._beside_the_work_tree / DATA_SOURCE

    @property
    def data_link(self) -> Path | None:
        """The link to the data in the work tree, as agents see it; None in a user's project."""
        return None if self.is_in_place else self.work_tree / DATA_SOURCE

    @property
    def data_path(self) -> Path:
        """The path of the data that prompts, agents, commands and clients receive."""
        return self.data_link or self.data_source

    @property
    def rig_archive(self) -> Path:
        """Files that `archiveOnSuccess` has moved out of the work tree."""
        return self._beside_the_work_tree / RIG_ARCHIVE

    @property
    def state_directory(self) -> Path:
        """The folder of everything below, for its owner alone."""
        return (self.private_folder or self.root) / STATE_DIRECTORY

    @property
    def inside(self) -> tuple[str, ...]:
        """The folders whose files are the execution's own, the work tree first."""
        resolved = os.path.realpath(self.work_tree)
        return str(self.work_tree), resolved, str(self.state_directory)

    @property
    def removed_state(self) -> Path:
        """The state directory while the execution is being removed."""
        return self.state_directory.with_name(REMOVED_STATE)

    @property
    def folders_of_small_files(self) -> tuple[Path, ...]:
        """Folders in which small files are replaced, and a crash may leave a `.tmp`."""
        journals, agents = self.journal.parent, self.agent_processes
        return self.state_directory, self.checkpoints, journals, agents, self.explorations

    @property
    def ignore_file(self) -> Path:
        """Hides the state directory from the git repository of the surrounding project."""
        return self.state_directory / ".gitignore"

    @property
    def runtime_lock(self) -> Path:
        """The server that runs here, for people and programs."""
        return self.state_directory / "runtime.lock"

    @property
    def lock_guard(self) -> Path:
        """The file whose flock grants the ownership; it is never deleted."""
        return self.state_directory / "runtime.lock.guard"

    @property
    def pipelines(self) -> Path:
        """Architect's pipelines compiled to hanks, each in a folder of its own."""
        return self.state_directory / "pipelines"

    @property
    def meta(self) -> Path:
        """The hank and the data that this is an execution of."""
        return self.state_directory / "execution-meta.json"

    @property
    def state(self) -> Path:
        """Runs, codons and plan: a view of the journal."""
        return self.state_directory / "state.json"

    @property
    def state_backup(self) -> Path:
        """The version before."""
        return self.state_directory / "state.json.bak"

    @property
    def wal(self) -> Path:
        """Objects and refs that are not flushed yet, while a server runs."""
        return self.state_directory / "wal"

    @property
    def journal(self) -> Path:
        """The journal: one event on each line."""
        return self.state_directory / "events" / "events.jsonl"

    @property
    def journal_digest(self) -> Path:
        """The digest of the journal that an orderly end saves; the next start reads it instead."""
        return self.journal.with_name("digest")

    @property
    def server_log(self) -> Path:
        """The server's log, for people; `--log-level` and `--log-format` set what is in it."""
        return self.state_directory / "logs" / "server.log"

    @property
    def traffic_log(self) -> Path:
        """Every frame, in both directions; `.1` to `.4` are older."""
        return self.state_directory / "logs" / "websocket.log"

    @property
    def runs(self) -> Path:
        """The logs of agents, a folder for each run."""
        return self.state_directory / "runs"

    @property
    def runs_link(self) -> Path | None:
        """A link to `runs` beside the work tree; None in a user's project."""
        return None if self.is_in_place else self.root / self.runs.name

    def run_folder(self, run: RunId) -> Path:
        return self.runs / run

    def agent_log(self, run: RunId, codon: CodonId) -> Path:
        return self.run_folder(run) / f"{codon}-claude.log"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.state_directory / "checkpoints"

    @property
    def shadow_repository(self) -> Path:
        """The shadow git repository with the checkpoints."""
        return self.checkpoints / SHADOW_REPOSITORY

    @property
    def git_config(self) -> Path:
        """The identity of the shadow repository."""
        return self.checkpoints / ".gitconfig"

    @property
    def scan_cache(self) -> Path:
        """The result of the last scan of the work tree; it may be deleted."""
        return self.checkpoints / "scan-cache"

    @property
    def sentinel_outputs(self) -> Path:
        """The output files of sentinels."""
        return self.state_directory / "sentinels" / "outputs"

    @property
    def sentinel_conversations(self) -> Path:
        """The conversations of sentinels."""
        return self.state_directory / "sentinels" / "history"

    @property
    def controller_token(self) -> Path:
        """The token of controllers, while a server runs."""
        return self.state_directory / "server.token"

    @property
    def viewer_token(self) -> Path:
        """The token of viewers, while a server runs."""
        return self.state_directory / "server.viewer-token"

    @property
    def way_to_page(self) -> Path:
        """Return the file that leads a browser to the page, with its token; `open` writes it."""
        return self.state_directory / "page.html"

    @property
    def server_address(self) -> Path:
        """The port and the tokens of the last server; the next one uses them again."""
        return self.state_directory / "server.address"

    @property
    def rollback_intent(self) -> Path:
        """The rollback in progress; needed to complete it, so never delete it by hand."""
        return self.state_directory / "rollback.intent"

    @property
    def archive_manifest(self) -> Path:
        """The content of the rig archive, and its origins."""
        return self.state_directory / "archive-manifest.json"

    @property
    def archive_intent(self) -> Path:
        """Files that are being moved to the rig archive."""
        return self.state_directory / "archive.intent"

    @property
    def aftermath_intent(self) -> Path:
        """Names the codon whose files are to be exported or archived after its success."""
        return self.state_directory / "aftermath.intent"

    @property
    def set_aside_intent(self) -> Path:
        """The suffix with which `run --new --force` renames the whole execution."""
        return self.state_directory / "set-aside.intent"

    @property
    def reserve(self) -> Path:
        """Occupies disk space, to be freed when the disk is full."""
        return self.state_directory / "reserve"

    @property
    def prune_intent(self) -> Path:
        """Checkpoints that are being pruned."""
        return self.state_directory / "prune.intent"

    @property
    def redact_intent(self) -> Path:
        """Return the intent of `hankweave redact`; it stays until confirmed."""
        return self.state_directory / "redact.intent"

    @property
    def redaction(self) -> Path:
        """The folder of new files before they replace others, and of replaced ones afterwards."""
        return self.state_directory / "redaction"

    @property
    def redactions(self) -> Path:
        """The records of past redactions, with the shas that they have changed."""
        return self.state_directory / "redactions"

    @property
    def branch_intent(self) -> Path:
        """The branch that is being created."""
        return self.state_directory / "branch.intent"

    @property
    def explorations(self) -> Path:
        """Running explorations as they were given, where the journal has them without secrets."""
        return self.state_directory / "explorations"

    @property
    def agent_sessions(self) -> Path:
        """Sessions of scripted agents, one file each."""
        return self.state_directory / "sessions"

    @property
    def agent_homes(self) -> Path:
        """Conversations of agents, one folder for each kind of agent."""
        return self.state_directory / "homes"

    @property
    def agent_access(self) -> Path:
        """Return the folder that one running agent may read: its socket and notices for it."""
        return self.state_directory / "access"

    @property
    def agent_temporary(self) -> Path:
        """`/tmp` of confined agents and commands, emptied at a start; `cache` in it stays."""
        return self.state_directory / "tmp"

    @property
    def agent_processes(self) -> Path:
        """Records of running agents, read at a start to kill leftovers."""
        return self.state_directory / "agents"


def map_of(execution: Path) -> Path | None:
    """Return the directory of the map that an execution is an item of; None if there is none."""
    folder = execution.parent
    return folder.parent if folder.name == MAP_ITEMS and is_map(folder.parent) else None


def is_map(folder: Path) -> bool:
    """Return whether a folder is the directory of a map, or the rest of one."""
    return any((folder / name).is_file() for name in (MAP_JOURNAL, REMOVED_MAP))
