"""CSV files of recorded load; each error is one sentence that names the file and says what to change."""

from __future__ import annotations

import contextlib
import gzip
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.core.model import HPA
from replay.csv_source import read_csv
from replay.load import Load, ReplayError
from tests.replay.builders import cpu_metric, external_metric, make_hpa, object_metric, pods_metric

T = 1_780_000_000
EXPECTED_TIME = "seconds since 1970, or a time with its offset such as 2026-01-31T12:00:00Z"
RPS = make_hpa(pods_metric())


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "load.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


Write = Callable[[str | bytes], Path]


def read(path: Path, hpa: HPA = RPS, *, from_s: int | None = None, to_s: int | None = None) -> Load:
    return read_csv(
        path,
        [metric.source for metric in hpa.spec.metrics],
        start=None if from_s is None else lambda _: from_s * 1000,
        to_ms=None if to_s is None else to_s * 1000,
    )


def rows(*values: object, step: int = 60) -> str:
    return "timestamp,rps\n" + "".join(f"{T + step * index},{value}\n" for index, value in enumerate(values))


def test_a_row_counts_until_the_next_one(write: Write) -> None:
    load = read(write(rows(10, 20, 30.5)))

    assert (load.start_ms, load.end_ms) == (T * 1000, (T + 180) * 1000)
    series = load.series["rps"]
    assert [series.at((T + seconds) * 1000) for seconds in (0, 59, 60, 120, 179)] == [10, 10, 20, 30.5, 30.5]
    assert math.isnan(series.at(T * 1000 - 1))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("-5", "write 0 or more, or nothing for a gap"),
        ("1e308", r"write a number of at most 9.2e\+15, as metrics have"),
    ],
)
def test_impossible_totals_are_errors_of_their_row(write: Write, value: str, expected: str) -> None:
    with pytest.raises(ReplayError, match=f"load.csv: line 3: rps is '{value}': {expected}"):
        read(write(rows(1, value)))
    with pytest.raises(ReplayError, match=f"load.csv: line 2: replicas is '{value}': {expected}"):
        read(write(f"timestamp,rps,replicas\n{T},1,{value}\n"))


def test_external_values_may_be_negative(write: Write) -> None:
    hpa = make_hpa(external_metric(value="5"))

    assert read(write(rows(-5).replace("rps", "queue")), hpa).series["queue"].at(T * 1000) == -5


def test_a_row_counts_at_most_one_and_a_half_distances(write: Write) -> None:
    lines = rows(10, 20, 30, 40, 50).splitlines()
    del lines[3:5]  # the rows of 120 s and 180 s

    series = read(write("\n".join(lines))).series["rps"]

    assert series.at((T + 149) * 1000) == 20
    assert math.isnan(series.at((T + 150) * 1000))
    assert series.at((T + 240) * 1000) == 50
    assert list(series.segments((T + 60) * 1000, (T + 250) * 1000))[:2] == [
        ((T + 60) * 1000, (T + 150) * 1000, 20),
        ((T + 150) * 1000, (T + 240) * 1000, pytest.approx(math.nan, nan_ok=True)),
    ]


def test_late_rows_of_a_frequent_recording_are_no_gap(write: Write) -> None:
    """A recording of each second, from which a row is missing, or late, is not without a metric for that."""
    lines = rows(*range(60), step=1).splitlines()
    del lines[20:29]

    assert read(write("\n".join(lines))).series["rps"].at((T + 27) * 1000 + 900) == 18


@pytest.mark.parametrize("cell", ["", " ", "nan", "NaN"])
def test_an_empty_cell_is_a_gap(write: Write, cell: str) -> None:
    series = read(write(rows(10, cell, 30))).series["rps"]

    assert series.at((T + 59) * 1000) == 10
    assert math.isnan(series.at((T + 60) * 1000))
    assert series.at((T + 120) * 1000) == 30


