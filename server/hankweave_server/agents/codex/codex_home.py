"""Where Codex keeps what it knows of its conversations (CODEX_HOME), and how it is logged in there.

The home is one of ours, inside the execution directory, so that the conversations of an execution
lie with its files. Of a person's own home only the login is used, through a link: `auth.json` is
never copied, and what Codex renews in it is renewed where it lies (Codex writes through the link).
Their `config.toml` is not: what a hank does must not depend on whose machine it runs on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hankweave_server.agents.process.environment import common
from hankweave_server.fsutil import make_private_directory

HOME = "CODEX_HOME"
_LOGIN = "auth.json"


def home_of(ours: Path | None, environment: Mapping[str, str]) -> Path:
    """The home Codex works with: the one that a codon's `env` names, else ours, else a person's.

    `environment` is the codon's; the server's own CODEX_HOME is the home of a person.
    """
    named = {**common(os.environ, {}), **environment}.get(HOME)
    if named:
        return Path(os.path.expanduser(named))

    return persons_home(environment) if ours is None else ours.absolute()


def persons_home(environment: Mapping[str, str]) -> Path:
    """The home that a person uses, in which they are logged in."""
    own = os.environ.get(HOME)
    if own:
        return Path(os.path.expanduser(own))

    seen = {**common(os.environ, {}), **environment}
    return Path(os.path.expanduser(seen.get("HOME", "~"))) / ".codex"


def has_login(home: Path) -> bool:
    """Tells whether somebody has logged in there; if the login still holds, Codex finds out.

    A home that may not be looked into has none.
    """
    return os.path.isfile(home / _LOGIN)


def prepare(home: Path, person: Path) -> None:
    """Makes the home for the owner alone, and lets the person's login be found in it.

    A file that lies there already is a login of its own and stays. Raises OSError.
    """
    make_private_directory(home)
    link, login = home / _LOGIN, (person / _LOGIN).absolute()
    is_there = has_login(person)
    if link.is_symlink():
        if is_there and os.readlink(link) == str(login):
            return

        link.unlink()

    if is_there and not link.exists():
        link.symlink_to(login)
