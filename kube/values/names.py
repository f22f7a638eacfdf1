"""Validation of names and labels. Upstream: k8s.io/apimachinery/pkg/util/validation.

Each function returns a list of errors, empty for a valid text; `kube.values.fields` adds the path. The messages are
those of Kubernetes 1.36; `LabelWords` has the wording of older releases where it differs.
"""

import re
from dataclasses import dataclass

_QUALIFIED_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED_NAME})?"
_RFC1123_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_RFC1123_SUBDOMAIN = rf"{_RFC1123_LABEL}(\.{_RFC1123_LABEL})*"

_QUALIFIED_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    f" (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED_NAME}')"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character"
    f" (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_LABEL_VALUE}')"
)
_RFC1123_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    f" an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_RFC1123_LABEL}')"
)
_RFC1123_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    f" end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_RFC1123_SUBDOMAIN}')"
)
_EXAMPLE = "(e.g. 'example.com/MyName')"
_MAX_LABEL = 63
_MAX_SUBDOMAIN = 253


@dataclass(frozen=True, slots=True)
class LabelWords:
    """The words of a release of Kubernetes for a label's key and for the unit of its length."""

    key: str
    unit: str


LABEL_WORDS = LabelWords(key="a valid label key", unit="bytes")
"""Kubernetes 1.36."""

OLDER_LABEL_WORDS = LabelWords(key="a qualified name", unit="characters")
"""Kubernetes 1.30, which prometheus-adapter 0.12 is built with."""


def qualified_name_errors(name: str, *, words: LabelWords = LABEL_WORDS) -> list[str]:
    """Check a label key: an optional DNS prefix and `/`, and a name."""
    parts = name.split("/")
    if len(parts) > 2:
        return [f"{words.key} {_QUALIFIED_NAME_RULE} with an optional DNS subdomain prefix and '/' {_EXAMPLE}"]
    errors = []
    if len(parts) == 2:
        if not parts[0]:
            errors.append("prefix part must be non-empty")
        else:
            errors += [f"prefix part {error}" for error in _subdomain_errors(parts[0], unit=words.unit)]
    if not parts[-1]:
        errors.append("name part must be non-empty")
    elif _bytes(parts[-1]) > _MAX_LABEL:
        errors.append(f"name part must be no more than {_MAX_LABEL} {words.unit}")
    if not re.fullmatch(_QUALIFIED_NAME, parts[-1]):
        errors.append(f"name part {_QUALIFIED_NAME_RULE}")
    return errors


def label_value_errors(value: str, *, words: LabelWords = LABEL_WORDS) -> list[str]:
    """Check a label value, which may be empty."""
    errors = []
    if _bytes(value) > _MAX_LABEL:
        errors.append(f"must be no more than {_MAX_LABEL} {words.unit}")
    if not re.fullmatch(_LABEL_VALUE, value):
        errors.append(_LABEL_VALUE_RULE)
    return errors


def rfc1123_label_errors(name: str) -> list[str]:
    """Check a name without dots, such as that of a namespace."""
    errors = []
    if _bytes(name) > _MAX_LABEL:
        errors.append(f"must be no more than {_MAX_LABEL} characters")
    if not re.fullmatch(_RFC1123_LABEL, name):
        only_dots = re.fullmatch(_RFC1123_SUBDOMAIN, name)
        errors.append("must not contain dots" if only_dots else _RFC1123_LABEL_RULE)
    return errors


def rfc1123_subdomain_errors(name: str) -> list[str]:
    """Check a name that may have dots, such as that of most objects."""
    return _subdomain_errors(name, unit="characters")


def path_segment_errors(name: str) -> list[str]:
    """Check that a name can be a segment of a URL path, as metric names and kinds must."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def _subdomain_errors(name: str, *, unit: str) -> list[str]:
    """Check a subdomain; Kubernetes counts bytes, and calls them characters except in label keys."""
    errors = []
    if _bytes(name) > _MAX_SUBDOMAIN:
        errors.append(f"must be no more than {_MAX_SUBDOMAIN} {unit}")
    if not re.fullmatch(_RFC1123_SUBDOMAIN, name):
        errors.append(_RFC1123_SUBDOMAIN_RULE)
    return errors


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
