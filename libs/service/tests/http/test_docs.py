"""Laws of `/docs`: it needs nothing from elsewhere, and runs under a strict policy."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest
from keygrouping_service.http.app import create_app
from keygrouping_service.http.docs import ASSETS


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app("a <b> & c", lambda: True))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        yield client


async def test_all_that_the_page_loads_is_served_here(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert {address.rpartition("/")[2] for address in loaded} == {*ASSETS, "start.js"}
    for address in loaded:
        assert not address.startswith(("/", "http"))
        answer = await client.get(f"/{address}")
        assert answer.status_code == 200
        assert len(answer.content) > 50


async def test_the_page_has_no_inline_script_and_a_policy_against_it(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert all(not body for body in re.findall(r"<script[^>]*>(.*?)</script>", page.text, re.S))
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"


async def test_the_title_can_not_break_the_page(client: httpx.AsyncClient) -> None:
    assert "<title>a &lt;b&gt; &amp; c</title>" in (await client.get("/docs")).text


@pytest.mark.parametrize("path", ["/docs", "/docs/start.js", "/openapi.json", "/healthz", "/readyz", "/metrics"])
async def test_a_query_that_means_nothing_is_refused(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 200
    answer = await client.get(f"{path}?pretty")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert "pretty means nothing here" in answer.json()["detail"]


async def test_the_document_names_every_operation_once(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    ids = [operation["operationId"] for operation in operations]
    assert sorted(ids) == ["get_healthz", "get_metrics", "get_readyz"]
    assert all(operation["description"] for operation in operations)
