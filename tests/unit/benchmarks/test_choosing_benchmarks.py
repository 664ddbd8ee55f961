"""What ``python -m benchmarks`` runs, passes on and leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import BENCHMARKS, find
from benchmarks.__main__ import listing, main, read

NAMES = [benchmark.name for benchmark in BENCHMARKS]


def test_names_choose_and_the_rest_is_passed_on() -> None:
    request = read(["--data", "/traces", "starts", "--rounds", "3", "ledger_postings", "--json"])
    assert [benchmark.name for benchmark in request.chosen] == ["starts", "ledger-postings"]
    assert request.options == ("--rounds", "3", "--json")
    assert request.data == Path("/traces")
    assert request.json
    assert not request.listing


def test_no_name_chooses_none_and_so_all_run() -> None:
    assert read([]).chosen == ()


@pytest.mark.parametrize("as_json", [False, True])
def test_the_list_has_every_name(as_json: bool) -> None:
    text = listing(as_json=as_json)
    if as_json:
        assert [row["name"] for row in json.loads(text)["benchmarks"]] == NAMES
    else:
        assert [line.split()[0] for line in text.splitlines()] == NAMES


def test_a_trace_is_passed_where_it_is_and_else_the_measurement_is_left_out(tmp_path: Path) -> None:
    metering = find("metering-and-bill")
    assert metering is not None
    assert metering.data_arguments(tmp_path) is None
    assert metering.data_arguments(None) is None
    (tmp_path / "philly").mkdir()
    assert metering.data_arguments(tmp_path) == ["--philly", str(tmp_path / "philly")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-thing"], "there is no measurement 'no-such-thing'"),
        (["metering-and-bill"], "pass --data FOLDER"),
    ],
)
def test_a_wrong_request_is_refused_and_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err
