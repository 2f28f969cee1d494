"""Where everything lies in an execution directory (seed 001, DESIGN 4)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hankweave_protocol.ids import CodonId, RunId

STATE_DIRECTORY = ".hankweave"
REMOVED_STATE = ".hankweave.removing"
"""What `.hankweave` is called while an execution is being removed: nobody resumes it any more."""
SHADOW_REPOSITORY = ".hankweavecheckpoints"
DATA_SOURCE = "read_only_data_source"
RIG_ARCHIVE = "rigArchive"

NEVER_CAPTURED = frozenset({".git", DATA_SOURCE, RIG_ARCHIVE, STATE_DIRECTORY, SHADOW_REPOSITORY})
"""Path components no checkpoint ever holds and no rollback ever touches (seed 000, DESIGN 7)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one execution; in in-place mode the work tree is the root itself (DESIGN 4)."""

    root: Path
    work_tree: Path

    @classmethod
    def of_execution(cls, root: Path) -> Layout:
        return cls(root=root, work_tree=root / "agentRoot")

    @classmethod
    def in_place(cls, workspace: Path) -> Layout:
        return cls(root=workspace, work_tree=workspace)

    @property
    def is_in_place(self) -> bool:
        return self.root == self.work_tree

    @property
    def _beside_the_work_tree(self) -> Path:
        """Where data and archive lie; in a person's own project nothing of ours has a name."""
        return self.state_directory if self.is_in_place else self.root

    @property
    def data_source(self) -> Path:
        """The data itself: a link to it, or a copy, beside the work tree."""
        return self._beside_the_work_tree / DATA_SOURCE

    @property
    def data_link(self) -> Path | None:
        """The link to the data in the work tree (Hankweave 0.2+); None in a person's project."""
        return None if self.is_in_place else self.work_tree / DATA_SOURCE

    @property
    def data_path(self) -> Path:
        """The path of the data that prompts, agents, commands and clients are given."""
        return self.data_link or self.data_source

    @property
    def rig_archive(self) -> Path:
        return self._beside_the_work_tree / RIG_ARCHIVE

    @property
    def state_directory(self) -> Path:
        return self.root / STATE_DIRECTORY

    @property
    def folders_of_small_files(self) -> tuple[Path, ...]:
        """Where small files of ours are replaced, and a crash may leave a `.tmp`."""
        journals, agents = self.journal.parent, self.agent_processes
        return self.state_directory, self.checkpoints, journals, agents

    @property
    def ignore_file(self) -> Path:
        """Hides us from the git of the project we are in."""
        return self.state_directory / ".gitignore"

    @property
    def runtime_lock(self) -> Path:
        return self.state_directory / "runtime.lock"

    @property
    def lock_guard(self) -> Path:
        return self.state_directory / "runtime.lock.guard"

    @property
    def pipelines(self) -> Path:
        """Architect's pipelines as the hanks that they mean, each in a folder of its own."""
        return self.state_directory / "pipelines"

    @property
    def meta(self) -> Path:
        return self.state_directory / "execution-meta.json"

    @property
    def state(self) -> Path:
        return self.state_directory / "state.json"

    @property
    def state_backup(self) -> Path:
        return self.state_directory / "state.json.bak"

    @property
    def journal(self) -> Path:
        return self.state_directory / "events" / "events.jsonl"

    @property
    def server_log(self) -> Path:
        return self.state_directory / "logs" / "server.log"

    @property
    def traffic_log(self) -> Path:
        return self.state_directory / "logs" / "websocket.log"

    @property
    def runs(self) -> Path:
        return self.state_directory / "runs"

    @property
    def runs_link(self) -> Path | None:
        """A link to `runs` beside the work tree; None in a person's project."""
        return None if self.is_in_place else self.root / self.runs.name

    def run_folder(self, run: RunId) -> Path:
        return self.runs / run

    def agent_log(self, run: RunId, codon: CodonId) -> Path:
        return self.run_folder(run) / f"{codon}-claude.log"

    @property
    def checkpoints(self) -> Path:
        return self.state_directory / "checkpoints"

    @property
    def shadow_repository(self) -> Path:
        return self.checkpoints / SHADOW_REPOSITORY

    @property
    def git_config(self) -> Path:
        return self.checkpoints / ".gitconfig"

    @property
    def scan_cache(self) -> Path:
        return self.checkpoints / "scan-cache"

    @property
    def sentinel_outputs(self) -> Path:
        return self.state_directory / "sentinels" / "outputs"

    @property
    def sentinel_history(self) -> Path:
        return self.state_directory / "sentinels" / "history"

    @property
    def controller_token(self) -> Path:
        return self.state_directory / "server.token"

    @property
    def viewer_token(self) -> Path:
        return self.state_directory / "server.viewer-token"

    @property
    def rollback_intent(self) -> Path:
        return self.state_directory / "rollback.intent"

    @property
    def archive_manifest(self) -> Path:
        """What lies in the rig archive, and where it came from."""
        return self.state_directory / "archive-manifest.json"

    @property
    def archive_intent(self) -> Path:
        return self.state_directory / "archive.intent"

    @property
    def aftermath_intent(self) -> Path:
        """Names the codon after whose success files are to be handed out or archived."""
        return self.state_directory / "aftermath.intent"

    @property
    def set_aside_intent(self) -> Path:
        """Holds the suffix with which all of the execution is being renamed."""
        return self.state_directory / "set-aside.intent"

    @property
    def reserve(self) -> Path:
        """Takes room on the disk, to be given up when there is no other."""
        return self.state_directory / "reserve"

    @property
    def prune_intent(self) -> Path:
        return self.state_directory / "prune.intent"

    @property
    def branch_intent(self) -> Path:
        return self.state_directory / "branch.intent"

    @property
    def agent_sessions(self) -> Path:
        """What scripted agents remember of their sessions, a file for each."""
        return self.state_directory / "sessions"

    @property
    def agent_homes(self) -> Path:
        """What agents keep of their conversations, a folder for each kind of agent."""
        return self.state_directory / "homes"

    @property
    def agent_processes(self) -> Path:
        """What is known of agents that live: read at start to kill leftovers (DESIGN 10)."""
        return self.state_directory / "agents"
