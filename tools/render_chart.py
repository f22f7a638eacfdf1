"""Print the objects of the Helm chart as YAML: `make render-chart [VALUES=FILE] [RELEASE=NAME] [NAMESPACE=NAME]`.

Helm's engine is a library here (helm-python-sdk, for x86-64 Linux), so no `helm` is needed. It contacts no cluster.
Elsewhere `helm template milliscale charts/milliscale --values FILE` prints the same.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).resolve().parent.parent / "charts" / "milliscale"
FAST_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader, seven times as fast; PyYAML can be without it."""

_NOTES: Final = "NOTES.txt"

Object = dict[str, Any]


class ChartError(Exception):
    """The values are invalid, or the chart cannot be rendered; the message is Helm's."""


def load_helm() -> Any:
    """Import and return helm_python. Go, which it is written in, raises the limit of open files; that is undone.

    Raises:
        ChartError: there is no Helm engine for this platform.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        import helm_python
    except ImportError as error:
        raise ChartError("helm-python-sdk is only for x86-64 Linux; use helm template") from error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return helm_python


def render(
    values: Mapping[str, Any], *, release: str = "milliscale", namespace: str = "milliscale", chart: Path = CHART
) -> dict[str, str]:
    """Return the text of each template that renders something, by its path in the chart.

    Raises:
        ChartError: the schema or a template refuses the values, or there is no Helm engine for this platform.
    """
    helm = load_helm()
    try:
        with helm.Chart.load(chart) as loaded:
            loaded.validate_schema(dict(values))
            rendered = loaded.render(dict(values), name=release, namespace=namespace)
    except helm.HelmError as error:
        raise ChartError(str(error)) from error
    prefix = chart.name + "/templates/"
    return {path.removeprefix(prefix): text for path, text in sorted(rendered.items()) if text.strip()}


def objects(rendered: Mapping[str, str]) -> list[Object]:
    """Return the objects of rendered templates."""
    return [
        entry
        for path, text in rendered.items()
        if path != _NOTES
        for entry in yaml.load_all(text, Loader=FAST_LOADER)
        if entry is not None
    ]


def main() -> None:
    """Print the objects, and Helm's message with status 1 if there is an error."""
    parser = argparse.ArgumentParser(description="Print the objects of the Helm chart as YAML.")
    parser.add_argument("--values", type=Path, help="a values file; without it, the chart's defaults")
    parser.add_argument("--release", default="milliscale", help="the release's name")
    parser.add_argument("--namespace", default="milliscale", help="the release's namespace")
    arguments = parser.parse_args()
    try:
        values = {} if arguments.values is None else yaml.safe_load(arguments.values.read_text()) or {}
        rendered = render(values, release=arguments.release, namespace=arguments.namespace)
    except (ChartError, OSError, yaml.YAMLError) as error:
        sys.exit(f"render-chart: {error}")
    for path, text in rendered.items():
        if path != _NOTES:
            print(f"---\n# Source: {CHART.name}/templates/{path}\n{text.strip().removeprefix('---').lstrip()}")


if __name__ == "__main__":
    main()
