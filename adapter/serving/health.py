"""Health: /healthz, /livez and /readyz, in the form that Kubernetes components give them.

A check is a function that says what is wrong, or None. Kubernetes withholds the reasons ("reason withheld"); here
they are given, because they name no address and no secret, and because "not ready" without a why is what users of
such adapters suffer from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adapter.security.request_info import Target
from adapter.serving.check_metrics import CheckMetrics

Check = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """A status and its text."""

    status: int
    text: str


class Health:
    """The three endpoints over named checks.

    Args:
        alive: checks whose failure only a restart can mend, by name; /livez and /healthz ask these.
        ready: checks that decide whether traffic should come here; /readyz asks these and the former.
        told: what is worth telling on /readyz?verbose and no reason to keep traffic away, by name.

    Attributes:
        metrics: how the checks went, for /metrics/slis.
    """

    def __init__(
        self, *, alive: Mapping[str, Check], ready: Mapping[str, Check], told: Mapping[str, Check] | None = None
    ) -> None:
        self._told = told or {}
        self.metrics = CheckMetrics()
        self._endpoints = {"healthz": alive, "livez": alive, "readyz": {**alive, **ready}}

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that is answered here."""
        return tuple(
            path
            for endpoint, checks in self._endpoints.items()
            for path in (f"/{endpoint}", *(f"/{endpoint}/{name}" for name in checks))
        )

    def answer(self, target: Target) -> HealthAnswer | None:
        """Answer a request, with `?verbose` and `?exclude=CHECK`; None where the path is none of these."""
        segments = target.segments
        checks = self._endpoints.get(segments[0]) if segments else None
        if checks is None or len(segments) > 2:
            return None
        if len(segments) == 2:
            return self._single(segments[0], segments[1], checks)
        excluded = set(target.query.getall("exclude"))
        problems = {
            name: self._problem(segments[0], name, check) for name, check in checks.items() if name not in excluded
        }
        told = self._told if segments[0] == "readyz" else {}
        remarks = {name: remark() for name, remark in told.items()}
        return _all(
            segments[0],
            problems,
            remarks,
            excluded & set(checks),
            excluded - set(checks),
            verbose="verbose" in target.query,
        )

    def _single(self, endpoint: str, name: str, checks: Mapping[str, Check]) -> HealthAnswer | None:
        check = checks.get(name)
        if check is None:
            return None
        problem = self._problem(endpoint, name, check)
        return HealthAnswer(200, "ok") if problem is None else HealthAnswer(500, f"internal server error: {problem}\n")

    def _problem(self, endpoint: str, name: str, check: Check) -> str | None:
        problem = check()
        self.metrics.observe(endpoint, name, passed=problem is None)
        return problem


def _all(
    endpoint: str,
    problems: Mapping[str, str | None],
    remarks: Mapping[str, str | None],
    excluded: set[str],
    unknown: set[str],
    *,
    verbose: bool,
) -> HealthAnswer:
    failed = any(problem is not None for problem in problems.values())
    if not failed and not verbose:
        return HealthAnswer(200, "ok")
    lines = [f"[+]{name} excluded: ok" for name in sorted(excluded)]
    lines += [
        f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}" for name, problem in problems.items()
    ]
    lines += [f"[+]{name} ok" if remark is None else f"[+]{name} ok: {remark}" for name, remark in remarks.items()]
    if unknown:
        names = ",".join(f'"{name}"' for name in sorted(unknown))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}\n")
    return HealthAnswer(500 if failed else 200, "\n".join(lines))
