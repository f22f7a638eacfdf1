"""The examples of docs/clouds.md are what their sections say."""

from __future__ import annotations

import click
import yaml

from adapter.cli import serve
from adapter.rules.reading import parse_rules
from adapter.upstream import Auth, SigV4Auth
from tests.docs.blocks import blocks
from tests.helm_engine import render, require_helm
from tools.render_chart import objects

DOCUMENTS = [yaml.safe_load(block.text) for block in blocks("yaml") if block.page == "docs/clouds.md"]
TEXTS = [block.text for block in blocks("yaml") if block.page == "docs/clouds.md"]


def test_each_server_has_the_authentication_of_its_section() -> None:
    texts = [text for text in TEXTS if text.startswith("prometheusServers:")]
    servers = {name: one for text in texts for name, one in parse_rules(text, source="a").prometheus_servers.items()}
    forms = {"amp": "sigv4", "gmp": "google", "azure": "azure", "mimir": "oauth2"}
    for name, server in servers.items():
        given = [form for form in forms.values() if server.auth is not None and getattr(server.auth, form) is not None]
        assert given == ([forms[name]] if name in forms else []), name
    assert servers.keys() == {*forms, "grafana-cloud", "thanos", "outside"}
    assert servers["grafana-cloud"].username == "123456"
    assert ("partial_response", "false") in servers["thanos"].query_parameters
    assert servers["outside"].proxy_url == "http://proxy.example:3128"


def test_workspace_as_the_only_server() -> None:
    require_helm()
    (values,) = (one for one in DOCUMENTS if "prometheus" in one)
    (container,) = (
        container
        for each in objects(render(values))
        if each["kind"] == "Deployment" and each["metadata"]["name"].endswith("adapter")
        for container in each["spec"]["template"]["spec"]["containers"]
    )
    assert container["image"].startswith("registry.example/milliscale-clouds:")
    arguments = [argument for argument in container["args"] if argument != "serve"]
    context = click.Context(serve, info_name="serve")
    given, _, _ = serve.make_parser(context).parse_args(arguments)
    auth = next(one for one in serve.params if one.name == "prometheus_auth")
    assert auth.type_cast_value(context, given["prometheus_auth"]) == Auth(sigv4=SigV4Auth(region="eu-west-1"))
    url = "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-00000000-0000-0000-0000-000000000000"
    assert given["prometheus_url"] == url


def test_identities_are_on_the_service_account_and_the_pods() -> None:
    require_helm()
    found = set()
    for values in DOCUMENTS:
        for each in objects(render(values)) if "image" in values else []:
            found |= set(each["metadata"].get("annotations") or {}) if each["kind"] == "ServiceAccount" else set()
            if each["kind"] == "Deployment":
                found |= set(each["spec"]["template"]["metadata"]["labels"])
    assert {
        "eks.amazonaws.com/role-arn",
        "iam.gke.io/gcp-service-account",
        "azure.workload.identity/client-id",
        "azure.workload.identity/use",
    } <= found
