"""The producer's HTTP routes: events in, workload and rate switched, where the replay stands."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request
from keygrouping_service.http.auth import Auth
from keygrouping_service.http.media import JSON, LINES, media_type, wrong_media
from keygrouping_service.http.problems import Problem, describe
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keygrouping_producer.ingest import Ingest, Intake, Place, Refused, Unavailable
from keygrouping_producer.opening import open_source
from keygrouping_producer.plan import Pace, Plan, Workload
from keygrouping_producer.replay import Replayer, Status
from keygrouping_producer.settings import ProducerSettings
from keygrouping_producer.slices import Slices, cut
from keygrouping_producer.sources.base import SourceError

NDJSON = "application/x-ndjson"


class Accepted(BaseModel):
    """How many events the broker has taken."""

    accepted: int


class PaceChange(BaseModel):
    """A new rate (events per second, 0 without limit), and whether to start again at the end; left out: as it is."""

    model_config = ConfigDict(extra="forbid")

    rate: float | None = Field(default=None, ge=0, le=1e9, allow_inf_nan=False)
    loop: bool | None = None

    def applied_to(self, pace: Pace) -> Pace:
        """The pace with what is given here."""
        return pace.model_copy(update=self.model_dump(include={"rate", "loop"}, exclude_none=True))


class WorkloadChange(PaceChange):
    """Another workload. Without a `workload` the present one is kept, and what is given is changed in it."""

    workload: str | None = None
    skew: int | None = None
    key: str | None = None
    events: int | None = None
    seed: int | None = None
    file: Path | None = None
    time_field: str | None = None
    time_format: str | None = None
    delimiter: str | None = None

    def applied_to_plan(self, plan: Plan) -> Plan:
        """The new plan; raises ValidationError."""
        given = self.model_dump(include={*Workload.model_fields, "skew"}, exclude_none=True)
        kept = {} if self.workload else plan.workload.model_dump()
        return Plan(workload=Workload.model_validate(kept | given), pace=self.applied_to(plan.pace))


def event_routes(settings: ProducerSettings, ingest: Ingest) -> APIRouter:
    """`POST /events`: one event as JSON, or many as NDJSON; 202 when the broker has all of them."""
    routes = APIRouter(dependencies=list(Auth(settings).writing))

    @routes.post("/events", status_code=202)
    async def post_events(request: Request) -> Accepted:
        media = media_type(request.headers)
        if media not in (JSON, LINES):
            raise Problem(415, wrong_media(media, JSON, LINES))
        try:
            with ingest.place() as place:
                place.hold(_stated_bytes(request))
                intake = await ingest.intake()
                await _take(request, Slices(intake, settings.max_event_bytes, lines=media == LINES), intake, place)
                await ingest.write(intake)
        except Unavailable as error:
            raise Problem(503, f"{error}: send the events again") from error
        except Refused as error:
            raise Problem(413, str(error)) from error
        return Accepted(accepted=intake.events)

    return routes


async def _take(request: Request, slices: Slices, intake: Intake, place: Place) -> None:
    """All of the body; after a fault the rest is read, too, as most clients listen only when they have sent it."""
    fault: Problem | Unavailable | None = None
    async for body in request.stream():
        for part in cut(body) if fault is None else ():
            try:
                await asyncio.to_thread(slices.feed, part)
                place.hold(intake.bytes)
            except (Problem, Unavailable) as error:
                fault = error
                break
    if fault is not None:
        raise fault
    await asyncio.to_thread(slices.end)


def _stated_bytes(request: Request) -> int:
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isdecimal() else 0


def replay_routes(settings: ProducerSettings, replayer: Replayer) -> APIRouter:
    """`GET /status`, `PUT /workload`, `PUT /rate`."""
    auth = Auth(settings)
    routes = APIRouter()
    writing = [*auth.writing, *([] if auth.writing else [Depends(_from_this_machine)])]

    @routes.get("/status", dependencies=list(auth.reading))
    async def status() -> Status:
        return replayer.status()

    @routes.put("/workload", dependencies=writing)
    async def put_workload(change: WorkloadChange) -> Status:
        plan = await _checked_plan(change, replayer.plan(), settings)
        await _in_time(replayer.switch(plan), settings)
        return replayer.status()

    @routes.put("/rate", dependencies=writing)
    async def put_rate(change: PaceChange) -> Status:
        await _in_time(replayer.set_pace(change.applied_to(replayer.plan().pace)), settings)
        return replayer.status()

    return routes


def _from_this_machine(request: Request) -> None:
    """Without tokens, nobody from elsewhere starts anything."""
    try:
        local = request.client is None or ip_address(request.client.host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise Problem(403, "without tokens this is taken from the same machine only: set KEYGROUPING_API_TOKEN_FILE")


async def _checked_plan(change: WorkloadChange, present: Plan, settings: ProducerSettings) -> Plan:
    try:
        plan = change.applied_to_plan(present)
    except ValidationError as error:
        raise Problem(422, describe(error)) from None
    file = plan.workload.file
    if file is not None and file != settings.file and not _is_allowed(file, settings.data_folder):
        raise Problem(422, "file: only files in KEYGROUPING_PRODUCER_DATA_FOLDER may be chosen")
    if change.events is not None and change.events > settings.max_workload_events:
        most = settings.max_workload_events
        raise Problem(422, f"events: at most {most}, as KEYGROUPING_PRODUCER_MAX_WORKLOAD_EVENTS says")
    try:
        await asyncio.to_thread(open_source, plan.workload, settings.max_event_bytes)
    except SourceError as error:
        raise Problem(422, str(error)) from None
    return plan


def _is_allowed(file: Path, folder: Path | None) -> bool:
    return folder is not None and file.resolve().is_relative_to(folder.resolve())


async def _in_time(action: Any, settings: ProducerSettings) -> None:
    try:
        async with asyncio.timeout(settings.acknowledge_timeout):
            await action
    except TimeoutError:
        raise Problem(503, "the broker is away; the change comes into force when it is back") from None
