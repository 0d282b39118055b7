"""The JSON that the API takes and gives, as types: what stands here is what the OpenAPI document says.

Loads are weights in the last whole interval, shares lie between 0 and 1, times are UTC with milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Literal

from keygrouping.grouping import live_names
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    StrictBool,
    StrictInt,
    WithJsonSchema,
)

from keygrouping_router.control.history import What
from keygrouping_router.control.orders import Action, Sharing
from keygrouping_router.control.seeds import MOST_SEED
from keygrouping_router.limits import (
    LONGEST_OVERRIDE,
    MAX_KEYS,
    MAX_SHADOWS,
    MAX_WORKERS,
    TOP,
    Capacity,
    Number,
)


def as_text(moment: datetime) -> str:
    """In UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _worker_count(value: object) -> object:
    """JSON may write 5 as 5.0, but not as "5" or true."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value == "auto" or (type(value) is int and 1 <= value <= MAX_WORKERS):
        return value
    raise ValueError(f'must be an integer from 1 to {MAX_WORKERS}, or "auto"')


Moment = Annotated[
    datetime,
    PlainSerializer(as_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-01-31T12:00:00.000Z"]}),
]
"""A time: made of seconds since 1970 or a datetime with a zone, written as `2026-01-31T12:00:00.000Z`."""

GroupingName = Annotated[str, Field(max_length=100, json_schema_extra={"enum": list(live_names())})]

Share = Annotated[float, Field(ge=0, le=1)]
Settings = dict[str, JsonValue]


class Model(BaseModel):
    """Base of all shapes: frozen, no unknown members, `lambda_` is `lambda` in JSON."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )


# keys


class KeyName(Model):
    """A key, which may be any bytes: the first of `key`, `key_base64` and `hash` that is not null names it."""

    key: str | None = Field(description="its text, null if it is no UTF-8 or not known")
    key_base64: str | None = Field(description="base64url without padding, if it is no UTF-8")
    hash: str | None = Field(description="if nothing but the hash is known")
    id: str = Field(description="what to put, as it is, in the path `/keyspace/{id}`; already percent-encoded")


class KeyEntry(KeyName):
    """What is known of one key. A member is null if it is not known."""

    count: float | None = Field(description="weight counted, at least the true one", ge=0)
    error: float | None = Field(description="`count` is at most this too high", ge=0)
    share: Share | None = Field(description="its part of all weight")
    share_low: Share | None = Field(description="its true share is at least this")
    share_high: Share | None = Field(description="its true share is at most this")
    width: int = Field(description="number of workers it is spread over now", ge=0)
    hot: bool = Field(description="whether it is spread wider than a cold key of this grouping")
    workers: list[int] = Field(description="the workers it is spread over now")
    space: str | None = Field(description="name of the space of the KeySpace that it is in")
    first_seen: Moment | None
    last_seen: Moment | None
    hot_since: Moment | None = Field(description="since when it is hot; null if it is not, or not known")


class KeyReport(KeyEntry):
    """One key, and why it goes where it goes."""

    home: int | None = Field(description="the worker its hash points to; null where the key plays no part")
    candidates: list[int] = Field(description="the workers its next event can go to")
    age_seconds: float | None = Field(description="since the grouping first saw it")
    why: str = Field(description="one sentence")


class SpaceReport(Model):
    """A part of the KeySpace: keys that are kept in the same way."""

    name: str
    size: int = Field(description="tracked keys that are in it now: so many does `GET /keyspace?space=` list", ge=0)
    kept: int = Field(description="what the grouping of the router that was asked has in it, tracked or not", ge=0)
    capacity: int | None = Field(description="most that the grouping keeps in it, null without limit")
    meaning: str


class KeySpaceHead(Model):
    """The KeySpace as a whole: loads of the workers, how even they are, and how large it is."""

    grouping: str
    workers: int = Field(ge=1)
    epoch: int = Field(description="number of the plan in force")
    replicas: list[str] = Field(description="the routers whose knowledge is merged here")
    interval_seconds: float
    events: int = Field(description="events routed since the start", ge=0)
    total_keys: int = Field(description="distinct keys, an estimate", ge=0)
    tracked_keys: int = Field(description="keys with a count", ge=0)
    spaces: list[SpaceReport]
    loads: list[float] = Field(description="weight per worker")
    lambda_: float | None = Field(
        alias="lambda", description="largest load over average load: 1 is perfect, W the worst; null without load"
    )
    least_share: float | None = Field(
        description="least load over average load: 1 is perfect, 0 an idle worker; null without load"
    )
    std_dev: float | None = Field(
        description="standard deviation of the workers' shares in percentage points; null without load"
    )
    dist_cost: float = Field(description="distinct workers per key: 1 is key grouping, W the worst")
    lambda_before: float | None = Field(
        description="λ that key hashing would have given the same traffic; null without load"
    )
    at: Moment


