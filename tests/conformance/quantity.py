"""Check quantity.jsonl: a text is parsed as a quantity, or a milli-value is formatted as one."""

import math
from typing import Any

from kube.values.quantity import Format, Quantity, QuantityError
from tests.conformance.comparison import difference


def check(case: dict[str, Any]) -> str | None:
    """Compare but for integers flagged as not being the mathematical value."""
    if case["kind"] == "fromMilli":
        written = {
            "decimalSI": str(Quantity.from_milli(case["milli"], Format.DECIMAL_SI)),
            "binarySI": str(Quantity.from_milli(case["milli"], Format.BINARY_SI)),
        }
        return difference({key: case[key] for key in written}, written)
    expected = {
        key: value
        for key, value in case.items()
        if key not in ("kind", "input") and not key.endswith("Wrong") and not case.get(f"{key}Wrong")
    }
    actual = _parse(case["input"])
    if "float" in expected:
        expected["float"] = float(expected["float"])  # large ones were recorded without a point
    elif math.isinf(actual.get("float", 0.0)):
        del actual["float"]  # JSON has no infinity
    for key in ("milliValue", "value"):
        if case.get(f"{key}Wrong"):
            actual.pop(key, None)
    return difference(expected, actual)


def _parse(text: str) -> dict[str, Any]:
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        return {"ok": False, "error": str(error)}
    return {
        "ok": True,
        "canonical": str(quantity),
        "milliValue": quantity.milli_value(),
        "value": quantity.value(),
        "sign": quantity.sign,
        "float": quantity.as_float(),
    }
