"""Health: /healthz, /livez and /readyz, in the form that Kubernetes components give them.

A check is a function that returns what is wrong, or None. Kubernetes withholds the reasons ("reason withheld"); here
they are in the response, because they name no address and no secret, and users need to know why a pod is not ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from kube.security.request_info import Target

Check = Callable[[], str | None]


class Health:
    """The three endpoints with their named checks, and the metrics of the checks for /metrics/slis.

    Args:
        live: checks by name for all three endpoints, in addition to `ping`. A failure requires a restart.
        ready: further checks for /readyz, which decide whether traffic should be sent here.
        notes: warnings by name, shown at /readyz?verbose, that do not affect readiness.
    """

    def __init__(
        self, *, live: Mapping[str, Check], ready: Mapping[str, Check], notes: Mapping[str, Check] | None = None
    ) -> None:
        self._notes = notes or {}
        live = {"ping": lambda: None, **live}
        self._endpoints = {"healthz": live, "livez": live, "readyz": {**live, **ready}}
        # Updated when the checks are requested, so that a scrape is cheap and shows the results that probes got.
        self._registry = CollectorRegistry()
        self._last = Gauge(
            "kubernetes_healthcheck",
            "Whether a check passed when it was last requested (1) or not (0).",
            ("name", "type"),
            registry=self._registry,
        )
        self._all = Counter(
            "kubernetes_healthchecks_total", "Results of checks.", ("name", "type", "status"), registry=self._registry
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path of a health check."""
        return tuple(
            path
            for endpoint, checks in self._endpoints.items()
            for path in (f"/{endpoint}", *(f"/{endpoint}/{name}" for name in checks))
        )

    def respond(self, target: Target) -> tuple[int, str] | None:
        """Return status and text for a request, with `?verbose` and `?exclude=CHECK`; None for any other path."""
        endpoint, *names = target.segments or ("",)
        checks = self._endpoints.get(endpoint)
        if checks is None or len(names) > 1 or not checks.keys() >= set(names):
            return None
        if names:
            problem = self._run(endpoint, names[0], checks[names[0]])
            return (200, "ok") if problem is None else (500, f"internal server error: {problem}\n")
        excluded = set(target.query.getall("exclude"))
        problems = {name: self._run(endpoint, name, check) for name, check in checks.items() if name not in excluded}
        failed = any(problem is not None for problem in problems.values())
        if not failed and "verbose" not in target.query:
            return 200, "ok"
        lines = [f"[+]{name} excluded: ok" for name in sorted(excluded & set(checks))]
        lines += [
            f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}" for name, problem in problems.items()
        ]
        if endpoint == "readyz":
            lines += [f"[!]{name}: {note}" for name, look in self._notes.items() if (note := look()) is not None]
        if excluded - set(checks):
            unknown = ",".join(f'"{name}"' for name in sorted(excluded - set(checks)))
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
        lines.append(f"{endpoint} check {'failed' if failed else 'passed'}\n")
        return 500 if failed else 200, "\n".join(lines)

    def render(self) -> bytes:
        """Return /metrics/slis in Prometheus' text format. Upstream: component-base/metrics/prometheus/slis."""
        return generate_latest(self._registry)

    def _run(self, endpoint: str, name: str, check: Check) -> str | None:
        problem = check()
        self._last.labels(name, endpoint).set(problem is None)
        self._all.labels(name, endpoint, "success" if problem is None else "error").inc()
        return problem
