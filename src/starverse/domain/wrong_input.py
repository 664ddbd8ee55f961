"""What would have been right, in our words, for what a reader of typed input found wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EXPECTED: Mapping[str, str] = {
    "missing": "a value",
    "extra_forbidden": "no such field",
    "json_invalid": "valid JSON ({error})",
    "model_attributes_type": "a JSON object",
    "model_type": "a JSON object",
    "dict_type": "a JSON object",
    "dataclass_type": "a JSON object",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "text",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
    "string_unicode": "text in UTF-8",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "decimal_type": "a decimal number",
    "decimal_parsing": "a decimal number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "enum": "one of {expected}",
    "literal_error": "one of {expected}",
    "none_required": "nothing",
    "path_type": "a path",
    "uuid_parsing": "a UUID",
    "uuid_type": "a UUID",
    "datetime_type": "a time such as 2026-03-10T08:00:00Z",
    "datetime_parsing": "a time such as 2026-03-10T08:00:00Z",
    "datetime_from_date_parsing": "a time such as 2026-03-10T08:00:00Z",
    "datetime_object_invalid": "a time such as 2026-03-10T08:00:00Z",
    "timezone_aware": "a time with its zone, such as 2026-03-10T08:00:00Z",
    "date_type": "a date such as 2026-03-10",
    "date_parsing": "a date such as 2026-03-10",
    "date_from_datetime_parsing": "a date such as 2026-03-10",
}


def expected_of(finding: Mapping[str, Any]) -> str:
    """What a pydantic finding (``type``, ``ctx``, ``msg``) wants; its own text where we have no words."""
    words = _EXPECTED.get(str(finding["type"]))
    context: Mapping[str, Any] = finding.get("ctx") or {}
    if words is not None:
        try:
            return words.format(**context)
        except (KeyError, IndexError):
            return words.partition(" (")[0]
    if finding["type"] in ("value_error", "assertion_error") and context.get("error"):
        return str(context["error"])
    return str(finding["msg"])
