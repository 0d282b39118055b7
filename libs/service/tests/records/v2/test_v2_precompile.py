"""What an image is built with compiles what readers and writers of record batches need later."""

import os
import subprocess
import sys
from pathlib import Path

USE = """
import numpy as np
from keygrouping_service.records.unpacking import Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.reading import Reader
from keygrouping_service.records.v2.visibility import Visibility
from keygrouping_service.records.v2.writing import Sender, compressed, pack, sealed

batch = BufferBatch.of("t", 0, [(n, n, b"k", b"v" * 99, (("h", b""),)) for n in range(9)])
for part in (batch, batch.cut(3, 7), batch.where(np.arange(9) % 2 == 0), batch.followed_by([batch.cut(0, 1)])):
    for most in (1, 1 << 20):
        for packed in pack(part, np.arange(len(part), dtype=np.int32)[::-1] % 3, most):
            for codec in range(1, 5):
                whole = sealed(compressed(packed, codec), Sender(1, 2, 3, True))
                for data in (bytes(whole), bytes(whole) * 2):
                    read = list(Reader(Unpacking(), "t", 0, 0).read(data, Visibility([(1, 5)])))
                    assert read
                    pack(read[0], np.zeros(len(read[0]), np.int64), most)
"""


def test_a_later_process_finds_the_kernels_and_compiles_none(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic"}

    def kernels(*program: str) -> dict[Path, int]:
        subprocess.run([sys.executable, *program], env=environment, check=True, timeout=300)
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")}

    first = kernels("-m", "keygrouping_service.records.v2.precompile")
    assert first
    assert kernels("-c", USE) == first
