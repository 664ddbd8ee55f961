"""``starverse simulate``: a report, JSON, and what is wrong with a trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from starverse.cli.local.simulate import command
from starverse.domain.errors import Invalid
from starverse.domain.pricing.price_book_yaml import shipped_price_book_text

HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(HEAD + "2017-10-09 07:00:00,3600,2,7200,vc1\n")
    (tmp_path / "nodes.csv").write_text("count,cards,model,cpus\n1,2,rtx4090,16\n")
    return tmp_path


def run(files: Path, *arguments: str, jobs: str = "jobs.csv") -> Result:
    places = ["--jobs", str(files / jobs), "--nodes", str(files / "nodes.csv")]
    return CliRunner().invoke(command, [*places, *arguments])


def test_policies_and_price_books_stand_side_by_side(files: Path) -> None:
    cheap = files / "cheap.yaml"
    cheap.write_text(shipped_price_book_text().replace('"1.66"', '"0.83"'))
    dear = files / "dear.yaml"
    dear.write_text(shipped_price_book_text())
    books = ("--price-book", str(cheap), "--price-book", str(dear))
    result = run(files, *books, "--policy", "on_demand", "--policy", "spot", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert {row["name"]: row["revenue"] for row in answer["replays"]} == {
        "on_demand, cheap": "1.66",
        "spot, cheap": "0.498",
        "on_demand, dear": "3.32",
        "spot, dear": "0.996",
    }
    assert "moved by" in answer["notes"][0]


def test_reports_are_written_and_packed_traces_read(files: Path) -> None:
    (files / "jobs.csv.gz").write_bytes(gzip.compress((files / "jobs.csv").read_bytes()))
    for name, mark in (("r.html", "<svg"), ("r.md", "| jobs | 1 |")):
        result = run(files, "--out", str(files / name), jobs="jobs.csv.gz")
        assert result.exit_code == 0, result.output
        assert mark in (files / name).read_text()
    assert "# What would have happened" in run(files).stdout


def test_bad_lines_are_named_or_left_out(files: Path) -> None:
    with (files / "jobs.csv").open("a") as text:
        text.write("2017-10-09 08:00:00,-3,1,-3,vc1\n")
    result = run(files)
    assert isinstance(result.exception, Invalid)
    assert "line 3: job line-3 ran -3 seconds; negative" in str(result.exception.faults)
    left_out = run(files, "--skip-bad", "--json")
    assert "left out: line 3" in left_out.stdout


@pytest.mark.parametrize("arguments", [("--policy", "free"), ("--model", "abacus"), ("--policy", "spot") * 5])
def test_what_cannot_be_replayed_is_refused(files: Path, arguments: tuple[str, ...]) -> None:
    assert isinstance(run(files, *arguments).exception, Invalid)
