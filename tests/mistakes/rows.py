"""The mistakes, by the place where users make them. docs/errors.md has the sentences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from tests.autoscaler.cluster import Cluster
from tests.mistakes.bench import LONG, Bench


@dataclass(frozen=True, slots=True)
class Mistake:
    """What a user did, and how to make it, which returns what the user reads."""

    did: str
    make: Callable[[Bench], str | Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where users make these mistakes, and where they read the sentence."""

    title: str
    where: str
    mistakes: Sequence[Mistake]


async def _no_api(_: web.Request) -> web.StreamResponse:
    return web.Response(status=404, text="404 page not found")


async def _login(_: web.Request) -> web.StreamResponse:
    return web.Response(status=401, text="Unauthorized")


async def _page(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>", content_type="text/html")


def _without_target(cluster: Cluster) -> None:
    cluster.add_hpa("web")


def _typo_in_metric(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web", metric_name="packets_per_secnd")


def _two_hpas(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web")
    cluster.add_hpa("other", target="web")


def _metrics_away(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web")
    cluster.metrics.status = 503


PLACES: Final = (
    Place(
        "The rules file",
        "`milliscale check rules.yaml`, the log of the adapter, and its page",
        (
            Mistake("a tab as indentation", lambda at: at.check("rules:\n\t- seriesQuery: up\n")),
            Mistake("a key that is misspelt", lambda at: at.check(LONG.replace("metricsQ", "metricQ"))),
            Mistake("a section that is misspelt", lambda at: at.check(LONG.replace("rules:", "rule:"))),
            Mistake("a key twice", lambda at: at.check(f"{LONG}  resources: {{}}\n")),
            Mistake("a required key left out", lambda at: at.check("rules:\n- seriesQuery: up\n")),
            Mistake("a list instead of a mapping", lambda at: at.check("- seriesQuery: up\n")),
            Mistake("a quote that is not closed", lambda at: at.check("rules:\n- seriesQuery: 'up\n")),
            Mistake("no rules", lambda at: at.check("")),
            Mistake("another object", lambda at: at.check("{apiVersion: v1, kind: Service, metadata: {name: web}}")),
            Mistake(
                "a kind that is misspelt",
                lambda at: at.check("{apiVersion: milliscale.io/v1, kind: MetricRules, metadata: {name: queue}}"),
            ),
            Mistake("a parenthesis too few", lambda at: at.check(LONG.replace("[2m]))", "[2m])"))),
            Mistake("a parenthesis too many", lambda at: at.check(LONG.replace("[2m]))", "[2m])))"))),
            Mistake("a bracket that is not closed", lambda at: at.check(LONG.replace("[2m]", "[2m"))),
            Mistake("a selector that is not closed", lambda at: at.check(LONG.replace('pod!=""}', 'pod!=""'))),
            Mistake("Helm's delimiters", lambda at: at.check(LONG.replace("<<.Series>>", "{{.Series}}"))),
            Mistake(
                "a field of templates that is misspelt", lambda at: at.check(LONG.replace("<<.Series>>", "<<.Serie>>"))
            ),
            Mistake("`>>` left out", lambda at: at.check(LONG.replace("<<.Series>>", "<<.Series"))),
            Mistake("`<<.LabelMatchers>>` left out", lambda at: at.check(LONG.replace("<<.LabelMatchers>>", ""))),
            Mistake(
                "a counter without a rate",
                lambda at: at.check({"query": "sum by (namespace, pod) (http_requests_total)"}),
            ),
            Mistake(
                "a rate without a range", lambda at: at.check({"query": "sum by (namespace, pod) (rate(hits_total))"})
            ),
            Mistake("a sum without `by`", lambda at: at.check({"query": "sum(rate(http_requests_total[2m]))"})),
            Mistake(
                "the pods' label left out", lambda at: at.check({"query": "sum by (namespace) (rate(hits_total[2m]))"})
            ),
            Mistake("`resources` left out", lambda at: at.check({"resources": None})),
            Mistake("the namespace's label left out", lambda at: at.check({"resources": {"pod": "pod"}})),
            Mistake(
                "a resource that is misspelt",
                lambda at: at.check({"resources": {"namespace": "namespace", "pod": "pood"}}),
            ),
            Mistake("a server that is not defined", lambda at: at.check({"prometheus": "east"})),
            Mistake("a duration without a unit", lambda at: at.check(f"{LONG}  maxAge: 5\n")),
            Mistake(
                "a regular expression that is not closed",
                lambda at: at.check(f"{LONG}  name: {{matches: '(', as: a}}\n"),
            ),
            Mistake("two rules for one metric", lambda at: at.check(LONG + LONG.removeprefix("rules:\n"))),
            Mistake(
                "a time zone without its region",
                lambda at: at.check(
                    "externalRules:\n- {name: day, schedule: {timezone: Berlin, default: 1, windows: []}}\n"
                ),
            ),
        ),
    ),
    Place(
        "Flags of the adapter, and Prometheus",
        "the command",
        (
            Mistake("no rules file", lambda at: at.adapter("check")),
            Mistake("a file that is not there", lambda at: at.adapter("check", "rulez.yaml")),
            Mistake("a URL without its scheme", lambda at: at.check(LONG, "--prometheus-url=localhost:9090")),
            Mistake("nothing listens", lambda at: at.check(LONG, "--prometheus-url=http://127.0.0.1:9")),
            Mistake("a path prefix left out", lambda at: at.check_against(_no_api)),
            Mistake("no credentials", lambda at: at.check_against(_login)),
            Mistake("the address of another server", lambda at: at.check_against(_page)),
            Mistake(
                "a header without its value", lambda at: at.adapter("check", "rules.yaml", "--prometheus-header=a")
            ),
            Mistake(
                "`explain` of a metric without its resource",
                lambda at: at.adapter("explain", "hits", "--config=rules.yaml"),
            ),
            Mistake("a context without its kubeconfig", lambda at: at.check(LONG, "--context=staging")),
            Mistake("`serve` outside of a pod", lambda at: at.adapter("serve", "--config=rules.yaml")),
            Mistake(
                "an address without a host", lambda at: at.adapter("serve", "--config=rules.yaml", "--ui-address=8082")
            ),
        ),
    ),
    Place(
        "MetricRules",
        "`kubectl get metricrules`, in the column of the message, and `milliscale check`",
        (
            Mistake("a field that is misspelt", lambda at: at.metric_rule(query=None, qurey="sum(queue)")),
            Mistake("no query", lambda at: at.metric_rule(query=None)),
            Mistake("no type", lambda at: at.metric_rule(type=None)),
            Mistake("another type", lambda at: at.metric_rule(type="external")),
            Mistake("fields of two forms", lambda at: at.metric_rule(seriesQuery="queue")),
            Mistake(
                "headers, which could name another tenant", lambda at: at.metric_rule(headers={"X-Scope-OrgID": "a"})
            ),
            Mistake("a server that teams may not use", lambda at: at.metric_rule(prometheus="east")),
            Mistake("no name of the metric", lambda at: at.metric_rule(metric=None)),
        ),
    ),
    Place(
        "Metrics that cannot be served",
        "the condition ScalingActive of the HPA, its events, and `explain`",
        (
            Mistake(
                "an external rule without the namespace's label",
                lambda at: at.external_metric(
                    "externalRules: [{seriesQuery: queue, metricsQuery: 'sum(<<.Series>>)'}]"
                ),
            ),
            Mistake(
                "a query that Prometheus refuses",
                lambda at: at.external_metric(
                    "externalRules: [{name: queue, query: sum(queue)}]", refused="too many samples"
                ),
            ),
        ),
    ),
    Place(
        "HPAs",
        "`milliscale explain shop/web`, and the page of the HPA",
        (
            Mistake("a workload that does not exist", lambda at: at.explain_sentence(_without_target)),
            Mistake("a metric that is misspelt", lambda at: at.explain_sentence(_typo_in_metric)),
            Mistake("two HPAs for the same pods", lambda at: at.explain_sentence(_two_hpas)),
            Mistake("an adapter that is away", lambda at: at.explain_sentence(_metrics_away)),
            Mistake("an HPA that does not exist", lambda at: at.explain_sentence(_without_target, "wbe")),
        ),
    ),
    Place(
        "Annotations",
        "an event of the HPA, the autoscaler's log, and the page of the HPA",
        (
            Mistake("a name that is misspelt", lambda at: at.annotation("pasued", "true")),
            Mistake("a tolerance in percent", lambda at: at.annotation("tolerance", "10%")),
            Mistake("a duration without a unit", lambda at: at.annotation("sync-period", "5")),
            Mistake("a mode that does not exist", lambda at: at.annotation("mode", "dryrun")),
            Mistake("a threshold without its replicas", lambda at: at.annotation("fallback-failure-threshold", "3")),
        ),
    ),
    Place(
        "What-if",
        "the form, beside the field",
        (
            Mistake("a word for a number", lambda at: at.what_if(maxReplicas="ten")),
            Mistake("a unit that is none of Kubernetes'", lambda at: at.what_if(**{"target.0": "100rps"})),
            Mistake("a bound above the other", lambda at: at.what_if(minReplicas="30")),
            Mistake("a field that is misspelt", lambda at: at.what_if(behavior="scaleUp: {tolerence: 10%}")),
            Mistake("a tolerance that is no number", lambda at: at.what_if(behavior="scaleUp: {tolerance: low}")),
            Mistake("a window longer than an hour", lambda at: at.what_if(**{"down.window": "2h"})),
        ),
    ),
    Place(
        "Files with HPAs",
        "`replay`, `tune` and `advise`",
        (
            Mistake("a field that is misspelt", lambda at: at.replay_hpa("spec", "maxReplica", value=5)),
            Mistake("maxReplicas left out", lambda at: at.replay_hpa("spec", "maxReplicas", value=None)),
            Mistake("text for a number", lambda at: at.replay_hpa("spec", "minReplicas", value="two")),
            Mistake(
                "a target that is no quantity",
                lambda at: at.replay_hpa("spec", "metrics", 0, "pods", "target", "averageValue", value="100rps"),
            ),
            Mistake(
                "a duration for seconds",
                lambda at: at.replay_hpa("spec", "behavior", "scaleDown", "stabilizationWindowSeconds", value="5m"),
            ),
            Mistake("an API that is gone", lambda at: at.replay_hpa("apiVersion", value="autoscaling/v2beta2")),
            Mistake("another object", lambda at: at.replay_hpa("kind", value="ScaledObject")),
        ),
    ),
    Place(
        "replay and tune",
        "the command",
        (
            Mistake("no load", lambda at: at.replay("--hpa=hpa.yaml")),
            Mistake("a file that is not there", lambda at: at.replay("--hpa=wbe.yaml", "--csv=load.csv")),
            Mistake(
                "no time until a pod is ready", lambda at: at.replay("--hpa=hpa.yaml", "--csv=load.csv", startup=False)
            ),
            Mistake(
                "a time without its zone",
                lambda at: at.replay("--hpa=hpa.yaml", "--csv=load.csv", "--from=2026-01-05T00:00:00"),
            ),
            Mistake("a day in words", lambda at: at.replay("--hpa=hpa.yaml", "--csv=load.csv", "--from=yesterday")),
            Mistake("a capacity in words", lambda at: at.replay("--hpa=hpa.yaml", "--csv=load.csv", "--capacity=lots")),
            Mistake(
                "a capacity of another metric",
                lambda at: at.replay("--hpa=hpa.yaml", "--csv=load.csv", "--capacity=hits=5"),
            ),
            Mistake(
                "a CSV file without times",
                lambda at: at.replay("--hpa=hpa.yaml", "--csv=load.csv", load="time,rps\n1,2\n"),
            ),
            Mistake(
                "a CSV file with semicolons",
                lambda at: at.replay("--hpa=hpa.yaml", "--csv=load.csv", load="timestamp;rps\n1;2\n"),
            ),
            Mistake(
                "a CSV file without the metric",
                lambda at: at.replay("--hpa=hpa.yaml", "--csv=load.csv", load="timestamp,rqs\n1,2\n"),
            ),
            Mistake("no autoscaler at the URL", lambda at: at.replay("--hpa=hpa.yaml", "--server=http://127.0.0.1:9")),
            Mistake("`tune` without a capacity", lambda at: at.tune()),
            Mistake("`tune` on too short a load", lambda at: at.tune("--capacity=100")),
            Mistake("a field that cannot be tuned", lambda at: at.tune("--capacity=100", "--fields=targets")),
            Mistake("a share without its sign", lambda at: at.tune("--capacity=100", "--max-overload=0.1")),
        ),
    ),
    Place(
        "kubeconfigs",
        "all commands that read a cluster",
        (
            Mistake("no kubeconfig, and no pod", lambda at: at.autoscaler("explain", "shop/web")),
            Mistake("no current context", lambda at: at.explain(**{"current-context": None})),
            Mistake("a context that does not exist", lambda at: at.explain(**{"current-context": "staging"})),
            Mistake("a user that does not exist", lambda at: at.explain(users=[])),
            Mistake(
                "an exec plugin that is not installed",
                lambda at: at.explain(
                    users=[{"name": "ann", "user": {"exec": {"command": "kubelogin", "apiVersion": "v1"}}}]
                ),
            ),
            Mistake(
                "a token's file that is not there",
                lambda at: at.explain(users=[{"name": "ann", "user": {"tokenFile": "/no/token"}}]),
            ),
            Mistake("a cluster that is off", lambda at: at.explain()),
            Mistake("a token that has expired", lambda at: at.explain_refused(401, "Unauthorized")),
            Mistake(
                "no right to read HPAs",
                lambda at: at.explain_refused(
                    403, 'horizontalpodautoscalers.autoscaling "web" is forbidden: User "ann" cannot get it'
                ),
            ),
        ),
    ),
    Place(
        "Flags of the autoscaler",
        "the command",
        (
            Mistake(
                "`explain` of a name alone, of an autoscaler",
                lambda at: at.autoscaler("explain", "web", "--server=http://127.0.0.1:8080"),
            ),
            Mistake(
                "a feature gate that is misspelt",
                lambda at: at.autoscaler("run", "--feature-gates=HPAScaletoZero=true"),
            ),
            Mistake(
                "a feature gate without its value", lambda at: at.autoscaler("run", "--feature-gates=HPAScaleToZero")
            ),
            Mistake(
                "a duration without a unit",
                lambda at: at.autoscaler("run", "--horizontal-pod-autoscaler-sync-period=15"),
            ),
            Mistake(
                "a tolerance in percent", lambda at: at.autoscaler("run", "--horizontal-pod-autoscaler-tolerance=10%")
            ),
            Mistake("a shard that does not exist", lambda at: at.autoscaler("run", "--shards=2", "--shard-index=2")),
            Mistake(
                "earlier decisions without an autoscaler", lambda at: at.autoscaler("explain", "shop/web", "--last=5")
            ),
        ),
    ),
    Place(
        "The kubectl plugin",
        "`kubectl milliscale`",
        (
            Mistake("kubectl is not installed", lambda at: at.plugin("status")),
            Mistake(
                "kubectl cannot reach the cluster",
                lambda at: at.plugin("status", kubectl="Unable to connect to the server: EOF"),
            ),
            Mistake("HPAs of two namespaces", lambda at: at.plugin("status", "shop/web", "blog/web")),
        ),
    ),
)
