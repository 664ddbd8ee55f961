"""Trees in which root inside a container image gave files to others there, on an ordinary user's platform.

Those others are ids of the platform's user (``/etc/subuid``), and yet their files are not its to read. In a
user namespace that has these ids, as inside, a process of the same user is root over them, and over nothing
else. There this module, run as a program, measures, copies and merges.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ENTER = (("--map-root-user", "--map-auto"), ("--map-root-user",))
"""Without ids of one's own there are at least one's own files that one may not read."""
_LOOK_SECONDS = 0.2


def run_as_root(
    action: str, places: tuple[str, ...], go_on: Callable[[], bool] = lambda: True
) -> dict[str, Any] | None:
    """What ``action`` said; ``None`` where it could not be begun, or ``go_on`` said no meanwhile."""
    for options in _ENTER:
        command = ["unshare", *options, "--", sys.executable, "-m", __name__, action, *places]
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            return None
        with child:
            while child.poll() is None:
                if not go_on():
                    child.kill()
                    return None
                try:
                    child.wait(_LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
            assert child.stdout is not None
            said = child.stdout.read()
        if child.returncode == 0:
            return dict(json.loads(said))
    return None


def main(action: str, *places: str) -> None:
    from starverse.node import disk_trees  # which asks for us where it has too few rights

    found: dict[str, Any]
    try:
        if action == "measure":
            measured = disk_trees.measure_here(Path(places[0]))
            found = {"figures": [measured.bytes, measured.files]}
        elif action == "merge":
            from starverse.node.images.merging import Owners, lay_over

            image, layer, target = map(Path, places)
            lay_over(image, layer, target, Owners())
            found = {"figures": []}
        else:
            found = {"figures": [disk_trees.copy_here(Path(places[0]), Path(places[1]))]}
    except disk_trees.TreeFault as error:
        found = {"fault": str(error)}
    except OSError as error:
        found = {"errno": error.errno}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
