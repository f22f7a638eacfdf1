"""A real Prometheus on loopback, for the demo and for tests.

Its targets are in a file for service discovery, which `set_targets` rewrites. Samples can be loaded before the start:
promtool turns OpenMetrics text into TSDB blocks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import yaml

from playground.binaries import find_async
from playground.errors import PlaygroundError
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess

_START_ATTEMPTS: Final = 5
_START_TIMEOUT: Final = 60.0
_POLL: Final = 0.05


class PrometheusError(PlaygroundError):
    """Prometheus did not start, or promtool refused the samples; the message has the end of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A scrape target: `host:port`, and labels for its series."""

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Series:
    """A time series to load; its points are (unix seconds, value), in order of time."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


def openmetrics(series: Iterable[Series]) -> str:
    """Return series as OpenMetrics text for PrometheusServer; the series of a metric must be adjacent."""
    lines = []
    for one in series:
        labels = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in one.labels.items())
        lines += [f"{one.name}{{{labels}}} {value!r} {time!r}" for time, value in one.points]
    return "\n".join([*lines, "# EOF", ""])


class PrometheusServer:
    """A Prometheus that runs while its context is open.

    ```
    async with PrometheusServer(folder) as server:
        await server.set_targets([Target(address="127.0.0.1:8080", labels={"pod": "web-0"})])
        ... server.url ...
    ```

    `folder` is for configuration, data and log. `samples` is OpenMetrics text (see `openmetrics`) to load before the
    start; `scrape_configs` and `rule_files` are further parts of the configuration, in Prometheus' form; `flags` are
    further flags. `stop` and `start` within the context are an outage: the address and the data
    stay. Raises PrometheusError, or MissingBinaryError if Prometheus is not available.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scrape_interval: float = 1.0,
        samples: str | None = None,
        scrape_configs: Sequence[Mapping[str, Any]] = (),
        rule_files: Sequence[Path] = (),
        flags: Sequence[str] = (),
    ) -> None:
        self._folder = folder.resolve()
        self._scrape_interval = scrape_interval
        self._samples = samples
        self._scrape_configs = scrape_configs
        self._rule_files = rule_files
        self._flags = flags
        self._port: int | None = None
        self._process: ChildProcess | None = None

    @property
    def url(self) -> str:
        """The address, such as `http://127.0.0.1:39090`, after the first start."""
        assert self._port is not None, "not started"
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def process(self) -> ChildProcess:
        """The running Prometheus."""
        assert self._process is not None, "not started"
        return self._process

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._write_configuration)
        if self._samples is not None:
            await self._load(self._samples)
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        attempts = 1 if self._port is not None else _START_ATTEMPTS  # keep a known address
        for attempt in range(1, attempts + 1):
            port = self._port if self._port is not None else free_port()
            self._process = await self._launch(port)
            if await self._wait_ready(self._process, port):
                self._port = port
                return
            await self.stop()
            if attempt == attempts or "address already in use" not in "\n".join(self.process.last_lines()):
                raise PrometheusError(self._with_log("Prometheus ended while starting"))

    async def stop(self) -> None:
        """Stop it if it runs."""
        if self._process is not None:
            await self._process.stop()

    async def set_targets(self, targets: Iterable[Target]) -> None:
        """Replace the targets; Prometheus reloads them within some seconds."""
        await asyncio.to_thread(self._write_targets, list(targets))

    def _write_configuration(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        interval = f"{round(self._scrape_interval * 1000)}ms"
        configuration = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(path) for path in self._rule_files],
            "scrape_configs": [
                {
                    "job_name": "playground",
                    "file_sd_configs": [{"files": [str(self._targets_file)], "refresh_interval": "2s"}],
                },
                *self._scrape_configs,
            ],
        }
        self._configuration_file.write_text(yaml.safe_dump(configuration, sort_keys=False))
        self._write_targets([])

    def _write_targets(self, targets: Sequence[Target]) -> None:
        groups = [{"targets": [target.address], "labels": dict(target.labels)} for target in targets]
        # Renamed, so that Prometheus never reads a partial file.
        scratch = self._targets_file.with_suffix(".new")
        scratch.write_text(json.dumps(groups, indent=1))
        scratch.replace(self._targets_file)

    async def _load(self, samples: str) -> None:
        promtool = str(await find_async("promtool"))
        source = self._folder / "samples.om"
        await asyncio.to_thread(source.write_text, samples)
        command = [promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(source), str(self._data)]
        async with await ChildProcess.start("promtool", command, log=self._folder / "promtool.log") as process:
            if await process.wait() != 0:
                raise PrometheusError("promtool refused the samples: " + " ".join(process.last_lines(3)))

    async def _launch(self, port: int) -> ChildProcess:
        command = [
            str(await find_async("prometheus")),
            f"--config.file={self._configuration_file}",
            f"--storage.tsdb.path={self._data}",
            "--storage.tsdb.retention.time=10y",  # samples loaded by a test may be old
            f"--web.listen-address={LOOPBACK}:{port}",
            *self._flags,
        ]
        return await ChildProcess.start("prometheus", command, log=self._folder / "prometheus.log")

    async def _wait_ready(self, process: ChildProcess, port: int) -> bool:
        """Return True once it is ready, False if it ended; raise PrometheusError after a minute."""
        try:
            async with (
                asyncio.timeout(_START_TIMEOUT),
                aiohttp.ClientSession(f"http://{LOOPBACK}:{port}", timeout=aiohttp.ClientTimeout(total=5)) as session,
            ):
                while process.exit_status is None:
                    if await self._is_ours(session):
                        return True
                    await asyncio.sleep(_POLL)
        except TimeoutError as error:
            raise PrometheusError(self._with_log(f"Prometheus is not ready after {_START_TIMEOUT:.0f} s")) from error
        return False

    async def _is_ours(self, session: aiohttp.ClientSession) -> bool:
        """Return whether it is ready, and not another Prometheus on the same port."""
        try:
            async with session.get("/-/ready") as ready:
                if ready.status != 200:
                    return False
            async with session.get("/api/v1/status/flags") as flags:
                flags.raise_for_status()
                return bool((await flags.json())["data"]["storage.tsdb.path"] == str(self._data))
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False

    def _with_log(self, what: str) -> str:
        return "\n".join([f"{what}; the end of {self.process.log}:", *self.process.last_lines()])

    @property
    def _configuration_file(self) -> Path:
        return self._folder / "prometheus.yml"

    @property
    def _targets_file(self) -> Path:
        return self._folder / "targets.json"

    @property
    def _data(self) -> Path:
        return self._folder / "data"
