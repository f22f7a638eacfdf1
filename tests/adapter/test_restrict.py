"""Queries that are restricted to the series with one label value."""

from __future__ import annotations

import re
from datetime import timedelta

import promql_parser
import pytest
from hypothesis import given, settings

from adapter.promql import PromqlError, restrict, restrict_query, restrict_selector
from tests.adapter.promql_queries import QUERIES, REFUSED, RESTRICTED, SOUP
from tests.restricted_queries import assert_restricted

MATCHER = 'namespace="shop"'
LONG = "y" * 40


def shop(query: str) -> str:
    return restrict_query(query, label="namespace", value="shop")


@pytest.mark.parametrize(
    ("query", "restricted"),
    [
        ("x", 'x{namespace="shop"}'),
        ('x{a="b",c=~"d.*",}', 'x{namespace="shop",a="b",c=~"d.*"}'),
        ("sum by (pod) (rate(x[5m]))", 'sum by (pod) (rate(x{namespace="shop"}[5m]))'),
        ("count(x) without (a)", 'count without (a) (x{namespace="shop"})'),
        ("max_over_time(sum(x)[1h:5m] @ 9.5)", 'max_over_time(sum(x{namespace="shop"})[1h:5m] @ 9.500)'),
        ("x[1h:] offset 1500ms", 'x{namespace="shop"}[1h:] offset 1500ms'),
        ("x offset -90m", 'x{namespace="shop"} offset -90m'),
        ("x @ start() - x @ end()", 'x{namespace="shop"} @ start() - x{namespace="shop"} @ end()'),
        ("x offset 1w", 'x{namespace="shop"} offset 7d'),
        (
            "x == bool on (a, b) group_left (c) y",
            'x{namespace="shop"} == bool on (a, b) group_left (c) y{namespace="shop"}',
        ),
        ("x unless ignoring (a) y", 'x{namespace="shop"} unless ignoring (a) y{namespace="shop"}'),
        ("x * on () group_right y", 'x{namespace="shop"} * on () group_right () y{namespace="shop"}'),
        ("-x ^ 2 + 0x1F - 5m", '-x{namespace="shop"} ^ 2 + 31 - 300'),
        ("vector(NaN) > -Inf", "vector(NaN) > -Inf"),
        ("vector(1e400)", "vector(Inf)"),
        ("x[1ms] @ 1234.567", 'x{namespace="shop"}[1ms] @ 1234.567'),
        # The furthest times, which are those next to the parser's limit.
        ("x @ 99999999999.999", 'x{namespace="shop"} @ 99999999999.999'),
        ("x @ -99999999999.999", 'x{namespace="shop"} @ -99999999999.999'),
        ("1e300 * 0.1", "1e+300 * 0.1"),
        ("topk(scalar(y), x)", 'topk(scalar(y{namespace="shop"}), x{namespace="shop"})'),
        ("x # }\n+ y # {", 'x{namespace="shop"} + y{namespace="shop"}'),
        ('absent(x{namespace="shop"})', 'absent(x{namespace="shop"})'),
        ('x{namespace="other"}', 'x{namespace="shop",namespace="other"}'),
        ('x{"namesp\\u0061ce"!="shop"}', 'x{namespace="shop",namespace!="shop"}'),
        ('{"a.b","c d"="e"}', '{namespace="shop",__name__="a.b","c d"="e"}'),
        ('sum by ("a.b", by) ({__name__=~"x.*"})', 'sum by ("a.b", by) ({namespace="shop",__name__=~"x.*"})'),
        ("sum + offset{}", '{namespace="shop",__name__="sum"} + {namespace="shop",__name__="offset"}'),
        (
            r"""label_replace(x, 'a', `$1`, "\x62", `(\w+)"`)""",
            r"""label_replace(x{namespace="shop"}, "a", "$1", "b", "(\\w+)\"")""",
        ),
        ('x{a="é\\n\\"\\\\"}', r'x{namespace="shop",a="\u00e9\u000a\"\\"}'),
        ('x{a="\\xc3\\xa9"}', r'x{namespace="shop",a="\u00e9"}'),
        ('x{a="\\360\\237\\230\\200"}', r'x{namespace="shop",a="\U0001f600"}'),
        ('x{a="\uffff\U00010000"}', r'x{namespace="shop",a="\uffff\U00010000"}'),
        # The parser gets marks instead of the values of matchers that are long.
        (f'{{"0",a="{LONG}",b!="7"}}', f'{{namespace="shop",__name__="0",a="{LONG}",b!="7"}}'),
        (f'x{{a="\x7f1",b="{LONG}",c!~"\x7f0"}}', rf'x{{namespace="shop",a="\u007f1",b="{LONG}",c!~"\u007f0"}}'),
    ],
)
def test_each_selector_gets_the_label_and_all_else_stays(query: str, restricted: str) -> None:
    assert shop(query) == restricted
    assert shop(restricted) == restricted


