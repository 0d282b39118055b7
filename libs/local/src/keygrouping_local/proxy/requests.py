"""What the proxy reads of a request: the header of all, and the transactional fields of those that have any."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum


class Api(IntEnum):
    """The requests that have a name here; others are plain numbers."""

    PRODUCE = 0
    FETCH = 1
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CLUSTER = 60


_FLEXIBLE = {
    Api.PRODUCE: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
}
"""The version from which on strings are compact and headers have tags."""

_FIRST_TRANSACTIONAL_PRODUCE = 3
_BROKERS_ONLY_ADD_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Request:
    """A request on its way to a broker.

    `api` is a plain number if `Api` has no name for it. `broker` is the port of the broker it is meant for,
    `connection` numbers the client's connections. `transactional_id`, `producer_id`, `producer_epoch` and `committed`
    (of EndTxn: commit or abort) are None where the request has no such field. `body` is all behind the client id.
    """

    api: Api | int
    version: int
    correlation_id: int
    client_id: str | None
    broker: int
    connection: int
    body: bytes
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    committed: bool | None = None
    answered: bool = True
    """Whether the broker answers: not if a producer asked for no acknowledgement."""


def parse(frame: bytes, broker: int, connection: int) -> Request:
    """Reads a request without its size; `struct.error`, ValueError or IndexError if it is none."""
    number, version, correlation = struct.unpack_from(">hhi", frame)
    api = Api(number) if number in Api._value2member_map_ else number
    fields = _Fields(frame, 8)
    client_id = fields.string()
    body = frame[fields.at :]
    request = Request(api, version, correlation, client_id, broker, connection, body)
    if not isinstance(api, Api) or api not in _FLEXIBLE:
        return request
    if fields.flexible(version >= _FLEXIBLE[api]):
        fields.tags()
    return _transactional(api, request, fields)


def _transactional(api: Api, plain: Request, fields: _Fields) -> Request:
    header = (plain.api, plain.version, plain.correlation_id, plain.client_id, plain.broker, plain.connection)
    if api is Api.PRODUCE:
        if plain.version < _FIRST_TRANSACTIONAL_PRODUCE:
            return plain
        return Request(*header, plain.body, fields.string(), answered=fields.number("h") != 0)
    if api is Api.ADD_PARTITIONS_TO_TXN and plain.version >= _BROKERS_ONLY_ADD_PARTITIONS:
        return plain
    transactional_id = fields.string()
    if api is Api.INIT_PRODUCER_ID:
        return Request(*header, plain.body, transactional_id)
    if api is Api.TXN_OFFSET_COMMIT:
        fields.string()  # the group
    producer_id, epoch = fields.number("q"), fields.number("h")
    committed = bool(fields.number("b")) if api is Api.END_TXN else None
    return Request(*header, plain.body, transactional_id, producer_id, epoch, committed)


class _Fields:
    """Reads fields one after the other."""

    def __init__(self, frame: bytes, at: int) -> None:
        self.at = at
        self._frame = frame
        self._compact = False

    def flexible(self, whether: bool) -> bool:
        """Says how strings are written from here on."""
        self._compact = whether
        return whether

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(f">{kind}", self._frame, self.at)
        self.at += struct.calcsize(f">{kind}")
        return int(value)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._frame[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def string(self) -> str | None:
        size = self.varint() - 1 if self._compact else self.number("h")
        if size < 0:
            return None
        text = self._frame[self.at : self.at + size].decode()
        self.at += size
        return text

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            size = self.varint()
            self.at += size
