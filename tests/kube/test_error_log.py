"""The log of objects that cannot be reconciled: each error once, and its end."""

import logging

import pytest

from kube.controller.error_log import ErrorLog

WEB, API = "default/web", "default/api"


class Log:
    """The error log under test, and the records that it makes."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.disconnected = False
        self.now = 100.0
        self.errors = ErrorLog(disconnected=lambda: self.disconnected, clock=lambda: self.now)

    def after(self, error: str | None, key: str = WEB) -> list[str]:
        """Return the log lines of a reconciliation with this error."""
        self._caplog.clear()
        self.errors.reconciled(key, error)
        return [f"{each.levelname} {each.getMessage()}" for each in self._caplog.records]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def test_each_error_is_logged_once_and_its_end_too(log: Log) -> None:
    assert log.after(None) == []
    assert log.after("no metrics") == ["WARNING default/web: no metrics"]
    assert log.after("no metrics") == []
    assert log.after("no scale") == ["WARNING default/web: no scale"]
    assert log.after(None) == ["INFO default/web: reconciles again"]
    assert log.after(None) == []
    assert log.after("no metrics") == ["WARNING default/web: no metrics"]


def test_each_object_has_its_own(log: Log) -> None:
    log.after("no metrics")
    assert log.after("no metrics", API) == ["WARNING default/api: no metrics"]
    log.errors.forget(WEB)
    assert log.after(None) == []
    assert log.after(None, API) == ["INFO default/api: reconciles again"]


def test_while_the_api_server_is_disconnected_nothing_is_logged(log: Log) -> None:
    log.disconnected = True
    assert log.after("connection refused") == []
    log.disconnected = False
    assert log.after(None) == []
