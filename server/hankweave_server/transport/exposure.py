"""The addresses at which the port is open and at which people open the page.

By default only programs of this machine can connect. Elsewhere the port needs tokens in any case.
But a token that crosses a network in plain text is known to everyone on the way, so encryption is
the rule and its absence has to be asked for. This server has no TLS of its own: certificates are
better kept and renewed by a proxy. So it cannot see how a browser reaches it, and `public_url` says
that. From it follow the rule, the names that requests may use, and the addresses that are printed:

- `https://…`: a proxy with TLS passes connections on.
- `http://` and a loopback address: the port is published on the machine around a container, or
  forwarded by SSH, and open nowhere else.
- `http://` and another name: `without_tls` must accept that.

A browser sends the name that its user or a page has named as Host. So a name that an attacker lets
point to this server (DNS rebinding) is refused, wherever the port is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from hankweave_server.errors import ExitCode, Stop
from hankweave_server.settings import LOOPBACK, RunSettings
from hankweave_server.transport.auth import is_loopback

LOOPBACK_NAMES = (LOOPBACK, "localhost", "[::1]")
_EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}
"""The addresses that stand for all of this machine, and the loopback address among them."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The address that the server listens on, and the one at which browsers find it."""

    host: str = LOOPBACK
    """An IP address."""
    public_url: str | None = None
    """Scheme, name and port as in a browser's Origin; None if they are those of `host`."""
    without_tls: bool = False
    """True: tokens may cross a network in plain text."""

    @property
    def local_host(self) -> str:
        """The address at which programs of this machine connect."""
        return _EVERYWHERE.get(self.host, self.host)

    def page(self, port: int) -> str:
        """Return the address of the page, without a slash at its end."""
        return self.public_url or f"http://{_in_url(self.local_host)}:{port}"

    def socket(self, port: int) -> str:
        """Return the address of the WebSocket for programs of this machine."""
        return f"ws://{_in_url(self.local_host)}:{port}/ws"

    def hosts(self, port: int) -> frozenset[str]:
        """Return the Host headers under which requests are accepted."""
        names = (*LOOPBACK_NAMES, _in_url(self.local_host))
        hosts = {f"{name}:{port}" for name in names}
        if port == 80:
            hosts |= {*names}  # Browsers omit a scheme's default port.

        return frozenset(hosts | {urlsplit(self.page(port)).netloc})

    def origins(self, port: int) -> frozenset[str]:
        """Return the origins whose pages may connect; the public name has one scheme."""
        page = self.page(port)
        others = self.hosts(port) - {urlsplit(page).netloc}
        return frozenset({f"http://{host}" for host in others} | {page})

    def refuse_insecure(self, *, no_token: bool) -> None:
        """Raise Stop if others could connect without a token, or listen to one unasked."""
        if is_loopback(self.host) and self.public_url is None:
            return

        if no_token:
            raise Stop(
                "Without tokens the port is for this machine alone: --no-token excludes a --host "
                "beyond loopback, and --public-url.",
                ExitCode.CONFIGURATION,
                hint="Leave out --no-token; the address printed at the start has the token.",
            )

        if self.host in _EVERYWHERE and self.public_url is None:
            raise Stop(
                f"With --host {self.host}, name the address at which browsers find the page.",
                ExitCode.CONFIGURATION,
                hint="Use --public-url http://127.0.0.1:PORT if the port is published on loopback "
                "only, or --public-url https://NAME if a proxy with TLS is in front.",
            )

        if self._crosses_a_network and not self.without_tls:
            raise Stop(
                f"{self.page(0).removesuffix(':0')} would send tokens over the network without "
                "encryption.",
                ExitCode.CONFIGURATION,
                hint="Put a proxy with TLS in front and name its address: --public-url "
                "https://NAME. On a network that you trust, add --without-tls.",
            )

    def notes(self) -> Iterator[str]:
        """Yield sentences for the user who starts the server: what its reach means."""
        if not is_loopback(self.host):
            yield (
                f"note: The port is open beyond this machine (--host {self.host}). Whoever has an "
                "address with a token can watch, and with the first one control, this server and "
                "its agents. The page without data, health and metrics need no token."
            )

        if self._crosses_a_network:
            yield (
                f"warning: {self.page(0).removesuffix(':0')} is not encrypted (--without-tls): "
                "whoever can listen to the network can take the token."
            )

    @property
    def _crosses_a_network(self) -> bool:
        page = urlsplit(self.page(0))
        return page.scheme == "http" and not is_loopback(page.hostname or "")


def exposure_of(settings: RunSettings) -> Exposure:
    return Exposure(settings.host, settings.public_url, settings.without_tls)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