@pytest.mark.parametrize(
    "times",
    [
        ("1780000000", "1780000060"),
        ("1780000000.0", "1.78000006e9"),
        ("2026-05-28T20:26:40Z", "2026-05-28t20:27:40z"),
        ("2026-05-28T22:26:40+02:00", "2026-05-28T22:27:40.000+02:00"),
    ],
)
def test_times_are_seconds_or_rfc_3339(write: Write, times: tuple[str, str]) -> None:
    load = read(write(f"timestamp,rps\n{times[0]},1\n{times[1]},2\n"))

    assert list(load.series["rps"].times_ms) == [1_780_000_000_000, 1_780_000_060_000]


def test_from_and_to_choose_a_part(write: Write) -> None:
    load = read(write(rows(*range(10))), from_s=T + 90, to_s=T + 300)

    assert (load.start_ms, load.end_ms) == ((T + 90) * 1000, (T + 300) * 1000)
    assert load.series["rps"].at(load.start_ms) == 1


def test_from_and_to_beyond_the_file_are_its_ends(write: Write) -> None:
    load = read(write(rows(1, 2)), from_s=0, to_s=T + 99_999)

    assert (load.start_ms, load.end_ms) == (T * 1000, (T + 120) * 1000)


def test_columns_have_the_metrics_names(write: Write) -> None:
    hpa = make_hpa(
        pods_metric(),
        external_metric("queue", {"name": "mail"}, averageValue="1"),
        external_metric("lag", {"topic": "a"}, averageValue="1"),
        object_metric("hits", averageValue="1"),
        cpu_metric(),
        cpu_metric(container="app"),
    )
    header = "cpu,rps,queue{name=mail},lag,Service/front/hits,app/cpu,other,timestamp"

    load = read(write(f"{header}\n1,2,3,4,5,6,x,{T}\n"), hpa)

    assert {name: series.values[0] for name, series in load.series.items()} == {
        "cpu": 1,
        "rps": 2,
        "queue{name=mail}": 3,
        "lag{topic=a}": 4,
        "Service/front/hits": 5,
        "app/cpu": 6,
    }


def test_recorded_replicas(write: Write) -> None:
    header = "timestamp,rps,kube_deployment_status_replicas,kube_deployment_status_replicas_ready"

    load = read(write(f"{header}\n{T},1,3,2\n{T + 60},1,4,\n"))

    assert load.replicas is not None
    assert load.ready_replicas is not None
    assert list(load.replicas.values) == [3, 4]
    assert load.ready_replicas.values[0] == 2


def test_gzip_is_recognized_by_its_content(write: Write) -> None:
    assert read(write(gzip.compress(rows(1, 2).encode()))).series["rps"].values[1] == 2


