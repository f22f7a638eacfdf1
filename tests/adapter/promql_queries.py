"""Random PromQL for property tests, and the table of hostile queries."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import strategies as st

_DATA = Path(__file__).parent.parent / "data" / "hostile_queries.yaml"
_TABLE: dict[str, dict[str, list[str]]] = yaml.safe_load(_DATA.read_text(encoding="utf-8"))
RESTRICTED, REFUSED = (
    [query for group in _TABLE[key].values() for query in group] for key in ("restricted", "refused")
)
"""Hostile queries that are sent with the tenant's label in each selector, and those that are not sent."""

WORDS = (
    *("sum", "by", "without", "on", "ignoring", "group_left", "rate", "x", "y", "pod", "(", ")", "{", "}", "[5m]"),
    *("=", "=~", "!=", '"a"', "'(['", "`", ",", "offset", "5m", "@", "start()", "+", "-", "/", "^", "and", "or", "=="),
    *("bool", "0.9", "1e400", "Inf", "NaN", "topk", "count_values", "label_replace", "#", "\n", "é", "\x00", "[5m:1m]"),
    *('namespace="bank"', '"namespace"', "\\", '"', "'", '\\"', "}) or x", "info", "__name__", "\\u0022", "\\x22"),
)
SOUP = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=25).map("".join)
"""Words of the syntax in any order; little of it is PromQL."""

_VALUES = st.sampled_from(["bank", "shop", "", "a", "b-1", "1", "+Inf"])
_PATTERNS = st.sampled_from(["bank", ".*", ".+", "shop|bank", "a|b-.", "[^a]*", ""])
_LABELS = st.sampled_from(["namespace", "pod", "a", "le", "job", "by"])
_MATCHERS = st.one_of(
    st.builds("{}{}{!r}".format, _LABELS, st.sampled_from(["=", "!="]), _VALUES),
    st.builds('{}{}"{}"'.format, _LABELS, st.sampled_from(["=~", "!~"]), _PATTERNS),
)
_NAMES = st.sampled_from(["x", "y", "requests_total", "latency_bucket", "sum", "offset", "shop:x:sum", "none"])
_DURATIONS = st.sampled_from(["30s", "5m", "1h", "1h30m", "90s", "1500ms"])
_TIMES = st.sampled_from(["", "", " offset 5m", " offset -90s", " @ start()", " @ end() offset 1m", " offset 1h @ 0"])
_MORE = st.lists(_MATCHERS, max_size=3).map(",".join)
_NAMED = st.sampled_from(['__name__=~".+"', '__name__=~"x|y"', "namespace='bank'", 'pod!=""', '__name__="x"'])
_SELECTORS = st.one_of(
    _NAMES, st.builds("{}{{{}}}".format, _NAMES, _MORE), st.builds("{{{},{}}}".format, _MORE, _NAMED)
).map(lambda selector: selector.replace("{,", "{"))
_GROUPS = st.lists(_LABELS, max_size=2).map(lambda labels: f"({', '.join(labels)})")
_GROUPING = st.just("") | st.builds("{} {}".format, st.sampled_from(["by", "without"]), _GROUPS)
_MATCHING = st.one_of(
    st.just(""),
    st.builds("{} {}".format, st.sampled_from(["on", "ignoring"]), _GROUPS),
    st.builds("on {} {} {}".format, _GROUPS, st.sampled_from(["group_left", "group_right"]), _GROUPS),
)
_SCALARS = st.sampled_from(["0", "2", "-1", "0.5", "1e3", "0x1F", "Inf", "NaN", "time()", "5", "pi()"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return expressions that have `inner` instant vectors in them."""
    scalars = st.one_of(_SCALARS, st.builds("scalar({})".format, inner))
    ranges = st.one_of(
        st.builds("{}[{}]{}".format, _SELECTORS, _DURATIONS, _TIMES),
        st.builds("({})[{}:{}]{}".format, inner, st.just("10m"), st.sampled_from(["", "1m", "150s"]), _TIMES),
    )
    over_time = st.sampled_from(
        ["rate", "increase", "max_over_time", "sum_over_time", "last_over_time", "changes", "absent_over_time", "deriv"]
    )
    functions = st.sampled_from(["abs", "ceil", "sort", "absent", "timestamp", "sgn", "hour", "ln", "-", "+", ""])
    arithmetic = st.sampled_from(["+", "-", "*", "/", "%", "^", "atan2"])
    comparisons = st.sampled_from(["==", "!=", ">", "<=", "> bool"])
    return st.one_of(
        st.builds("{}({})".format, functions, inner),
        st.builds("{}({})".format, over_time, ranges),
        st.builds("quantile_over_time({}, {})".format, scalars, ranges),
        st.builds("{} {} ({})".format, st.sampled_from(["sum", "count", "max", "avg", "group"]), _GROUPING, inner),
        st.builds("{}({}, {}){}".format, st.sampled_from(["topk", "bottomk", "quantile"]), scalars, inner, _GROUPING),
        st.builds('count_values("{}", {})'.format, _LABELS, inner),
        st.builds("({}) {} {} ({})".format, inner, arithmetic | comparisons, _MATCHING, inner),
        st.builds("{} {} {} {}".format, inner, st.sampled_from(["and", "or", "unless"]), st.just(""), inner),
        st.builds("{} {} {}".format, scalars, arithmetic, inner),
        st.builds("{} {} {}".format, inner, comparisons, scalars),
        st.builds("clamp({}, {}, {})".format, inner, scalars, scalars),
        st.builds('label_replace({}, "{}", "$1", "{}", "(.*)")'.format, inner, _LABELS, _LABELS),
        st.builds("label_join({}, '{}', `-`, \"{}\")".format, inner, _LABELS, _LABELS),
        st.builds("histogram_quantile({}, {})".format, scalars, inner),
        st.builds("{} # }} or x\n".format, inner),
    )


QUERIES = st.recursive(st.builds("{}{}".format, _SELECTORS, _TIMES), _larger, max_leaves=5)
"""Queries, of which Prometheus accepts most."""
SELECTORS = _SELECTORS
