"""PromQL: the labels that a result can have, whether it can be NaN, and errors."""

from __future__ import annotations

import pytest

from adapter.promql import (
    Labels,
    PromqlError,
    can_be_nan,
    matcher_sign,
    matchers,
    parse,
    restrict_query,
    result_labels,
    selectors,
)


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
        ("topk(3, sum(x) by (pod)) by (a)", only("pod")),
        ('count_values("v", x) by (pod)', only("pod", "v")),
        ("histogram_quantile(0.9, sum(rate(x[5m])) by (pod, le))", only("pod")),
        ('label_replace(sum(x) by (a), "pod", "$1", "a", "(.*)")', only("a", "pod")),
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
        ('absent(x{pod="a"})', all_but()),
        ("-sum(x) by (pod)", only("pod")),
        ("max_over_time(sum(x) by (pod)[1h:1m])", only("pod")),
        ("sort(clamp_min(sum(x) by (pod), 1))", only("pod")),
    ],
)
def test_labels_of_a_result(query: str, labels: Labels) -> None:
    assert result_labels(parse(query)) == labels


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
        ("count(a / b)", False),
        ("rate(a[5m]) * 100 - b", False),
        ("quantile_over_time(0.9, a[5m])", False),
    ],
)
def test_results_that_can_be_nan(query: str, nan: bool) -> None:
    assert can_be_nan(parse(query)) is nan


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


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (r'"\q"', "unknown escape"),
        (r'"\400"', "unknown escape"),
        (r'"\U00110000"', "unknown escape"),
        (r'"\xff"', "not UTF-8"),
        (r'"\ud800"', "not UTF-8"),
        ('"\n"', "line break"),
        ('"a', "does not end"),
        ('"' + '\\"' * 7_000, "does not end"),
        ('"' + '\\"' * 9_000, "more than 8000 escape"),
        ('"' + "é" * 9_000 + '"', "more than 8000 escape"),
        ('"\ud800"', "not Unicode"),
        ('"' + "a" * 64_000 + '"', "longer than 64000"),
        ("x or " * 350 + "x" * 3_000, "longer than 4000"),
        ("x{" + ",".join(['a=~"b"'] * 120) + "}", "more than 400"),
        ('{"\x7f0"}', "control character"),
    ],
    ids=range(15),
)
def test_strings_and_sizes_that_are_errors(text: str, why: str) -> None:
    with pytest.raises(PromqlError, match=why):
        parse(text)


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
