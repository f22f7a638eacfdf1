"""PromQL: the labels that a result can have, whether it can be NaN, and errors."""

from __future__ import annotations

from unittest.mock import Mock

import promql_parser
import pytest

from adapter.promql import (
    Labels,
    PromqlError,
    as_vector,
    can_be_nan,
    groups_alike,
    is_scalar,
    matcher_sign,
    matchers,
    parse,
    restrict_query,
    result_labels,
    selectors,
    separable_labels,
    walk,
)
from adapter.promql.literals import parse_duration


def only(*names: str) -> Labels:
    return Labels(frozenset(names))


def all_but(*names: str) -> Labels:
    return Labels(frozenset(names), others=True)


@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ("x", all_but()),
        ('x{pod="a"}', all_but()),
        ('x{pod=""}', all_but("pod")),
        ("rate(x[5m]) * 60", all_but()),
        ("sum(x)", only()),
        ("sum(x) by (pod, namespace)", only("pod", "namespace")),
        ("sum by () (x)", only()),
        ("sum(x) without (pod)", all_but("pod")),
        ('sum(x{pod=""}) by (pod, a)', only("a")),
        ("max(sum(x) by (pod, le)) by (le)", only("le")),
        ("max(sum(x) by (pod)) by (le)", only()),
        ("SUM(x) BY (pod)", only("pod")),
        *((f"{kind}(1, sum(x) by (pod)) by (a)", only("pod")) for kind in ("topk", "bottomk", "limitk", "limit_ratio")),
        ('count_values("v", x) by (pod)', only("pod", "v")),
        ('count_values(("v"), x)', only("v")),
        ("histogram_quantile(0.9, sum(rate(x[5m])) by (pod, le))", only("pod")),
        ("histogram_fraction(0, 1, sum(x) by (pod, le))", only("pod")),
        ('label_replace(sum(x) by (a), "pod", "$1", "a", "(.*)")', only("a", "pod")),
        ('label_replace(sum(x) by (a), ("pod"), "$1", "a", "(.*)")', only("a", "pod")),
        ('label_join(sum(x) by (a), "pod", "-", "a")', only("a", "pod")),
        ("sum(x) by (pod) / sum(y) by (pod)", only("pod")),
        ("sum(x) by (pod) / on (pod) y", only("pod")),
        ("x / on (pod) y", only("pod")),
        ("x / ignoring (pod) y", all_but("pod")),
        ("sum(x) by (pod) * on (pod) group_left (owner) y", only("pod", "owner")),
        ("y * on (pod) group_right (owner) sum(x) by (pod)", only("pod", "owner")),
        ("sum(x) by (pod) or sum(y) by (node)", only("pod", "node")),
        ("sum(x) by (pod) and y", only("pod")),
        ("sum(x) by (pod) or y", all_but()),
        ("sum(x) without (a, b) or sum(y) without (b, c)", all_but("b")),
        ("sum(x) without (a, b) or sum(y) by (b)", all_but("a")),
        ("sum(x) by (pod) / scalar(sum(y))", only("pod")),
        ("100 - sum(x) by (pod)", only("pod")),
        ("scalar(x)", only()),
        ("vector(1)", only()),
        ("1 + 2", only()),
        ("absent(sum(x) by (pod))", all_but()),
        ('absent_over_time(x{pod=""}[5m])', all_but()),
        ("info(sum(x) by (pod))", all_but()),
        ("-sum(x) by (pod)", only("pod")),
        ("max_over_time(sum(x) by (pod)[1h:1m])", only("pod")),
        ("sort(clamp_min(sum(x) by (pod), 1))", only("pod")),
    ],
)
def test_labels_of_a_result(query: str, labels: Labels) -> None:
    assert result_labels(parse(query)) == labels


