"""Reports become the table of the results page; what is written by hand around the marks stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.report import Figure, Report
from benchmarks.results_page import BEGIN, END, main

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Benchmarks\n\n{BEGIN}\nold\n{END}\n\n## By hand\n", "utf-8")
    return page


def written(folder: Path, *reports: Report) -> list[str]:
    names = []
    for number, report in enumerate(reports):
        file = folder / f"{number}.json"
        file.write_text(json.dumps(report.as_json()), "utf-8")
        names.append(str(file))
    return names


def test_figures_stand_by_row_of_the_design_and_the_rest_stays(page: Path, tmp_path: Path) -> None:
    later = Report(15, "starts", [Figure("start", 40.0, "ms", "raw", 5.0, at_most=10)], {"seed": 3})
    missing = ["PostgreSQL: none here"]
    sooner = Report(13, "ledger", [Figure("posts", 2_000, "postings/s", at_least=5_000)], {}, missing)
    assert main([str(page), *written(tmp_path, later, sooner)]) == 0
    text = page.read_text("utf-8")
    assert text.startswith("# Benchmarks\n")
    assert text.endswith(f"{END}\n\n## By hand\n")
    assert "old" not in text
    first = "| 13 | posts | 2,000 postings/s | - | - | >= 5000 | **no** |"
    second = "| 15 | start | 40 ms | raw: 5 ms | 8.00x | <= 10x | yes |"
    assert text.index(first) < text.index(second)
    assert "seed 3" in text
    assert "not measured: PostgreSQL: none here" in text


def test_several_reports_in_one_file_and_written_again(page: Path, tmp_path: Path) -> None:
    both = {"version": 1, "reports": [Report(5, "a", []).as_json(), Report(14, "b", []).as_json()]}
    (tmp_path / "all.json").write_text(json.dumps(both), "utf-8")
    assert main([str(page), str(tmp_path / "all.json")]) == 0
    once = page.read_text("utf-8")
    assert main([str(page), str(tmp_path / "all.json")]) == 0
    assert page.read_text("utf-8") == once
    assert "- 5, a" in once
    assert "- 14, b" in once


def test_a_page_without_marks_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Mine\n", "utf-8")
    assert main([str(page), *written(tmp_path, Report(5, "a", []))]) == 2
    assert page.read_text("utf-8") == "# Mine\n"
    assert BEGIN in capsys.readouterr().err


def test_the_page_of_this_repository_has_its_results() -> None:
    text = (REPOSITORY / "docs" / "benchmarks.md").read_text("utf-8")
    shown = text.split(BEGIN)[1].split(END)[0]
    rows = {line.split("|")[1].strip() for line in shown.splitlines()[4:] if line.startswith("|")}
    assert rows == {"1", *(str(row) for row in range(4, 16))}
