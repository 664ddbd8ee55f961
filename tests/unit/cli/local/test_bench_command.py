"""``starverse bench`` runs the measurements of a checkout; without one it says where they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from starverse.cli.local.bench import command, find_checkout, run
from starverse.domain.errors import NotFound

REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose benchmarks only print the words they were given."""
    for folder in ("benchmarks", "src/starverse"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "benchmarks" / "report.py").write_text("")
    (tmp_path / "benchmarks" / "__main__.py").write_text(
        "import json, sys\nfrom pathlib import Path\n"
        "Path(__file__).with_name('words').write_text(json.dumps(sys.argv[1:]))\n"
        "sys.exit(len(sys.argv) - 1)\n"
    )
    return tmp_path


def test_words_and_exit_code_pass_through(checkout: Path) -> None:
    assert run(["starts", "--jobs", "3"], [checkout]) == 3
    assert json.loads((checkout / "benchmarks" / "words").read_text()) == ["starts", "--jobs", "3"]


def test_without_a_checkout_it_says_where_the_measurements_are(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refused:
        run(["starts"], [tmp_path])
    assert "checkout" in (refused.value.hint or "")
    (tmp_path / "benchmarks").mkdir()  # somebody else's folder of that name
    (tmp_path / "benchmarks" / "__main__.py").write_text("")
    assert find_checkout([tmp_path]) is None


@pytest.mark.parametrize(
    ("words", "code"),
    [([], 0), (["--json"], 0), (["no-such-thing"], 2), (["metering-and-bill", "--help"], 0)],
)
def test_the_command_runs_from_this_checkout(words: list[str], code: int) -> None:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == code


def test_the_list_names_a_module_each() -> None:
    from benchmarks import BENCHMARKS, find

    for benchmark in BENCHMARKS:
        assert (REPOSITORY / "benchmarks" / f"{benchmark.module}.py").is_file()
        assert find(benchmark.name) is find(benchmark.module) is benchmark
    others = {"__init__", "__main__", "report", "ledger_kills", "philly", "platform_starts", "results_page"}
    others |= {"scale_world", "stand_in_launchers", "endings", "researchers", "traces_left"}
    others |= {"openb", "queue_replay", "waiting_thousands"}
    modules = {path.stem for path in (REPOSITORY / "benchmarks").glob("*.py")} - others
    assert modules == {benchmark.module for benchmark in BENCHMARKS}