def test_a_byte_order_mark_and_windows_line_ends_are_allowed(write: Write) -> None:
    text = "\ufeff" + rows(1, 2).replace("\n", "\r\n") + "\r\n"

    assert list(read(write(text)).series["rps"].values) == [1, 2]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "the file is empty: write a line of column names first"),
        ("\n\n", "the file is empty: write a line of column names first"),
        ("timestamp,rps\n", "there is no row beside the column names"),
        ("time,rps\n1,2\n", "there is no column timestamp, only 'time', 'rps'"),
        (
            "timestamp;rps\n1;2\n",
            "there is no column timestamp, only 'timestamp;rps' (cells must be separated by commas)",
        ),
        ("timestamp,rqs\n1,2\n", "there is no column rps, only 'rqs'"),
        ("timestamp\n1\n", "there is no column rps, only none"),
        ("timestamp,rps,rps\n1,2,3\n", "two columns have the name rps"),
        (rows(1, "x"), "line 3: rps is 'x', which is not a number"),
        (rows(1, "12,5"), "line 3: 3 cells, but there are 2 columns"),
        (rows(1, "inf"), "line 3: rps is 'inf': write a finite number, or nothing for a gap"),
        (rows(1, '"1'), "line 3: unexpected end of data"),
        (
            "timestamp,rps\n60,1\n0,2\n",
            "line 3: an earlier time than the row before: sort the rows by timestamp, one row a time",
        ),
        (
            "timestamp,rps\n60,1\n\n60,2\n",
            "line 4: the same time as the row before: sort the rows by timestamp, one row a time",
        ),
        (
            "timestamp,rps\n2026-05-28 20:26:40,1\n",
            f"line 2: timestamp is '2026-05-28 20:26:40': write {EXPECTED_TIME}",
        ),
        (
            "timestamp,rps\n1780000000000,1\n",
            "line 2: '1780000000000' is too large: write timestamp in seconds since 1970, not milliseconds",
        ),
        ("timestamp,rps\nnan,1\n", "line 2: 'nan' is not a time"),
        ("timestamp,rps\n-5,1\n", "line 2: '-5' is not a time"),
        (b"timestamp,rps\n\xff\xfe\x00\x01", "this is not a CSV file in UTF-8, but binary data"),
        (b"\x7fELF" + bytes(range(256)) * 8, "this is not a CSV file in UTF-8, but binary data"),
        (b"a" * (2 << 20), "this is not a CSV file: a line has more than 1048576 characters"),
        ("timestamp,rps\n1," + "9" * 200_000, "line 2: field larger than field limit (131072)"),
        (rows("", ""), "column rps has no value between --from and --to"),
    ],
)
def test_errors(write: Write, content: str | bytes, problem: str) -> None:
    path = write(content)

    with pytest.raises(ReplayError) as caught:
        read(path)

    assert str(caught.value) == f"{path}: {problem}"


def test_damaged_gzip_files_are_errors(write: Write) -> None:
    whole = gzip.compress(rows(*range(5000)).encode())

    for damaged in (whole[:-20], whole[:300], whole[:40] + b"\xff" * 40 + whole[80:], whole[:2]):
        with pytest.raises(ReplayError, match=r"load\.csv: the gzip file is damaged or cut off: "):
            read(write(damaged))


def test_files_that_cannot_be_opened_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"nothing\.csv: No such file or directory$"):
        read(tmp_path / "nothing.csv")
    with pytest.raises(ReplayError, match=r"Is a directory$"):
        read(tmp_path)


def test_an_empty_range_is_an_error(write: Write) -> None:
    path = write(rows(1, 2))

    with pytest.raises(ReplayError) as caught:
        read(path, from_s=T + 3600)

    span = "2026-05-28T20:26:40Z to 2026-05-28T20:27:40Z"
    assert str(caught.value) == f"{path}: there are no rows between --from and --to: the file has {span}"


def test_a_counter_is_an_error(write: Write) -> None:
    hpa = make_hpa(external_metric("requests_total", averageValue="10"))
    growing = "".join(f"{T + 60 * index},{100 * index % 4000}\n" for index in range(100))

    with pytest.raises(ReplayError) as caught:
        read(write("timestamp,requests_total\n" + growing), hpa)

    assert str(caught.value) == (
        "metric requests_total is a counter, which only grows: use its rate, such as rate(requests_total[2m]), in the "
        "file or by a rule of --config"
    )


def test_a_metric_that_only_sounds_like_a_counter_is_none(write: Write) -> None:
    hpa = make_hpa(external_metric("requests_total", averageValue="10"))
    moving = "".join(f"{T + 60 * index},{100 + index % 7}\n" for index in range(100))

    assert read(write("timestamp,requests_total\n" + moving), hpa).series


_CELLS = st.sampled_from(
    ["timestamp", "rps", "replicas", "1", "60", "1e3", "2026-05-28T20:26:40Z", "", '"', "x", "1e400"]
)
_LINES = st.lists(st.lists(_CELLS, max_size=4).map(",".join), max_size=6).map("\n".join)


@given(st.one_of(st.binary(max_size=200), st.text().map(str.encode), _LINES.map(str.encode)), st.booleans())
def test_any_content_is_a_load_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, zipped: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(gzip.compress(data) if zipped else data)

    with contextlib.suppress(ReplayError):
        load = read(path)
        assert load.start_ms < load.end_ms
