"""What a dashboard is made of, in few words; `as_json` writes it for Grafana."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from grafana_foundation_sdk.builders import common, dashboard, stat, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLink,
    DashboardLinkType,
    DataSourceRef,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)

from monitoring.model import by_release, runbook
from monitoring.recordings import inlined

Look = Literal["lines", "stacked", "logarithmic", "number"]

_PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${datasource}")
_METRIC = re.compile(r"\b(keygrouping_[a-z0-9_]+|process_[a-z_]+|ALERTS)(\{)?")
_COLOURS = ("green", "orange", "red")
_TAG = "keygrouping"

LAG_LIMITS = (10, 60)
"""Seconds in which as much is routed, or combined at the source, as waits: from where it is worth a look, and from
where results are late by it.
"""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, which may name recorded series, and what its series are called (`{{label}}`)."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """What is shown, in a unit of Grafana's. `limits`: from where it is orange, then red; falling ones: up to where.

    `alert`: whose section of the runbooks to read when it looks bad, the nearest one. `nothing` stands in place of a
    number that has no value.
    """

    title: str
    says: str
    unit: str
    queries: Sequence[Query]
    look: Look = "lines"
    limits: Sequence[float] = ()
    alert: str = field(kw_only=True)
    width: int = 8
    decimals: int | None = None
    nothing: str = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """A question, and the panels that answer it."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard; `uid` never changes, as links go by it. `since`: where the time that is shown begins.

    `of`: a metric of all namespaces that it can show.
    """

    uid: str
    title: str
    says: str
    rows: Sequence[Row] = field(default_factory=tuple)
    since: str = "now-1h"
    of: str = "keygrouping_event_loop_lag_seconds_count"


def one(expr: str, legend: str = "") -> tuple[Query]:
    """A panel's only query."""
    return (Query(expr, legend),)


def by_process(how: str, expr: str, *labels: str) -> str:
    """Aggregates by `process`, which is the pod, or the instance where there are no pods, and by further labels."""
    named = f'label_replace({expr}, "process", "$1", "instance", "(.*)")'
    return f'{how} by ({", ".join(("process", *labels))}) (label_replace({named}, "process", "$1", "pod", "(.+)"))'


def happened(counter: str, label: str) -> str:
    """The rate of a counter by a label, of those values that ever occurred: all others are shown as 0, too."""
    return f"sum by ({label}) (rate({counter}[$__rate_interval])) and sum by ({label}) ({counter}) > 0"


def quantiles(histogram: str, by: str = "") -> tuple[Query, ...]:
    """Median and 99th percentile of a histogram, of all or by a label."""
    labels, legend = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    return tuple(
        Query(
            f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket[$__rate_interval])))",
            f"p{q * 100:g}{legend}",
        )
        for q in (0.5, 0.99)
    )


def scoped(expr: str) -> str:
    """The expression over raw metrics alone, of the namespace that was chosen."""
    return _METRIC.sub(
        lambda match: f'{match[1]}{{namespace="$namespace"' + (", " if match[2] else "}"), by_release(inlined(expr))
    )


def as_json(board: Board) -> str:
    """The dashboard as Grafana's JSON."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.says)
        .tags([_TAG])
        .time(board.since, "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("keygrouping")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_namespace(board.of))
        .annotation(_annotation("Plans", "purple", "changes(keygrouping_router_reshuffles_total[1m]) > 0"))
        .annotation(_annotation("Settings", "blue", "changes(keygrouping_router_control_version[1m]) > 0"))
    )
    numbers = itertools.count(1)
    for row in board.rows:
        builder = builder.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            made = _number(panel) if panel.look == "number" else _graph(panel)
            builder = builder.with_panel(made.id(next(numbers)))
    return JSONEncoder(sort_keys=True, indent=2, ensure_ascii=False).encode(builder.build()) + "\n"


def _namespace(metric: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable("namespace")
        .label("Namespace")
        .query(f"label_values({metric}, namespace)")
        .datasource(_PROMETHEUS)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def _annotation(name: str, colour: str, expr: str) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(_PROMETHEUS)
        .icon_color(colour)
        .expr(scoped(expr))
        .enable(True)
    )


def _graph(panel: Panel) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.says)
        .datasource(_PROMETHEUS)
        .unit(panel.unit)
        .span(panel.width)
        .height(8)
        .thresholds(_thresholds(panel.limits))
        .fill_opacity(10)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if panel.limits:
        built = built.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED))
    if panel.look == "stacked":
        built = built.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    if panel.look == "logarithmic":
        built = built.scale_distribution(common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))
    else:
        built = built.axis_soft_min(0)
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        built = built.with_target(_target(letter, query).range())
    return built.links([_link(panel.alert)])


def _number(panel: Panel) -> stat.Panel:
    built = (
        stat.Panel()
        .title(panel.title)
        .description(panel.says)
        .datasource(_PROMETHEUS)
        .unit(panel.unit)
        .span(panel.width)
        .height(4)
        .thresholds(_thresholds(panel.limits))
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value(panel.nothing)
    )
    if panel.decimals is not None:
        built = built.decimals(panel.decimals)
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        built = built.with_target(_target(letter, query).range())
    return built.links([_link(panel.alert)])


def _target(letter: str, query: Query) -> Dataquery:
    return Dataquery().ref_id(letter).expr(scoped(query.expr)).legend_format(query.legend).datasource(_PROMETHEUS)


def _link(alert: str) -> Builder[DashboardLink]:
    link = dashboard.DashboardLink(f"Runbook: {alert}").type(DashboardLinkType.LINK).target_blank(True)
    return link.url(runbook(alert))


def _thresholds(limits: Sequence[float]) -> dashboard.ThresholdsConfig:
    """Rising limits: green, then orange, then red; falling ones: the other way round."""
    falls = len(limits) > 1 and limits[0] > limits[-1]
    colours = _COLOURS[: len(limits) + 1][::-1] if falls else _COLOURS
    steps = [Threshold(value=None, color=colours[0])]
    steps += [Threshold(limit, colour) for limit, colour in zip(sorted(limits), colours[1:], strict=False)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
