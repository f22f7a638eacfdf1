"""The objects of a process that runs in this one, to see which settings they have."""

import gc
import itertools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from adapter.commands.flags import ServeOptions
from kube.process.settings import settings_of

PACKAGES = {"adapter", "autoscaler", "kube"}

T = TypeVar("T")


def changed(tree: T) -> T:
    """Return the tree with another value of each setting, a little more than twice as much, and all different."""
    counter = itertools.count(101)

    def of(values: Any) -> Any:
        new = {}
        for each in fields(values):
            value = getattr(values, each.name)
            if is_dataclass(value):
                new[each.name] = of(value)
            elif isinstance(value, int):
                new[each.name] = 2 * value + next(counter)
            else:
                new[each.name] = 2 * value + next(counter) / 1000
        return replace(values, **new)

    return of(tree)  # type: ignore[no-any-return]


def _objects() -> list[Any]:
    gc.unfreeze()  # processes exclude the objects of their first lists from garbage collection
    return gc.get_objects()


class Parts:
    """The objects that are made after this one, and exist when they are asked for."""

    def __init__(self) -> None:
        self._before = _objects()

    def attributes(self) -> Iterator[tuple[str, Any]]:
        """Yield (what the attribute is of, value) of each attribute of each object of the product."""
        before = {id(each) for each in self._before}
        new = [each for each in _objects() if id(each) not in before]
        parts = [each for each in new if type(each).__module__.partition(".")[0] in {*PACKAGES, "cachetools"}]
        # The process replaces the group in these, which are made of flags.
        of_flags = {id(each.limits) for each in parts if isinstance(each, ServeOptions)}
        for part in parts:
            if id(part) in of_flags:
                continue
            names = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
            values = {name: getattr(part, name) for name in names if hasattr(part, name)}
            for name, value in {**values, **getattr(part, "__dict__", {})}.items():
                yield f"{type(part).__qualname__}.{name}", value


def check_settings(parts: Parts, given: Any, defaults: Any, *, taken: set[str]) -> None:
    """Check that no part has a group of the default settings, and that single values are those given.

    tests/docs/test_settings.py checks that all groups and settings are read.

    Args:
        parts: of the process.
        given: its settings, from `changed`.
        defaults: the default ones.
        taken: the settings whose value, not whose group, a part has.
    """
    groups = [getattr(defaults, each.name) for each in fields(defaults)]
    kinds = {type(each) for each in groups}
    of_groups = tuple(f"{kind.__name__}." for kind in kinds)
    with_default, numbers = set(), set()
    for path, value in parts.attributes():
        if type(value) in kinds and value in groups:
            with_default.add(path)
        elif isinstance(value, int | float) and not path.startswith(of_groups):
            numbers.add(value)
    values = dict(settings_of(given))
    assert with_default == set()
    assert {path for path in taken if values[path] not in numbers} == set()
