"""A real adapter process whose Prometheus sends far too much: its memory, open files and responses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.adapter.faulty_prometheus import HEAD, Reply, bomb, endless, faulty_prometheus, responds, vector
from tests.adapter.serving import Reply as Answered
from tests.adapter.test_process import EXTERNAL, RunningAdapter, running_adapter
from tests.eventually import eventually
from tests.kube.access_api import Authorities

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory and files are counted in /proc"),
]

AT_ONCE = 4
SAMPLE = b'{"metric":{},"value":[1,"1"]},' * 1_000
FAULTS: tuple[Reply, ...] = (
    bomb("gzip", HEAD, SAMPLE, times=2_000),
    bomb("deflate", HEAD, b" " * 100_000, times=1_000),
    endless(b"", b"x" * 10_000),
)
# A name for each query, since a failure is kept for a second.
RULES = "externalRules:\n" + "\n".join(f"- {{name: m{n}, query: 'm{n}'}}" for n in range((len(FAULTS) + 1) * AT_ONCE))


def resident_mib(adapter: RunningAdapter, field: str = "VmRSS") -> int:
    status = Path(f"/proc/{adapter.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:")) // 1024


def open_files(adapter: RunningAdapter) -> int:
    return len(list(Path(f"/proc/{adapter.process.pid}/fd").iterdir()))


async def request(adapter: RunningAdapter, numbers: range) -> list[Answered]:
    master = adapter.client.authorities.clients.issue("admin", organizations=["system:masters"], client=True)
    paths = [f"{EXTERNAL}/namespaces/shop/m{number}" for number in numbers]
    return list(await asyncio.gather(*(adapter.client.request(path, certificate=master) for path in paths)))


async def test_endless_responses_take_little_memory(tmp_path: Path) -> None:
    async with (
        faulty_prometheus() as prometheus,
        running_adapter(
            tmp_path / "a",
            RULES,
            authorities=Authorities(),
            prometheus=prometheus.url,
            more=("--prometheus-response-memory-mb=16",),
        ) as adapter,
    ):

        async def answers() -> bool:
            try:
                return (await request(adapter, range(1)))[0].status == 200
            except OSError:
                return False

        await eventually(answers, within=30)
        await request(adapter, range(AT_ONCE))
        memory, files = resident_mib(adapter), open_files(adapter)
        for round_, fault in enumerate(FAULTS, 1):
            prometheus.query = fault
            for answered in await request(adapter, range(round_ * AT_ONCE, (round_ + 1) * AT_ONCE)):
                assert answered.status in (503, 504), answered.body  # 504 where a busy machine takes 20 s to refuse it
                assert answered.json["kind"] == "Status"
                assert "for externalRules[" in answered.json["message"]
                assert b"127.0.0.1" not in answered.body
            prometheus.query = responds(vector({}, round_))
            # Its failure is kept for a second.
            assert await eventually(answers, within=10)
        # 24 MiB are for what is being decoded. Without a limit it was more than 1,000.
        assert resident_mib(adapter, "VmHWM") < memory + 100

        async def no_more_files() -> bool:
            return open_files(adapter) <= files

        assert await eventually(no_more_files, within=10)