@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ("X", all_but()),
        ("-(X @ 5)", all_but()),
        ("X + Y > bool time()", all_but()),
        ("X and Y or X", all_but()),
        ("rate(X[5m])", all_but()),
        ("max_over_time(X[5m:1m])", all_but()),
        ("max by (a, b) (sum by (b, c) (X))", only("b")),
        ("quantile by (a) (0.5, X)", only("a")),
        ("histogram_quantile(0.9, X)", all_but("le")),
        ("histogram_quantile(0.9, sum by (le, a) (X))", only("a")),
        # From here on, one value could depend on the series of another label value.
        ("x", only()),
        ("X + x", only()),
        ('x{n!="s"}', only()),
        ('x{n="t"}', only()),
        ('x{m="s"}', only()),
        ("1", only()),
        ("X default 0", only()),  # MetricsQL
        ("X @ start()", only()),
        ("max_over_time(X[5m:1m] @ end())", only()),
        ("sum(X)", only()),
        ("sum without (a) (X)", only()),
        ("topk by (a) (1, X)", only()),
        ("X > on (n) Y", only()),
        ("X * on (n) group_left Y", only()),
        ("X + fill(0) Y", only()),
        ("X + fill_left(0) Y", only()),
        ("X + fill_right(0) Y", only()),
        ("scalar(X)", only()),
        ("absent(X)", only()),
        ('label_replace(X, "n", "b", "c", "d")', only()),
    ],
)
def test_labels_by_which_a_query_can_be_coalesced(query: str, labels: Labels) -> None:
    query = query.replace("X", 'x{a="b",n="s"}').replace("Y", 'y{n="s",a="b"}')
    assert separable_labels(query, label="n", value="s") == labels


@pytest.mark.parametrize(
    ("query", "alike"),
    [
        *((query, True) for query in ("x", "1", "x / y", "sum by (p) (x)", "sum(x + 1)", "sum(x) / sum(y)")),
        *((query, True) for query in ("avg(sum(x) / count(y))", "sum(x) + sum(sum(y) + sum(z))")),
        *((query, False) for query in ("sum by (n) (x)", "sum(x) / on () sum by (n) (y)", "sum(x) / y", "sum(x / y)")),
        *((query, False) for query in ("sum(x / sum(y))", "sum(x) + sum(sum(y) + z)", "sum(x) + sum(y + z)", "x{")),
    ],
)
def test_grouping_by_one_more_label_changes_no_value(query: str, alike: bool) -> None:
    assert groups_alike(query, label="n") is alike


@pytest.mark.parametrize(
    ("query", "nan"),
    [
        ("a / b", True),
        ("sum(a) / (sum(b))", True),
        ("a % b", True),
        ("sum(a / b)", True),
        ("a / 0", True),
        ("histogram_quantile(0.9, x)", True),
        ("quantile(0.9, x) by (pod)", True),
        ("(a / b) > bool 1", True),
        ("a / b != 1", True),
        ("a / b or vector(0)", True),
        ("histogram_fraction(0, 1, x)", True),
        ("histogram_avg(x)", True),
        ("a / (b - c)", True),
        ("a / (b >= 0)", True),
        ("a / round(b, 5)", True),
        ("a / rate(b[5m])", True),
        *((f"a / b {sign} 1", False) for sign in ("==", ">", "<", ">=", "<=")),
        *((f"{kind}((a / b)[5m:1m])", False) for kind in ("count_over_time", "present_over_time", "absent_over_time")),
        *((f"{kind}(a / b)", False) for kind in ("count", "group", "absent")),
        *((f"a / {kind}", False) for kind in ("group(b)", "time()", "count_over_time(b[5m])", "clamp(b, 1, 5)")),
        ("a / (b > 5)", False),
        ("a / 100", False),
        ("a / count(b)", False),
        ("a / (b > 0)", False),
        ("a / (b != 0)", False),
        ("a / (b >= 1)", False),
        ("a / (b > -1)", True),
        ("a / (b > bool 0)", True),
        ("a / clamp_min(b, 1)", False),
        ("a / clamp_min(b, 0)", True),
        ("a / b > 0", False),
        ("rate(a[5m]) * 100 - b", False),
        ("quantile_over_time(0.9, a[5m])", False),
    ],
)
def test_results_that_can_be_nan(query: str, nan: bool) -> None:
    assert can_be_nan(parse(query)) is nan


@pytest.mark.parametrize("query", ["1", "(1)", "-(1)", "1 + time()", "scalar(x)", "1 # one"])
def test_scalar_becomes_a_vector(query: str) -> None:
    assert is_scalar(parse(query)) is True
    assert is_scalar(parse(as_vector(query))) is False


@pytest.mark.parametrize("query", ["x", "-x", "1 + x", "x + 1", "vector(1)", "sum(x)", "x default 0"])
def test_what_is_no_scalar_stays(query: str) -> None:
    assert as_vector(query) == query


def test_vectors_are_no_scalars() -> None:
    assert [is_scalar(parse(query)) for query in ("x", "sum(x)", "x[5m]")] == [False] * 3


def test_walk_visits_each_expression_once() -> None:
    kinds = [type(one).__name__ for one in walk(parse("sum(topk(scalar(y), x))"))]
    assert kinds == ["AggregateExpr", "AggregateExpr", "Call", "VectorSelector", "VectorSelector"]


