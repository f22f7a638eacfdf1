"""The demo: the bundle with a periodic load, and the autoscaler's actions on the terminal.

It ends after a given time, with exit status 0 if every HPA has scaled up and down, or with Ctrl-C or SIGTERM. Its
recording is replayed then, and all its processes end before it does.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from playground.binaries import Program, find_async, is_installed, unpacking
from playground.bundle import Bundle, Timing, run_bundle
from playground.errors import PlaygroundError
from playground.recording import REPLAYED_HPA, replay_recording
from playground.scenario import NAMESPACE, SWINGING, showcase_load, wave_of
from playground.scoreboard import Scoreboard, Standing
from playground.screen import Picture, Row, draw, event_line, plain_lines, summary
from playground.tasks import background
from replay.commands import write_html
from replay.load import ReplayError

_PROGRAMS: Final[tuple[Program, ...]] = ("prometheus", "kubectl")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOG: Final = "demo.log"
"""The playground's own log, which marks a folder as one of a demo."""
_REDRAW: Final = 0.25
_LINES_EVERY: Final = 5.0
"""Seconds between lines if the output is no terminal."""
_HISTORY: Final = 12
"""Number of drawn values of the load, over its last period."""


class DemoError(PlaygroundError):
    """The demo cannot run here."""


def run_demo(*, seconds: float | None, period: float, folder: Path, console: Console) -> int:
    """Run the demo in `folder` for `seconds`, or until Ctrl-C; return the exit status.

    `period` is that of the load, in seconds. Exit status 0: every HPA scaled up and down, or the demo was to run until
    a signal. 1: not every HPA did. 128 plus the signal's number: a signal ended it early.

    Raises:
        PlaygroundError: the message says what failed, or what to do.
    """
    folder = folder.resolve()
    with _alone_in(folder):
        _log_to(folder / _LOG)
        return asyncio.run(_until_signal(seconds=seconds, period=period, folder=folder, console=console))


async def _until_signal(*, seconds: float | None, period: float, folder: Path, console: Console) -> int:
    loop = asyncio.get_running_loop()
    demo = asyncio.create_task(_demo(seconds=seconds, period=period, folder=folder, console=console))
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if not received:  # a second Ctrl-C must not interrupt the cleanup
            demo.cancel()
        received.append(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        return await demo
    except asyncio.CancelledError:
        if not received:
            raise
        return 0 if seconds is None else 128 + received[0]


async def _demo(*, seconds: float | None, period: float, folder: Path, console: Console) -> int:
    for program in _PROGRAMS:
        if not is_installed(program):
            console.print(unpacking(program), soft_wrap=True)
        await find_async(program)
    console.print("starting the cluster, Prometheus, the adapter and the autoscaler ...")
    timing = Timing()
    async with run_bundle(folder, load=showcase_load(period=period), timing=timing, showcase=True) as bundle:
        scoreboard = Scoreboard(bundle.client, NAMESPACE, swinging=SWINGING)
        async with background(scoreboard.run()):
            await scoreboard.wait_synced()
            started = time.time()
            _print(
                console,
                "For a browser:",
                f"  {bundle.autoscaler_ui_url}  the HPAs, and the reason for each decision",
                f"  {bundle.adapter_ui_url}  the adapter's rules and metrics",
                "",
                "For another terminal:",
                *_commands(bundle),
                f"Logs: {folder}/*.log",
                "",
            )
            try:
                show = _show_live if console.is_terminal else _show_lines
                await show(bundle, scoreboard, seconds=seconds, console=console)
            finally:
                console.print()
                console.print(summary(scoreboard.swinging))
                if not isinstance(sys.exception(), Exception):  # its time is over, or a signal ended it
                    await _replay(bundle, timing, start=started, folder=folder, console=console)
        if scoreboard.all_swung:
            return 0
        console.print("not every HPA has scaled up and down")
        return 1


async def _replay(bundle: Bundle, timing: Timing, *, start: float, folder: Path, console: Console) -> None:
    """Replay what Prometheus has recorded, and print where the page is."""
    url, page = bundle.prometheus.url, folder / "replay.html"

    def replay() -> None:
        cache = folder / "replay-cache"
        write_html(replay_recording(url, start=start, end=time.time(), timing=timing, cache=cache), page)

    try:
        await asyncio.to_thread(replay)
    except ReplayError as error:
        _print(console, f"The recording cannot be replayed: {error}")
    else:
        _print(console, f"The recording is replayed, with each decision of the HPA {REPLAYED_HPA}: {page}")


async def _show_live(bundle: Bundle, scoreboard: Scoreboard, *, seconds: float | None, console: Console) -> None:
    with Live(console=console, auto_refresh=False) as live:
        while seconds is None or bundle.workload.elapsed < seconds:
            bundle.check()
            live.update(draw(_picture(bundle, scoreboard, seconds)), refresh=True)
            await asyncio.sleep(_REDRAW)


async def _show_lines(bundle: Bundle, scoreboard: Scoreboard, *, seconds: float | None, console: Console) -> None:
    printed, next_lines = 0, 0.0
    while seconds is None or bundle.workload.elapsed < seconds:
        bundle.check()
        new = scoreboard.events_seen - printed
        _print(console, *(event_line(event) for event in list(scoreboard.events)[-new:] if new))
        printed += new
        if bundle.workload.elapsed >= next_lines:
            _print(console, *plain_lines(_picture(bundle, scoreboard, seconds)))
            next_lines = bundle.workload.elapsed + _LINES_EVERY
        await asyncio.sleep(_REDRAW)


def _picture(bundle: Bundle, scoreboard: Scoreboard, seconds: float | None) -> Picture:
    elapsed = bundle.workload.elapsed

    def row(standing: Standing) -> Row:
        wave = wave_of(bundle.workload.load, standing.hpa.target)
        if wave is None:
            return Row(standing, load=None, history=())
        times = [elapsed - wave.period * age / _HISTORY for age in reversed(range(_HISTORY))]
        return Row(standing, load=wave.rate(elapsed), history=[wave.rate(time) if time >= 0 else 0 for time in times])

    return Picture(
        elapsed=elapsed,
        limit=seconds,
        rows=[row(standing) for standing in scoreboard.standings],
        events=list(scoreboard.events),
    )


def _commands(bundle: Bundle) -> list[str]:
    folders = [Path(sys.executable).parent]  # of milliscale, and of kubectl-milliscale, which kubectl finds on PATH
    if shutil.which("kubectl") is None:
        folders.append(bundle.kubectl.parent)
    path = ":".join(shlex.quote(str(folder)) for folder in folders)
    return [
        f"  export KUBECONFIG={shlex.quote(str(bundle.kubeconfig))} PATH={path}:$PATH",
        f"  milliscale explain {NAMESPACE}/typo",
        "  kubectl get hpa,metricrules",
        f"  milliscale replay --hpa={NAMESPACE}/{REPLAYED_HPA} --server={bundle.autoscaler_url}",
    ]


def _print(console: Console, *lines: str) -> None:
    """Print lines without wrapping, so that they can be copied, and without markup."""
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock and empty the folder; raise DemoError if a demo runs in it, or if it is not a folder of a demo."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoError(f"a demo is already running in {folder}; end it, or give another --folder") from error
        if folder.exists():
            if not (folder / _LOG).exists() and any(folder.iterdir()):
                raise DemoError(f"{folder} has something else in it; give a --folder that does not exist")
            shutil.rmtree(folder)
        folder.mkdir()
        (folder / _LOG).touch()
        yield


def _log_to(path: Path) -> None:
    """Log to a file instead of the screen."""
    logging.basicConfig(filename=path, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
