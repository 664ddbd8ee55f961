"""A cold start imports only what it needs (benchmarks.md, row 15)."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize(("call", "words", "banned"), CASES.values(), ids=CASES.keys())
def test_nothing_is_imported_that_is_not_needed(call: str, words: list[str], banned: set[str]) -> None:
    assert modules_after(call, words) & banned == set()
