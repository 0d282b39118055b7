"""Topics that no router reads: how far they scale, which keys hold them back, and what splitting those would do."""

from monitoring.boards.kit import Board, Panel, Query, Row, one

_CEILING, _BLIND = "KeygroupingScalingCeiling", "KeygroupingInspectBlind"

TOPICS = Board(
    "keygrouping-topics",
    "Keygrouping / Topics without router",
    "How far topics scale that nobody routes, which keys hold them back, and what splitting those would do.",
    (
        Row(
            "How far does it scale?",
            (
                Panel(
                    "Ceiling",
                    "Whose work the consumers of the topic do at most, as a part of its partitions: 1 is even.",
                    "percentunit",
                    one(
                        "max by (topic) (keygrouping_inspect_works_like_workers) "
                        "/ max by (topic) (keygrouping_inspect_partitions)",
                        "{{topic}}",
                    ),
                    limits=(0.5, 0.2),
                    alert=_CEILING,
                ),
                Panel(
                    "Workers",
                    "Whose work the consumers of the topic do at most, one a partition; consumers that are of use at "
                    "all; and partitions.",
                    "short",
                    (
                        Query("max by (topic) (keygrouping_inspect_works_like_workers)", "{{topic}}: works like"),
                        Query("max by (topic) (keygrouping_inspect_useful_consumers)", "{{topic}}: of use"),
                        Query("max by (topic) (keygrouping_inspect_partitions)", "{{topic}}: partitions"),
                    ),
                    alert=_CEILING,
                ),
                Panel(
                    "λ of the partitions",
                    "Load of the busiest partition over the average.",
                    "none",
                    one("max by (topic) (keygrouping_inspect_partition_imbalance)", "{{topic}}"),
                    look="logarithmic",
                    limits=(2, 5),
                    alert=_CEILING,
                ),
            ),
        ),
        Row(
            "Which keys, and what would splitting do?",
            (
                Panel(
                    "Share of the heaviest keys",
                    "Part of all weight, by rank.",
                    "percentunit",
                    one("max by (topic, rank) (keygrouping_inspect_hot_key_share)", "{{topic}}: {{rank}}"),
                    alert=_CEILING,
                    width=6,
                ),
                Panel(
                    "Workers of the heaviest keys",
                    "Over how many workers level-fill would spread the key of that rank, were there as many workers "
                    "as partitions.",
                    "short",
                    one("max by (topic, rank) (keygrouping_inspect_hot_key_width)", "{{topic}}: {{rank}}"),
                    alert=_CEILING,
                    width=6,
                ),
                Panel(
                    "λ by grouping",
                    "What key hashing, and splitting, would give for each number of workers that is tried.",
                    "none",
                    one(
                        "max by (topic, grouping, workers) (keygrouping_inspect_imbalance)",
                        "{{topic}}: {{grouping}}, {{workers}} workers",
                    ),
                    look="logarithmic",
                    limits=(2, 5),
                    alert=_CEILING,
                    width=6,
                ),
                Panel(
                    "Ceiling by the heaviest key",
                    "Whose work any number of workers does at most while that key is not split.",
                    "short",
                    one("min by (topic) (keygrouping_inspect_key_ceiling_workers)", "{{topic}}"),
                    alert=_CEILING,
                    width=6,
                ),
            ),
        ),
        Row(
            "What do the exporters see?",
            (
                Panel(
                    "Events of the topics",
                    "Records that come, by estimate where a part of them is read.",
                    "cps",
                    one("sum by (topic) (rate(keygrouping_inspect_events_total[$__rate_interval]))", "{{topic}}"),
                    alert=_BLIND,
                    width=6,
                ),
                Panel(
                    "Part that is read",
                    "Of the records that come; where more come than an exporter can read, it reads the same part of "
                    "each partition.",
                    "percentunit",
                    one(
                        "sum by (topic) (rate(keygrouping_inspect_read_total[$__rate_interval])) "
                        "/ sum by (topic) (rate(keygrouping_inspect_events_total[$__rate_interval]))",
                        "{{topic}}",
                    ),
                    limits=(0.05, 0.01),
                    alert=_BLIND,
                    width=6,
                ),
                Panel(
                    "Records that tell no key",
                    "Records without a key or weight of use, by reason.",
                    "cps",
                    one(
                        "sum by (topic, reason) (rate(keygrouping_inspect_left_out_total[$__rate_interval]))",
                        "{{topic}}: {{reason}}",
                    ),
                    alert=_BLIND,
                    width=6,
                ),
                Panel(
                    "Since the topic was read",
                    "Time since an exporter last read its topic up to the end.",
                    "s",
                    one(
                        "time() - max by (topic) (keygrouping_inspect_read_timestamp_seconds)",
                        "{{topic}}",
                    ),
                    limits=(60, 180),
                    alert=_BLIND,
                    width=6,
                ),
            ),
        ),
    ),
)
