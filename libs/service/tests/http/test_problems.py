"""Every error answer is a problem object: one line that says what is wrong, and nothing that breaks JSON."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, HTTPException
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_service.http.app import create_app
from keygrouping_service.http.problems import Problem, describe, problem_response
from prometheus_client import REGISTRY
from pydantic import BaseModel, Field, ValidationError, model_validator


class Change(BaseModel):
    workers: int = Field(ge=1)
    rate: float = 0

    @model_validator(mode="after")
    def _rate_fits(self) -> "Change":
        if self.rate > self.workers:
            raise ValueError("rate above workers")
        return self


def routes() -> APIRouter:
    routes = APIRouter()

    @routes.get("/problem/{status}")
    async def problem(status: int) -> None:
        raise Problem(status, "no\x00 \x1b[2Jway\n", line=3)

    @routes.get("/teapot")
    async def teapot() -> None:
        raise HTTPException(418, "short and stout", {"X-Tea": "1"})

    @routes.get("/defect")
    async def defect() -> None:
        raise RuntimeError("secret")

    @routes.put("/change")
    async def change(change: Change, dry_run: bool = False, limit: int = 1) -> Change:
        return change.model_copy(update={"rate": 0.0}) if dry_run or limit > 1 else change

    @routes.get("/change")
    async def read() -> int:
        return 1

    @routes.patch("/change")
    async def patch(change: Change) -> Change:
        return change

    return routes


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = create_app("test", lambda: True, routes())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as running:
        yield running


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"] == "about:blank" and problem["title"]
    return problem


async def test_a_problem_says_status_detail_and_its_further_members(client: httpx.AsyncClient) -> None:
    answer = await client.get("/problem/412")
    assert b"\x00" not in answer.content and b"\x1b" not in answer.content
    assert problem_of(answer) == {
        "type": "about:blank",
        "title": "Precondition Failed",
        "status": 412,
        "detail": "no\x00 \x1b[2Jway\n",
        "line": 3,
    }
    assert "retry-after" not in answer.headers


async def test_unavailable_says_when_to_come_again(client: httpx.AsyncClient) -> None:
    answer = await client.get("/problem/503")
    assert (problem_of(answer)["title"], answer.headers["retry-after"]) == ("Service Unavailable", "1")
    assert problem_response(503, "x", headers={"Retry-After": "9"}).headers["retry-after"] == "9"


async def test_errors_of_the_framework_are_problems_with_their_headers(client: httpx.AsyncClient) -> None:
    assert problem_of(await client.get("/nowhere"))["status"] == 404
    wrong_method = await client.post("/healthz")
    assert (problem_of(wrong_method)["status"], wrong_method.headers["allow"]) == (405, "GET")
    teapot = await client.get("/teapot")
    assert (problem_of(teapot)["detail"], teapot.headers["x-tea"]) == ("short and stout", "1")


async def test_a_defect_is_a_500_that_tells_nothing_of_it(client: httpx.AsyncClient) -> None:
    answer = await client.get("/defect")
    assert problem_of(answer)["status"] == 500
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"workers": 0}', "body.workers: Input should be greater than or equal to 1"),
        (b'{"workers": 1, "rate": 2}', "body: rate above workers"),
        (b'{"workers": 0, "rate": "x"}', "; body.rate: "),
        (b"{", "JSON"),
    ],
)
async def test_an_invalid_body_names_each_field_and_its_fault(
    client: httpx.AsyncClient, body: bytes, said: str
) -> None:
    answer = await client.put("/change", content=body, headers={"content-type": "application/json"})
    assert said in problem_of(answer)["detail"]


async def test_problems_are_counted_by_status(client: httpx.AsyncClient) -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("keygrouping_http_problems_total", {"status": "409"}) or 0

    before = counted()
    await client.get("/problem/409")
    assert counted() == before + 1


@given(st.integers(max_value=0))
def test_a_fault_is_described_in_one_line(workers: int) -> None:
    with pytest.raises(ValidationError) as refused:
        Change(workers=workers)
    assert describe(refused.value) == "workers: Input should be greater than or equal to 1"
    assert describe(ValueError("as it is")) == "as it is"


QUERIES = {
    "dry-run=true": "query: dry-run means nothing here: known are dry_run, limit; did you mean dry_run?",
    "dryrun=1": "query: dryrun means nothing here: known are dry_run, limit; did you mean dry_run?",
    "DRY_RUN=1": "query: DRY_RUN means nothing here: known are dry_run, limit; did you mean dry_run?",
    "x": "query: x means nothing here: known are dry_run, limit",
    "dry_run=true&dry_run=false": "query: dry_run is given 2 times: give it once",
    "a=1&%1b=2": "query: a means nothing here: known are dry_run, limit; "
    "\x1b means nothing here: known are dry_run, limit",
}


@pytest.mark.parametrize("query", QUERIES)
async def test_a_query_member_that_the_route_does_not_have_is_refused(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.put(f"/change?{query}", json={"workers": 1})
    assert (answer.status_code, problem_of(answer)["detail"]) == (422, QUERIES[query])


async def test_where_no_query_is_taken_any_is_refused(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/change", "/teapot", "/docs", "/openapi.json"):
        answer = await client.get(f"{path}?since=1")
        expected = "query: since means nothing here, where no query is taken: leave it out"
        assert (answer.status_code, problem_of(answer)["detail"]) == (422, expected), path
    assert (await client.put("/change?dry_run=true&limit=2", json={"workers": 1})).status_code == 200


async def test_a_wrong_method_is_told_all_that_the_path_takes(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/change")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PATCH, PUT")
    assert problem_of(answer)["detail"] == "this path takes GET, PATCH, PUT, not DELETE"
    assert (await client.post("/docs")).headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"workers":}', "the body is no JSON, at character 11: Expecting value"),
        (b"{", "the body is no JSON, at character 1: "),
        (b"", "the body is no JSON: there is none"),
        (b"\xff", "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
    ],
)
async def test_a_body_that_is_no_json_is_400(client: httpx.AsyncClient, body: bytes, told: str) -> None:
    answer = await client.put("/change", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert problem_of(answer)["detail"].startswith(told)


async def test_a_body_that_is_not_said_to_be_json_is_told_which_header_says_so(client: httpx.AsyncClient) -> None:
    for headers, found in (({}, "it is missing"), ({"Content-Type": "text/plain"}, "it says text/plain")):
        answer = await client.put("/change", content=b'{"workers": 1}', headers=headers)
        expected = f"set the header Content-Type to application/json: {found}"
        assert (answer.status_code, problem_of(answer)["detail"]) == (415, expected)
