"""Claims about the Dockerfile and the compose file that need no container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hankweave_server.config import SETTINGS
from hankweave_server.daemon.shutdown import LAST_SECONDS
from hankweave_server.hank.load import load

TOP = Path(__file__).resolve().parents[2]
EXAMPLE = TOP / "examples" / "docker"
DOCKERFILE = (TOP / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def service() -> Any:
    return yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]["hankweave"]


def test_the_compose_file_builds_a_stage_of_the_dockerfile(service: Any) -> None:
    """Target and build arguments exist, and the context is the top of the checkout."""
    build = service["build"]
    assert (EXAMPLE / build["context"]).resolve() == TOP
    assert f" AS {build['target']}\n" in DOCKERFILE
    for argument in build["args"]:
        assert f"ARG {argument}=" in DOCKERFILE


def test_a_stop_has_time_to_end_in_order(service: Any) -> None:
    """The engine waits longer than the server takes; Docker's ten seconds leave little."""
    assert int(service["stop_grace_period"].removesuffix("s")) >= 2 * LAST_SECONDS


def test_the_port_is_published_on_loopback_alone(service: Any) -> None:
    """The page's address is that of the published port, which only this machine reaches."""
    public = "".join(re.findall(r"HANKWEAVE_RUNTIME_PUBLIC_URL=http://(\S+)", DOCKERFILE))
    port = "".join(re.findall(r"HANKWEAVE_RUNTIME_PORT=(\d+)", DOCKERFILE))
    assert service["ports"] == [f"{public}:{port}"]
    assert public.startswith("127.0.0.1:")


def test_every_setting_in_the_files_exists(service: Any) -> None:
    """A misspelled variable would have no effect; each is one of the settings."""
    named = set(re.findall(r"HANKWEAVE_RUNTIME_[A-Z_]+", DOCKERFILE + str(service)))
    assert named <= {setting.variable for setting in SETTINGS.values()}
    assert len(named) >= 5


def test_project_state_and_executions_are_in_volumes(service: Any) -> None:
    """They survive a container, because they are mounted where the image puts them."""
    mounted = {volume.removesuffix(":ro").rpartition(":")[2] for volume in service["volumes"]}
    (kept,) = re.findall(r"^VOLUME (.*)$", DOCKERFILE, re.MULTILINE)
    assert mounted >= {"/project", "/hank", *kept.split()}
    for variable in ("HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=/executions", "XDG_STATE_HOME=/state"):
        assert variable in DOCKERFILE


def test_the_hank_is_valid() -> None:
    """The example's hank can be loaded as it is."""
    assert len(load(EXAMPLE / "hank" / "hank.json").hank.hank) == 2
