"""The plan that the keeper gets, and what is tried on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hankweave_server.confinement import landlock, probe
from hankweave_server.confinement.fence import Plan
from hankweave_server.confinement.policy import Fence, Level, Policy
from hankweave_server.confinement.probe import plan_of, prepare_ports, prepared, try_level


def plan(policy: Policy) -> Plan:
    return plan_of(Fence(policy, Level.NAMESPACE))


def test_a_plan_has_no_links(tmp_path: Path) -> None:
    """A link and its target are both listed, because programs use either name."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    found = plan(Policy(write=(f"{link}/below", str(link)), hidden=(f"{link}/hidden",)))
    assert found.write == (f"{real}/below", str(link), str(real))
    assert found.hidden == (f"{real}/hidden",)


def test_a_planted_link_opens_nothing(tmp_path: Path) -> None:
    """An agent can replace a folder in its work tree; the next fence must not follow it out."""
    tree, secret = tmp_path / "tree", tmp_path / "secret"
    tree.mkdir()
    secret.mkdir()
    (tree / "build").symlink_to(secret)
    (tree / "inner").mkdir()
    (tree / "alias").symlink_to(tree / "inner")
    inside = tuple(f"{tree}/{name}" for name in ("build", "build/deeper", "alias"))
    found = plan(
        Policy(
            read=inside,
            write=(str(tree), *inside),
            granted=inside,
            temporary=f"{tree}/build/temporary",
        )
    )
    inner = (f"{tree}/alias", f"{tree}/inner")
    assert (found.read, found.write, found.granted) == (inner, (str(tree), *inner), inner)
    assert found.temporary is None


def test_the_servers_own_programs_are_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are listed only where the policy would make them writable."""
    monkeypatch.setattr(probe, "own_programs", lambda: ("/srv/project/.venv", "/srv/python"))
    assert plan(Policy(write=("/srv/project",))).protected == ("/srv/project/.venv",)
    assert plan(Policy(write=("/srv/other",))).protected == ()


def test_bubblewrap_is_not_searched_where_agents_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "bwrap"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    probe.bubblewrap.cache_clear()
    assert probe.bubblewrap() is None
    probe.bubblewrap.cache_clear()


def test_a_plan_survives_its_way_to_the_keeper() -> None:
    there = plan(Policy(read=("/usr",), connect=(443, 7777), denied_ports=(7777,)))
    assert Plan.decode(there.encode()) == there
    assert there.connect == (443,)


def test_a_level_that_does_not_hold_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe attacks a level from inside: a plan that leaves out the cover is found out."""
    if try_level(Level.LANDLOCK) is not None:
        pytest.skip("this machine has no Landlock")

    real = plan_of
    monkeypatch.setattr(
        probe,
        "plan_of",
        lambda fence: real(fence)._replace(level="landlock", read=("/",)),
    )
    assert "reading outside is possible" in (try_level(Level.LANDLOCK) or "")


def test_without_a_fence_there_is_nothing_to_pass() -> None:
    for fence in (
        None,
        Fence(Policy(profile="none"), Level.NAMESPACE),
        Fence(Policy(), Level.NONE),
    ):
        with prepared(fence) as descriptors:
            assert descriptors == ()


def test_the_rules_of_ports_are_built_once() -> None:
    """All agents of a server share one ruleset.

    A hank that lists its ports needs none, nor does a program that the server recognizes.
    """
    if not landlock.knows_ports(landlock.version()):
        pytest.skip("this kernel has no rules of ports")

    prepare_ports((7777,))
    fence = Fence(Policy(denied_ports=(7777,)), Level.LANDLOCK)
    with prepared(fence) as (_, first), prepared(fence) as (_, second):
        assert first == second
        assert os.readlink(f"/proc/self/fd/{first}").endswith("landlock-ruleset]")

    with prepared(fence, is_recognized=True) as (plan,):
        assert Plan.read_from(plan).must_join

    listed = Fence(Policy(denied_ports=(7777,), connect=(443,)), Level.LANDLOCK)
    with prepared(listed) as descriptors:
        assert len(descriptors) == 1
