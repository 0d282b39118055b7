"""Compiles the kernels of record batches into numba's cache: `python -m keygrouping_service.records.v2.precompile`.

For an installation whose programs can't write there later; see `keygrouping.precompile`.
"""

from argparse import ArgumentParser

import numpy as np
from keygrouping.hashing import kafka_hashes
from keygrouping.version import add_version

from keygrouping_service.records.inflating import LZ4
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.reading import Reader
from keygrouping_service.records.v2.visibility import Visibility
from keygrouping_service.records.v2.writing import Sender, compressed, pack, sealed


def warm_up() -> None:
    """Writes a batch and reads it, as the services do: the kernels are compiled, or loaded, afterwards."""
    kafka_hashes([b"k"])  # as partials and results are placed
    pack(BufferBatch.new(1, [b"k"], [b"v"]), np.zeros(1, np.int64), 1 << 20)
    batch = BufferBatch.of("events", 0, [(0, 1, b"k", b"v" * 99, (("h", b""),)), (1, 2, None, None, ())])
    (packed,) = pack(batch, np.zeros(2, np.int64), 1 << 20)
    for each in (packed, compressed(packed, LZ4)):
        list(Reader(Unpacking(), "events", 0, 0).read(bytes(sealed(each, Sender())), Visibility()))


def main() -> None:
    """Command `python -m keygrouping_service.records.v2.precompile`."""
    parser = ArgumentParser(prog="python -m keygrouping_service.records.v2.precompile", description=__doc__)
    add_version(parser)
    parser.parse_args()
    warm_up()


if __name__ == "__main__":
    main()
