"""Judge of hpa_validation.jsonl: an HPA as the API server takes it at create: decoded, defaulted, validated."""

from typing import Any

from autoscaler.objects.defaults import default_hpa
from autoscaler.objects.fields import ParseError
from autoscaler.objects.validation import validate_hpa
from tests.conformance.comparison import difference


def judge(case: dict[str, Any]) -> str | None:
    """Compare the defaulted spec and the errors; that it cannot be decoded is compared as a fact."""
    try:
        obj = default_hpa(case["input"])
    except ParseError as error:
        return None if "decodeError" in case else f"cannot be decoded: {error}"
    if "decodeError" in case:
        return f"decoded, where Kubernetes says: {case['decodeError']}"
    return difference(
        {"defaultedSpec": case["defaultedSpec"], "errors": case["errors"]},
        {"defaultedSpec": obj["spec"], "errors": validate_hpa(obj, scale_to_zero=case["scaleToZeroEnabled"])},
    )