@pytest.mark.parametrize(
    "query",
    [
        *("", "sum(", "sum(x))", "x{pod}", "rate(x)", "x{a=~'(['}", "{}"),
        *("rollup_rate(x[5m])", "x keep_metric_names", 'x{a="1" or b="2"}', "sum(x) limit 5", "x default 0"),
        *("x offset Inf", "x offset NaN", "x offset 1e400"),
        *("(" * 20_000 + "x" + ")" * 20_000, "-" * 20_000 + "x", "x" * 5_000),
    ],
)
def test_text_that_is_not_promql(query: str) -> None:
    with pytest.raises(PromqlError):
        parse(query)


@pytest.mark.parametrize(
    ("matcher", "sign", "value"),
    [
        ('a=~"web-.*|b"', "=~", "web-.*|b"),
        ('a!~"12"', "!~", "12"),
        ("a=~`\\d+{2}`", "=~", r"\d+{2}"),
        (r'''a=~"(\\w{9}){9}"''', "=~", r"(\w{9}){9}"),
        ("a=~ # \"\n'a\"{3}'", "=~", 'a"{3}'),
        ("a=`\\d`", "=", r"\d"),
        (r'a="\x62\u00e9\143"', "=", "béc"),
        (r'a="\xc3\xa9\n\""', "=", 'é\n"'),
        (r'a="\U0010ffff"', "=", "\U0010ffff"),
    ],
)
def test_strings_are_read_as_prometheus_reads_them(matcher: str, sign: str, value: str) -> None:
    """Also the regular expressions that the parser would take long for, or read otherwise."""
    [selector] = selectors(parse(f'x{{{matcher},b=~".+"}}'))
    found, other = matchers(selector)[1:]
    assert (matcher_sign(found), found.value) == (sign, value)
    assert (matcher_sign(other), other.value) == ("=~", ".+")


def test_a_long_list_of_names_is_parsed() -> None:
    names = "|".join(f"web-7d9f8b6c5d-{number:05}" for number in range(1500))
    [selector] = selectors(parse(f'x{{pod=~"{names}"}}'))
    assert matchers(selector)[1].value == names


UNKNOWN = "a string has an unknown escape sequence"
ESCAPES = "it has more than 8000 escape sequences, and bytes beyond ASCII"
SYNTAX = "it is longer than 4000 characters, without the values of its matchers"
OPERATORS = "it has more than 400 operators and parentheses"
CONTROL = "a string begins with a control character"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (r'"\q"', UNKNOWN),
        (r'"\400"', UNKNOWN),
        (r'"\U00110000"', UNKNOWN),
        (r'"\xff"', "a string is not UTF-8"),
        (r'"\ud800"', "a string is not UTF-8"),
        ('"\n"', "a string has a line break; use `backquotes`"),
        ('"a', "a string does not end"),
        ('"' + '\\"' * 7_000, "a string does not end"),
        ('"' + '\\"' * 9_000, ESCAPES),
        ('"' + "é" * 9_000 + '"', ESCAPES),
        ('"\ud800"', "it is not Unicode"),
        ('"' + "a" * 64_000 + '"', "it is longer than 64000 characters"),
        ("x or " * 350 + "x" * 3_000, SYNTAX),
        ("x{" + ",".join(['a=~"b"'] * 120) + "}", OPERATORS),
        ('{"\x7f0"}', CONTROL),
        ('"\x7f0"', CONTROL),
        ('x == y{"\x7f0"}', CONTROL),
        ('x{a="b" "\x7f0"}', CONTROL),
        ('x > "\x7f0"', CONTROL),
        ("x" * 3_995 + '{a="bbb"}', SYNTAX),
        ("x{" + "," * 3_000 + 'a="b"' + "," * 1_000 + "}", SYNTAX),
        ("+" * 401 + "x", OPERATORS),
        ("x" * 4_001, SYNTAX),
        ("x @ " + "9" * 50, "a number cannot be used: " + "9" * 40),
        ("x offset 100000000000", "a number cannot be used: 100000000000"),
        ('x{a="1" or b="2"}', "a selector has `or`, which only MetricsQL has"),
    ],
    ids=range(26),
)
def test_strings_and_sizes_that_are_errors(text: str, why: str) -> None:
    with pytest.raises(PromqlError) as error:
        parse(text)
    assert str(error.value) == why


def test_largest_texts_are_parsed() -> None:
    matchers = (['a="b"'] * 400, ['a=~"b"'] * 100, [f'a="{"a" * 63_993}"'], ['a="' + "\\n" * 8_000 + '"'])
    for text in ("x" * 4_000, "x" * 3_994 + '{a="bbb"}', *(f"x{{{','.join(some)}}}" for some in matchers)):
        parse(text)


