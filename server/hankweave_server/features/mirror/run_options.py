"""The options of `run` for a mirror."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

import click

from hankweave_server.features.mirror.lease import LONGEST_TTL, SHORTEST_TTL, TTL, Mode
from hankweave_server.features.mirror.remote import BadAddress, checked

OPTIONS: Final[tuple[Callable[..., Any], ...]] = (
    click.option(
        "--mirror",
        metavar="URL",
        help="Keep the execution in this git repository too; it can be resumed from there.",
    ),
    click.option(
        "--mirror-mode",
        type=click.Choice(get_args(Mode)),
        help="async: the mirror follows; sync: nothing counts before it is in the mirror.",
    ),
    click.option(
        "--mirror-lease",
        metavar="SECONDS",
        type=click.FloatRange(SHORTEST_TTL, LONGEST_TTL),
        help="Seconds without a connection after which another machine may take over.",
    ),
    click.option(
        "--data-in-mirror", is_flag=True, help="Keep the data in the mirror, too; not only a hash."
    ),
)


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """The options for a mirror; None for what an execution has already, or the default."""

    address: str | None
    mode: Mode | None
    ttl: float | None
    has_data: bool = False
    """The data are in the mirror, too."""

    def mode_after(self, former: Mode | None) -> Mode:
        return self.mode or former or "async"

    def ttl_after(self, former: float | None) -> float:
        return self.ttl or former or TTL


def chosen(given: Mapping[str, Any]) -> MirrorOptions | None:
    """Return the settings; None if none is given."""
    address, mode, ttl = given["mirror"], given["mirror_mode"], given["mirror_lease"]
    has_data = given["data_in_mirror"]
    if address is None and mode is None and ttl is None and not has_data:
        return None

    try:
        return MirrorOptions(None if address is None else checked(address), mode, ttl, has_data)
    except BadAddress as error:
        raise click.BadParameter(f"{error}.", param_hint="--mirror") from None
