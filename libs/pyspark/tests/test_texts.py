"""The SQL text of one aggregate is taken apart, and what is more than that is left alone."""

import pytest
from keygrouping_pyspark.texts import Text, may_have_star, taken_apart


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sum(n)", Text("sum", ["n"], False, None)),
        (" COUNT ( * ) ", Text("count", ["1"], False, None)),
        ("count(DISTINCT *)", Text("count", [" *"], True, None)),
        ("sum(n) AS total", Text("sum", ["n"], False, None)),
        ("sum(n) `of all (n)`", Text("sum", ["n"], False, None)),
        ("count(distinct(a), f(b, c))", Text("count", ["(a)", " f(b, c)"], True, None)),
        ("listagg(DISTINCT t, ', )(')", Text("listagg", [" t", " ', )('"], True, None)),
        ("max(`a)b`)", Text("max", ["`a)b`"], False, None)),
        ("max(f(a[0], x -> x * 2))", Text("max", ["f(a[0], x -> x * 2)"], False, None)),
        (
            "sum(a) filter (where b in (1, 2) and c = ')') AS s",
            Text("sum", ["a"], False, " b in (1, 2) and c = ')'"),
        ),
    ],
)
def test_an_aggregate_is_taken_apart(text: str, wanted: Text) -> None:
    assert taken_apart(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "n",
        "sum(a) + sum(b)",
        "sum(a) / count(*)",
        "sum(a",
        "sum(a) FILTER (WHERE b",
        "sum(a) OVER (PARTITION BY b)",
        "first(a) IGNORE NULLS",
        "first(a IGNORE NULLS)",
        "sum(ALL a)",
        "listagg(a) WITHIN GROUP (ORDER BY a)",
        "collect_list(struct(*))",
        "count_if(t = 'count(*)')",
        "count(a, t.*)",
        "count(a -- not b\n)",
        "count(a /* not ) b */)",
        r"count_if(t = '\')')",
        "percentile_approx(col => a, percentage => 0.5)",
        "mode()",
    ],
)
def test_what_is_more_or_less_than_that_is_left_alone(text: str) -> None:
    assert taken_apart(text) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n * 2", False),
        ("f(a, b) * c[0] * `d`", False),
        ("transform(a, x -> x * 2) - 1", False),
        ("* EXCEPT (a)", True),
        ("hash( *)", True),
        ("hash(a, *)", True),
        ("to_json(struct(t . *))", True),
        ("hash(/* all */ *)", True),
        ("hash(-- all\n*)", True),
    ],
)
def test_a_star_is_seen_wherever_it_stands(text: str, wanted: bool) -> None:
    assert may_have_star(text) == wanted
