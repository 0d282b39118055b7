"""The smallest Kafka client: one metadata request over a plain socket, to see whether a broker serves."""

import socket
import struct

_METADATA, _VERSION = 3, 1
_NO_TOPICS = struct.pack(">i", 0)


def serves(host: str, port: int, brokers: int = 1, timeout: float = 2.0) -> bool:
    """Says whether the broker answers a metadata request and lists so many brokers: clients can work with it."""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(_request())
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                body = answer.read(size)
                _correlation, listed = struct.unpack(">ii", body[:8])
    except (OSError, struct.error):
        return False
    return int(listed) >= brokers


def _request() -> bytes:
    client = b"keygrouping"
    header = struct.pack(">hhih", _METADATA, _VERSION, 1, len(client)) + client
    return struct.pack(">i", len(header + _NO_TOPICS)) + header + _NO_TOPICS