def test_the_value_is_quoted() -> None:
    restricted = restrict_query("x", label="a b", value='"} or y{a="')
    assert restricted == r'x{"a b"="\"} or y{a=\""}'


def test_without_a_value_every_query_is_refused() -> None:
    with pytest.raises(PromqlError, match=r"^there is no label value to select by$"):
        restrict_query("x", label="namespace", value="")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("x + fill(0) y", "fill is not supported"),
        ("x + on (a) fill_left(0) y", "fill is not supported"),
        ("x + fill_right (1) y", "fill is not supported"),
        ('x{Or="b"}', "a label cannot have the name 'Or'"),
        ("__x", "metric names that begin with __ are reserved"),
        ('{__name__="__x"}', "metric names that begin with __ are reserved"),
        ('x{__queries__="a"}', "labels that begin with __ are reserved"),
        ("info(x)", "info is not allowed, since it may read other series"),
    ],
)
def test_error_says_what_cannot_be_restricted(query: str, problem: str) -> None:
    with pytest.raises(PromqlError, match=f"^{re.escape(problem)}$"):
        shop(query)


@pytest.mark.parametrize("duration", [None, timedelta(0), timedelta(milliseconds=1, microseconds=500)])
def test_duration_that_no_query_has_is_never_rounded(duration: timedelta | None) -> None:
    with pytest.raises(PromqlError, match=r"^a duration is not a number of milliseconds$"):
        restrict.duration_text(duration)


@pytest.mark.parametrize("selector", ["x offset 5m", "x @ 5", "sum(x)", "x[5m]", "5"])
def test_only_a_plain_selector_is_one_of_series(selector: str) -> None:
    with pytest.raises(PromqlError, match=r"^it is not a selector of series$"):
        restrict_selector(selector, label="namespace", value="shop")


@pytest.mark.parametrize("query", RESTRICTED)
def test_each_selector_of_a_hostile_query_has_the_label(query: str) -> None:
    assert_restricted(shop(query), matcher=MATCHER)


@pytest.mark.parametrize("query", REFUSED)
def test_queries_that_other_servers_could_read_otherwise_are_refused(query: str) -> None:
    with pytest.raises(PromqlError):
        shop(query)


def test_selector_that_was_written_without_the_label_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last check does not rely on what wrote the query."""
    monkeypatch.setattr(restrict._Writer, "_selector", lambda _, selector: selector.name)
    with pytest.raises(PromqlError, match=r"^a selector could not be restricted$"):
        shop("sum(x)")


def test_query_that_was_written_with_another_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restrict, "duration_text", lambda range_: f"{range_ * 2 // timedelta(seconds=1)}s")
    with pytest.raises(PromqlError, match=r"^it could not be written so that it has the same meaning$"):
        shop("rate(x[5m])")


@settings(max_examples=60)
@given(query=QUERIES | SOUP)
def test_each_selector_of_any_query_has_the_label(query: str) -> None:
    try:
        restricted = shop(query)
    except PromqlError:
        return
    assert_restricted(restricted, matcher=MATCHER)


@settings(max_examples=25)
@given(query=QUERIES)
def test_valid_queries_are_restricted(query: str) -> None:
    try:
        promql_parser.parse(query)
    except ValueError:
        return
    shop(query)


@pytest.mark.parametrize(
    ("selector", "restricted"),
    [("x", 'x{namespace="shop"}'), ('{__name__=~"^a_.*",pod!=""}', '{namespace="shop",__name__=~"^a_.*",pod!=""}')],
)
def test_a_selector_of_series_gets_the_label(selector: str, restricted: str) -> None:
    assert restrict_selector(selector, label="namespace", value="shop") == restricted


@pytest.mark.parametrize("function", ["info", "start", "end", "range", "step"])
def test_only_functions_that_are_known_to_read_no_series_are_allowed(function: str) -> None:
    """A new version of the parser may know more functions that read series by themselves, as `info` does."""
    with pytest.raises(PromqlError):
        shop(f"{function}(x)")
    with pytest.raises(PromqlError):
        shop(f"{function}()")
