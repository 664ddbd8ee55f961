"""Launchers of one allocation on several nodes: ranks everywhere, one beginning and one end for all of them.

The launchers are real processes, as Slurm would start them; the nodes are names on this machine.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.recovery.causes import EndFacts, end_cause
from starverse.domain.workloads.launch import NODE_LOST, Desired, LauncherState, Plug
from starverse.domain.workloads.reasons import EndCause
from starverse.engines.folders.leftovers import remove_folders
from starverse.node import processes
from starverse.node.gang_head import GangHead
from starverse.node.sandbox.driver import StartRefused
from starverse.testing.gangs import Gang
from starverse.testing.launches import MIB, own

MakeGang = Callable[..., Gang]

HANDLES_USR1 = """import os, signal, sys, time
def save(*_):
    import json
    print("saved", os.environ["SLURM_PROCID"], json.load(open(os.environ["STARVERSE_NOTICE_FILE"]))["reason"], flush=True)
    sys.exit(99)
signal.signal(signal.SIGUSR1, save)
print("set", os.environ["SLURM_PROCID"], flush=True)
while True: time.sleep(0.05)
"""  # noqa: E501
IGNORES_TERM = """import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("told", os.environ["SLURM_PROCID"], flush=True))
print("set", os.environ["SLURM_PROCID"], flush=True)
while True: time.sleep(0.05)
"""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[MakeGang]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    made: list[Gang] = []

    def make(script: str, **changes: Any) -> Gang:
        made.append(Gang(tmp_path / str(len(made)), script, name=own("gang"), **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()
        left = processes.find_tagged(one.spec.allocation_id)
        processes.send(left, signal.SIGKILL)
        assert not left, f"processes outlived their launchers: {left}"


def run(gang: Gang) -> LauncherState:
    gang.start()
    return gang.wait()


def python(code: str, name: str) -> str:
    """A line of a script that leaves the code as a file in the workspace."""
    return f"cat > {name} <<'CODE'\n{code}CODE\n"


# -- ranks and what they see


def test_a_shared_disk_is_on_every_node(gang: MakeGang, tmp_path: Path) -> None:
    disk = tmp_path / "disk" / "data"
    disk.mkdir(parents=True)
    disk.chmod(0o777)
    wanted = Plug("p1", "/data/set", "shared", str(disk))
    made = gang("srun -n2 sh -c 'hostname > /data/set/$SLURM_PROCID'\n", plugs=(wanted,))
    assert run(made).exit_code == 0, made.log
    assert [(disk / name).read_text().strip() for name in ("0", "1")] == list(made.names)


SEEN = """srun -n5 -l sh -c 'echo rank=$RANK/$SLURM_PROCID local=$LOCAL_RANK/$SLURM_LOCALID node=$NODE_RANK/$SLURM_NODEID \
world=$WORLD_SIZE/$SLURM_NTASKS nodes=$NNODES/$SLURM_STEP_NUM_NODES each="$SLURM_TASKS_PER_NODE" names=$SLURM_STEP_NODELIST \
name=$SLURMD_NODENAME host=$(hostname) here=$SLURM_GTIDS gpus=$SLURM_GPUS_ON_NODE/$SLURM_STEP_GPUS/$CUDA_VISIBLE_DEVICES \
master=$MASTER_ADDR:$MASTER_PORT nccl=$NCCL_IB_DISABLE job=$SLURM_JOB_ID'
"""  # noqa: E501


def test_each_rank_sees_its_place_among_three_nodes(gang: MakeGang) -> None:
    made = gang(SEEN, nodes=3, fabric="eth")
    assert run(made).exit_code == 0, made.tell()
    lines = sorted(line for line in made.log.splitlines() if ": rank=" in line)
    assert lines == [
        f"{rank}: rank={rank}/{rank} local={local}/{local} node={node}/{node} world=5/5 nodes=3/3"
        f" each=2(x2),1 names=gpu[001-003] name=gpu00{node + 1} host=gpu00{node + 1} here={here}"
        f" gpus=2/0,1/0,1 master=127.0.0.1:20123 nccl=1 job=123"
        for rank, local, node, here in (
            (0, 0, 0, "0,1"),
            (1, 1, 0, "0,1"),
            (2, 0, 1, "2,3"),
            (3, 1, 1, "2,3"),
            (4, 0, 2, "4"),
        )
    ]


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ("-N2", ["0 gpu001", "1 gpu002"]),
        ("", ["0 gpu001", "1 gpu002"]),
        ("-N1", ["0 gpu001", "1 gpu001"]),
        ("-n1", ["0 gpu001"]),
        ("-n3", ["0 gpu001", "1 gpu001", "2 gpu002"]),
        ("--ntasks-per-node=2", ["0 gpu001", "1 gpu001", "2 gpu002", "3 gpu002"]),
        ("-n1 -w gpu002", ["0 gpu002"]),
        ("-w gpu[001-002]", ["0 gpu001", "1 gpu002"]),
    ],
)
def test_ranks_are_laid_out_as_asked(gang: MakeGang, options: str, seen: list[str]) -> None:
    made = gang(f"srun {options} sh -c 'echo $SLURM_PROCID $(hostname)' | sort\n")
    assert run(made).exit_code == 0, made.tell()
    assert made.log.splitlines()[1:] == seen


def test_what_srun_cannot_do_is_said_as_slurm_does(gang: MakeGang) -> None:
    made = gang("srun -N3 true; echo $?; srun -w gpu009 true; echo $?; srun -n2 /not/there; echo $?\n")
    run(made)
    assert made.log.splitlines()[1:] == [
        "srun: error: Only allocated 2 nodes asked for 3",
        "1",
        "srun: error: Unable to create step for job 123: Requested node configuration is not available",
        "1",
        "slurmstepd: error: execve(): /not/there: No such file or directory",
        "2",
    ]


FAR = """echo from the script > input
cat input | srun -n1 -w gpu002 cat
srun -N2 -o out.%t.%n.%N sh -c 'echo $SLURM_PROCID; echo error >&2'; cat out.0.0.gpu001 out.1.1.gpu002
srun -N2 -o both sh -c 'echo one'; cat both
srun -N2 -i input cat
srun -N2 sh -c 'exit $((SLURM_PROCID * 7))'; echo code $?
srun -N2 sh -c '[ $SLURM_NODEID = 1 ] && kill -9 $$; true'; echo code $?
srun -N2 -K sh -c '[ $SLURM_NODEID = 1 ] && exit 3; exec sleep 300'; echo code $?
srun -N2 sh -c 'getent hosts gpu002 | cut -d" " -f1; touch $HOME/$SLURM_PROCID /tmp/$SLURM_PROCID; ls $HOME | wc -l' > /dev/null
srun -n1 -w gpu002 sh -c 'ls $HOME; test -e /tmp/1 && test ! -e /tmp/0 && echo own; getent hosts gpu001; pwd; id -u'
"""  # noqa: E501


def test_far_ranks_have_the_same_files_input_output_and_exit_codes(gang: MakeGang) -> None:
    made = gang(FAR)
    assert run(made).exit_code == 0, made.tell()
    assert made.log.splitlines()[1:] == [
        "from the script",
        *("0", "error", "1", "error"),
        *("one", "one"),
        *("from the script", "from the script"),
        "srun: error: gpu002: task 1: Exited with exit code 7",
        "code 7",
        "srun: error: gpu002: task 1: Killed",
        "code 137",
        "srun: error: gpu002: task 1: Exited with exit code 3",
        "srun: Terminating StepId=123.6",
        "srun: error: gpu001: task 0: Terminated",
        "code 143",
        *("0", "1"),  # one home folder for all nodes
        "own",  # /tmp is each node's
        "127.0.0.1       gpu001",
        "/workspace",
        "1000",
    ]


def test_ranks_are_started_everywhere_without_a_sandbox_too(gang: MakeGang) -> None:
    made = gang("srun -N2 sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | sort\n", driver="process")
    assert run(made).exit_code == 0, made.tell()
    assert made.log.splitlines()[1:] == ["0 gpu001", "1 gpu002"]


def test_much_output_of_far_ranks_arrives_whole(gang: MakeGang) -> None:
    made = gang("srun -n1 -w gpu002 sh -c 'head -c 20000000 /dev/zero | tr \"\\0\" x' | wc -c\n")
    run(made)
    assert made.log.splitlines()[1:] == ["20000000"]


def test_a_signal_to_srun_reaches_the_ranks_of_all_nodes(gang: MakeGang) -> None:
    script = python(IGNORES_TERM, "rank.py") + 'srun -N2 "$STARVERSE_PYTHON" rank.py &\nwait; wait\n'
    made = gang(script)
    made.start()
    made.until(lambda: "set 0" in made.log and "set 1" in made.log)
    srun = [pid for pid in processes.find_tagged(made.spec.allocation_id) if b"slurm.shims" in cmdline(pid)]
    processes.send(srun, signal.SIGTERM)
    made.until(lambda: "told 0" in made.log and "told 1" in made.log)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_ranks_end_when_their_srun_is_killed(gang: MakeGang) -> None:
    made = gang("srun -n1 -w gpu002 sh -c 'echo up; sleep 300' &\nsleep 300\n")
    made.start()
    made.until_logged("up")

    def sleeping() -> list[int]:
        found = processes.find_tagged(made.spec.allocation_id)
        return [pid for pid in found if cmdline(pid) == b"sleep\x00300\x00"]

    srun = [pid for pid in processes.find_tagged(made.spec.allocation_id) if b"slurm.shims" in cmdline(pid)]
    assert len(sleeping()) == 2
    processes.send(srun, signal.SIGKILL)
    made.until(lambda: len(sleeping()) == 1, "the rank's end")


# -- one end for all


@pytest.mark.parametrize("grace", ["notice", "stop"])
def test_a_notice_and_a_stop_reach_the_ranks_of_all_nodes(gang: MakeGang, grace: str) -> None:
    code = {"notice": HANDLES_USR1, "stop": IGNORES_TERM}[grace]
    made = gang(python(code, "rank.py") + 'srun -N2 "$STARVERSE_PYTHON" rank.py\n', grace_seconds=60)
    made.start()
    made.until(lambda: "set 0" in made.log and "set 1" in made.log)
    if grace == "notice":
        made.steer(Desired(notice_reason="reclaim"))
        report = made.wait()
        assert (report.exit_code, report.stopped_by) == (99, "notice"), made.tell()
        assert {"saved 0 reclaim", "saved 1 reclaim"} <= set(made.log.splitlines())
    else:
        made.steer(Desired(stop=True))
        report = made.wait()
        assert (report.exit_signal, report.stopped_by) == (15, "stop"), made.tell()
        assert {"told 0", "told 1"} <= set(made.log.splitlines())


def test_a_rank_that_saves_at_term_on_another_node_is_waited_for(gang: MakeGang) -> None:
    code = IGNORES_TERM.replace("print(", "(time.sleep(1), print(", 1).replace(
        "flush=True))", "flush=True), os._exit(0)))", 1
    )
    made = gang(
        python(code, "rank.py") + 'srun -n1 -w gpu002 "$STARVERSE_PYTHON" rank.py > saved\n',
        kill_after_seconds=20,
    )
    made.start()
    saved = Path(made.spec.workspace, "saved")
    made.until(lambda: saved.exists() and "set 0" in saved.read_text())
    made.steer(Desired(stop=True))
    report = made.wait()
    assert report.ended_at is not None
    assert report.ended_at - report.alive_at < 10
    state = made.state(1)
    assert state is not None
    assert state.exit_code == 0, made.tell()


def test_nothing_of_a_companion_is_left_when_the_engine_has_cleaned_up(gang: MakeGang) -> None:
    made = gang("srun -N2 sh -c 'mkdir -p /tmp/a/b; touch /tmp/a/b/c $HOME/x'\n")
    assert run(made).exit_code == 0, made.tell()
    assert (made.folder / "node-1" / "tmp" / "a").is_dir()
    remove_folders(made.folder)
    assert not (made.folder / "node-1").exists()
    assert not (made.folder / "home").exists()


def test_the_end_of_the_script_is_the_end_of_every_rank(gang: MakeGang) -> None:
    made = gang("srun -N2 sh -c 'echo up $SLURM_PROCID; exec sleep 300' &\nsleep 1; echo over; exit 4\n")
    report = run(made)
    assert (report.exit_code, report.stopped_by, report.failure) == (4, "", ""), made.tell()


def test_a_companion_killed_is_a_lost_node_and_the_others_end(gang: MakeGang) -> None:
    made = gang("srun -N3 sh -c 'echo up $SLURM_PROCID; exec sleep 300'; echo code $?; sleep 300\n", nodes=3)
    made.start()
    made.until(lambda: all(f"up {rank}" in made.log for rank in range(3)))
    made.kill(1)
    report = made.wait()
    assert (report.stopped_by, report.failure) == (NODE_LOST, "the launcher on gpu002 was lost"), made.tell()
    assert "srun: error: Node failure on gpu002" in made.log
    assert end_cause(EndFacts(report)) == (EndCause.NODE_LOST, report.failure)


def test_a_script_that_fails_since_a_companion_was_killed_is_a_lost_node_too(gang: MakeGang) -> None:
    made = gang("set -e; srun -N2 sh -c 'echo up $SLURM_PROCID; exec sleep 300'\n")
    made.start()
    made.until(lambda: "up 0" in made.log and "up 1" in made.log)
    made.kill(1)
    report = made.wait()
    assert (report.stopped_by, report.failure) == (NODE_LOST, "the launcher on gpu002 was lost"), made.tell()


def test_a_script_that_ends_well_though_a_companion_was_killed_is_a_lost_node_too(gang: MakeGang) -> None:
    made = gang("srun -N2 sh -c 'echo up $SLURM_PROCID; exec sleep 300'; echo end\n")
    made.start()
    made.until(lambda: "up 0" in made.log and "up 1" in made.log)
    made.kill(1)
    report = made.wait()
    assert (report.exit_code, report.stopped_by) == (0, NODE_LOST), made.tell()
    assert "end" in made.log.splitlines()
    assert end_cause(EndFacts(report)) == (EndCause.NODE_LOST, "the launcher on gpu002 was lost")


SAYS_NONSENSE = """import socket, time
for line in (b'{"node_index": 1e999}', b'{"node_index": null}', b"[" * 4000, b"\\xff", b'{"node_index": 1}'):
    with socket.socket(socket.AF_UNIX) as to_head:
        to_head.connect("/run/starverse/gang.sock")
        to_head.sendall(line + b"\\n")
        time.sleep(0.1)