class KeySpaceReport(KeySpaceHead):
    """What the router knows now: the KeySpace as a whole, and the keys that were asked for."""

    keys: list[KeyEntry] = Field(max_length=MAX_KEYS)
    total: int = Field(description="tracked keys that match, whatever `limit` and `offset`", ge=0)


class IntervalReport(KeySpaceHead):
    """The KeySpace at the end of an interval, with the keys of the largest share."""

    hot: list[KeyEntry] = Field(max_length=TOP)


# changes


class Done(Model):
    """What a write has done."""

    changed: bool = Field(description="false: all was so already, and nothing was stored")
    epoch: Number = Field(description="number of the plan in force from then on")
    before: Settings = Field(description="what was changed, as it was")
    after: Settings = Field(description="what was changed, as it is")
    notes: list[str] = Field(description="what else to know, a line each")


class Changeable(Model):
    """Something that can be set."""

    version: int = Field(description="of everything that can be set over this API; as ETag in the header", ge=0)
    done: Done | None = Field(default=None, description="what the write has done that this answers; null of a read")


# settings of the grouping


class SettingDescription(Model):
    """A setting of a grouping: what it means and what its values are."""

    name: str
    default: JsonValue
    meaning: str
    unit: str = Field(description="empty for numbers without one")
    kind: str = Field(description="what a value must be, such as `a number or null`")
    range: str = Field(description="such as `from 10 to 100000`; empty where all values of the kind will do")


class Setting(SettingDescription):
    """A setting and its value now."""

    value: JsonValue


class Thresholds(Changeable):
    """All settings of the grouping in force."""

    grouping: str
    settings: list[Setting]


class Change(Model):
    """A number with the present settings, and with those that were tried; null where there was nothing to try on."""

    before: float | None
    after: float | None


class WidthChange(KeyName):
    """A key that would be spread over another number of workers."""

    before: int
    after: int


class Changes(Model):
    """What another setting does to a sample of the present traffic."""

    hot_keys: Change
    cold_width: Change = Field(description="the most workers of each key that isn't hot")
    widths: list[WidthChange] = Field(
        description="keys of another width that are hot before or after, largest share first"
    )
    lambda_: Change = Field(alias="lambda")
    dist_cost: Change
    sampled_events: int = Field(ge=0)


class DryRun(Model):
    """What would change, if it were done; nothing was."""

    dry_run: Literal[True] = True
    changes: Changes
    settings: list[Setting] = Field(description="all settings as they would be")


class HistoryEntry(Model):
    """One change of what can be set."""

    at: Moment
    by: str = Field(description="who: `api` with the address, `settings` (the environment at a start), `auto`")
    version: int = Field(ge=1)
    what: What
    before: Settings
    after: Settings


class History(Model):
    """The last changes, newest first."""

    entries: list[HistoryEntry]


# workers


class WorkerReport(Model):
    """One worker: partition `worker` of the routed topic."""

    worker: int = Field(ge=0)
    state: Literal["active", "draining", "unused"] = Field(
        description="`draining`: gets no more events, and has yet to process its lag"
    )
    load: float = Field(ge=0)
    share: Share
    load_of_ideal: float = Field(description="load over what is its due by capacity: 1 is perfect", ge=0)
    capacity: float = Field(description="relative to other workers", gt=0)
    lag: int | None = Field(description="events routed to it that it has not processed; null if not known")


class WorkersReport(Changeable):
    """All workers, and how even their loads are."""

    workers: int = Field(description="W, the number of workers in use", ge=1)
    mode: Literal["fixed", "auto"] = Field(description="`auto`: W follows the workers that are running")
    max_workers: int = Field(description="partitions of the routed topic", ge=1)
    total_lag: int | None
    items: list[WorkerReport]
    lambda_: float | None = Field(alias="lambda", description="null as long as no load has been measured")
    least_share: float | None = Field(
        description="of the load that is due to it, of the emptiest worker; null likewise"
    )
    epoch: int


