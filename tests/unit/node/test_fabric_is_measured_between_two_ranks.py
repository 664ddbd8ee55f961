"""Two processes on this machine measure the loopback between them; what other tools print is read."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from starverse.domain.fabric.measured import Method, What, read_result
from starverse.node import fabric_probe
from starverse.node.fabric_all_reduce import interface_to
from starverse.node.fabric_probe import Place, read_place
from starverse.node.fabric_tcp import ProbeFailed, percentiles
from starverse.node.fabric_tools import read_ib_write_bw, read_nccl_tests

HAS_TORCH = importlib.util.find_spec("torch") is not None


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(rank: int, port: int, tasks: int = 2) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(tasks),
        "SLURMD_NODENAME": f"gpu{rank}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "starverse.node.fabric_probe"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_ranks_measure_and_one_prints() -> None:
    port = free_port()
    with start(1, port) as second, start(0, port) as first:
        told, silent = first.communicate(timeout=180)[0], second.communicate(timeout=60)[0]
    assert (first.returncode, second.returncode, silent) == (0, 0, "")
    result = read_result(told)
    assert result.nodes == ("gpu0", "gpu1")
    assert result.same_machine
    found = {(figure.what, figure.method): figure for figure in result.figures}
    trip = found[What.ROUND_TRIP, Method.TCP]
    assert trip.p50_nanoseconds and trip.p99_nanoseconds
    assert trip.p50_nanoseconds <= trip.p99_nanoseconds
    assert found[What.BANDWIDTH, Method.TCP].bytes_per_second
    assert ((What.ALL_REDUCE, Method.GLOO) in found) is HAS_TORCH, result.left_out
    assert ("gloo" in result.left_out) is not HAS_TORCH
    for method in ("ib_write_bw", "nccl-tests"):
        assert method in result.left_out or any(figure.method == method for figure in result.figures)


def test_one_rank_alone_says_how_to_start_it() -> None:
    with start(0, free_port(), tasks=1) as alone:
        _, told = alone.communicate(timeout=60)
    assert alone.returncode == 2
    assert "--ntasks-per-node=1" in told


@pytest.mark.parametrize("missing", ["SLURM_PROCID", "SLURM_NTASKS", "MASTER_ADDR", "MASTER_PORT"])
def test_an_environment_without_ranks_is_refused(missing: str) -> None:
    whole = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "MASTER_ADDR": "gpu1", "MASTER_PORT": "2000"}
    assert read_place(whole).address == "gpu1"
    with pytest.raises(KeyError):
        read_place({name: value for name, value in whole.items() if name != missing})


def test_a_stranger_on_the_port_is_noticed() -> None:
    port = free_port()
    failed: list[BaseException] = []

    def serve() -> None:
        try:
            fabric_probe.run(Place(0, "127.0.0.1", port, "gpu0", pings=1, seconds=0.1))
        except ProbeFailed as error:
            failed.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    with _dial(port) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        thread.join(30)
    assert [str(error) for error in failed] == ["something else speaks on this port"]


def _dial(port: int) -> socket.socket:
    for _ in range(1000):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        except ConnectionRefusedError:
            threading.Event().wait(0.01)
    raise AssertionError("nobody listens")


@pytest.mark.parametrize(
    ("taken", "p50", "p99"),
    [
        ([5], 5, 5),
        ([1, 2], 1, 2),
        ([3, 1, 2], 2, 3),
        (list(range(1, 101)), 50, 99),
        (list(range(1, 1001)), 500, 990),
    ],
)
def test_percentiles_are_values_that_were_measured(taken: list[int], p50: int, p99: int) -> None:
    assert percentiles(taken) == (p50, p99)


def test_the_interface_to_this_machine_is_the_loopback() -> None:
    assert interface_to("127.0.0.1") == "lo"
    assert interface_to("no address") == ""


PERFTEST = """
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      2351211          0.00               195.43                    0.372759
---------------------------------------------------------------------------------------
"""
NCCL_TESTS = """
#                                                   out-of-place                       in-place
#   size     count   type  redop  root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#    (B)  (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
 1048576    262144  float    sum    -1    81.25   12.91   12.91      0    80.10   13.09   13.09      0
67108864  16777216  float    sum    -1   3012.5   22.28   22.28      0   3010.1   22.29   22.29      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 17.6
"""


def test_what_perftest_prints_is_read() -> None:
    assert read_ib_write_bw(PERFTEST) == {
        "bytes_per_second": 24_428_750_000,
        "message_bytes": 65_536,
        "rounds": 2_351_211,
    }


def test_what_nccl_tests_print_is_read_at_the_largest_size() -> None:
    expected: dict[str, Any] = {
        "bytes_per_second": 22_280_000_000,
        "message_bytes": 67_108_864,
        "p50_nanoseconds": 3_012_500,
    }
    assert read_nccl_tests(NCCL_TESTS) == expected
    with pytest.raises(ProbeFailed, match="wrong"):
        read_nccl_tests(NCCL_TESTS.replace("22.28      0", "22.28      7"))


@pytest.mark.parametrize("text", ["", "Couldn't connect to gpu1:18515", json.dumps({})])
def test_output_without_a_figure_is_no_figure(text: str) -> None:
    with pytest.raises(ProbeFailed):
        read_ib_write_bw(text)
    with pytest.raises(ProbeFailed):
        read_nccl_tests(text)
