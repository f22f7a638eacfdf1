"""Helm's engine for tests, which is only for x86-64 Linux."""

import pytest

from tools.render_chart import ChartError, load_helm


def require_helm() -> None:
    """Skip the test if there is no engine for this platform."""
    try:
        load_helm()
    except ChartError as error:
        pytest.skip(str(error))
