"""``admin fabric check``, ``admin fabric ls`` and what ``offers`` tells of networks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.cli.remote.fabric import words_of
from starverse.cli.remote.wording import nanoseconds, rate_of_bytes
from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi, Reply

POOL = "bj1/rtx4090/ib"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path)


def batch(state: str, **changes: Any) -> dict[str, Any]:
    check = {
        "pool": POOL,
        "nodes": ["gpu001", "gpu002"],
        "state": state,
        "message": "",
        "job": "7" if state != "asked" else None,
        "measured_at": "2026-03-10T04:00:00Z" if state == "measured" else None,
        **changes,
    }
    settled = state in ("measured", "failed")
    return {"id": "b1", "settled": settled, "price": "2 x rtx4090/ib spot: CNY 1.14", "checks": [check]}


def figure(what: str, method: str, **values: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("p50_nanoseconds", "p99_nanoseconds", "bytes_per_second", "message_bytes"))
    dated = {"measured_at": "2026-03-10T04:00:00Z", "same_machine": False, "pairs": 3}
    return {"what": what, "method": method, **nothing, **dated, **values}


TRIP = figure("round_trip", "tcp", p50_nanoseconds=21_340, p99_nanoseconds=43_000)
RATE = figure("bandwidth", "tcp", bytes_per_second=2_900_000_000, measured_at="2026-03-09T01:00:00Z")


def test_a_check_tells_pairs_and_price_then_waits_for_the_figures(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/admin/fabric/checks", {**batch("asked"), "id": None}, Reply(201, batch("asked")))
    api.on("GET", "/admin/fabric/checks/b1", batch("running"), batch("measured"))
    ran = line.run("admin", "fabric", "check", "--pool", POOL, "--yes")
    assert ran.code == 0
    assert "gpu001 - gpu002" in ran.out
    assert "CNY 1.14" in ran.err
    sent = [seen.json for seen in api.requests("POST", "/admin/fabric/checks")]
    assert sent == [{"pool": POOL, "pairs": 1, "lint": True}, {"pool": POOL, "pairs": 1, "lint": False}]


@pytest.mark.parametrize(("state", "words", "code"), [("failed", (), 1), ("running", ("--wait", "4"), 9)])
def test_a_check_that_failed_or_takes_longer_says_so_by_its_exit_code(
    api: FakeApi, line: CommandLine, state: str, words: tuple[str, ...], code: int
) -> None:
    api.on("POST", "/admin/fabric/checks", batch("asked"))
    api.on("GET", "/admin/fabric/checks/b1", batch(state, message="refused: no money"))
    ran = line.run("admin", "fabric", "check", "--yes", *words)
    assert ran.code == code
    assert "refused: no money" in ran.out


def test_the_list_marks_pools_that_nobody_measured_and_figures_of_one_machine(
    api: FakeApi, line: CommandLine
) -> None:
    pairs = [{**TRIP, "nodes": ["gpu001", "gpu002"], "same_machine": True}]
    pools = [
        {"pool": POOL, "nodes": 2, "shown": [], "pairs": pairs},
        {"pool": "bj1/a100-40g/eth", "nodes": 1, "shown": [], "pairs": []},
        {"pool": "bj1/h100/roce", "nodes": 4, "shown": [], "pairs": []},
    ]
    api.on("GET", "/admin/fabric", {"items": pools, "next_cursor": None})
    ran = line.run("admin", "fabric", "ls")
    assert "21.3 us" in ran.out
    assert "tcp*" in ran.out
    assert "no network" in ran.err
    rows = {row.split()[0]: row for row in ran.out.splitlines()}
    assert "not measured (one node)" in rows["bj1/a100-40g/eth"]
    assert "not measured" in rows["bj1/h100/roce"]


def test_offers_tell_figures_with_their_date_and_pools_without(api: FakeApi, line: CommandLine) -> None:
    first, second = examples.offers()
    sold = [{**first, "fabric_measured": [TRIP, RATE]}, {**second, "fabric_measured": []}]
    api.on("GET", "/offers", {"items": sold, "next_cursor": None})
    told = line.run("offers").out
    assert (
        "network of bj1/rtx4090/eth: round trip 21.3 us, p99 43 us by tcp, bandwidth 2.9 GB/s by tcp; "
        "the slowest of 3 pairs of nodes, measured 2026-03-09" in told
    )
    assert "network not measured: bj1/a100-40g/ib" in told


def test_figures_of_one_machine_are_no_networks() -> None:
    assert "no network" in words_of([{**TRIP, "same_machine": True}])
    assert words_of([]) == "not measured"


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, None), (850, "850 ns"), (21_340, "21.3 us"), (1_200_000, "1.2 ms"), (2_500_000_000, "2.5 s")],
)
def test_short_times(count: int | None, text: str | None) -> None:
    assert nanoseconds(count) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, None),
        (12, "12 B/s"),
        (117_000_000, "117 MB/s"),
        (24_428_750_000, "24.4 GB/s"),
        (4_500, "4.5 kB/s"),
    ],
)
def test_rates(rate: int | None, text: str | None) -> None:
    assert rate_of_bytes(rate) == text
