"""What is wrong with a request is said in the words of our pages, with its place."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from structlog.testing import capture_logs

from starverse.domain.pricing.price_book_yaml import shipped_price_book_text
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
        ({"script": "#!/bin/bash\ntrue\0\n"}, "script, line 2"),
        ({"script": "x", "argv": ["--mem=1G", "\0"]}, "argv[1]"),
        ({"script": "x", "environment": {"NAME": "a\0b"}}, "environment.NAME"),
        ({"script": "x", "a\0": 1}, "a name in the body"),
    ],
)
def test_a_nul_is_refused_with_its_place(site: Site, body: dict[str, Any], place: str) -> None:
    answer = site.register().client.post(f"{PREFIX}/jobs", json=body)
    assert answer.status_code == 422
    (fault,) = answer.json()["faults"]
    assert (fault["field"], fault["value"]) == (place, "a NUL")
    assert fault["expected"].startswith("text without NUL")


def test_a_body_that_cannot_be_read_names_itself(site: Site) -> None:
    client = site.register().client
    headers = {"Content-Type": "application/json"}
    for body in (b"{bad", b'\xff\xfe{"script": 1}', b"[" * 100_000, b"", b'"\\ud800"'):
        answer = client.post(f"{PREFIX}/jobs", headers=headers, content=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), body[:20]
        assert answer.json()["faults"][0]["field"].startswith("body"), body[:20]


NO_CURSORS = (
    "[1e400, 0]",
    "[1e30, 0]",
    "[1, -1e400]",
    f"[{10**30}, 0]",
    f"[-{10**30}, 0]",
    f"[1, {10**30}]",
    "[1]",
    "[1, 2, 3]",
    "{}",
    "[true, 0]",
    "[null, 1]",
    '["1", 0]',
    "[" * 1000,
    "9" * 1000,
    "",
)


def test_a_cursor_that_no_list_gave_is_refused(site: Site) -> None:
    client = site.register().client
    forged = [base64.urlsafe_b64encode(text.encode()).decode() for text in NO_CURSORS]
    for cursor in (*forged, "not base64", "中"):
        answer = client.get(f"{PREFIX}/jobs", params={"cursor": cursor})
        assert answer.status_code == 422, cursor
        assert answer.json()["faults"][0]["field"] == "cursor", cursor


def test_an_amount_that_is_none_says_what_would_be_one(site: Site) -> None:
    client = site.register().client
    for amount in ("1e2", "9" * 5000, "", "1,00", "1.1234567", 5, None):
        answer = client.post(f"{PREFIX}/topups", json={"amount": amount})
        assert answer.status_code == 422, amount
        (fault,) = answer.json()["faults"]
        assert fault["field"] == "amount", amount
        assert fault["expected"].startswith("an amount of yuan in quotes"), fault
        assert len(answer.text) < 1000


def test_no_card_is_reported_with_what_was_typed(site: Site) -> None:
    person = site.register()
    script = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:0\ntrue\n"
    faults = person.client.post(f"{PREFIX}/jobs", json={"script": script}).json()["faults"]
    fault = next(fault for fault in faults if fault["field"].startswith("--gres"))
    assert (fault["field"], fault["value"]) == ("--gres (script line 2)", "gpu:rtx4090:0"), faults
    assert fault["expected"].startswith("at least one card")
    assert len(faults) == 1, faults


def test_a_price_book_that_cannot_be_is_refused_with_its_place(site: Site) -> None:
    client = site.operator().client
    text = shipped_price_book_text()
    headers = {"Content-Type": "text/yaml"}
    wrong = {text + "\0": "price book", text + "\x07": "price book"}
    for instant in ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "3000-01-01T00:00:00Z"):
        wrong[text.replace("2026-03-01T00:00:00+08:00", instant)] = "effective_from"
    for content, field in wrong.items():
        answer = client.post(f"{PREFIX}/admin/price-books", content=content.encode(), headers=headers)
        assert answer.status_code == 422, answer.text
        assert [fault["field"] for fault in answer.json()["faults"]] == [field]


def test_an_ordinary_refusal_is_no_error_in_the_log(site: Site) -> None:
    person = site.register()
    script = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:9\ntrue\n"
    with capture_logs() as logged:
        answer = person.client.post(f"{PREFIX}/jobs", json={"script": script})
    assert answer.status_code == 507
    (line,) = [line for line in logged if line["event"] == "request failed"]
    assert (line["log_level"], line["code"]) == ("info", "no_capacity")
    assert "exc_info" not in line
