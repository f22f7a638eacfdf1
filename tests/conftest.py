"""Settings of all tests."""

import asyncio
import gc
import itertools
import os
import re
import signal
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import looptime
import pytest
from hypothesis import HealthCheck, settings

# The machine may be busy: no example has a deadline, and none is refused for being slow to generate. The examples are
# the same in every run; `--hypothesis-profile=default` tries others, and more than twice as many.
settings.register_profile(
    "suite", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

# kubectl, Helm's engine, promtool and Prometheus live for seconds: fewer garbage collections save a fifth of their CPU.
os.environ.setdefault("GOGC", "400")

# aiohttp reads the system's CAs when it is imported, a tenth of a process's start. No test trusts them.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)

# A shell starts background jobs with Ctrl-C ignored, and their children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TIMED_OUT = pytest.StashKey[bool]()


_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own; pytest's fixture reads the names of all tests' folders to find the next number."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}_{next(_numbers)}", numbered=False)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Give tests with the mark `looptime`, and their fixtures, virtual time; the mark's arguments are looptime's.

    looptime's own plugin makes the event loops of all tests slower. A loop without I/O waits for it in 42 rounds before
    time goes on; on loopback it is there in the first.
    """
    result = yield
    mark = request.node.get_closest_marker("looptime")
    if isinstance(result, asyncio.Runner) and mark is not None and mark.args != (False,):
        loop = result.get_loop()
        assert isinstance(loop, asyncio.BaseEventLoop)
        looptime.patch_event_loop(loop, **{"noop_cycles": 5, **mark.kwargs})
    return result


def pytest_xdist_auto_num_workers() -> int:
    """More workers than cores: the tests that start processes mostly wait for them.

    Each worker imports and collects all tests, which takes five seconds of CPU, and twice as much the first time.
    """
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would look at all tests again and again: a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that start processes, so that no worker is left with the longest of them at the end.

    On a machine that is very busy the longest of them take minutes, so their time limit is a longer one. The others of
    a file run in one worker, which has its fixtures and what it has computed once.
    """
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)
    for item in items:
        if item.get_closest_marker("e2e") is not None:
            item.add_marker(pytest.mark.timeout(600))
        elif item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(Path(__file__).parent).with_suffix(""))))
        for missing in {name for mark in item.iter_markers("kubebuilder") for name in missing_binaries(mark)}:
            item.add_marker(pytest.mark.skip(f"KUBEBUILDER_ASSETS names no directory with {missing}"))


def missing_binaries(mark: pytest.Mark) -> list[str]:
    """Return what a test of a real API server does not have; the mark names more programs than the server's.

    Without KUBEBUILDER_ASSETS there is none. A directory without the server is an error of the tests themselves.
    """
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if folder is None:
        return ["kube-apiserver and etcd"]
    return [name for name in mark.args if not (Path(folder) / name).is_file()]


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Generator[None, object, object]:
    """Have the stacks of all asyncio tasks printed when a test's time is over; pytest-timeout prints the threads'."""
    result = yield
    fail = signal.getsignal(signal.SIGALRM)

    def print_tasks(number: int, frame: FrameType | None) -> None:
        item.stash[TIMED_OUT] = True
        try:
            tasks = asyncio.all_tasks()
        except RuntimeError:  # no event loop is running
            tasks = set()
        for task in tasks:
            task.print_stack()
        assert callable(fail)
        fail(number, frame)

    signal.signal(signal.SIGALRM, print_tasks)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test whose time was over even where a server's handler, say, has caught the exception that says so."""
    result = yield
    if item.stash.get(TIMED_OUT, False):
        pytest.fail("the test's time was over")
    return result
