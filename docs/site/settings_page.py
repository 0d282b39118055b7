"""Writes docs/reference/settings.md from the settings classes: `python docs/site/settings_page.py`."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from keygrouping.job import JobSpec
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_load.settings import EventLoadSettings, HttpLoadSettings
from keygrouping_observer.settings import ObserverSettings
from keygrouping_producer.settings import ProducerSettings
from keygrouping_router.settings import RouterSettings
from keygrouping_service.kafka.topics import TopicsSettings
from keygrouping_service.settings import (
    ApiSettings,
    ServiceSettings,
    StageSettings,
    StagesSettings,
    StoreSettings,
    names_of,
)
from keygrouping_spark.settings import SparkSettings
from keygrouping_worker.settings import WorkerSettings
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

PAGE = Path(__file__).parents[1] / "reference" / "settings.md"
SHARED: dict[str, type[ServiceSettings]] = {
    "All services": ServiceSettings,
    "Route or combine: router, native worker and aggregator, Spark job, observer, topics": StagesSettings,
    "Stages: router, native worker and aggregator, observer": StageSettings,
    "Store: router": StoreSettings,
    "HTTP interface: router, observer": ApiSettings,
}
OWN: dict[str, type[ServiceSettings]] = {
    "Router": RouterSettings,
    "Worker (native)": WorkerSettings,
    "Aggregator (native)": AggregatorSettings,
    "Spark job": SparkSettings,
    "Observer": ObserverSettings,
    "Producer": ProducerSettings,
    "Topics": TopicsSettings,
    "Load generator: events": EventLoadSettings,
    "Load generator: HTTP": HttpLoadSettings,
}
_HEAD = """# Settings

Every setting of a service is an environment variable. A shared one, `KEYGROUPING_X`, applies to all services;
`KEYGROUPING_ROUTER_X` overrides it for the router, and so on. An empty variable counts as unset. A name that no service
knows, or a value out of range, stops the start with one line per fault and exit code 2. [operating.md](../operating.md)
explains the settings of store, access, logs and traces; the
[chart's values](../../helm/keygrouping/README.md) set most of them.

What Kubernetes makes of a service whose name begins with `keygrouping`, such as `KEYGROUPING_REDIS_SERVICE_HOST` and
`KEYGROUPING_REDIS_PORT`, is no setting and is passed over. One that stands in for a setting, such as
`KEYGROUPING_HTTP_PORT` of a service `keygrouping-http`, stops the start: such a pod needs `enableServiceLinks: false`,
which the chart's pods have.

Settings of a grouping are listed by `keygrouping.grouping.describe(name)` and by `GET /thresholds`
([api.md](../api.md)).

`make docs` makes this page from the settings classes; a test checks that it is current.
"""
_KINDS: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Path: "path",
    SecretStr: "secret text",
    JobSpec: "JSON, or the path of a JSON file",
}


def render() -> str:
    """The page."""
    parts = [_HEAD]
    told: list[type[ServiceSettings]] = []
    for title, settings in {**SHARED, **OWN}.items():
        own = [name for name in settings.model_fields if not any(_tells(shared, settings, name) for shared in told)]
        parts.append(_section(title, settings, own, shared=title in SHARED))
        told += [settings] if title in SHARED else []
    return "\n".join(parts)


def _tells(shared: type[ServiceSettings], settings: type[ServiceSettings], name: str) -> bool:
    """Whether a section of shared settings tells of this one: not if a service means something else by the name."""
    told, own = shared.model_fields.get(name), settings.model_fields[name]
    return told is not None and (issubclass(settings, shared) or told.description == own.description)


def without_meaning() -> Iterator[str]:
    """Settings that nothing explains."""
    for settings in (*SHARED.values(), *OWN.values()):
        for name, field in settings.model_fields.items():
            if not field.description:
                yield f"{settings.__name__}.{name}"


def _section(title: str, settings: type[ServiceSettings], names: Iterable[str], shared: bool) -> str:
    rows = [
        f"| `{names_of(ServiceSettings if shared else settings, name)[0]}` "
        f"| {_default(settings.model_fields[name])} | {_kind(settings.model_fields[name])} "
        f"| {_meaning(settings.model_fields[name])} |"
        for name in names
    ]
    return "\n".join([f"## {title}", "", "| name | default | value | meaning |", "|---|---|---|---|", *rows, ""])


def _meaning(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined or field.default is None:
        return ""
    value = field.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else ""


def _kind(field: FieldInfo) -> str:
    hint = field.annotation
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(choice for choice in typing.get_args(hint) if choice is not type(None))
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(hint))
    kind = _KINDS.get(hint, "JSON object")
    limits = list(_limits(field))
    return f"{kind} {' and '.join(limits)}" if limits else kind


def _limits(field: FieldInfo) -> Iterator[str]:
    for limit in field.metadata:
        match limit:
            case Ge(ge=value):
                yield f"≥ {value}"
            case Gt(gt=value):
                yield f"> {value}"
            case Le(le=value):
                yield f"≤ {value}"
            case Lt(lt=value):
                yield f"< {value}"
            case MinLen() | MaxLen():
                pass


if __name__ == "__main__":
    page = render()
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page)
    sys.stdout.write(f"{PAGE}: {page.count(chr(10))} lines\n")
