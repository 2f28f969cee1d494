"""Price lists on disk: the packaged one, and the user's own, which overrides it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from hankweave_server.domain.costs import PriceFile, Prices, parse, price_list
from hankweave_server.errors import ExitCode, Stop

PACKAGED = Path(__file__).parent.parent / "prices.json"

_HINT = (
    'A list looks like this: {"models": {"provider/model": {"input": 3, "output": 15, '
    '"cacheWrite": 3.75, "cacheRead": 0.3}}}, in USD per million tokens.'
)


def load_prices(chosen: Path | None, usual: Path) -> Prices:
    """Read the packaged prices and apply the user's own over them.

    A chosen file must exist; if none was chosen, the usual one is read if it exists. Raises Stop
    for an unreadable file, with the position of the error, because a budget must not be enforced
    with prices other than those requested.
    """
    own = usual if chosen is None and usual.exists() else chosen
    files = [PACKAGED] if own is None else [PACKAGED, own.expanduser()]
    return price_list(map(_read, files))


@cache
def packaged_prices() -> Prices:
    """Return the packaged prices alone, read once."""
    return price_list([_read(PACKAGED)])


def usual_place(config_home: str | None) -> Path:
    """Return the usual path of the user's prices; `config_home` is XDG_CONFIG_HOME, if set."""
    return Path(config_home or "~/.config").expanduser() / "hankweave" / "prices.json"


def _read(path: Path) -> PriceFile:
    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise Stop(
            f"The prices in {path} cannot be read: {error.strerror}.",
            ExitCode.NO_INPUT,
            hint="Name a JSON file with --prices.",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise Stop(
            f"The prices in {path} are invalid: {fault}.", ExitCode.CONFIGURATION, hint=_HINT
        ) from None
