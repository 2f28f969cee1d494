"""The command that an agent's hook runs before a tool call: asks the server, and waits.

It is called as `hook_client.py SOCKET`, and hands its stdin to the server that listens there. What
the server answers goes to stdout; a hook that prints nothing lets the call pass. Where the server
is gone the call passes at once: an agent must not hang on a server that cannot answer.

Run as a file with `-I -S`, and built on `_socket`: the module `socket` imports so much more that it
doubles the 20 ms that this takes, and agents call it before every tool.
"""

from __future__ import annotations

import _socket
import os
import sys

_CHUNK = 64 * 1024
_MOST = 16 * 1024 * 1024
"""Bytes of stdin; the server needs the name of the tool, not all that it is called with."""


def main(arguments: list[str]) -> int:
    folder, name = os.path.split(arguments[0])
    try:
        # A path may be longer than a socket's address can be; a name is not.
        os.chdir(folder)
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.connect(name)
        connection.sendall(sys.stdin.buffer.read(_MOST))
        connection.shutdown(_socket.SHUT_WR)
        while answer := connection.recv(_CHUNK):
            os.write(1, answer)
    except OSError:
        pass

    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
