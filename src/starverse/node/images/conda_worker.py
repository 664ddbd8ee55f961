"""Run inside a build's sandbox, as a file by its path: solves conda packages and unpacks them."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any


async def fill(order: dict[str, Any]) -> None:
    """Solve ``specs`` over ``channels`` and unpack them into ``target``."""
    import rattler

    places = rattler.ChannelConfig(channel_alias=order["base"]) if order["base"] else rattler.ChannelConfig()
    records = await rattler.solve(
        [rattler.Channel(name, places) for name in order["channels"]],
        order["specs"],
        gateway=rattler.Gateway(cache_dir=Path("/tmp/repodata")),
        platforms=["linux-64", "noarch"],
        virtual_packages=rattler.VirtualPackage.detect(),
    )
    await rattler.install(
        records,
        order["target"],
        cache_dir=Path("/tmp/packages"),
        execute_link_scripts=False,
        show_progress=False,
    )


if __name__ == "__main__":
    try:
        asyncio.run(fill(json.loads(sys.argv[1])))
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
    os._exit(0)  # rattler's own threads may still run, and the end of the interpreter under them has crashed
