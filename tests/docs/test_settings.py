"""The settings of both processes are used, and documented."""

import ast
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
def attributes(package: str) -> frozenset[tuple[str, str]]:
    """Return the attributes in the code of a package: (what has it, its name)."""
    return frozenset(
        (owner.id if isinstance(owner, ast.Name) else owner.attr, node.attr)
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(owner := node.value, ast.Name | ast.Attribute)
    )


def is_read(process: str, name: str, group: str = "") -> bool:
    """Return whether code of a process or of kube reads an attribute of settings, or of what is named as the group."""
    owners = {owner for owner, attribute in attributes(process) | attributes("kube") if attribute == name}
    return group in owners or any(owner.rpartition("_")[2] in OF_SETTINGS for owner in owners)


@pytest.mark.parametrize("process", TREES)
def test_each_setting_is_read(process: str) -> None:
    paths = [path.partition(".") for path, _ in settings_of(TREES[process])]
    assert [path for path in paths if not is_read(process, path[2], group=path[0])] == []


@pytest.mark.parametrize("process", TREES)
def test_each_group_is_passed_on_to_what_reads_it(process: str) -> None:
    """The default in the signature of a class is read from DEFAULTS, and does not count."""
    assert [group.name for group in fields(TREES[process]) if not is_read(process, group.name)] == []


@pytest.mark.parametrize(("process", "group"), GROUPS)
def test_each_setting_is_in_the_reference_with_its_reason(process: str, group: str) -> None:
    text = (ROOT / f"docs/reference/{process}-settings.md").read_text()
    values: Any = getattr(TREES[process], group)
    for each in fields(values):
        (row,) = (line for line in text.splitlines() if line.startswith(f"| `{group}.{each.name}` |"))
        assert len(row.split("|")[3].split()) >= 5
