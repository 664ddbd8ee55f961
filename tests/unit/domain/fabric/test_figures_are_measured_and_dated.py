"""What a probe printed becomes figures, and a pool shows the slowest pair with the oldest date."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from starverse.domain.fabric.measured import Figure, Measured, Method, NotAResult, Pool, What, read_result
from starverse.domain.fabric.summary import newest_of_each_pair, summarise

POOL = Pool("bj1", "rtx4090", "ib")
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "version": 1,
    "nodes": ["gpu001", "gpu002"],
    "same_machine": False,
    "figures": [
        {"what": "round_trip", "method": "tcp", "p50_nanoseconds": 21_000, "p99_nanoseconds": 40_000},
        {"what": "bandwidth", "method": "tcp", "bytes_per_second": 2_900_000_000, "streams": 4},
        {"what": "all_reduce", "method": "of 2031", "bytes_per_second": 1},
    ],
    "left_out": {"nccl": "no CUDA card on both nodes"},
}


def test_a_result_is_read_and_what_a_later_version_adds_is_passed_over() -> None:
    result = read_result(json.dumps(GOOD))
    assert result.nodes == ("gpu001", "gpu002")
    assert not result.same_machine
    assert [figure.what for figure in result.figures] == [What.ROUND_TRIP, What.BANDWIDTH]
    assert result.figures[0].p99_nanoseconds == 40_000
    assert result.left_out == {"nccl": "no CUDA card on both nodes"}


@pytest.mark.parametrize(
    ("story", "changed"),
    [
        ("another version", {"version": 2}),
        ("one node", {"nodes": ["gpu001"]}),
        ("nodes that are no names", {"nodes": [1, 2]}),
        ("no figures", {"figures": "many"}),
        ("a negative time", {"figures": [{"what": "round_trip", "method": "tcp", "p50_nanoseconds": -1}]}),
        ("no whole number", {"figures": [{"what": "round_trip", "method": "tcp", "p50_nanoseconds": 1.5}]}),
        ("yes is no number", {"figures": [{"what": "round_trip", "method": "tcp", "p50_nanoseconds": True}]}),
        ("too fast", {"figures": [{"what": "bandwidth", "method": "tcp", "bytes_per_second": 10**15}]}),
    ],
)
def test_what_no_probe_prints_is_refused(story: str, changed: dict[str, Any]) -> None:
    with pytest.raises(NotAResult):
        read_result(json.dumps({**GOOD, **changed}))


@pytest.mark.parametrize("text", ["", "not json", "[]", "3", '"x"', "x" * 200_000])
def test_text_that_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(NotAResult):
        read_result(text)


def test_a_result_that_does_not_say_so_counts_as_of_one_machine() -> None:
    unsaid = {name: value for name, value in GOOD.items() if name != "same_machine"}
    assert read_result(json.dumps(unsaid)).same_machine


def measured(
    first: str, second: str, figure: Figure, *, hours: int = 0, same_machine: bool = False
) -> Measured:
    return Measured(POOL, first, second, figure, NOON + timedelta(hours=hours), same_machine)


def rate(bytes_per_second: int, method: Method = Method.TCP, what: What = What.BANDWIDTH) -> Figure:
    return Figure(what, method, bytes_per_second=bytes_per_second)


def trip(p50: int) -> Figure:
    return Figure(What.ROUND_TRIP, Method.TCP, p50_nanoseconds=p50, p99_nanoseconds=2 * p50)


def test_the_slowest_pair_counts_with_the_oldest_date() -> None:
    shown = summarise(
        [
            measured("a", "b", rate(3_000), hours=2),
            measured("a", "c", rate(1_000), hours=5),
            measured("a", "b", trip(20), hours=2),
            measured("a", "c", trip(90), hours=5),
        ],
        ["a", "b", "c"],
    )
    by_what = {figure.what: figure for figure in shown}
    assert by_what[What.BANDWIDTH].bytes_per_second == 1_000
    assert by_what[What.ROUND_TRIP].p50_nanoseconds == 90
    assert by_what[What.BANDWIDTH].measured_at == NOON + timedelta(hours=2)
    assert by_what[What.BANDWIDTH].pairs == 2


def test_a_newer_figure_of_a_pair_replaces_the_older_in_either_order_of_its_nodes() -> None:
    found = [measured("a", "b", rate(1_000)), measured("b", "a", rate(5_000), hours=1)]
    assert [one.figure.bytes_per_second for one in newest_of_each_pair(found)] == [5_000]
    (shown,) = summarise(found, ["a", "b"])
    assert (shown.bytes_per_second, shown.pairs) == (5_000, 1)


def test_pairs_that_left_the_pool_say_nothing_about_it() -> None:
    assert summarise([measured("a", "gone", rate(1_000))], ["a", "b"]) == ()
    assert summarise([], ["a", "b"]) == ()


def test_the_method_that_says_most_counts() -> None:
    shown = summarise(
        [
            measured("a", "b", rate(1_000)),
            measured("a", "b", rate(9_000, Method.IB_WRITE_BW)),
            measured("a", "b", rate(500, Method.GLOO, What.ALL_REDUCE)),
            measured("a", "b", rate(8_000, Method.NCCL, What.ALL_REDUCE)),
        ],
        ["a", "b"],
    )
    assert [(figure.what, figure.method) for figure in shown] == [
        (What.BANDWIDTH, Method.IB_WRITE_BW),
        (What.ALL_REDUCE, Method.NCCL),
    ]


def test_one_figure_of_one_machine_marks_the_whole() -> None:
    (shown,) = summarise(
        [measured("a", "b", rate(1_000)), measured("a", "c", rate(2_000), same_machine=True)], ["a", "b", "c"]
    )
    assert shown.same_machine
