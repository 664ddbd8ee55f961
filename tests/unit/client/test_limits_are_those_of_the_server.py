"""What a client checks before it sends is what the server checks: it may import nothing to be sure."""

from __future__ import annotations

from pathlib import Path

from starverse.app.archives import DEPTH_MAX, PATH_BYTES_MAX
from starverse.app.platform import Settings
from starverse.cli.slurm import selecting
from starverse.client import submitting
from starverse.client.packing import FolderLimits
from starverse.config import PolicySettings
from starverse.domain.sbatch import scripts, values


def test_the_usual_limits_of_a_folder_are_the_servers() -> None:
    usual = FolderLimits()
    assert usual.files_bytes == Settings(data=Path()).folder_bytes_max
    assert usual.files_bytes == PolicySettings().folder_mib_max * 1024**2
    assert (usual.depth, usual.path_bytes) == (DEPTH_MAX, PATH_BYTES_MAX)


def test_a_script_has_one_limit() -> None:
    assert submitting.SCRIPT_BYTES_MAX == scripts.SCRIPT_BYTES_MAX == 4 * 1024**2


def test_an_array_has_one_limit() -> None:
    assert selecting.ARRAY_TASKS_MAX == values.ARRAY_TASKS_MAX
