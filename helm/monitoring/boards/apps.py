"""Users' own functions on their own topics, as members of `keygrouping.app` show them."""

from monitoring.boards.dependencies import KAFKA_LAST_SEEN
from monitoring.boards.kit import Board, Panel, Query, Row, by_process, one

_BREAKER, _KEY, _LAG = "KeygroupingAppBreakerOpen", "KeygroupingAppKeyBlocked", "KeygroupingAppLagSteady"
_DEAD, _GAP, _MISSING = "KeygroupingAppDeadLetters", "KeygroupingAppGapFull", "KeygroupingAppMissing"
_SHARED, _NOT_PLANNED = "KeygroupingAppNotShared", "KeygroupingAppNotPlanned"
_RESTARTING = "KeygroupingAppRestarting"
_HELD, _RESTORING, _REFUSED = "KeygroupingAppKeyHeld", "KeygroupingAppRestoring", "KeygroupingAppRefused"
_OF_MEMBERS = "and on (namespace, instance) keygrouping_app_ready"
_EACH = "{{group}}: {{topic}}"

APPS = Board(
    "keygrouping-apps",
    "Keygrouping / Apps",
    "Users' own functions on their own topics: whether they keep up, what fails, and which keys block.",
    of="keygrouping_app_ready",
    rows=(
        Row(
            "Do the apps keep up?",
            (
                Panel(
                    "Events that end",
                    "Events per second that were handled or became dead letters.",
                    "cps",
                    one("sum by (group, topic) (rate(keygrouping_app_events_total[$__rate_interval]))", _EACH),
                    alert=_LAG,
                    width=6,
                ),
                Panel(
                    "Lag of the apps",
                    "Records that have not ended, in memory or still to be read.",
                    "short",
                    one("sum by (group, topic) (keygrouping_app_lag_records)", _EACH),
                    alert=_LAG,
                    width=6,
                ),
                Panel(
                    "Time to catch up",
                    "How long the app would need for its lag if nothing more came.",
                    "s",
                    one("keygrouping:app_lag:seconds", _EACH),
                    limits=(60, 300),
                    alert=_LAG,
                    width=6,
                ),
                Panel(
                    "Oldest waiting event",
                    "Age of the oldest event that waits in memory, by its own time.",
                    "s",
                    one("max by (group, topic) (keygrouping_app_oldest_event_age_seconds)", _EACH),
                    limits=(60, 300),
                    alert=_KEY,
                    width=6,
                ),
            ),
        ),
        Row(
            "What do the handlers do?",
            (
                Panel(
                    "Seconds of a call",
                    "Median and 99th percentile of how long calls took, by outcome.",
                    "s",
                    tuple(
                        Query(
                            f"histogram_quantile({q}, sum by (le, topic, outcome) "
                            "(rate(keygrouping_app_handler_seconds_bucket[$__rate_interval]))) > 0",
                            f"p{q * 100:g} {{{{topic}}}}: {{{{outcome}}}}",
                        )
                        for q in (0.5, 0.99)
                    ),
                    alert=_LAG,
                ),
                Panel(
                    "Calls by outcome",
                    "Calls per second that were handled, or ended with a reason of dead letters.",
                    "cps",
                    one(
                        "sum by (topic, outcome) (rate(keygrouping_app_handler_seconds_count[$__rate_interval])) "
                        "and sum by (topic, outcome) (keygrouping_app_handler_seconds_count) > 0",
                        "{{topic}}: {{outcome}}",
                    ),
                    alert=_DEAD,
                ),
                Panel(
                    "Lanes in use",
                    "Part of all lanes in which a call runs. With all in use, more lanes or members help; with few in "
                    "use and a lag, a key or a rate holds the others up.",
                    "percentunit",
                    one(
                        "sum by (group, topic) (keygrouping_app_busy_lanes) "
                        "/ sum by (group, topic) (keygrouping_app_lanes)",
                        _EACH,
                    ),
                    alert=_LAG,
                ),
                Panel(
                    "Further tries",
                    "Tries per second of events that had failed.",
                    "cps",
                    one("sum by (group, topic) (rate(keygrouping_app_retries_total[$__rate_interval]))", _EACH),
                    alert=_BREAKER,
                ),
                Panel(
                    "Dead letters of the apps",
                    "Events that failed for good within 15 minutes, by reason.",
                    "short",
                    one("keygrouping:app_dead_letters:increase15m", "{{group}}: {{topic}}, {{reason}}"),
                    limits=(1, 100),
                    alert=_DEAD,
                ),
                Panel(
                    "Open breakers",
                    "Members in which most calls of the handler fail: one call at a time tries, all else waits.",
                    "short",
                    one(
                        'sum by (group, topic) (keygrouping_app_breaker_state{state!="closed"})',
                        _EACH,
                    ),
                    limits=(1,),
                    alert=_BREAKER,
                ),
            ),
        ),
        Row(
            "Which keys block?",
            (
                Panel(
                    "Wait of the hottest keys",
                    "How long the next event of the keys that wait longest has been in memory, by rank. `keygrouping "
                    "top` and the members' pages name the keys.",
                    "s",
                    one("max by (topic, rank) (keygrouping_app_key_wait_seconds)", "{{topic}}: {{rank}}"),
                    limits=(60, 300),
                    alert=_KEY,
                ),
                Panel(
                    "Load of the hottest keys",
                    "Seconds of a key's calls per second, by rank: a key can't have more than 1 while order holds.",
                    "percentunit",
                    one("max by (topic, rank) (keygrouping_app_key_load_ratio)", "{{topic}}: {{rank}}"),
                    limits=(0.7, 0.95),
                    alert=_KEY,
                ),
                Panel(
                    "Paused partitions",
                    "Partitions that are not read any further for now, because memory or their gap is full.",
                    "short",
                    one("sum by (group, topic) (keygrouping_app_paused_partitions)", _EACH),
                    alert=_GAP,
                ),
                Panel(
                    "Partitions that can't commit",
                    "Partitions of which nothing is committed, as a broker refuses for good what belongs to it, or of "
                    "which it refuses a state that no event has made.",
                    "short",
                    one("sum by (group, topic) (keygrouping_app_refused_partitions)", _EACH),
                    limits=(1,),
                    alert=_REFUSED,
                ),
                Panel(
                    "Gaps",
                    "Offsets between the first event that has not ended and the last that was read.",
                    "short",
                    one("max by (topic, partition) (keygrouping_app_gap_offsets)", "{{topic}} {{partition}}"),
                    alert=_GAP,
                ),
                Panel(
                    "Room for gaps",
                    "Further events that may be read before the metadata of a partition's commit is full.",
                    "short",
                    one("min by (topic, partition) (keygrouping_app_gap_room_offsets)", "{{topic}} {{partition}}"),
                    limits=(5000, 1000),
                    alert=_GAP,
                ),
                Panel(
                    "Events in memory",
                    "Events that were read and have not ended.",
                    "short",
                    one("sum by (group, topic) (keygrouping_app_held_events)", _EACH),
                    alert=_KEY,
                ),
            ),
        ),
        Row(
            "Are hot keys shared?",
            (
                Panel(
                    "Imbalance of the members",
                    "λ, the largest load of a member over the mean: of what comes with whole keys, and with the hot "
                    "ones shared as planned. Only of handlers with `split`.",
                    "none",
                    one(
                        'max by (topic, keys) (keygrouping_app_imbalance_ratio{keys=~"whole|shared"})',
                        "{{topic}}: {{keys}}",
                    ),
                    limits=(1.5, 2),
                    alert=_SHARED,
                ),
                Panel(
                    "Events given to other members",
                    "Events of hot keys per second that members gave away, and others handle.",
                    "cps",
                    one("sum by (group, topic) (rate(keygrouping_app_surplus_events_total[$__rate_interval]))", _EACH),
                    alert=_SHARED,
                ),
                Panel(
                    "Work given to a member",
                    "Seconds of calls that events need which others gave to the member and which have not ended: two "
                    "seconds of all its lanes at most, or four calls.",
                    "s",
                    one(by_process("max", "(keygrouping_app_slot_load_seconds)"), "{{process}}"),
                    alert=_SHARED,
                ),
            ),
        ),
        Row(
            "Are keys handed over?",
            (
                Panel(
                    "Imbalance as planned and now",
                    "λ, the largest load of a member over the mean: when the last plan was made by which keys move, as "
                    "it has promised, and as the members' calls of the last ten seconds have it. Only of handlers "
                    "whose keys move by plan; with little to do it says little.",
                    "none",
                    one(
                        'max by (topic, keys) (keygrouping_app_imbalance_ratio{keys=~"before|planned|now"})',
                        "{{topic}}: {{keys}}",
                    ),
                    limits=(1.5, 2),
                    alert=_NOT_PLANNED,
                ),
                Panel(
                    "Load of each member",
                    "Seconds of calls per second: what λ is of.",
                    "none",
                    one(
                        by_process("sum", "(rate(keygrouping_app_handler_seconds_sum[$__rate_interval]))"),
                        "{{process}}",
                    ),
                    alert=_NOT_PLANNED,
                ),
                Panel(
                    "Keys at slots",
                    "Keys that other members than those of their inputs have, with their states.",
                    "short",
                    one("sum by (group, topic) (keygrouping_app_moved_keys)", _EACH),
                    alert=_HELD,
                ),
                Panel(
                    "Keys handed over",
                    "Keys per second that were handed over.",
                    "cps",
                    one("sum by (group, topic) (rate(keygrouping_app_moves_total[$__rate_interval]))", _EACH),
                    alert=_HELD,
                ),
                Panel(
                    "How long keys are held",
                    "The key that is held longest now, and the mean of those that were handed over.",
                    "s",
                    (
                        Query("max by (group, topic) (keygrouping_app_move_oldest_seconds)", f"{_EACH}, longest"),
                        Query(
                            "sum by (group, topic) (rate(keygrouping_app_move_held_seconds_total[$__rate_interval])) "
                            "/ (sum by (group, topic) (rate(keygrouping_app_moves_total[$__rate_interval])) > 0)",
                            f"{_EACH}, mean",
                        ),
                    ),
                    limits=(10, 120),
                    alert=_HELD,
                ),
                Panel(
                    "States on their way",
                    "Bytes of states per second that members sent.",
                    "Bps",
                    one("sum by (group, topic) (rate(keygrouping_app_moved_bytes_total[$__rate_interval]))", _EACH),
                    alert=_HELD,
                ),
            ),
        ),
        Row(
            "Are states there?",
            (
                Panel(
                    "Partitions without their states",
                    "Partitions that wait until their states are read. Nothing of them is handled until then.",
                    "short",
                    one(by_process("max", "(keygrouping_app_restoring_partitions)"), "{{process}}"),
                    limits=(1,),
                    alert=_RESTORING,
                    width=6,
                ),
                Panel(
                    "Changelog still to be read",
                    "Offsets that partitions read before they begin, and that copies of other members' are behind.",
                    "short",
                    (
                        Query("sum by (group, topic) (keygrouping_app_restore_left_offsets)", f"{_EACH}, to begin"),
                        Query("sum by (group, topic) (keygrouping_app_standby_left_offsets)", f"{_EACH}, copies"),
                    ),
                    alert=_RESTORING,
                    width=6,
                ),
                Panel(
                    "Keys with a state",
                    "Keys that have a state, of all partitions that are handled.",
                    "short",
                    one("sum by (group, topic) (keygrouping_app_states)", _EACH),
                    alert=_RESTORING,
                    width=6,
                ),
                Panel(
                    "Bytes of states",
                    "All states with their keys, in memory or on disk.",
                    "bytes",
                    one("sum by (group, topic) (keygrouping_app_state_bytes)", _EACH),
                    alert=_RESTORING,
                    width=6,
                ),
            ),
        ),
        Row(
            "How are the members?",
            (
                Panel(
                    "Members",
                    "Processes of the app that show metrics, and those that the group has given their partitions.",
                    "short",
                    (
                        Query("count by (group) (keygrouping_app_ready)", "{{group}}"),
                        Query("sum by (group) (keygrouping_app_ready)", "{{group}}: ready"),
                    ),
                    alert=_MISSING,
                ),
                Panel(
                    "Members without partitions",
                    "Members that wait for the group to give them their partitions.",
                    "short",
                    one(
                        "count by (group) (keygrouping_app_ready) - sum by (group) (keygrouping_app_ready)", "{{group}}"
                    ),
                    limits=(1,),
                    alert="KeygroupingAppNotReady",
                ),
                KAFKA_LAST_SEEN,
                Panel(
                    "Restarts of members",
                    "How often a member was started again within an hour.",
                    "short",
                    one(by_process("max", f"(changes(process_start_time_seconds[1h]) {_OF_MEMBERS})"), "{{process}}"),
                    limits=(1, 3),
                    alert=_RESTARTING,
                ),
                Panel(
                    "Processes that died",
                    "Processes of handlers that ended by themselves or were killed within 15 minutes.",
                    "short",
                    one("keygrouping:app_processes_died:increase15m", _EACH),
                    limits=(1, 3),
                    alert="KeygroupingAppProcessesDying",
                ),
                Panel(
                    "CPU of the members",
                    "Cores that each member uses; its handlers' processes not among them.",
                    "short",
                    one(
                        by_process("sum", f"(rate(process_cpu_seconds_total[$__rate_interval]) {_OF_MEMBERS})"),
                        "{{process}}",
                    ),
                    alert=_RESTARTING,
                ),
                Panel(
                    "Memory of the members",
                    "Resident memory of each member; its handlers' processes not among it.",
                    "bytes",
                    one(by_process("sum", f"(process_resident_memory_bytes {_OF_MEMBERS})"), "{{process}}"),
                    alert=_RESTARTING,
                ),
            ),
        ),
    ),
)
