"""No unfinished marks, no patched tests, nothing that outgrew its place."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHERS = sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "scripts").rglob("*")])

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70

LONG_MODULES = {
    "src/starverse/db/migrations/versions/0001_initial_schema.py": "a migration lists every table, unshared",
    "src/starverse/db/tables.py": "every table, in the order in which they refer to each other",
}
"""Modules over the limit, each with its reason."""

LONG_FUNCTIONS = {
    "src/starverse/db/migrations/versions/0001_initial_schema.py:_allocations": "one table, column by column",
}
"""Functions over the limit as ``file:name``, each with its reason."""

UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")
PATCHES = re.compile(r"\bmonkey" + r"patch\b|mock\." + r"patch|(?<![.\w])pat" + r"ch\(|unittest\.mo" + r"ck")


@cache
def text_of(file: Path) -> str:
    return file.read_text("utf-8")


@cache
def what_is_said_and_made(file: Path) -> tuple[str | None, tuple[tuple[str, int], ...]]:
    """A module's docstring and its functions, each with its lines: every module is parsed once."""
    module = ast.parse(text_of(file))
    made = []
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            made.append((node.name, node.end_lineno - node.lineno))
    return ast.get_docstring(module), tuple(made)


def short(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_modules_have_one_subject_and_a_size_to_match() -> None:
    long = {short(file) for file in SOURCES if text_of(file).count("\n") > MODULE_LINES_MAX}
    assert long <= set(LONG_MODULES), "split it, or name it above with the reason"


def test_functions_fit_on_a_screen() -> None:
    long = set()
    for file in SOURCES:
        _, functions = what_is_said_and_made(file)
        long |= {f"{short(file)}:{name}" for name, lines in functions if lines > FUNCTION_LINES_MAX}
    assert long <= set(LONG_FUNCTIONS), "split it, or name it above with the reason"


def lines_with(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    return [
        f"{short(file)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(text_of(file).splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_is_marked_unfinished() -> None:
    assert not lines_with(UNFINISHED, [*SOURCES, *TESTS, *OTHERS])


def test_tests_inject_and_never_patch() -> None:
    assert not lines_with(PATCHES, TESTS)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (UNFINISHED, "raise NotImplemented" + "Error"),
        (UNFINISHED, "# TO" + "DO: later"),
        (PATCHES, "def test(monkey" + "patch): ..."),
        (PATCHES, "with mock." + "pat" + "ch('x'):"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], line: str) -> None:
    assert pattern.search(line)


def test_every_package_says_what_it_is_for() -> None:
    silent = []
    for folder in sorted({file.parent for file in SOURCES}):
        start = folder / "__init__.py"
        text = what_is_said_and_made(start)[0] if start.is_file() else None
        if not text and folder.name != "versions":
            silent.append(short(folder))
    assert not silent


def test_every_module_says_what_it_is_for() -> None:
    assert not [short(file) for file in SOURCES if not what_is_said_and_made(file)[0]]


def test_reconcilers_state_their_target_set() -> None:
    for file in sorted((ROOT / "src/starverse/reconcilers").glob("*.py")):
        text = what_is_said_and_made(file)[0] or ""
        if file.name not in ("__init__.py", "driver.py"):
            assert "Target set:" in text, short(file)
            assert "if and only if" in " ".join(text.split()), short(file)


def test_test_files_have_names_of_their_own_and_no_packages() -> None:
    counted = Counter(file.name for file in TESTS if file.name != "conftest.py")
    assert not [name for name, times in counted.items() if times > 1]
    assert "__init__.py" not in counted
