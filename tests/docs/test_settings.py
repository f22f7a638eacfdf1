"""The settings of both processes are used, and documented."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import adapter.settings
import autoscaler.settings
from kube.process.settings import settings_of

ROOT = Path(__file__).parents[2]
TREES: dict[str, Any] = {"adapter": adapter.settings.DEFAULTS, "autoscaler": autoscaler.settings.DEFAULTS}
GROUPS = [(process, group.name) for process, tree in TREES.items() for group in fields(tree)]
OF_SETTINGS = {"settings", "limits", "connection"}
"""How a variable or attribute with a group of settings, or with the tree, ends."""


@cache
def attributes(process: str) -> frozenset[tuple[str, str]]:
    """Return the attributes in the code of a process and of kube: (what has it, its name)."""
    return frozenset(
        (owner.id if isinstance(owner, ast.Name) else owner.attr, node.attr)
        for package in (process, "kube")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(owner := node.value, ast.Name | ast.Attribute)
    )


def readers(process: str, name: str) -> Iterator[str]:
    """Yield the names of what the code of a process reads the attribute of."""
    return (owner for owner, attribute in attributes(process) if attribute == name)


@pytest.mark.parametrize(
    ("process", "path"), [(process, path) for process, tree in TREES.items() for path, _ in settings_of(tree)]
)
def test_each_setting_is_read(process: str, path: str) -> None:
    group, _, name = path.partition(".")
    assert any(owner == group or owner.rpartition("_")[2] in OF_SETTINGS for owner in readers(process, name))


@pytest.mark.parametrize(("process", "group"), GROUPS)
def test_each_group_is_passed_on_to_what_reads_it(process: str, group: str) -> None:
    """The default in the signature of a class is read from DEFAULTS, and does not count."""
    assert any(owner.rpartition("_")[2] in OF_SETTINGS for owner in readers(process, group))


@pytest.mark.parametrize(("process", "group"), GROUPS)
def test_each_setting_is_in_the_reference_with_its_reason(process: str, group: str) -> None:
    text = (ROOT / f"docs/reference/{process}-settings.md").read_text()
    values: Any = getattr(TREES[process], group)
    for each in fields(values):
        (row,) = (line for line in text.splitlines() if line.startswith(f"| `{group}.{each.name}` |"))
        assert len(row.split("|")[3].split()) >= 5
