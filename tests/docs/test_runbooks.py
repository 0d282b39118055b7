"""The Python in the runbooks works; the calls of the router are tried by the router's tests."""

from __future__ import annotations

import asyncio
import os
import re
import sys

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.testing import Cluster

from .pages import DOCS, blocks

pytestmark = pytest.mark.kafka


async def test_dead_letters_are_shown(broker: EmbeddedBroker, application: str) -> None:
    shell = "\n".join(block.text for block in blocks(DOCS / "runbooks.md", "sh"))
    (script,) = re.findall(r"-- python - <<'END'\n(.*?)^END$", shell, re.S | re.M)
    topic = f"{application}.dead"
    async with Cluster(broker.bootstrap_servers) as cluster:
        await cluster.create(**{topic: 2})
        for number in range(8):
            await cluster.write(topic, [(b"shop", b"value %d" % number)])
    given = {"KEYGROUPING_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "KEYGROUPING_DEAD_LETTERS_TOPIC": topic}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script),
        env={**os.environ, **given},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaints = await process.communicate()
    assert process.returncode == 0, complaints.decode()
    assert re.findall(r"value \d", said.decode()) == [f"value {number}" for number in range(3, 8)]
