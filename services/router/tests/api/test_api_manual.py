"""docs/api.md is true: each of its examples works with a router's API, and each route has one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import cast

import pytest
from keygrouping_router.api import router_app, shapes
from keygrouping_router.api.plane import Plane
from keygrouping_service.http.app import serving
from keygrouping_service.http.openapi import ProblemDetails
from pydantic import BaseModel

from ..planes import settings_of
from ..real_api import real_app

MANUAL = (Path(__file__).parents[4] / "docs" / "api.md").read_text()
COMMANDS = [
    command
    for block in re.findall(r"^```sh\n(.*?)^```", MANUAL, re.S | re.M)
    for command in block.replace("\\\n", " ").splitlines()
    if command.startswith("curl")
]
ANSWERS: list[type[BaseModel]] = [
    ProblemDetails,
    shapes.KeySpaceReport,
    shapes.KeyReport,
    shapes.Thresholds,
    shapes.DryRun,
    shapes.History,
    shapes.WorkersReport,
    shapes.GroupingReport,
    shapes.OverridesReport,
    shapes.PlanInForce,
    shapes.PlanHistory,
    shapes.ShadowReport,
    shapes.Readiness,
]
TIMED_OUT = 28


def request_of(command: str) -> tuple[str, str]:
    """Method and path of a curl command."""
    method = re.search(r"-X (\w+)", command)
    path = re.search(r'"\$ROUTER(/[^"?]*)', command)
    assert path, command
    return method[1].lower() if method else "get", re.sub(r"^/(keyspace|overrides)/.+", r"/\1/{key}", path[1])


def test_every_route_has_an_example() -> None:
    document = router_app(cast(Plane, None), settings_of()).openapi()
    routes = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert {request_of(command) for command in COMMANDS} == routes


def test_the_answers_shown_are_what_the_api_gives() -> None:
    shown = re.findall(r"^```json\n(.*?)^```", MANUAL, re.S | re.M)
    for model, text in zip(ANSWERS, shown, strict=True):
        model.model_validate(json.loads(text))


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: apt-get install curl to run the manual's examples")
async def test_every_example_works_one_after_the_other(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("alice write secret\n")
    async with serving(await real_app(api_token_file=tokens), "127.0.0.1", 0) as port:
        given = {**os.environ, "ROUTER": f"http://127.0.0.1:{port}", "TOKEN": "secret"}
        for command in COMMANDS:
            running = await asyncio.create_subprocess_exec(
                *("bash", "-c", command), env=given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            said, _ = await running.communicate()
            endless = request_of(command) == ("get", "/events")
            assert running.returncode == (TIMED_OUT if endless else 0), (command, said.decode())
            assert said
