"""Disks on a bill: a line for each and size, whatever the number of hours; their charges are explained."""

from __future__ import annotations

from typing import Any, cast

from starverse.cli.remote.bills import bill_text
from starverse.client.shapes import Bill
from starverse.testing import api_examples


def hour(number: int, gib: int) -> dict[str, Any]:
    start, end = (f"2026-03-10T{10 + number + more:02}:00:00Z" for more in (0, 1))
    segment = {"start": start, "end": end, "gib": gib, "free_gib": 50, "amount_micro": 2_688}
    charge = {"id": f"d-{number}", "disk": "数据", "disk_id": "1", "kind": "shared"}
    return {**charge, "start": start, "end": end, "total_micro": 2_688, "segments": [segment]}


def test_a_disk_is_one_line_for_each_of_its_sizes() -> None:
    found = {**api_examples.bill(), "disks": [hour(0, 60), hour(1, 60), hour(2, 80)]}
    lines = bill_text(cast(Bill, found)).splitlines()
    (title,) = [number for number, line in enumerate(lines) if line.startswith("DISK")]
    first, second = lines[title + 1 : title + 3]
    assert first.split()[:2] == second.split()[:2] == ["数据", "shared"]
    assert first.split()[-3:] == ["60", "50", "0.005376"]
    assert second.split()[-3:] == ["80", "50", "0.002688"]
    assert lines[title + 3] == ""


def test_a_bill_of_disks_alone_has_no_empty_table() -> None:
    found = {**api_examples.bill(), "charges": [], "open": [], "disks": [hour(0, 60)]}
    text = bill_text(cast(Bill, found))
    assert text.startswith("DISK")
    assert "nothing charged yet" not in text
