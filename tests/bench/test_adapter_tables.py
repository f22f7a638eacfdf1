"""The tables for the documentation, from the figures of a run."""

from bench.adapter import Row
from bench.adapter_environment import BARE, OURS, PEER, UNCACHED
from bench.adapter_tables import tables


def row(server: str, scenario: str, *, connections: int = 16, rps: float = 1_000.0, cpu_us: float = 150.0) -> Row:
    nothing = dict.fromkeys(("failed", "queries", "late_25ms", "late_100ms"), 0)
    times = dict.fromkeys(("p50", "p99", "worst"), 2.5)
    rest = dict.fromkeys(("queries_per_s", "cpu", "cpu_prometheus", "cpu_load", "rss", "rss_peak"), 1.0)
    figures = {"rps": rps, "cpu_us": cpu_us, **times, **rest}
    return Row(server=server, scenario=scenario, connections=connections, **nothing, **figures)  # type: ignore[arg-type]


def test_scenario_without_figures_has_no_table() -> None:
    assert tables([row(OURS, "mixed")])[0].startswith("|  | prometheus-adapter")
    quick = [row(BARE, "any", cpu_us=50.0), *(row(server, "external") for server in (OURS, UNCACHED, PEER))]
    readme, main = tables(quick)
    assert "| external | 1,000/s, p99 2.5 ms | 1,000/s, p99 2.5 ms | 1,000/s, p99 2.5 ms |" in readme
    assert "| external | adapter | 1,000 | 2.5 | 2.5 | 0 | 150 | 3.0 |" in main


def test_last_of_several_runs_counts() -> None:
    rows = [row(BARE, "any", cpu_us=50.0), row(OURS, "external"), row(OURS, "external", cpu_us=100.0)]
    assert "| 100 | 2.0 |" in tables(rows)[1]


def test_each_kind_of_scenario_has_a_table() -> None:
    rows = [row(OURS, "single pod", connections=number) for number in (4, 8, 16, 32)]
    rows += [row(OURS, f"list of {number}", connections=1) for number in (625, 1250, 2500, 5000)]
    rows += [row(OURS, f"one of {number} series") for number in (12_500, 25_000, 50_000, 100_000)]
    first_cells = [table.split("|")[1].strip() for table in tables(rows)]
    assert first_cells == ["", "one pod, connections", "pods in the response", "series"]
