"""Live servers of the end-to-end tests: real processes on folders of their own, nothing left behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.testing.live_server import Ground, LiveServer
from starverse.testing.ordinary_users import ORDINARY_UID, ordinary_python


@pytest.fixture(scope="session")
def python_of_an_ordinary_user() -> Iterator[tuple[int, str]]:
    """User id and interpreter for running as somebody who is not root; skips with the reason."""
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    folder = Path(tempfile.mkdtemp(prefix="starverse-python-"))
    folder.chmod(0o755)
    try:
        python = ordinary_python(folder)
        if python is None:
            pytest.skip(
                f"uid {ORDINARY_UID} can execute no Python of this version (venv below a 0700 folder)"
            )
        yield ORDINARY_UID, python
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A running platform with eight declared cards, shared by the tests of a module."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    with LiveServer(Ground()) as running:
        yield running
