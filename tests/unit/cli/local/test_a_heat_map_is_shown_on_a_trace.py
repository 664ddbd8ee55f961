"""``starverse heatmap --from-trace``: text, JSON and pictures say the same; wrong traces are named."""

from __future__ import annotations

import json
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from starverse.cli.local.heat_map import command
from starverse.cli.local.heat_map_pictures import CELL, by_day, encode_png, png, svg
from starverse.domain.errors import Invalid
from starverse.domain.forecasting.traces import read_trace

START = datetime(2026, 3, 2, 22, tzinfo=UTC)
CELLS = [(START + timedelta(hours=hour), hour / 4) for hour in range(4)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    data = [8 if hour // 24 % 2 else 0 for hour in range(400)]
    file = tmp_path / "trace.json"
    text = json.dumps({"metadata": {"gap_seconds": 3600}, "data": data, "prices": [0.9] * 400})
    file.write_text(text)
    return file


def test_text_and_json_tell_every_hour(trace: Path) -> None:
    asked = ["--from-trace", str(trace), "--cards", "4", "--hours", "3"]
    text = CliRunner().invoke(command, asked)
    told = json.loads(CliRunner().invoke(command, [*asked, "--json"]).output)
    assert text.exit_code == 0
    assert "\x1b" not in text.output
    assert len(told["hours"]) == 72
    assert "24 h ahead, on" in text.output
    assert told["enough_history"]
    assert told["hours"][0]["price"] == pytest.approx(0.9)


def test_a_young_trace_says_that_there_is_not_enough_history(tmp_path: Path) -> None:
    file = tmp_path / "young.json"
    file.write_text('{"metadata": {"gap_seconds": 300}, "data": [0, 3, null, 4]}')
    assert "Not enough history" in CliRunner().invoke(command, ["--from-trace", str(file)]).output


def test_pictures_are_written_where_asked(trace: Path, tmp_path: Path) -> None:
    drawn = [str(tmp_path / "a.svg"), str(tmp_path / "a.png")]
    CliRunner().invoke(command, ["--from-trace", str(trace), "--svg", drawn[0], "--png", drawn[1]])
    assert Path(drawn[0]).read_text().count("<rect") == 73
    assert Path(drawn[1]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"data": [1]}',
        '{"metadata": {"gap_seconds": 0}, "data": [1]}',
        '{"metadata": {"gap_seconds": 300}, "data": []}',
        '{"metadata": {"gap_seconds": 300}, "data": [-1]}',
        '{"metadata": {"gap_seconds": 9999}, "data": [1]}',
    ],
)
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_trace(text)


def test_a_day_is_a_row_and_a_png_holds_its_cells() -> None:
    assert [len(day) for day in by_day(CELLS)] == [2, 2]
    assert svg("a < b", CELLS).count("a &lt; b") == 1
    picture = png(CELLS)
    assert struct.unpack(">II", picture[16:24]) == (24 * CELL, 2 * CELL)


def test_a_png_can_be_read_back() -> None:
    picture = encode_png(2, [bytes(range(6)), bytes(6)])
    size = struct.unpack(">I", picture[33:37])[0]
    assert zlib.decompress(picture[41 : 41 + size]) == b"\0" + bytes(range(6)) + b"\0" + bytes(6)
