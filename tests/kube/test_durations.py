import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.process.flags import DURATION, POSITIVE_DURATION
from kube.values.durations import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("1m30s", 90.0),
        ("1h15m30.5s", 4530.5),
        ("250ms", 0.25),
        ("1.5h", 5400.0),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("10μs", 1e-5),
        ("100ns", 1e-7),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("0", 0.0),
        ("-2m", -120.0),
        ("+2m", 120.0),
    ],
)
def test_durations_are_parsed_as_in_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid duration"),
        ("s", "invalid duration"),
        (".s", "invalid duration"),
        ("1m ", 'unknown unit "m "'),
        ("90", 'missing unit in duration "90": write for example 90s'),
        ("1d", 'unknown unit "d"'),
        ("1e3s", 'unknown unit "e"'),
        ("3000000h", "too long"),
        ("9" * 100_000, "invalid duration"),
        ("１s", "invalid duration"),  # noqa: RUF001 - a digit, but none of ASCII's
    ],
)
def test_invalid_durations_are_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(DurationError, match=message) as caught:
        parse_duration(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (90, "1m30s"), (3600, "1h0m0s"), (0.25, "250ms"), (1.5, "1.5s"), (1e-6, "1µs"), (-2, "-2s")],
)
def test_durations_are_formatted_as_in_go(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12))
def test_formatted_durations_parse_back(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds / 10**6)) == microseconds / 10**6


@click.command()
@click.option("--window", type=DURATION, default="5m")
@click.option("--period", type=POSITIVE_DURATION, default="15s")
def _command(window: float, period: float) -> None:
    click.echo(f"{window} {period}")


def test_duration_flag_gives_seconds_or_is_a_usage_error() -> None:
    run = CliRunner().invoke
    assert run(_command, ["--window=0s", "--period=1m"]).output == "0.0 60.0\n"
    assert run(_command, []).output == "300.0 15.0\n"
    for flag, message in (
        ("--window=-1s", "must not be negative"),
        ("--period=0s", "must be longer than 0s"),
        ("--period=15", "missing unit"),
    ):
        refused = run(_command, [flag])
        assert refused.exit_code == 2
        assert message in refused.output
