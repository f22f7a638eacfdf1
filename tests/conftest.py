"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# The machine may be busy: no example has a deadline, and none is refused for being slow to generate. The examples are
# the same in every run; `--hypothesis-profile=default` tries others.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
