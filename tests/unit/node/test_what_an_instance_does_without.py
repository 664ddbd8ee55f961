"""Where a node has no pasta: an instance goes on without the internet, a job that asked for it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.node.surroundings import missing_network
from starverse.testing.launches import build_launch


@pytest.mark.parametrize(
    ("interactive", "network", "does_without"),
    [(True, "internet", True), (True, "none", False), (True, "host", False), (False, "internet", False)],
)
def test_only_an_instance_does_without_the_internet(
    tmp_path: Path, interactive: bool, network: str, does_without: bool
) -> None:
    spec = build_launch(tmp_path, interactive=interactive, network=network)
    assert missing_network(spec, pasta="").startswith("pasta is not installed") == does_without