class WorkersChange(Model):
    """Another W, and capacities of workers that differ from 1."""

    workers: Annotated[Annotated[int, Field(ge=1, le=MAX_WORKERS)] | Literal["auto"], BeforeValidator(_worker_count)]
    capacities: dict[Annotated[str, Field(pattern=r"^[0-9]{1,4}$")], Annotated[Capacity, Field(strict=True)]] | None = (
        Field(
            default=None,
            max_length=MAX_WORKERS,
            description="by number of worker, relative to the others, 1 for those not named; left out: as they are",
        )
    )


# grouping


class AvailableGrouping(Model):
    """A grouping that could be in force."""

    name: str
    meaning: str
    settings: list[SettingDescription]


class GroupingReport(Changeable):
    """The grouping in force, and all that could be."""

    name: str
    settings: Settings = Field(description="those that were set; the others have their defaults")
    epoch: int
    sharing: Sharing = Field(
        description="`shared`: all routers have one plan, made of what all of them see; `independent`: each its own"
    )
    observe_only: bool = Field(description="route by key hash, and only report what the grouping would bring")
    seed: str | None = Field(
        description="tells whether the routers' secret seed, by which `level-fill` scrambles hashes, is another one"
    )
    available: list[AvailableGrouping]


class GroupingChange(Model):
    """Another grouping, or the same with other settings. What is left out stays as it is."""

    name: GroupingName
    settings: Settings | None = Field(
        default=None,
        max_length=100,
        description="those that are not named get their defaults; left out: those in force, of another grouping none",
    )
    sharing: Sharing | None = None
    observe_only: StrictBool | None = None
    seed: Annotated[StrictInt, Field(ge=0, le=MOST_SEED)] | Literal["new"] | None = Field(
        default=None,
        description="another secret seed, by which `level-fill` places all keys again: `new`: drawn by the router; a "
        "number: the same for routers without a common store; 0: none",
    )


# plans


class PlanReport(Model):
    """A plan, the decision by which keys are spread: what it changed and cost. What is not known is null."""

    epoch: Number
    at: Moment | None
    round: Number | None = Field(description="number of the round in which all routers made it together")
    part: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="0: made at the end of an interval; else inside of one, after this part of it",
    )
    by: str | None = Field(description="the router that made it")
    grouping: str
    workers: int = Field(ge=1, le=MAX_WORKERS)
    hot_keys: Number | None
    moved_keys: Number | None = Field(description="keys that go to other workers than before")
    moved_state: float | None = Field(description="weight of state that has to move; 0 where partials are merged")
    feasible: bool | None = Field(description="whether the plan keeps the loads within what was asked")
    plan_ms: float | None = Field(description="time to make it, in milliseconds")
    details: Settings


class PlannedWorker(Model):
    """How a plan fills one worker; shares are parts of all weight, as estimated: their sum may be a little above 1."""

    worker: int = Field(ge=0)
    fair: Share = Field(description="its due")
    light: float = Field(description="planned for keys that have one worker", ge=0)
    hot: float = Field(description="planned of keys that several workers share", ge=0)
    room: float = Field(description="what was left for hot keys above the light ones", ge=0)
    filled: float = Field(
        description="load of this interval over the level that all should have by now, at this router", ge=0
    )


class PlannedMember(Model):
    """A worker of a hot key, and the part of all weight that it is to get of the key."""

    worker: int = Field(ge=0)
    share: Share


class PlannedKey(KeyName):
    """A key that a plan spreads over several workers."""

    share: Share = Field(description="its part of all weight, as the plan expects it")
    members: list[PlannedMember] = Field(description="its workers, in the order in which they are filled")


class FillingReport(Model):
    """How a plan fills the workers up to one level, with hot keys above the light ones."""

    level: float | None = Field(
        description="water level: planned load over the fair one, up to which hot keys fill workers; null without any"
    )
    workers: list[PlannedWorker]
    hot_keys: int = Field(description="keys that are spread over workers by the plan", ge=0)
    keys: list[PlannedKey] = Field(description="the heaviest of these", max_length=MAX_KEYS)


class PlanInForce(PlanReport):
    """The plan in force, and how it fills the workers."""

    filling: FillingReport | None = Field(description="null for groupings that don't fill workers up to a level")


class PlanHistory(Model):
    """The last plans, newest first."""

    entries: list[PlanReport]


# shadow


