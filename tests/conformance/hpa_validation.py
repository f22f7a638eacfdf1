"""Check hpa_validation.jsonl: an HPA is decoded, defaulted and validated as by the API server."""

from typing import Any

from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.validation import validate_hpa
from kube.api.objects import ParseError
from tests.conformance.comparison import difference


def check(case: dict[str, Any]) -> str | None:
    """Compare the defaulted spec and the validation errors, or the fact that the HPA cannot be decoded."""
    try:
        obj = default_hpa(case["input"])
    except ParseError as error:
        return None if "decodeError" in case else f"cannot be decoded: {error}"
    if "decodeError" in case:
        return f"decoded, where Kubernetes says: {case['decodeError']}"
    errors = validate_hpa(obj, scale_to_zero=case["scaleToZeroEnabled"])
    for rules in obj["spec"].get("behavior", {}).values():
        if not rules["policies"]:
            del rules["policies"]  # Go leaves out empty lists
    return difference(
        {"defaultedSpec": case["defaultedSpec"], "errors": case["errors"]},
        {"defaultedSpec": obj["spec"], "errors": errors},
    )
