"""What a start tells about the confinement of agents."""

from __future__ import annotations

import pytest

from hankweave_protocol.events import ErrorEvent, Info
from hankweave_protocol.hank import ConfinementProfile
from hankweave_protocol.replies import ConfinementStatus
from hankweave_server.confinement.policy import Level, Probe
from hankweave_server.execution.codon.confinement import notice

_NO_NAMESPACE = {"namespace": "user namespaces are forbidden"}


@pytest.mark.parametrize(
    ("level", "reasons", "profile", "kind"),
    [
        (Level.NAMESPACE, {}, "workspace", None),
        (Level.LANDLOCK, _NO_NAMESPACE, "workspace", Info),
        (Level.NONE, _NO_NAMESPACE, "workspace", ErrorEvent),
        (Level.LANDLOCK, _NO_NAMESPACE, "none", None),
    ],
)
def test_a_weaker_level_is_told_with_its_reason(
    level: Level, reasons: dict[str, str], profile: ConfinementProfile, kind: type | None
) -> None:
    """The strongest level needs no words, and no level is missed if the hank wants none."""
    status = ConfinementStatus(level=level.value, landlock_abi=6, profile=profile, not_covered=())
    found = notice(status, Probe(level, 6, reasons))
    assert (None if found is None else type(found)) is kind
    if found is not None:
        assert _NO_NAMESPACE["namespace"] in found.message
