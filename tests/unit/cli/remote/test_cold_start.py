"""A cold start imports only what it needs (benchmarks.md, row 15)."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from starverse.cli.remote.root import root
from starverse.testing.command_lines import CommandLine

SERVER = {"sqlalchemy", "fastapi", "starlette", "pydantic", "numpy", "uvicorn", "alembic", "psycopg", "yaml"}
HEAVY = {"httpx2", "rich", "asyncio", "anyio", "ssl"}

PROBE = """
import sys
sys.argv = {words!r}
try:
    {call}
except SystemExit:
    pass
import json
print("\\n" + json.dumps(sorted(sys.modules)))
"""


def modules_after(call: str, words: list[str]) -> set[str]:
    import json

    code = PROBE.format(words=words, call=call)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


STARVERSE = "from starverse.cli.remote.entry import main; main()"

CASES = {
    "--version": (STARVERSE, ["starverse", "--version"], SERVER | HEAVY | {"click"}),
    "version": (STARVERSE, ["starverse", "version"], SERVER | HEAVY),
    "--help": (STARVERSE, ["starverse", "--help"], SERVER | HEAVY),
    "job --help": (STARVERSE, ["starverse", "job", "--help"], SERVER | HEAVY),
    "quote --help": (STARVERSE, ["starverse", "quote", "--help"], SERVER | HEAVY),
    "srun outside a job": (
        "from starverse.cli.slurm.shims import main; main('srun')",
        ["srun", "x"],
        SERVER | HEAVY | {"click"},
    ),
    "squeue --version": (
        "from starverse.cli.slurm.shims import main; main('squeue')",
        ["squeue", "--version"],
        SERVER | {"rich", "click"},
    ),
}


def every_command() -> Iterator[tuple[str, ...]]:
    """The words of each command and group of the tree."""

    def below(words: tuple[str, ...], found: click.Command | None) -> Iterator[tuple[str, ...]]:
        yield words
        if isinstance(found, click.Group):
            context = click.Context(found)
            for name in found.list_commands(context):
                yield from below((*words, name), found.get_command(context, name))

    yield from below((), root)


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_every_command_explains_itself_without_a_warning(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran = CommandLine("http://127.0.0.1:1", tmp_path).run(*words, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert capsys.readouterr().out.startswith("Usage: starverse")


@pytest.mark.parametrize(("call", "words", "banned"), CASES.values(), ids=CASES.keys())
def test_nothing_is_imported_that_is_not_needed(call: str, words: list[str], banned: set[str]) -> None:
    assert modules_after(call, words) & banned == set()
