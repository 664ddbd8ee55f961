"""What is wrong with a request is said in the words of our pages, with its place."""

from __future__ import annotations

from typing import Any

import pytest

from starverse.testing.http_sites import PREFIX, Site

CASES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "no JSON": ({"content": "{bad"}, "body, character 1", "no JSON", "valid JSON ("),
    "a list for an object": ({"json": []}, "body", "list", "a JSON object"),
    "a number for text": ({"json": {"script": 5}}, "script", "5", "text"),
    "text for a list": ({"json": {"script": "x", "argv": "y"}}, "argv", "y", "a list"),
    "no script": ({"json": {}}, "script", "missing", "a value"),
    "a field that is none": ({"json": {"script": "x", "sript": 1}}, "sript", "1", "no such field"),
    "text for a flag": ({"json": {"script": "x", "lint": "maybe"}}, "lint", "maybe", "true or false"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "_"))
def test_each_fault_names_its_field_and_what_would_be_right(site: Site, case: str) -> None:
    request, field, value, expected = CASES[case]
    headers = {"Content-Type": "application/json"}
    answer = site.register().client.post(f"{PREFIX}/jobs", headers=headers, **request)
    assert answer.status_code == 422, answer.text
    fault = answer.json()["faults"][0]
    assert (fault["field"], fault["value"]) == (field, value)
    assert fault["expected"].startswith(expected)


def test_a_wrong_query_says_what_it_takes(site: Site) -> None:
    answer = site.register().client.get(f"{PREFIX}/jobs", params={"limit": "many"})
    (fault,) = answer.json()["faults"]
    assert (fault["field"], fault["expected"]) == ("limit", "a whole number")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"script": "#!/bin/bash\ntrue\0\n"}, "in script, line 2"),
        ({"script": "x", "argv": ["--mem=1G", "\0"]}, "in argv[1]"),
        ({"script": "x", "environment": {"NAME": "a\0b"}}, "in environment.NAME"),
        ({"script": "x", "a\0": 1}, "in a name in the body"),
    ],
)
def test_a_nul_is_refused_with_its_place(site: Site, body: dict[str, Any], place: str) -> None:
    answer = site.register().client.post(f"{PREFIX}/jobs", json=body)
    assert answer.status_code == 422
    (fault,) = answer.json()["faults"]
    assert fault["expected"].startswith("text without NUL")
    assert fault["expected"].endswith(place)
