"""Check label_selectors.jsonl: a text is parsed as a label selector, and labels are matched with it."""

from typing import Any

from kube.values.selectors import LabelSelector, SelectorError
from tests.conformance.comparison import difference


def check(case: dict[str, Any]) -> str | None:
    """Compare parse result, canonical form, requirements and matches."""
    expected = {key: value for key, value in case.items() if key != "input"}
    if case["ok"]:
        expected = {"requirements": [], "matches": []} | expected
    return difference(expected, _parse(case["input"], case.get("matches", [])))


def _parse(text: str, matches: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        selector = LabelSelector.parse(text)
    except SelectorError as error:
        return {"ok": False, "error": str(error)}
    return {
        "ok": True,
        "canonical": str(selector),
        "empty": selector.empty,
        "requirements": [
            {"key": requirement.key, "operator": requirement.operator.value, "values": list(requirement.values)}
            for requirement in selector.requirements
        ],
        "matches": [{"labels": match["labels"], "match": selector.matches(match["labels"])} for match in matches],
    }
