"""What holds for all tests: Hypothesis profiles, a header that says what is skipped, groups of workers."""

from __future__ import annotations

import importlib.util
import os

import pytest
from hypothesis import HealthCheck, settings

POSTGRES_VARIABLE = "STARVERSE_TEST_POSTGRES"
TORCH_REMEDY = "add them with .venv/bin/python -m pip install torch==2.13.0"

settings.register_profile(
    "ci", derandomize=True, max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "dev", max_examples=300, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests share one worker; tests marked ``serial`` run one after another, before all others.

    They start real processes and watch time, so no two of them run at once (``--dist loadgroup``).
    """
    for item in items:
        serial = item.get_closest_marker("serial") is not None
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("serial" if serial else item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: item.get_closest_marker("serial") is None)


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
