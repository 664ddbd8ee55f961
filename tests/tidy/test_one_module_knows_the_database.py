"""Which of the two databases it has is asked in one module, and in one that moves whole databases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src" / "starverse"

KNOWING = {
    "db/session.py": "the one place, which gives others its Traits",
    "db/maintenance/dialects.py": "whole databases are read, rebuilt and filled",
    "db/migrations/": "a schema is changed in each one's own way",
    "testing/": "makes databases of the kind that a test asks for",
    "cli/local/demo_ground.py": "starts a server for the word given to --database",
    "cli/local/maintenance.py": "the word given to --to stands for a file",
}
"""Modules and folders that may ask, each with its reason."""

NAMES = frozenset({"sqlite", "postgresql", "postgres"})

WORDS = re.compile(
    r"\bdialect\b|is_sqlite|is_postgresql|get_backend_name|drivername|\bcompiles\(|[\"']\W*(?:sqlite|postgres)"
)
"""What stands in the text of whatever asks: only modules that have it are parsed."""


def asks(node: ast.AST) -> bool:
    """Whether a piece of code depends on which database it has."""
    match node:
        case ast.Attribute(value=ast.Name(id="dialect") | ast.Attribute(attr="dialect"), attr="name"):
            return True
        case ast.Attribute(attr="is_sqlite" | "is_postgresql" | "get_backend_name" | "drivername"):
            return True
        case ast.Compare(left=left, comparators=others):
            return any(isinstance(part, ast.Constant) and part.value in NAMES for part in (left, *others))
        case ast.Dict(keys=keys):
            return any(isinstance(key, ast.Constant) and key.value in NAMES for key in keys)
        case ast.Call(func=ast.Attribute(attr="startswith"), args=[ast.Constant(value=str(start)), *_]):
            return start.rstrip(":/+") in NAMES
        case ast.Call(func=ast.Name(id="compiles"), args=[_, *named]):
            return bool(named)
        case ast.MatchValue(value=ast.Constant(value=value)):
            return value in NAMES
    return False


def asking_lines(code: str) -> Iterator[int]:
    if not WORDS.search(code):
        return iter(())
    return (node.lineno for node in ast.walk(ast.parse(code)) if asks(node) and hasattr(node, "lineno"))


def test_no_module_but_the_named_ones_asks_which_database_it_has() -> None:
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        name = file.relative_to(SOURCES).as_posix()
        if not name.startswith(tuple(KNOWING)):
            found += [f"{name}:{line}" for line in asking_lines(file.read_text("utf-8"))]
    assert found == [], "give Traits in db/session.py what differs, and ask it"


@pytest.mark.parametrize("place", sorted(KNOWING))
def test_what_may_ask_does(place: str) -> None:
    files = (SOURCES / place).rglob("*.py") if place.endswith("/") else [SOURCES / place]
    assert any(any(asking_lines(file.read_text("utf-8"))) for file in files), "it need not be named any more"


@pytest.mark.parametrize(
    "code",
    [
        'if connection.dialect.name == "sqlite": pass',
        "text = WAYS[dialect.name]",
        "fast = database.is_sqlite",
        'fast = "postgresql" == database.kind',
        'way = {"sqlite": 1, "postgresql": 2}[database.kind]',
        'if url.startswith("sqlite:///"): pass',
        'compiles(thing, "sqlite")(say)',
        'match kind:\n    case "postgresql":\n        pass',
    ],
)
def test_each_way_to_ask_is_found(code: str) -> None:
    assert list(asking_lines(code))