@pytest.mark.parametrize(
    ("matchers", "hidden"),
    [
        (['a="' + "b" * 32 + '"', 'a="."', 'a="b{2}"'], 0),
        (['a="' + "b" * 33 + '"', 'a!="' + "b" * 33 + '"'], 2),
        (['a=~"' + "b" * 2000 + '"', 'a!~"' + "b" * 2000 + '"'], 0),
        (['a=~"' + "b" * 2000 + '"', 'a!~"' + "b" * 2001 + '"', 'a="b"'], 1),
        (['a=~".*"', 'a=~"' + "." * 29 + '"', "a=~`x[0]`"], 1),
        (["a=~`\\.`", 'a=~"' + "." * 28 + '"'], 0),
        (['a=~"b{2}"', f'a=~"{"X" * 31}"'], 1),
    ],
    ids=range(7),
)
def test_parser_gets_no_long_values_and_compiles_few_expressions(
    matchers: list[str], hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes long for such, so it gets a mark in their place."""
    parser = Mock(wraps=promql_parser.parse)
    monkeypatch.setattr(promql_parser, "parse", parser)
    parse(f"x{{{','.join(matchers)}}}")
    assert parser.call_args.args[0].count("\\u007f") == hidden


def test_deep_nesting_is_an_error() -> None:
    for query in ("(" * 300 + "x" + ")" * 300, "-" * 300 + "x", "x+" * 300 + "x"):
        with pytest.raises(PromqlError, match="nested more than 200 deep"):
            parse(query)
    assert result_labels(parse("abs(" * 190 + "x" + ")" * 190)) == all_but()


def test_query_with_very_many_operators_is_refused_before_it_is_parsed() -> None:
    for query in ("-" * 3000 + "up", "up" + " + up" * 401, "(" * 401 + "up" + ")" * 401):
        with pytest.raises(PromqlError, match="more than 400 operators and parentheses"):
            parse(query)
    parse('up{path=~"' + "-" * 3000 + '"}')


@pytest.mark.parametrize(
    ("query", "restricted"),
    [
        ("x @ -1", 'x{n="s"} @ -1.000'),
        ("x @ - 1.5 offset -5m", 'x{n="s"} @ -1.500 offset -5m'),
        ("x[5m:1m] @ -12.345", None),
        ("(x)[5m:1m] @ -12.345", '(x{n="s"})[5m:1m] @ -12.345'),
        ('x{a="@ -1 offset Inf [1e20]"}', 'x{n="s",a="@ -1 offset Inf [1e20]"}'),
        ("job:inf", 'job:inf{n="s"}'),
        ("x offset Inf", None),
        ("x offset -nan", None),
        ("x offset # comment\n +1e20", None),
        ("x[1e20]", None),
        ("(x)[5m:1e20]", None),
        ("(x)[1e20:5m]", None),
        ("x offset 99999999999999999999999", None),
        ("x @ -1e300", None),
    ],
)
def test_parser_does_not_panic(query: str, restricted: str | None, capfd: pytest.CaptureFixture[str]) -> None:
    """A panic writes a backtrace to stderr, whatever becomes of it."""
    try:
        found = restrict_query(query, label="n", value="s")
    except PromqlError:
        found = None
    if restricted is not None:
        assert found == restricted
    assert capfd.readouterr().err == ""


def test_values_of_matchers_are_those_of_the_query() -> None:
    """The parser gets numbers in the place of long ones."""
    long = "b" * 40
    for query in (
        f'x{{a="{long}",c!="1",d=~"{long}",e="0"}}',
        f'sum(x{{a="0"}}) + label_replace(x, "a", "0", "{long}", "")',
    ):
        assert restrict_query(query, label="n", value="s").replace('n="s",', "").replace('{n="s"}', "") == query


def test_durations_have_their_units_in_order() -> None:
    seconds = 365 * 86_400 + 2 * 604_800 + 3 * 86_400 + 4 * 3600 + 5 * 60 + 6.007
    assert parse_duration("1y2w3d4h5m6s7ms") == seconds
    assert [parse_duration(text) for text in ("0", "1d12h", "0" * 31 + "s")] == [0, 129_600, 0]
    for text in ("", "5", "m", "1.5h", "1h1d", "1s 1ms", "0" * 32 + "s"):
        with pytest.raises(ValueError, match=f"not a duration: '{text}'; write it as 5m or 1h30m"):
            parse_duration(text)
