"""Run measurements by name, or all of them: ``python -m benchmarks [--data FOLDER] [NAME ...] [options]``.

Each runs in a process of its own, one after another; other options go to each. What reads a trace is left
out, and said to be, where ``--data`` does not have it. ``--list`` prints the names.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import BENCHMARKS, Benchmark, find

LIST_VERSION = 1


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for; ``options`` go to each measurement."""

    chosen: tuple[Benchmark, ...]
    options: tuple[str, ...]
    data: Path | None
    listing: bool

    @property
    def json(self) -> bool:
        return "--json" in self.options


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or the first one of a measurement that failed."""
    request = read(arguments)
    if not request.chosen and {"--help", "-h"} & set(arguments):
        sys.stdout.write(__doc__ or "")
        return 0
    if not request.chosen and request.options and not request.options[0].startswith("-"):
        names = ", ".join(benchmark.name for benchmark in BENCHMARKS)
        sys.stderr.write(f"there is no measurement {request.options[0]!r}; there are {names}\n")
        return 2
    if request.listing:
        sys.stdout.write(listing(as_json=request.json))
        return 0
    reports: list[Any] = []
    code = 0
    for benchmark in request.chosen or BENCHMARKS:
        own = {benchmark.option, "--help", "-h"} & set(request.options)
        given = [] if own else benchmark.data_arguments(request.data)
        if given is None:
            sys.stderr.write(f"not run: {benchmark.name} reads {benchmark.trace}; pass --data FOLDER\n")
            code = code or (2 if request.chosen else 0)
            continue
        sys.stderr.write(f"== {benchmark.name}\n")
        command = [sys.executable, "-m", f"benchmarks.{benchmark.module}", *given, *request.options]
        done = subprocess.run(
            command, check=False, text=True, stdout=subprocess.PIPE if request.json else None
        )
        code = code or done.returncode
        if request.json and done.stdout.strip():
            reports.append(json.loads(done.stdout))
    if request.json:
        alone = reports[0] if len(reports) == 1 and len(request.chosen) == 1 else {"reports": reports}
        sys.stdout.write(json.dumps({"version": LIST_VERSION, **alone}, indent=2) + "\n")
    return code


def read(arguments: Sequence[str]) -> Request:
    """Words that are names choose, ``--data FOLDER`` and ``--list`` are ours, the rest is passed on."""
    words = list(arguments)
    data: Path | None = None
    if "--data" in words:
        position = words.index("--data")
        data = Path(words[position + 1]) if position + 1 < len(words) else None
        del words[position : position + 2]
    chosen = tuple(found for word in words if (found := find(word)) is not None)
    options = tuple(word for word in words if find(word) is None and word != "--list")
    return Request(chosen, options, data, "--list" in words)


def listing(*, as_json: bool) -> str:
    """The names with what each measures."""
    if as_json:
        rows = [
            {"name": b.name, "number": b.number, "summary": b.summary, "trace": b.trace or None}
            for b in BENCHMARKS
        ]
        return json.dumps({"version": LIST_VERSION, "benchmarks": rows}, indent=2) + "\n"
    width = max(len(benchmark.name) for benchmark in BENCHMARKS)
    lines = [
        f"{b.name:<{width}}  {b.number:>2}  {b.summary}" + (f" (reads {b.trace})" if b.trace else "")
        for b in BENCHMARKS
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
