"""Free ports on 127.0.0.1, and whether a given one is free."""

import random
import socket
import sys
from collections import deque

HOST = "127.0.0.1"

# Outgoing connections begin at 32768 on Linux, at 49152 elsewhere.
_SERVERS = range(20_000, 32_768)

_CLAIMED: deque[socket.socket] = deque(maxlen=100)
"""Sockets that hold the last given ports without listening on them: on Linux servers can, as they reuse addresses."""


def is_free(port: int) -> bool:
    """Says whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Returns different ports that are free now; on Linux no other process is given the last 100 of them meanwhile.

    A broker takes seconds until it listens; what is only looked at would be given to others, too. None of
    the ports is one that the system gives to outgoing connections by itself: a server that ends and starts again would
    else find its port taken now and then, as a rule by a client that tried to reach it there.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(_SERVERS)
        if port not in found and _claim(port):
            found.append(port)
    return found


def _claim(port: int) -> bool:
    if sys.platform != "linux":
        return is_free(port)
    claim = socket.socket()
    try:
        claim.bind((HOST, port))
    except OSError:
        claim.close()
        return False
    # Only now: the bind had to be refused where another claim stands, and a server's must not be refused for this one.
    claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _CLAIMED.append(claim)
    return True
