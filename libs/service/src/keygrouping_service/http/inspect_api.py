"""What the exporter of `keygrouping inspect` answers over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, HTTPException
from keygrouping.inspection import Ceiling, Tried
from pydantic import AwareDatetime, BaseModel, Field

from keygrouping_service.http.app import create_app
from keygrouping_service.http.auth import Auth
from keygrouping_service.http.limits import limit_requests
from keygrouping_service.http.openapi import complete, problems
from keygrouping_service.settings import ApiSettings

TITLE = "keygrouping inspect"
State = Literal["starting", "reading", "missing", "unreachable"]


class PartitionsView(BaseModel):
    """The topic as its consumers have it: each partition is one consumer's."""

    count: int
    imbalance: float | None = Field(description="λ of the partitions; null: nothing came")
    works_like: float | None = Field(description="whose work one consumer a partition does: the scaling ceiling")
    useful_consumers: int | None = Field(description="consumers beyond these do next to nothing more")
    shares: list[float] = Field(description="of the load, by partition")


class KeyView(BaseModel):
    """A heavy key; shares are parts of all weight."""

    key: str
    share: float
    at_least: float
    at_most: float


class SplitView(BaseModel):
    """A key that would be split."""

    key: str
    share: float
    width: int = Field(description="over how many workers")


class RoutedView(BaseModel):
    """What a grouping would have given."""

    imbalance: float | None = Field(description="λ; null: not known yet")
    works_like: float | None = Field(description="W / λ")


class SplittingView(RoutedView):
    """The same of a grouping that splits hot keys."""

    grouping: str
    keys: list[SplitView]


class WorkersView(BaseModel):
    """What so many workers would have had to bear."""

    workers: int
    by_key: RoutedView
    split: SplittingView


class AdviceView(BaseModel):
    """How far a topic scales as it is, and what to do."""

    topic: str
    state: State = Field(description="`missing`: there is no such topic; `unreachable`: Kafka gives no answer")
    at: AwareDatetime = Field(description="when these figures were made")
    window_seconds: float = Field(description="what came in so many seconds is in them")
    advice: list[str] = Field(description="what it means, in sentences")
    events: int = Field(description="that came; an estimate where a part was read")
    partitions: PartitionsView
    key_ceiling: float | None = Field(description="whose work any number of workers does while no key is split")
    keys: list[KeyView] = Field(description="the heaviest first")
    workers: list[WorkersView] = Field(description="by their number; one is that of the partitions")


def advice_view(found: Ceiling, *, topic: str, state: State, at: float, window: float) -> AdviceView:
    """What was found, for the API."""
    total = sum(found.partitions)
    return AdviceView(
        topic=topic,
        state=state,
        at=datetime.fromtimestamp(at, UTC),
        window_seconds=window,
        advice=found.sentences(),
        events=round(found.events),
        partitions=PartitionsView(
            count=len(found.partitions),
            imbalance=found.partition_lambda,
            works_like=found.works_like,
            useful_consumers=found.useful_consumers,
            shares=[load / total if total else 0.0 for load in found.partitions],
        ),
        key_ceiling=found.key_ceiling,
        keys=[KeyView(key=key.name, share=key.share, at_least=key.low, at_most=key.high) for key in found.keys],
        workers=[_workers_view(tried) for tried in found.tried],
    )


def exporter_app(settings: ApiSettings, advice: Callable[[], AdviceView | None], ready: Callable[[], bool]) -> FastAPI:
    """The app that shows this advice; None: there is none yet."""
    app = create_app(TITLE, ready, _routes(advice, Auth(settings)))
    limit_requests(app, body_bytes=settings.api_body_bytes, rate=settings.api_rate)
    complete(app)
    return app


def _routes(advice: Callable[[], AdviceView | None], auth: Auth) -> APIRouter:
    routes = APIRouter(tags=["advice"], dependencies=list(auth.reading))
    refusals = problems(422, 429, 503, *([401] if auth.reading else []))

    @routes.get("/advice", responses=refusals)
    async def get_advice() -> AdviceView:
        """How far the topic scales as it is, which keys are hot, and what splitting them would do."""
        found = advice()
        if found is None:
            raise HTTPException(503, "the topic has not been read yet: ask again", {"Retry-After": "5"})
        return found

    return routes


def _workers_view(tried: Tried) -> WorkersView:
    return WorkersView(
        workers=tried.workers,
        by_key=RoutedView(**_figures(tried.workers, tried.by_key)),
        split=SplittingView(
            **_figures(tried.workers, tried.split),
            grouping=tried.splitting,
            keys=[SplitView(key=each.name, share=each.share, width=each.width) for each in tried.splits],
        ),
    )


def _figures(workers: int, imbalance: float | None) -> dict[str, Any]:
    return {"imbalance": imbalance, "works_like": workers / imbalance if imbalance else None}
