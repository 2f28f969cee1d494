"""Ask the server before a tool call: the program that an agent's hook runs.

It is called as `hook_client.py SOCKET`, sends its stdin to the server that listens there, and
prints the server's answer. A hook that prints nothing lets the call pass. If the server is gone,
the call passes at once, because an agent must not hang on a server that cannot answer.

It runs as a file with `-I -S` and uses `_socket`: importing `socket` would double the 20 ms that a
call takes, and agents run it before every tool call.
"""

from __future__ import annotations

import _socket
import os
import sys

_CHUNK = 64 * 1024
_MOST = 16 * 1024 * 1024
"""Bytes of stdin; the server needs the name of the tool, not all of its input."""


def main(arguments: list[str]) -> int:
    folder, name = os.path.split(arguments[0])
    try:
        # A path may be too long for a socket address; the name alone is not.
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
