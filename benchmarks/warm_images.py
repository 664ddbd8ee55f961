"""Images: a cold build from the package index once, then instances that start on the warm store.

The server builds each of ``--images`` (recipes that come with the product) by its own builder in its sandbox.
Then instances with the image and instances without one take turns: from the call to ready by the launcher's
own report. Beside them bubblewrap alone with the same namespaces and the same binds: ``/usr``, the image at
``/opt/image``, a workspace and a home; it runs the image's Python once. Medians.

    python -m benchmarks.warm_images [--images numpy,jupyter] [--rounds 20] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from benchmarks.endings import ended_by_sigterm
from benchmarks.platform_starts import PlatformFailed, Served, serving
from benchmarks.report import Figure, Report, emit
from benchmarks.researchers import QUIET, Researcher, instant, soon
from benchmarks.starts import time_raw
from starverse.domain.catalog.images import MOUNT_POINT
from starverse.node.images.places import Store

NUMBER = 15
NAME = "instances on warm images"
BUILD_SECONDS_MAX = 3600.0
MIB = 1024**2

Samples = dict[str, list[float]]


def measure(images: Sequence[str], rounds: int) -> Report:
    """Build, then start, image after image on one server."""
    figures: list[Figure] = []
    spreads: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="images-") as name:
        root = Path(name)
        root.chmod(0o755)
        words = ("--declare-cards", "rtx4090:2", "--driver", "bwrap")
        with serving(root / "platform", words, QUIET) as server:
            researcher = Researcher(server.client, root / "researcher")
            for image in images:
                seconds, built = build(server, image)
                samples: Samples = defaultdict(list)
                for turn in range(rounds + 1):
                    one_turn(server, researcher, built, samples if turn else defaultdict(list))
                figures += figures_of(image, seconds, built, samples)
                spreads |= {
                    f"{image} {key}": f"{min(found) * 1000:.1f}..{max(found) * 1000:.1f}"
                    for key, found in sorted(samples.items())
                }
    conditions = {"rounds": rounds, "sandbox": "bwrap", "spread_ms": spreads}
    return Report(NUMBER, NAME, figures, conditions)


def build(server: Served, name: str) -> tuple[float, dict[str, Any]]:
    """Seconds from the order to ready, and the image."""
    begun = time.time()
    server.client.images.build(name, None)

    def look() -> dict[str, Any] | None:
        one = cast(dict[str, Any], server.client.images.get(name))
        if one["state"] == "failed":
            raise PlatformFailed(f"the image {name} could not be built: {one['message']}")
        return one if one["state"] == "ready" else None

    built = soon(look, f"image {name}", BUILD_SECONDS_MAX)
    return time.time() - begun, built


def one_turn(server: Served, researcher: Researcher, image: dict[str, Any], samples: Samples) -> None:
    """An instance without it, one with it, and bubblewrap alone."""
    for key, wishes in (("plain", {}), ("warm", {"image": image["name"]})):
        begun = time.time()
        researcher.launch(f"on-{key}", **wishes)
        up = researcher.until_up(f"on-{key}")
        samples[key].append((instant(up["ready_at"]) or begun) - begun)
        if key == "warm" and not samples["python"]:
            said = researcher.ssh(up, "command -v python3")
            if said.strip() != f"{MOUNT_POINT}/bin/python3":
                raise PlatformFailed(f"the instance's python3 is {said!r}")
        server.client.instances.stop(f"on-{key}")
        researcher.until(f"on-{key}", "stopped")
        server.client.instances.remove(f"on-{key}")
    place = Store(server.data / "images").place(str(image["digest"]))
    python = [f"{MOUNT_POINT}/bin/python3", "-I", "-S", "-c", "pass"]
    with tempfile.TemporaryDirectory(prefix="raw-") as workspace, tempfile.TemporaryDirectory() as home:
        binds = {str(place): MOUNT_POINT}, {workspace: "/workspace", home: "/root"}
        samples["python"].append(time_raw(python, (), *binds))
        samples["raw"].append(time_raw(["/usr/bin/true"], (), *binds))


def figures_of(name: str, seconds: float, built: dict[str, Any], samples: Samples) -> list[Figure]:
    ms = {key: statistics.median(found) * 1000 for key, found in samples.items()}
    warm = ms["warm"]
    size = f"{(built.get('bytes') or 0) / MIB:.0f} MiB"
    return [
        Figure(f"image {name}: cold build", seconds, "s", note=size),
        Figure(
            f"image {name}: launch to ready, warm, p50", warm, "ms", "raw bubblewrap, its binds", ms["raw"]
        ),
        Figure(f"image {name}: launch to ready, warm, p50", warm, "ms", "raw, its Python", ms["python"]),
        Figure(f"image {name}: launch to ready, warm, p50", warm, "ms", "without an image", ms["plain"]),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="warm-images", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--images", default="numpy", help="names of recipes that come with the product")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with ended_by_sigterm():
        emit(measure(given.images.split(","), given.rounds), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
