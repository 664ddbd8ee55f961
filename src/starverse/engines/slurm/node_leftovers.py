"""What a killed launcher leaves on its node: processes and control groups. Run there by the job's script,
``python -m starverse.engines.slurm.node_leftovers FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from starverse.engines.folders.leftovers import end_on_this_host
from starverse.node.folder import AllocationFolder


def main(path: str) -> int:
    end_on_this_host(AllocationFolder(Path(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
