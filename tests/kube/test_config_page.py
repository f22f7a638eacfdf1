"""/debug/config: flags, and trees without secrets."""

from typing import Any

import click
import pytest

from adapter.commands.ignored_flags import ServeCommand, ignored_options
from kube.process.config_page import given_flags, without_secrets
from kube.process.flags import bool_option, list_option


@click.command(cls=ServeCommand)
@click.option("-u", "--url", default="http://default")
@click.option("--prometheus-header", "headers", multiple=True)
@click.option("--prometheus-query-parameter", multiple=True)
@click.option("--document")
@bool_option("--switch")
@bool_option("--other-switch")
@list_option("--names")
@ignored_options
def command(**_: Any) -> None: ...


def flags(*arguments: str, **parse: Any) -> Any:
    return given_flags(command.make_context("command", list(arguments)), parse=parse)


def test_flags_are_those_that_are_given_in_the_words_of_the_command_line() -> None:
    assert flags("-u", "http://a", "--switch", "--other-switch=false", "--names=a,b", "--names=c") == {
        "url": "http://a",
        "switch": "true",
        "other-switch": "false",
        "names": ["a,b", "c"],
    }
    assert flags() == {}
    assert flags("--client-qps=-1") == {"client-qps": "..."}


def test_last_value_of_a_flag_counts() -> None:
    assert flags("--url=a", "--url=b") == {"url": "b"}


def test_flags_have_no_secrets() -> None:
    found = flags(
        "--url=https://user:hunter2@p.example:9090/prefix?token=hunter2",
        "--prometheus-header=Authorization=Bearer hunter2=",
        "--prometheus-header=hunter2",
        "--prometheus-query-parameter=key=hunter2",
        "--document=oauth2",
        document=lambda text: {text: {"endpointParams": {"password": "hunter2"}}},
    )
    assert found == {
        "url": "https://<secret>@p.example:9090/prefix?<secret>",
        "prometheus-header": ["Authorization=<secret>", "<secret>"],
        "prometheus-query-parameter": ["key=<secret>"],
        "document": '{"oauth2":{"endpointParams":{"password":"<secret>"}}}',
    }


@pytest.mark.parametrize(
    ("tree", "shown"),
    [
        (
            {"headers": {"X-Key": "hunter2", "X-Keys": ["hunter2"]}},
            {"headers": {"X-Key": "<secret>", "X-Keys": "<secret>"}},
        ),
        ({"queryParameters": {"key": ["hunter2"]}}, {"queryParameters": {"key": "<secret>"}}),
        ([{"headers": ["X-Key: hunter2"]}, {"Headers": "hunter2"}], [{"headers": "<secret>"}, {"Headers": "<secret>"}]),
        ([{"url": "http://u@h/?a=b"}], [{"url": "http://<secret>@h/?<secret>"}]),
        (
            {"query": 'sum(up{url="http://a/?b=c"}) @ end()', "n": 5},
            {"query": 'sum(up{url="http://a/?b=c"}) @ end()', "n": 5},
        ),
        ({"tokenFile": "/etc/token", "none": None}, {"tokenFile": "/etc/token", "none": None}),
        ("see http://u:hunter2@h and https://v:hunter2@i", "see http://<secret>@h and https://<secret>@i"),
        ("a=HTTPS://h/?hunter2,b=c and d", "a=https://h/?<secret> and d"),
        ('up{url=~"http://u:hun\'ter2@h/[a?]"}', 'up{url=~"http://<secret>@h/[a?]"}'),
    ],
)
def test_tree_has_no_secrets(tree: object, shown: object) -> None:
    assert without_secrets(tree) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://u:hun'ter\"2@h:80/p", "http://<secret>@h:80/p"),
        ("http://u:hun@ter2@h/p", "http://<secret>@h/p"),
        ("http://u:hun ter2@h/p", "http://<secret>@h/p"),
        ("HTTP://h/p?token=hunter2", "http://h/p?<secret>"),
        ("http://h?token='hunter2' x#hunter2", "http://h?<secret>#<secret>"),
        ("http://u:hun/ter2@h", "http://<secret>"),
        ("http://u:hun?ter2@h", "http://<secret>"),
        ("http://u:1#ter2@h", "http://<secret>"),
        ("http://[hunter2", "http://<secret>"),
        ("http://[::1]:9090/prefix", "http://[::1]:9090/prefix"),
    ],
)
def test_url_has_no_user_and_no_parameters(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_long_text_is_read_in_linear_time() -> None:
    assert without_secrets("a" * 300_000) == "a" * 300_000
    assert without_secrets('x"http://' * 20_000) == 'x"http://' * 20_000
