"""An all-reduce between two ranks through PyTorch, as training does it: gloo, or NCCL where CUDA is.

Run in a process of its own for each rank, so that a crash in a library costs this figure and no other.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import time
from datetime import timedelta

from starverse.node.fabric_tcp import percentiles

SMALL_BYTES = 8
SMALL_ROUNDS = 200
BIG_BYTES = 32 << 20
BIG_ROUNDS = 8
WARM_UP_ROUNDS = 3
TIMEOUT = timedelta(seconds=60)
_SIOCGIFADDR = 0x8915


def main(arguments: list[str]) -> int:
    """``BACKEND RANK ADDRESS PORT``; rank 0 prints the figures as JSON."""
    backend, rank, address, port = arguments
    interface = interface_to(address)
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    figures = measure(backend, int(rank), f"tcp://{address}:{port}")
    if rank == "0":
        sys.stdout.write(json.dumps(figures) + "\n")
    return 0


def measure(backend: str, rank: int, store: str) -> dict[str, int]:
    """Times of a small all-reduce, and the bus bandwidth of a big one as nccl-tests define it.

    Bus bandwidth is bytes / seconds x 2 (n - 1) / n, which is bytes / seconds for two ranks.
    """
    import torch
    import torch.distributed as dist

    if backend == "nccl":
        torch.cuda.set_device(0)
    device = "cuda" if backend == "nccl" else "cpu"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=2, timeout=TIMEOUT)
    try:

        def times(count: int, rounds: int) -> list[int]:
            values = torch.ones(count // 4, dtype=torch.float32, device=device)
            taken = []
            for _ in range(WARM_UP_ROUNDS + rounds):
                before = time.perf_counter_ns()
                dist.all_reduce(values)
                if device == "cuda":
                    torch.cuda.synchronize()
                taken.append(time.perf_counter_ns() - before)
                values.fill_(1.0)
            return taken[WARM_UP_ROUNDS:]

        p50, p99 = percentiles(times(SMALL_BYTES, SMALL_ROUNDS))
        median, _ = percentiles(times(BIG_BYTES, BIG_ROUNDS))
    finally:
        dist.destroy_process_group()
    return {
        "p50_nanoseconds": p50,
        "p99_nanoseconds": p99,
        "bytes_per_second": BIG_BYTES * 1_000_000_000 // max(1, median),
        "message_bytes": BIG_BYTES,
        "rounds": BIG_ROUNDS,
    }


def interface_to(address: str) -> str:
    """The network interface whose address this host uses towards another; ``""`` where it cannot be told.

    gloo would resolve the host's name instead, which inside a sandbox may say nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
        except OSError:
            return ""
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(found[20:24]) == own:
                return name
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