class ShadowResult(Model):
    """What a grouping would give to the same traffic."""

    name: str
    settings: Settings
    in_force: bool
    lambda_: float = Field(alias="lambda")
    std_dev: float
    dist_cost: float
    hot_keys: int = Field(ge=0)
    events: int = Field(ge=0)


class ShadowReport(Changeable):
    """Groupings side by side on a sample of the same traffic."""

    sample: Share = Field(description="part of all events that may be sampled")
    sampled_part: Share = Field(description="part that is sampled now: less than `sample` above 20,000 events/s")
    sampled_events: int = Field(ge=0)
    interval_seconds: float
    groupings: list[ShadowResult] = Field(description="in the last whole interval")
    run: list[ShadowResult] = Field(description="since the start of the comparison")


class ShadowGrouping(Model):
    """A grouping to compare with."""

    name: GroupingName
    settings: Settings = Field(default_factory=dict, max_length=100)


class ShadowChange(Model):
    """Which groupings to feed with the same traffic, beside the one in force; none ends it."""

    groupings: list[ShadowGrouping] = Field(max_length=MAX_SHADOWS)
    sample: Annotated[float, Field(gt=0, le=1, strict=True)] | None = Field(
        default=None, description="the largest part of the traffic to be sampled; left out: as it is"
    )


class ShadowDryRun(Model):
    """What would be compared, tried on a sample of the present traffic; nothing was changed."""

    dry_run: Literal[True] = True
    sample: Share = Field(description="part of all events that would be sampled")
    sampled_events: int = Field(ge=0)
    groupings: list[ShadowResult] = Field(description="the one in force first; empty if there was nothing to try on")


# overrides of keys


class OverrideChange(Model):
    """What is to become of a key, and until when."""

    action: Action = Field(
        description="`pin`: all its events go to `worker`; `split`: it is spread evenly over `width` workers; `whole`: "
        "it has one worker; `quarantine-worker`: it has one worker, and that gets no other key; `quarantine-topic`: "
        "its events go to the quarantine topic and are in no result"
    )
    worker: Annotated[int, Field(ge=0, lt=MAX_WORKERS, strict=True)] | None = Field(
        default=None, description="for `pin`, and for `quarantine-worker`, which else takes the last that is free"
    )
    width: Annotated[int, Field(ge=2, le=MAX_WORKERS, strict=True)] | None = Field(
        default=None, description="for `split`, which else takes all workers"
    )
    until: AwareDatetime | None = Field(default=None, description="when it ends; or give `seconds`")
    seconds: Annotated[float, Field(gt=0, le=LONGEST_OVERRIDE, strict=True)] | None = Field(
        default=None, description="how long it lasts from now on; or give `until`"
    )


class OverrideReport(KeyName):
    """A key that goes where people say."""

    action: Action
    worker: int | None = Field(description="as it was asked for")
    width: int | None = Field(description="as it was asked for")
    until: Moment = Field(description="when it ends")
    workers: list[int] = Field(description="where its events go now; empty: to the quarantine topic")
    resting: str | None = Field(description="why it plays no part now, so that the grouping decides; else null")


class OverridesReport(Changeable):
    """All keys that go where people say, until when."""

    epoch: int
    items: list[OverrideReport]


# readiness and events


class StoreReport(Model):
    """Whether what the routers share can be read and written."""

    name: str
    state: Literal["ok", "degraded"]
    since: Moment | None = Field(description="since when it is in this state")
    detail: str | None = Field(description="one line why it is degraded")


class Readiness(Model):
    """Whether this router has its partitions and has caught up with them."""

    status: Literal["ready", "starting"]
    assigned: list[int] = Field(description="input partitions of this router")
    caught_up: bool = Field(description="whether it routes what has just come")
    lag: int | None = Field(description="input events yet to be routed; null if not known")
    store: StoreReport
    left_out: list[str] = Field(
        default_factory=list, description="what of the settings in the store is not followed, and why, a line each"
    )


@dataclass(frozen=True)
class ServerEvent:
    """What `GET /events` sends: the same object goes to all who listen, so that it is written as JSON once."""

    kind: Literal["interval", "plan", "control"]
    data: IntervalReport | PlanReport | HistoryEntry
    id: int | None = None
    """Number of an `interval`, for `Last-Event-ID`; who comes back gets what followed the last one that was seen."""

    @cached_property
    def json(self) -> str:
        """The data as JSON, on one line."""
        return self.data.model_dump_json()
