"""Rules files beyond prometheus-adapter's format: short rules, servers, policies, forwardExternal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adapter.rules import Policy, QueryRule, Rule, RulesError, RulesFile, parse_rules
from kube.api.mapping import GroupResource

SERIES_RULE = "seriesQuery: up, metricsQuery: sum(up)"


def parse(text: str) -> RulesFile:
    return parse_rules(text, source="rules.yaml")


def series_rules(rules: RulesFile) -> list[Rule]:
    return [rule for rule in rules.custom if isinstance(rule, Rule)]


def test_short_rules_come_last() -> None:
    rules = parse(f"rules: [{{name: a, query: b, resources: {{ns: namespace}}}}, {{{SERIES_RULE}}}]")
    assert [rule.key for rule in rules.custom] == ["rules[1]", "rules[0]"]


def test_short_rule_has_metric_query_and_labels() -> None:
    rules = parse(
        """
        rules:
        - {seriesQuery: up, metricsQuery: 'sum(up)'}
        - {name: lag, query: 'sum(lag) by (ns, deploy)', resources: {ns: namespace, deploy: deployment.apps}}
        externalRules:
        - {name: backlog, query: sum(backlog)}
        """
    )
    _, lag = rules.custom
    assert isinstance(lag, QueryRule)
    assert (str(lag), lag.query) == ("rules[1] (lag)", "sum(lag) by (ns, deploy)")
    assert (lag.namespace_label, lag.resource_label, lag.resource) == (
        "ns",
        "deploy",
        GroupResource("apps", "deployment"),
    )
    [backlog] = rules.external
    assert isinstance(backlog, QueryRule)
    assert (backlog.metric, backlog.resource, backlog.namespace_label) == ("backlog", None, "")


def test_short_rule_with_only_a_namespace_label_is_about_namespaces() -> None:
    [rule] = parse("rules: [{name: a, query: b, resources: {ns: namespace}}]").custom
    assert isinstance(rule, QueryRule)
    assert (rule.resource, rule.resource_label, rule.namespace_label) == (GroupResource("", "namespaces"), "ns", "")


def test_rule_has_server_headers_and_max_age() -> None:
    rules = parse(
        f"""
        prometheusServers:
          mimir:
            url: https://mimir/prometheus
            verb: POST
            headers: {{X-Scope-OrgID: all}}
            username: me
            passwordFile: /p
            caFile: /ca
            certFile: /c
            keyFile: /k
            timeout: 2s
            maxQueryBytes: 4096
        rules:
        - {{{SERIES_RULE}, prometheus: mimir, headers: {{X-Scope-OrgID: team}}, maxAge: 1h}}
        - {{{SERIES_RULE}, prometheus: default}}
        """
    )
    first, second = series_rules(rules)
    server = first.destination.server
    assert server is not None
    assert (server.name, server.url, server.verb) == ("mimir", "https://mimir/prometheus", "POST")
    assert (server.username, server.password_file) == ("me", Path("/p"))
    assert (server.ca_file, server.cert_file, server.key_file) == (Path("/ca"), Path("/c"), Path("/k"))
    assert (server.query_timeout, server.max_query_bytes) == (2.0, 4096)
    assert first.destination.headers == (("X-Scope-OrgID", "team"),)
    assert first.max_age == 3600.0
    assert (second.destination.server, second.max_age) == (None, None)
    assert [*rules.prometheus_servers.values()] == [server]


def test_policies_for_nan_inf_and_empty() -> None:
    rules = parse(f"rules: [{{{SERIES_RULE}, nan: missing, inf: zero, empty: error}}, {{{SERIES_RULE}}}]")
    given, default = rules.custom
    assert (given.nan, given.inf, given.empty) == (Policy.MISSING, Policy.ZERO, Policy.ERROR)
    assert (default.nan, default.inf, default.empty) == (None, Policy.MISSING, Policy.MISSING)


def test_forward_external_has_address_and_credentials() -> None:
    rules = parse("forwardExternal: {url: 'https://keda:6443', caFile: /ca, tokenFile: /t, timeout: 3s}")
    [other] = rules.forward
    assert (other.url, other.token_file, other.timeout) == ("https://keda:6443", Path("/t"), 3.0)


def test_forward_external_is_a_list_of_adapters_with_patterns() -> None:
    keda = "{name: keda, url: 'https://keda', metrics: ['s[0-9]*-*', composite-metric]}"
    rest = "{name: datadog, url: 'https://datadog', timeout: 2s}"
    forward = parse(f"forwardExternal: [{keda}, {rest}]").forward
    assert [(one.name, one.metrics, one.timeout) for one in forward] == [
        ("keda", ("s[0-9]*-*", "composite-metric"), 10.0),
        ("datadog", (), 2.0),
    ]
    metrics = ("s0-prometheus", "s12-a-b", "composite-metric", "S0-a", "composite-metrics", "x-s0-a", "sqs-queue")
    assert [forward[0].takes(metric) for metric in metrics] == [True, True, True, False, False, False, False]
    assert all(map(forward[1].takes, metrics))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [{name: a, query: b}]", "rules[0].resources: say which label names which resource, such as {pod:"),
        ("rules: [{query: b}]", "rules[0].name: this key is required"),
        ("externalRules: [{name: a, query: ' '}]", "externalRules[0].query: this key is required (name: a)"),
        ("externalRules: [{name: a/b, query: b}]", "externalRules[0].name: 'a/b' cannot stand in the path"),
        (
            "externalRules: [{name: a, query: b, quary: c}]",
            "externalRules[0]: unknown key `quary`; did you mean `query`? (name: a)",
        ),
        ("externalRules: [{name: a, query: b, maxAge: 1m}]", "externalRules[0]: unknown key `maxAge` (name: a)"),
        ("externalRules: [{name: a, query: '<<.Series>>'}]", "externalRules[0].query: the query of a short rule is no"),
        (
            "externalRules: [{name: a, query: b, resources: {pod: pod}}]",
            "externalRules[0].resources.pod: an external metric is about no object",
        ),
        (
            "rules: [{name: a, query: b, resources: {pod: pod, svc: service}}]",
            "rules[0].resources.svc: pod names a resource already",
        ),
        (
            "rules: [{name: a, query: b, resources: {a: namespace, b: namespaces}}]",
            "rules[0].resources.b: a names the namespace already",
        ),
        ("rules: [{name: a, query: b, resources: {' ': pod}}]", "rules[0].resources. : no Prometheus label has such"),
        (
            f"rules: [{{{SERIES_RULE}, prometheus: thanos}}]",
            "rules[0].prometheus: there is no server 'thanos' in prometheusServers; there are default",
        ),
        (
            f"rules: [{{{SERIES_RULE}, nan: null}}, {{{SERIES_RULE}, nan: 0}}]",
            "rules[1].nan: expected zero, missing or",
        ),
        (f"rules: [{{{SERIES_RULE}, maxAge: 5}}]", 'rules[0].maxAge: missing unit in duration "5"'),
        (f"rules: [{{{SERIES_RULE}, maxAge: 0s}}]", "rules[0].maxAge: must be more than 0, got 0s"),
        (f"rules: [{{{SERIES_RULE}, headers: {{'a b': c}}}}]", "rules[0].headers: 'a b' is not the name of a header"),
        (f'rules: [{{{SERIES_RULE}, headers: {{a: "b\\nc"}}}}]', "rules[0].headers: the value of a cannot be sent"),
        ("prometheusServers: {default: {url: 'http://x'}}", "prometheusServers.default: default is the server of --pr"),
        ("prometheusServers: {a: {}}", "prometheusServers.a.url: this key is required"),
        ("prometheusServers: {a: {url: x}}", "prometheusServers.a: not a URL of a Prometheus: 'x'"),
        (
            "prometheusServers: {a: {url: 'http://x', verb: PUT}}",
            "prometheusServers.a: unsupported Prometheus HTTP ver",
        ),
        (
            "prometheusServers: {a: {url: 'http://x', username: u}}",
            "prometheusServers.a: basic authentication at Prometheus needs both a name and a file with the password",
        ),
        (
            "prometheusServers: {a: {url: 'http://x', maxQueryBytes: 16k}}",
            "prometheusServers.a.maxQueryBytes: expected a whole number, got text",
        ),
        (
            "prometheusServers: {a: {url: 'http://x', maxQueryBytes: 16}}",
            "prometheusServers.a.maxQueryBytes: expected a whole number >= 1024",
        ),
        ("prometheusServers: {a: {urll: x}}", "prometheusServers.a: unknown key `urll`"),
        (
            "forwardExternal: {url: 'http://x'}",
            "forwardExternal: not a URL of another adapter: 'http://x'; write it as",
        ),
        ("forwardExternal: {}", "forwardExternal.url: this key is required"),
        ("forwardExternal: [{name: a}]", "forwardExternal[0].url: this key is required"),
        (
            "forwardExternal: [{url: 'https://x'}]",
            "forwardExternal[0].name: each adapter of a list needs a name, for messages",
        ),
        (
            "forwardExternal: [{name: a, metrics: [x], url: 'https://x'}, {name: a, url: 'https://y'}]",
            "forwardExternal[1].name: there is another adapter a",
        ),
        (
            "forwardExternal: [{name: a, url: 'https://x'}, {name: b, url: 'https://y'}]",
            "forwardExternal[0].metrics: without patterns this adapter gets all metrics, and those after it none",
        ),
        (
            "forwardExternal: {name: a b, url: 'https://x'}",
            "forwardExternal.name: 'a b' has a space or an invisible character",
        ),
        (
            "forwardExternal: {url: 'https://x', metrics: [a/b]}",
            "forwardExternal.metrics[0]: 'a/b' is not the name of a metric, in which * may stand for any text",
        ),
        ("forwardExternal: {url: 'https://x', metrics: ['']}", "forwardExternal.metrics[0]: '' is not the name of a"),
        ("forwardExternal: [x]", "forwardExternal[0]: expected a mapping, got text"),
        (
            f"forwardExternal: [{', '.join(f'{{name: a{n}, metrics: [x], url: https://x}}' for n in range(11))}]",
            "forwardExternal[10]: there can be 10 other adapters",
        ),
    ],
)
def test_error_is_one_line_with_file_and_path(text: str, message: str) -> None:
    with pytest.raises(RulesError) as refused:
        parse(text)
    assert str(refused.value).startswith(f"rules.yaml: {message}")
    assert "\n" not in str(refused.value)


def test_examples_in_the_documentation_load() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "rules.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 5
    for example in examples:
        parse(example)
