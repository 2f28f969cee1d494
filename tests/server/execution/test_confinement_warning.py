"""Claims about the warning of a start that agents are confined weakly, or not at all."""

from __future__ import annotations

import pytest

from hankweave_protocol.hank import ConfinementProfile
from hankweave_protocol.replies import ConfinementStatus
from hankweave_server.cli.output.event_lines import event_line
from hankweave_server.confinement.policy import Level, Probe
from hankweave_server.execution.codon.confinement import warning

_FORBIDDEN = {"namespace": "user namespaces are forbidden"}


@pytest.mark.parametrize(
    ("level", "reasons", "profile", "expected"),
    [
        (Level.NAMESPACE, {}, "workspace", None),
        (Level.LANDLOCK, _FORBIDDEN, "workspace", "at the level landlock"),
        (Level.NONE, _FORBIDDEN, "workspace", "not confined"),
        (Level.LANDLOCK, _FORBIDDEN, "none", None),
    ],
)
def test_a_start_warns_of_a_weak_confinement_with_its_reason(
    level: Level, reasons: dict[str, str], profile: ConfinementProfile, expected: str | None
) -> None:
    """It does not warn at the strongest level, or if the hank does not confine its agents."""
    status = ConfinementStatus(level=level.value, landlock_abi=6, profile=profile, not_covered=())
    found = warning(status, Probe(level, 6, reasons))
    if expected is None:
        assert found is None
        return

    assert found is not None
    line = event_line(found)
    assert line is not None
    assert line.severity == "warning"
    assert expected in line.text
    assert _FORBIDDEN["namespace"] in line.text
