"""The calls of the router in README, tutorials, how-to pages, the API's page and the runbooks work, page by page."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest
from keygrouping_service.http.app import serving

from ..real_api import real_app

ROOT = Path(__file__).parents[4]
WRITTEN = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]
_LIMITED = "--max-time"
_SHOWN = re.compile(r"^ROUTER=http:\S+", re.M)
_ENDS = " || [ $? = 28 ]"
"""A stream has no end of its own: curl ends it, and says so."""
PAGES = [page for page in sorted(WRITTEN) if '"$ROUTER/' in page.read_text()]


def calls(page: Path) -> list[str]:
    """The shell lines of a page that call the router, or set what such a line needs, such as its address."""
    scripts = re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M)
    lines = [line for script in scripts for line in script.replace("\\\n", " ").splitlines()]
    wanted = [line for line in lines if '"$ROUTER/' in line or line.startswith("ROUTER=")]
    return [f"{line}{_ENDS if _LIMITED in line else ''}" for line in wanted]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: apt-get install curl to run the pages' examples")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
async def test_every_call_works_one_after_the_other(page: Path) -> None:
    shown = "\n".join(["set -eu -o pipefail", *calls(page)])
    async with serving(await real_app(), "127.0.0.1", 0) as port:
        script = _SHOWN.sub(f"ROUTER=http://127.0.0.1:{port}", shown)
        given = {**os.environ, "TOKEN": ""}
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-c", script), env=given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await shell.communicate()
    assert shell.returncode == 0, said.decode()[-2000:]
    assert b'"status":4' not in said and b'"status":5' not in said, said.decode()[-2000:]
