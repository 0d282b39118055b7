"""The KeySpace and the plans: which keys are split, how often that changes, and what it costs."""

from monitoring.boards.kit import Board, Panel, Query, Row, by_process, one, quantiles

KEYSPACE = Board(
    "keygrouping-keyspace",
    "Keygrouping / KeySpace and plans",
    "Which keys are split, how often that changes, and what it costs.",
    (
        Row(
            "KeySpace",
            (
                Panel(
                    "Hot keys and splitting",
                    "Keys that are spread over more workers than a cold key, and whether keys may be split at all.",
                    "short",
                    (
                        Query("max by (namespace) (keygrouping_router_hot_keys)", "hot keys"),
                        Query("max by (namespace) (keygrouping_router_splitting)", "splitting: 1 is yes"),
                    ),
                    alert="KeygroupingUnbalanced",
                ),
                Panel(
                    "Width of the widest keys",
                    "Over how many workers the ten widest keys are spread.",
                    "short",
                    one("max by (rank) (keygrouping_router_width)", "rank {{rank}}"),
                    alert="KeygroupingUnbalanced",
                ),
                Panel(
                    "Keys with a count",
                    "Keys that a router counts, of all that there are; the rest is known together only.",
                    "short",
                    one(by_process("max", "keygrouping_router_tracked_keys"), "{{process}}"),
                    alert="KeygroupingUnbalanced",
                ),
            ),
        ),
        Row(
            "Plans",
            (
                Panel(
                    "Changes of the plan",
                    "Plans within ten minutes that moved at least half of their keys, by router; and rounds without a "
                    "plan in time. Epoch counts all plans.",
                    "short",
                    (
                        Query(
                            by_process("max", "increase(keygrouping_router_reshuffles_total[10m])"),
                            "moved keys: {{process}}",
                        ),
                        Query(
                            "max by (namespace) (increase(keygrouping_router_lost_rounds_total[10m]))", "lost rounds"
                        ),
                    ),
                    limits=(30,),
                    alert="KeygroupingPlanFlapping",
                ),
                Panel(
                    "Moved keys",
                    "Keys per second that a plan gave to other workers.",
                    "cps",
                    one(
                        by_process("max", "rate(keygrouping_router_moved_keys_total[$__rate_interval])"),
                        "{{process}}",
                    ),
                    alert="KeygroupingPlanFlapping",
                ),
                Panel(
                    "Time to make a plan",
                    "Time to make a plan of what all replicas have seen.",
                    "s",
                    quantiles("keygrouping_router_plan_seconds"),
                    limits=(1, 2.5),
                    alert="KeygroupingPlanFlapping",
                ),
                Panel(
                    "Epoch",
                    "Number of the plan in force, by router: they should be equal but for moments.",
                    "none",
                    one(by_process("max", "keygrouping_router_epoch"), "{{process}}"),
                    alert="KeygroupingRoutersApart",
                ),
                Panel(
                    "Version of the settings",
                    "Version of the control document that each router follows.",
                    "none",
                    one(by_process("max", "keygrouping_router_control_version"), "{{process}}"),
                    alert="KeygroupingStoreDegraded",
                ),
                Panel(
                    "Changes of the settings",
                    "Changes of what can be set that were taken over within ten minutes.",
                    "short",
                    one(by_process("max", "increase(keygrouping_router_control_changes_total[10m])"), "{{process}}"),
                    alert="KeygroupingPlanFlapping",
                ),
            ),
        ),
        Row(
            "Overrides: keys that go where people say",
            (
                Panel(
                    "Overrides",
                    "Keys with an override, by what it says; resting ones have no worker to go to, and play no part.",
                    "short",
                    (
                        Query("max by (action) (keygrouping_router_overrides)", "{{action}}"),
                        Query("max by (namespace) (keygrouping_router_resting_overrides)", "resting"),
                    ),
                    alert="KeygroupingOverrideEnds",
                ),
                Panel(
                    "Time until an override ends",
                    "Of each action the next one; then the grouping decides again.",
                    "s",
                    one("min by (action) (keygrouping_router_override_end_timestamp_seconds) - time()", "{{action}}"),
                    alert="KeygroupingOverrideEnds",
                ),
                Panel(
                    "Load by overrides",
                    "What overrides send to each worker, over what is due to it of all events, by capacity: λ can't be "
                    "lower than the largest.",
                    "none",
                    one("keygrouping:overridden:ratio_rate5m", "worker {{worker}}"),
                    limits=(1.5,),
                    alert="KeygroupingOverrideOverloads",
                ),
            ),
        ),
        Row(
            "What splitting brings and costs, as the observer measures it",
            (
                Panel(
                    "λ by the observer",
                    "Load of the busiest worker over the average in the last interval, over all routers, and "
                    "that of the emptiest.",
                    "none",
                    (
                        Query('max by (routing) (keygrouping_observer_imbalance{span="interval"})', "{{routing}}"),
                        Query('min(keygrouping_observer_least_share{span="interval"})', "emptiest worker"),
                    ),
                    look="logarithmic",
                    limits=(1.5,),
                    alert="KeygroupingUnbalanced",
                ),
                Panel(
                    "STD_DEV",
                    "Standard deviation of the workers' shares in percentage points.",
                    "none",
                    one('max by (routing) (keygrouping_observer_std_dev_points{span="interval"})', "{{routing}}"),
                    alert="KeygroupingUnbalanced",
                ),
                Panel(
                    "DIST_COST and messages",
                    "Distinct workers per distinct key (1: no key is split), and partials per event.",
                    "none",
                    (
                        Query("max by (span) (keygrouping_observer_dist_cost)", "DIST_COST, {{span}}"),
                        Query(
                            "max by (span) (keygrouping_observer_messages_per_event)", "partials per event, {{span}}"
                        ),
                    ),
                    alert="KeygroupingPlanFlapping",
                ),
            ),
        ),
    ),
)
