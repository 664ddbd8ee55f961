"""The API's description as text: ``python -m starverse.http.openapi docs/openapi.json`` writes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from starverse.http.app import bare_app


def description_text() -> str:
    """OpenAPI 3.1 as JSON with sorted keys, the same on every machine."""
    return json.dumps(bare_app().openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the description to the file named; 2 when none is."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m starverse.http.openapi FILE\n")
        return 2
    path = Path(arguments[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(description_text(), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
