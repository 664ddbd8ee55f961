"""Pages of ``docs/`` that are made from the code, so that they cannot say anything else.

    python -m starverse.testing.reference_pages [settings|errors]

writes them into the checkout's ``docs/``; ``tests/tidy`` compares them with the code.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import starverse
from starverse.cli.remote import exit_codes
from starverse.config import PREFIX, SEPARATOR, Config
from starverse.domain.errors import StarverseError
from starverse.http.problems import status_of

LAYERS_WITH_ERRORS = ("domain", "app", "db", "engines", "node", "http", "cli.local")

SETTINGS_HEAD = """# Settings

Made from `src/starverse/config.py` by `make docs`.

A setting comes from `starverse.toml`, then from its environment variable, then from a flag of `starverse up`;
the later one wins. `starverse config show --origin` prints every value and where it came from. A key that is
not listed here is an error, with the nearest choices. Secrets are not settings: they lie in files of the data
folder, or come from the environment (`STARVERSE_TOKEN`), and are never printed.

The file is `starverse.toml` in the user's configuration folder (`$XDG_CONFIG_HOME/starverse`), or what
`starverse up --config` names:

```toml
[server]
port = 8321

[engine]
declare_cards = "rtx4090:8"
```
"""

ERRORS_HEAD = """# Errors

Made from the error classes by `make docs`.

Every error has a stable code. The API answers `application/problem+json` (RFC 9457) with `code`, `detail`,
`hint`, `request_id` and, for invalid input, `faults`: each field, the value given and what would be right.
The command line prints the same on standard error (`--json`: as JSON) and exits with the code in the table.
"""

CODES_WITHOUT_CLASS = {
    "usage": "The command line could not be read; see the command's `--help`. Never sent by the API.",
    "interrupted": "Ctrl-C. Never sent by the API.",
    "method_not_allowed": "The address exists, the method does not apply to it (HTTP 405).",
}
"""Codes that no class of the hierarchy carries."""


def settings_page() -> str:
    """Every setting with its variable, default and meaning."""
    parts = [SETTINGS_HEAD]
    for section, field in Config.model_fields.items():
        model = field.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        parts.append(f"\n## `[{section}]`\n\n")
        rows = [_setting_row(section, name, found) for name, found in model.model_fields.items()]
        parts.append(_table(("key", "variable", "default", "meaning"), rows))
    return "".join(parts)


def errors_page() -> str:
    """Every error code with its HTTP status, its exit code and its message."""
    rows = []
    for cls in error_classes():
        error = cls()
        exit_code = exit_codes.exit_code_of(error.code)
        rows.append((f"`{error.code}`", str(status_of(error)), str(exit_code), _escape(error.detail)))
    others = [
        (f"`{code}`", str(exit_codes.exit_code_of(code)), meaning)
        for code, meaning in CODES_WITHOUT_CLASS.items()
    ]
    return (
        ERRORS_HEAD
        + "\n"
        + _table(("code", "HTTP", "exit", "default message: what happened and what to do"), sorted(rows))
        + "\nCodes without a class of their own:\n\n"
        + _table(("code", "exit", "meaning"), others)
        + "\nOther exit codes: 0 done, 1 any other failure, and with `--wait` the job's own code (128 + N\n"
        "for signal N).\n"
    )


def error_classes() -> list[type[StarverseError]]:
    """Every class of the hierarchy, found by importing the layers that make errors."""
    for layer in LAYERS_WITH_ERRORS:
        package = importlib.import_module(f"{starverse.__name__}.{layer}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".migrations" not in module.name:
                importlib.import_module(module.name)
    return sorted(_with_subclasses(StarverseError), key=lambda cls: cls.code)


PAGES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "settings": ("en/settings.md", settings_page),
    "errors": ("en/errors.md", errors_page),
}
"""What is made: name -> file in ``docs/`` and its maker."""


def main(names: Sequence[str]) -> int:
    """Write the pages named, all without a name; 2 for a name that is not known."""
    unknown = [name for name in names if name not in PAGES]
    if unknown:
        sys.stderr.write(f"no such page: {', '.join(unknown)}; there are {', '.join(PAGES)}\n")
        return 2
    docs = Path(__file__).resolve().parents[3] / "docs"
    for name in names or PAGES:
        file, make = PAGES[name]
        (docs / file).parent.mkdir(parents=True, exist_ok=True)
        (docs / file).write_text(make(), encoding="utf-8")
        sys.stdout.write(f"wrote docs/{file}\n")
    return 0


def _with_subclasses(cls: type[StarverseError]) -> Iterator[type[StarverseError]]:
    yield cls
    for below in cls.__subclasses__():
        yield from _with_subclasses(below)


def _setting_row(section: str, name: str, found: FieldInfo) -> tuple[str, ...]:
    variable = f"{PREFIX}{section.upper()}{SEPARATOR}{name.upper()}"
    if found.default_factory is not None:
        default = "`starverse` in the user's data folder (`$XDG_DATA_HOME`)"
    elif found.default in (None, ""):
        default = "-"
    else:
        default = f"`{str(found.default).lower() if isinstance(found.default, bool) else found.default}`"
    return (f"`{section}.{name}`", f"`{variable}`", default, _escape(found.description or ""))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
