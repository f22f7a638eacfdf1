"""Rules files in prometheus-adapter's format: valid ones, and the errors of invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.rules import QueryRule, Rule, RulesError, RulesFile, load_rules, parse_rules
from kube.api.mapping import GroupResource
from tests.adapter.metrics_env import RULES, series_rule

RULE = """rules:
- seriesQuery: 'up{pod!=""}'
  metricsQuery: 'sum(<<.Series>>)'
"""


def parse(text: str) -> RulesFile:
    return parse_rules(text, source="rules.yaml")


@pytest.mark.parametrize("path", sorted(RULES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_public_files_load(path: Path) -> None:
    rules = load_rules(path)
    assert rules.custom or rules.external or rules.resource


def test_rule_has_every_key_of_the_file() -> None:
    rule = series_rule(load_rules(RULES / "packets.yaml"))
    assert rule.key == "rules[0]"
    assert str(rule) == """rules[0] (http_packets_total{namespace!="",pod!=""})"""
    assert rule.resources.overrides == (
        ("namespace", GroupResource("", "namespace")),
        ("pod", GroupResource("", "pod")),
        ("service", GroupResource("", "service")),
    )
    assert rule.resources.namespaced
    assert rule.metric_for("http_packets_total") == "http_packets_per_second"
    assert rule.metric_for("http_packets") is None  # name.matches filters, too


def test_resource_rules_are_read() -> None:
    rules = load_rules(RULES / "resource-metrics.yaml").resource
    assert rules is not None
    assert rules.window == 300.0
    assert rules.cpu.container_label == "container"
    assert rules.memory.resources.overrides[0] == ("instance", GroupResource("", "node"))


@pytest.mark.parametrize(
    ("name", "series", "metric"),
    [
        ("", "cpu_total", "cpu_total"),
        ("{matches: ''}", "cpu_total", "cpu_total"),
        ("{matches: '^(.*)_total$'}", "cpu_total", "cpu"),
        ("{matches: '^(.*)_total$', as: ''}", "cpu_total", "cpu"),
        ("{matches: 'cpu'}", "cpu_total", "cpu"),  # without a group: what it found
        ("{matches: '^(.*)_(total)$', as: '${1}_${2}s'}", "cpu_total", "cpu_totals"),
        ("{as: backlog}", "cpu_total", "backlog"),
        ("{as: 'a/b'}", "cpu_total", None),  # no part of a path
        ("{as: '$2'}", "cpu_total", None),  # empty
    ],
)
def test_metrics_are_named_after_series(name: str, series: str, metric: str | None) -> None:
    rule = series_rule(parse(RULE + (f"  name: {name}\n" if name else "")))
    assert rule.metric_for(series) == metric


@pytest.mark.parametrize(
    ("filters", "series", "passes"),
    [
        ("[]", "a_total", True),
        ("[{is: '_total$'}]", "a_total", True),
        ("[{is: '_total$'}]", "a", False),
        ("[{isNot: '_total$'}]", "a_total", False),
        ("[{is: '^a'}, {isNot: '_total$'}]", "a_total", False),
        ("[{is: '^a'}, {isNot: '_total$'}]", "a_sum", True),
        ("null", "a_total", True),
    ],
)
def test_series_pass_every_filter(filters: str, series: str, passes: bool) -> None:
    rule = series_rule(parse(f"{RULE}  seriesFilters: {filters}\n"))
    assert (rule.metric_for(series) is not None) is passes


@pytest.mark.parametrize("word", ["false", "no", "off", "n", "N", "NO", "False", "!!bool 'no'", "'no'"])
def test_booleans_are_those_of_yaml_1_1(word: str) -> None:
    assert not series_rule(parse(f"{RULE}  resources: {{namespaced: {word}}}\n")).resources.namespaced


@pytest.mark.parametrize("word", ["yes", "'yes'"])
def test_text_that_looks_like_a_boolean_stays_text(word: str) -> None:
    rule = series_rule(parse(f"{RULE}  name: {{as: {word}}}\n"))
    assert rule.metric_for("up") == "yes"


@pytest.mark.parametrize("label", ["namespaced", "app.io/pod"])
def test_label_of_any_name_can_name_a_resource(label: str) -> None:
    rules = parse(f"{RULE}  resources: {{overrides: {{{label}: {{resource: pod}}}}}}").custom
    assert rules[0].resources.overrides == ((label, GroupResource("", "pod")),)  # type: ignore[union-attr]
    [rule] = parse(f"rules: [{{name: a, query: b, resources: {{{label}: 'pod'}}}}]").custom
    assert isinstance(rule, QueryRule)
    assert rule.resource_label == label


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "rules: []", "rules:\nexternalRules: []", "{}"])
def test_file_without_rules_loads(text: str) -> None:
    assert parse(text) == RulesFile()


@pytest.mark.parametrize(
    "text",
    [
        "rules:\t\n- seriesQuery: up\t\n  metricsQuery: 'up'\t# all\n",
        "rules:\t# mine\n- seriesQuery: up \t# all\n  metricsQuery: up\t\n",
        "rules:\n- seriesQuery:\tup\n  metricsQuery: |-\t# a block\n    up\n",
        "rules: [{seriesQuery: up,\tmetricsQuery: up\t}]\t\n",
        "rules:\n- seriesQuery: up\n  metricsQuery: up\n---\n",
        "---\t\nrules:\n- seriesQuery: up\n  metricsQuery: up\n---\n# nothing more\n",
        "rules:\n- seriesQuery: up\n  metricsQuery: up\n...\n",
    ],
)
def test_tabs_and_document_ends_are_read_as_by_go(text: str) -> None:
    rule = series_rule(parse(text))
    assert (rule.series_query, rule.query.source) == ("up", "up")


def test_tabs_between_words_are_kept_and_trailing_tabs_dropped() -> None:
    rule = series_rule(parse("rules:\n- seriesQuery: up\n  metricsQuery: sum\t(up)\t\n    by (pod)\t\n"))
    assert rule.query.source == "sum\t(up) by (pod)"


def test_anchors_and_merge_keys_are_expanded() -> None:
    rules = parse(
        """
        externalRules:
        - &first
          seriesQuery: a
          metricsQuery: max(<<.Series>>)
        - <<: *first
          seriesQuery: b
        """
    )
    assert [(rule.series_query, rule.query.source) for rule in rules.external if isinstance(rule, Rule)] == [
        ("a", "max(<<.Series>>)"),
        ("b", "max(<<.Series>>)"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "expected a mapping, got a list"),
        ("rulez: []", "unknown key `rulez`; did you mean `rules`?"),
        ("zzz: []", "unknown key `zzz`"),
        (f"{RULE}  key: x", "rules[0]: unknown key `key`"),
        (
            "rules: [{seriesQuery: up, metricQuery: up}]",
            "rules[0]: unknown key `metricQuery`; did you mean `metricsQuery`? (seriesQuery: up)",
        ),
        (
            "{kind: ConfigMap, data: {config.yaml: 'rules: []'}}",
            "this is a ConfigMap, and the rules file is the text of one key in its data",
        ),
        (
            "{prometheus: {url: 'http://x'}, rules: {default: false, custom: []}}",
            "these are the values of a Helm chart; the rules file is the text in its ConfigMap",
        ),
        (
            "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease}",
            "this is a HelmRelease, and no rules file; the check command looks for rules in it",
        ),
        ("rules: {}", "rules: expected a list, got a mapping"),
        ("rules: [5]", "rules[0]: expected a mapping, got text"),
        ("rules: [null]", "rules[0]: expected a mapping, got null"),
        (f"{RULE}  seriesFilters: [{{is: a}}, ~]", "rules[0].seriesFilters[1]: expected a mapping, got null"),
        (f"{RULE}  query: x", "rules[0]: unknown key `query`"),
        (f"{RULE}  name: {{match: x}}", "rules[0].name: unknown key `match`"),
        (f"{RULE}  seriesFilters: {{is: x}}", "rules[0].seriesFilters: expected a list, got a mapping"),
        (
            f"{RULE}  seriesFilters: [{{is: x}}, {{is: a, isNot: b}}]",
            "rules[0].seriesFilters[1]: give exactly one of is and isNot",
        ),
        (
            f"{RULE}  seriesFilters: [{{isNot: '[z-a]'}}]",
            "rules[0].seriesFilters[0].isNot: '[z-a]' is not a regular expression: invalid character",
        ),
        (
            f"{RULE}  name: {{matches: '(?=a)'}}",
            "rules[0].name.matches: '(?=a)' is not a regular expression: invalid perl operator: (?=",
        ),
        (
            f"{RULE}  name: {{matches: '(a)(b)'}}",
            "rules[0].name: the key `as` is required, because matches has 2 groups (",
        ),
        (
            f"{RULE}  resources: {{template: 'pod'}}",
            "rules[0].resources.template: it must contain <<.Resource>>, or every resource would have the",
        ),
        (
            f"{RULE}  resources: {{template: 'kube_(<<.Resource>>'}}",
            "rules[0].resources.template: no label has such a name: missing )",
        ),
        (
            f"{RULE}  resources: {{template: '<<.Name>>'}}",
            "rules[0].resources.template: <<.Name>>: there is no field .Name; there are .Group, .Resource",
        ),
        (
            f"{RULE}  resources: {{overrides: {{pod: {{group: apps}}}}}}",
            "rules[0].resources.overrides: pod: expected a mapping with the key resource",
        ),
        (
            f"{RULE}  resources: {{namespaced: perhaps}}",
            "rules[0].resources.namespaced: expected true or false, got 'perhaps'",
        ),
        (f"{RULE}  resources: {{namespaced: nO}}", "rules[0].resources.namespaced: expected true or false, got 'nO'"),
        ("rules: [{seriesQuery: up}]", "rules[0].metricsQuery: this key is required (seriesQuery: up)"),
        ("rules: [{metricsQuery: up}]", "rules[0].seriesQuery: this key is required"),
        (
            "rules: [{seriesQuery: up, metricsQuery: '<<if .Series>>a'}]",
            "rules[0].metricsQuery: <<if .Series>>: there is no <<end>> for it (seriesQuery: up)",
        ),
        (
            "externalRules: [{seriesQuery: up, metricsQuery: '<<join .GroupBySlice>>'}]",
            'externalRules[0].metricsQuery: <<join .GroupBySlice>>: function "join" is not supported;',
        ),
        ("resourceRules: {cpu: {nodeQuery: a}}", "resourceRules.cpu.containerQuery: this key is required"),
        ("resourceRules: {window: 1m}", "resourceRules.cpu: this key is required"),
        (f"{RULE}  metricsQuery: b", 'line 4, column 3: duplicate key "metricsQuery"'),
        *((text, "line ") for text in ("\trules: []", "rules:\n\t- a: b", "rules:\n-\tseriesQuery: up")),
        ("rules: [", "line 2, column 1: while parsing a flow node, did not find expected node content"),
        ("a\n---\nb", "expected a single document, but found 2"),
        ("rules: !!python/name:os.system", "line 1, column 8: the tag tag:yaml.org,2002:python/name:os."),
        ("rules: &r [*r]", "line 1, column 8: nested more than 30 deep, or an alias that contains itself"),
        ("rules: " + "[" * 300_000, "line 1, column 37: nested more than 30 deep"),
        ("#" + "x" * 2**20, "longer than 1048576 bytes"),
        (
            'externalRules: [{name: "a b", query: up}]',
            "externalRules[0].name: 'a b' has a space or an invisible character",
        ),
        ("rules: \x00", "this is not YAML: "),
        (r'externalRules: [{name: "\U7fffffff", query: up}]', "line 1, column 27: while parsing a quoted"),
        (r'externalRules: [{name: "\Uffffffff", query: up}]', "line 1, column 27: while parsing a quoted"),
        ("%YAML " + "9" * 5000 + ".1\n--- a", "line 1, column 16: while scanning a %YAML directive"),
        (r'externalRules: [{name: "\ud800", query: up}]', "line 1, column 27: while parsing a quoted scalar"),
        ("rules: \ud800", "this is not YAML: "),
    ],
)
def test_error_is_one_line_with_file_and_path(text: str, message: str) -> None:
    with pytest.raises(RulesError) as refused:
        parse(text)
    assert str(refused.value).startswith(f"rules.yaml: {message}")
    assert "\n" not in str(refused.value)


def test_alias_bomb_is_refused() -> None:
    levels = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    levels += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(RulesError, match="more than 50000 values, aliases expanded"):
        parse("\n".join(levels))


def test_file_with_too_many_values_is_refused_without_composing_it() -> None:
    with pytest.raises(RulesError, match=r"column [0-9]+: more than 50000 values$"):
        parse("rules: [" + "a," * 500_000 + "]")


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"nowhere\.yaml: cannot be read: No such file or directory"):
        load_rules(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"rules: \xff")
    with pytest.raises(RulesError, match=r"latin\.yaml: not UTF-8"):
        load_rules(tmp_path / "latin.yaml")
