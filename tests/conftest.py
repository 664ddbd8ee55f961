"""What holds for all tests: Hypothesis profiles, a header that says what is skipped, what runs first."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

POSTGRES_VARIABLE = "STARVERSE_TEST_POSTGRES"
ROOT = Path(__file__).resolve().parents[1]
SERIAL_FOLDERS = (("tests", "contract"), ("tests", "end_to_end"))
TORCH_REMEDY = "add them with .venv/bin/python -m pip install torch==2.13.0"

settings.register_profile(
    "ci", derandomize=True, max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "dev", max_examples=300, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# A twentieth of the CPU of a run went into looking for garbage that is not there.
gc.set_threshold(100_000, 50, 100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_report_header() -> list[str]:
    """Say at the top what this machine lacks and how to add it; each skipped test says so as well."""
    postgres = os.environ.get(POSTGRES_VARIABLE)
    torch = importlib.util.find_spec("torch") is not None
    return [
        "PostgreSQL tests: "
        + (
            f"on {_without_password(postgres)}"
            if postgres
            else f"skipped, {POSTGRES_VARIABLE} names no server"
        ),
        f"PyTorch tests: {'run' if torch else f'skipped, not installed; {TORCH_REMEDY}'}",
        f"user: {'root' if os.geteuid() == 0 else f'uid {os.geteuid()}; tests that need root are skipped'}",
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start real processes and watch time come first: they are one after another anyway."""
    items.sort(key=lambda item: not _is_serial(item.nodeid))


def _is_serial(nodeid: str) -> bool:
    return _file_is_serial(nodeid.partition("::")[0])


@functools.cache
def _file_is_serial(name: str) -> bool:
    """Whether a test file lies in a folder of real processes or marks a test ``serial``."""
    if Path(name).parts[:2] in SERIAL_FOLDERS:
        return True
    return "mark.serial" in (ROOT / name).read_text("utf-8")


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