"""


def test_a_workload_that_talks_nonsense_to_its_head_loses_no_node(gang: MakeGang) -> None:
    script = python(SAYS_NONSENSE, "nonsense.py") + '"$STARVERSE_PYTHON" nonsense.py\nsleep 5\n'
    made = gang(script + "srun -N2 sh -c 'echo still $SLURM_PROCID'\n")
    report = run(made)
    assert (report.exit_code, report.stopped_by, report.failure) == (0, "", ""), made.tell()
    assert {"still 0", "still 1"} <= set(made.log.splitlines())


def test_more_ways_to_a_node_than_it_has_room_for_lose_no_node(gang: MakeGang) -> None:
    code = """import socket, time
held = []
for _ in range(300):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect("/run/starverse/gang.sock")
    held[-1].sendall(b'{"node_index": 1}\\n')
    time.sleep(0.01)
time.sleep(3)
"""
    script = python(code, "many.py") + '"$STARVERSE_PYTHON" many.py\n'
    made = gang(script + "sleep 2; srun -N2 sh -c 'echo still $SLURM_PROCID'\n")
    report = run(made)
    assert (report.exit_code, report.stopped_by, report.failure) == (0, "", ""), made.tell()
    assert {"still 0", "still 1"} <= set(made.log.splitlines())


@pytest.mark.parametrize("script_survives", [False, True])
def test_a_node_that_goes_down_is_a_lost_node(gang: MakeGang, script_survives: bool) -> None:
    made = gang("srun -N2 sh -c 'echo up $SLURM_PROCID; exec sleep 300'" + "; true" * script_survives + "\n")
    made.start()
    made.until(lambda: "up 0" in made.log and "up 1" in made.log)
    made.kill(1, signal.SIGTERM)
    report = made.wait()
    assert (report.stopped_by, report.failure) == (NODE_LOST, "gpu002: this node is going down"), made.tell()


def test_the_head_killed_ends_its_companions_and_all_ranks(gang: MakeGang) -> None:
    made = gang("srun -N2 sh -c 'echo up $SLURM_PROCID; exec sleep 300'\n")
    made.start()
    made.until(lambda: "up 0" in made.log and "up 1" in made.log)
    made.kill(0)
    made.until(lambda: all(launcher.poll() is not None for launcher in made.launchers.values()))
    assert made.folder.read_report() is None
    state = made.state(1)
    assert state is not None
    assert (state.phase, state.failure) == ("ended", "the head launcher is no more")


SHORT_OF_PATIENCE = """import sys
from starverse.node.companion import Companion
from starverse.node.folder import AllocationFolder
folder = AllocationFolder(sys.argv[1])
sys.exit(Companion(folder, folder.read_spec(), 1, start_seconds=4, silent_seconds=1.5).run())
"""
"""A companion as ``--node-index 1`` starts it, with seconds where it has a minute."""


@pytest.mark.parametrize(
    ("claimed", "why"),
    [(True, "the head launcher ended while it started"), (False, "the head launcher did not come")],
)
def test_a_head_killed_as_it_starts_keeps_nobody_waiting(gang: MakeGang, claimed: bool, why: str) -> None:
    made = gang("true\n")
    if claimed:
        made.folder.write_state(LauncherState(made.spec.allocation_id, 1, "claimed", "boot", 5.0))
        (made.folder / "claim.lock").touch()
    made.launchers[1] = subprocess.Popen([sys.executable, "-c", SHORT_OF_PATIENCE, made.spec.folder])
    made.until(lambda: made.launchers[1].poll() is not None, "the companion's end")
    state = made.state(1)
    assert state is not None
    assert (state.phase, state.failure) == ("ended", why)


@pytest.mark.parametrize("victim", ["rank", "everything"])
def test_kill_9_inside_a_far_sandbox_is_the_scripts_own_doing(gang: MakeGang, victim: str) -> None:
    target = {"rank": "$$", "everything": "-1"}[victim]
    made = gang(f"srun -N2 sh -c '[ $SLURM_NODEID = 0 ] || kill -9 {target}'; exit 5\n")
    report = run(made)
    assert end_cause(EndFacts(report))[0] is EndCause.USER_CODE, made.tell()


def test_too_much_memory_on_another_node_is_told_as_such(gang: MakeGang) -> None:
    eater = 'exec "$STARVERSE_PYTHON" -c "x = bytearray(400 * 1024**2); import time; time.sleep(60)"'
    made = gang(f"srun -n1 -w gpu002 sh -c '{eater}'\n")
    limits = replace(made.spec.limits, memory_bytes=150 * MIB)
    made.folder.write_spec(replace(made.spec, limits=limits))
    report = run(made)
    assert report.out_of_memory, made.tell()
    assert end_cause(EndFacts(report))[0] is EndCause.OUT_OF_MEMORY


# -- one beginning for all


def test_the_script_waits_until_every_node_is_there(gang: MakeGang) -> None:
    made = gang("echo ran; srun -N2 hostname | sort\n")
    made.start(0)
    made.until(lambda: (made.folder / "head.json").exists())
    assert made.state() is not None
    assert made.state().ready_at is None  # type: ignore[union-attr]
    made.start(1)
    assert made.wait().exit_code == 0, made.tell()
    assert made.log.splitlines()[1:] == ["ran", "gpu001", "gpu002"]


def test_a_stop_before_all_are_there_starts_nothing(gang: MakeGang) -> None:
    made = gang("echo begun\n", nodes=3)
    made.start(0, 1)
    made.until(lambda: (made.folder / "head.json").exists() and made.state(1) is not None)
    made.steer(Desired(stop=True))
    report = made.wait()
    assert (report.ready_at, report.stopped_by) == (None, "stop")
    assert "begun" not in made.log


def test_a_node_that_cannot_start_is_a_start_that_failed(gang: MakeGang) -> None:
    made = gang(
        "echo ran\n", binds_cards=False, environ=lambda index: {"SLURM_STEP_GPUS": "1,2,3"[: 3 + 2 * index]}
    )
    report = run(made)
    assert report.ready_at is None
    assert report.failure == "gpu002: the engine bound 3 cards on gpu002, 2 were granted", made.tell()
    assert end_cause(EndFacts(report))[0] is EndCause.START_FAILED


def test_a_node_that_does_not_come_is_named(tmp_path: Path) -> None:
    made = Gang(tmp_path, "true\n", nodes=3, name=own("gang"))
    (made.folder / "run").mkdir()
    head = GangHead(made.spec, made.folder, start_seconds=0.2)

    def goes_on() -> bool:
        head.turn(0.02)
        return True

    try:
        with pytest.raises(StartRefused, match="no launcher came on gpu002, gpu003 within 0 s"):
            head.gather(goes_on)
    finally:
        head.finish(lambda: head.turn(0.02), lambda: False)


def test_a_node_that_the_allocation_does_not_have_is_refused(gang: MakeGang) -> None:
    made = gang("true\n")
    command = ["python", "-m", "starverse.node.launcher", made.spec.folder, "--node-index", "2"]
    ran = subprocess.run([sys.executable, *command[1:]], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, b"node 2 of an allocation on 2 nodes\n")


def test_the_cards_that_the_engine_bound_are_used_and_told(gang: MakeGang) -> None:
    bound = {0: "3,5", 1: "0,7"}
    made = gang(
        "srun -N2 sh -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES $SLURM_STEP_GPUS' | sort\n",
        binds_cards=False,
        environ=lambda index: {"SLURM_STEP_GPUS": bound[index], "SLURM_JOB_GPUS": "3,5"},
    )
    report = run(made)
    assert report.bound == (("gpu001", (3, 5)), ("gpu002", (0, 7))), made.tell()
    assert made.log.splitlines()[1:] == ["0 3,5 3,5", "1 0,7 0,7"]
