"""Who may import whom, and where outside libraries may appear."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts.import_directions import Directions

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/starverse"

LIBRARIES_IN: dict[str, frozenset[str]] = {
    "domain": frozenset({"cronsim", "numpy", "yaml"}),
    "checkpoint": frozenset({"blake3", "numpy"}),
    "engines": frozenset({"structlog", "httpx2"}),
    "reconcilers": frozenset({"structlog"}),
    "client": frozenset({"httpx2", "platformdirs"}),
    "cli": frozenset({"click", "platformdirs"}),
    "node": frozenset({"pynvml", "cryptography", "torch", "rattler"}),
    "app": frozenset(
        {"sqlalchemy", "argon2", "limits", "uuid_utils", "structlog", "blake3", "cronsim", "cryptography"}
    ),
    "gateway": frozenset({"asyncssh", "limits", "structlog", "uvloop"}),
    "http": frozenset(
        {
            "fastapi",
            "starlette",
            "pydantic",
            "pydantic_core",
            "structlog",
            "prometheus_client",
            "anyio",
            "h11",
            "websockets",
        }
    ),
    "db": frozenset({"sqlalchemy", "alembic", "pydantic"}),
    "sim": frozenset(),
    "examples": frozenset({"numpy", "sklearn"}),
}
"""The libraries of other people that an area may import; one that is not named stays out of it.

``yaml`` reads the price book's text; ``blake3`` and ``numpy`` in ``checkpoint``, ``torch`` in a measurement
and ``rattler`` in a build of ``node``, ``uvloop`` in ``gateway``, only where they are there.
``pydantic_core`` is where pydantic's own pages take its errors from.
"""

CLOCKS_AND_WORLD = re.compile(
    r"\b(?:datetime\.(?:now|utcnow|today)|date\.today|time\.(?:time|monotonic|sleep)|random\.|secrets\."
    r"|os\.environ|(?<!def )\bopen\(|\buuid[47]?\()"
)
"""What reads a clock, chance, files or the environment."""


def modules_of(area: str) -> list[Path]:
    return sorted((PACKAGE / area).rglob("*.py"))


def imported_roots(file: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def directions_in_pyproject() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    found = next(contract["areas"] for contract in contracts if contract["type"] == "import_directions")
    assert isinstance(found, list)
    return found


def test_import_linter_keeps_all_contracts() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("domain.pricing.rating", "domain.money", True),
        ("domain.pricing.rating", "domain.scheduling.fit", False),
        ("app.jobs", "db.jobs", True),
        ("app.jobs", "engines.base", True),
        ("app.jobs", "engines.local.engine", False),
        ("http.jobs", "db.jobs", False),
        ("app.jobs", "node.launcher", False),
        ("cli.remote.jobs", "client.jobs", True),
        ("cli.remote.jobs", "app.jobs", False),
        ("checkpoint.manifest", "domain.errors", False),
        ("checkpoint.manifest", "checkpoint.errors", True),
        ("a_new_folder.module", "domain.money", False),
    ],
)
def test_the_table_decides_single_imports(importer: str, imported: str, allowed: bool) -> None:
    assert Directions.of(directions_in_pyproject()).allows(importer, imported) is allowed


def test_the_table_in_architecture_is_the_one_that_is_checked() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rows = text[text.index("| in `src/starverse/` |") :].split("\n\n")[0]
    shown: dict[str, frozenset[str]] = {}
    for area, targets in re.findall(r"^\| `([a-z./_]+)` \| [^|]+ \| ([^|]+) \|$", rows, re.MULTILINE):
        shown[module_name(area)] = frozenset(map(module_name, re.findall(r"`([^`]+)`", targets)))
    checked: dict[str, frozenset[str]] = {}
    for line in directions_in_pyproject():
        area, arrow, targets = line.partition("->")
        if arrow:
            checked[area.strip()] = frozenset(word.strip() for word in targets.split(",") if word.strip())
    parents = {name for name in checked if any(other.startswith(f"{name}.") for other in checked)}
    assert shown == {name: may for name, may in checked.items() if name not in parents}


def module_name(path: str) -> str:
    return path.removesuffix(".py").strip("/").replace("/", ".")


@pytest.mark.parametrize("area", sorted(LIBRARIES_IN))
def test_outside_libraries_stay_in_their_places(area: str) -> None:
    allowed = LIBRARIES_IN[area] | sys.stdlib_module_names | {"starverse"}
    strays = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in modules_of(area)
        for line, name in imported_roots(file)
        if name not in allowed
    ]
    assert not strays


def test_every_area_with_code_has_its_libraries_named() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert folders - {"testing"} == set(LIBRARIES_IN)


def test_domain_reads_no_clock_no_chance_and_no_world() -> None:
    strays = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in modules_of("domain")
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if CLOCKS_AND_WORLD.search(line.partition("#")[0])
    ]
    assert not strays


def test_a_cold_version_imports_nothing_but_the_entry() -> None:
    loaded = modules_after("['starverse', '--version']")
    assert {name for name in loaded if name.startswith("starverse")} == {
        "starverse",
        "starverse.cli",
        "starverse.cli.remote",
        "starverse.cli.remote.entry",
    }
    assert (
        not {name.partition(".")[0] for name in loaded}
        - sys.stdlib_module_names
        - {
            "starverse",
            *OF_THE_INSTALLATION,
        }
    )


def test_help_imports_no_command_and_no_server() -> None:
    ours = {name for name in modules_after("['starverse', '--help']") if name.startswith("starverse.")}
    server = ("app", "db", "domain", "engines", "gateway", "http", "main", "node", "reconcilers")
    assert not [
        name for name in ours if name.split(".")[1] in server or name.startswith("starverse.cli.local")
    ]


def test_a_launcher_loads_no_library_of_the_gateway() -> None:
    script = "import sys, starverse.node.launcher; sys.exit('asyncssh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, cwd=ROOT / "tests").returncode == 0


OF_THE_INSTALLATION = frozenset(
    {"__main__", "__mp_main__", "sitecustomize", "usercustomize", "_distutils_hack"}
)


def modules_after(arguments: str) -> set[str]:
    """What a fresh interpreter has loaded after a run of the command, without what it starts with."""
    script = (
        "import sys; before = set(sys.modules)\n"
        "from starverse.cli.remote.entry import main\n"
        f"sys.argv = {arguments}\n"
        "main()\n"
        "print('\\n' + '\\n'.join(sorted(set(sys.modules) - before)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT / "tests"
    )
    return set(done.stderr.split())
