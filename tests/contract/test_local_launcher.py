"""What local launchers do beyond the common contract: logs, outputs, signals, limits, sockets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.recovery.causes import EndFacts, end_cause
from starverse.domain.workloads.launch import NODE_DOWN, Desired, LauncherState, LaunchSpec, Template
from starverse.domain.workloads.reasons import EndCause
from starverse.engines.base import Presence
from starverse.engines.local import LocalEngine
from starverse.node import processes
from starverse.node.cards.declared import DeclaredCards
from starverse.node.folder import AllocationFolder
from starverse.node.launcher import Launcher
from starverse.node.limits import CgroupSupport
from starverse.node.unix_sockets import bind_unix
from starverse.testing.launches import MIB, build_launch, own

TEAM_UID = 200_001


class Bench:
    """A local engine, and the waiting that real processes need."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.engine = LocalEngine(data, DeclaredCards("rtx4090:8"))
        self.engine.start()
        self.names: list[str] = []

    def run(self, name: str, script: str, **changes: Any) -> LaunchSpec:
        uid = TEAM_UID if os.geteuid() == 0 else None
        spec = build_launch(self.data, name, script=script, unix_uid=uid, **changes)
        self.names.append(name)
        self.engine.submit(spec)
        return spec

    def wait(self, name: str, condition: Callable[[LauncherState], bool]) -> LauncherState:
        give_up = time.monotonic() + 30
        while True:
            seen = self.engine.observe([name])[name]
            if seen.state is not None and (condition(seen.state) or seen.presence is Presence.GONE):
                return seen.state
            assert time.monotonic() < give_up, seen
            time.sleep(0.01)

    def wait_ended(self, name: str) -> LauncherState:
        return self.wait(name, lambda state: state.phase == "ended" and self._is_reported(name))

    def wait_for(self, path: Path, text: str = "") -> str:
        """Until the file is there and holds ``text``."""
        give_up = time.monotonic() + 30
        while True:
            if path.exists() and text in path.read_text():
                return path.read_text()
            assert time.monotonic() < give_up, f"{path} without {text!r}"
            time.sleep(0.01)

    def close(self) -> None:
        for name in self.names:
            self.engine.clean(name)
        self.engine.close()

    def _is_reported(self, name: str) -> bool:
        return (self.data / "allocations" / name / "report.json").exists()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.close()


def log_of(spec: LaunchSpec, stream: str = "out") -> str:
    return Path(spec.logs, f"{spec.attempt}.{stream}").read_text()


# -- logs and outputs


def test_both_streams_share_one_log_and_one_output_file(bench: Bench) -> None:
    name = own("joined")
    spec = bench.run(name, "echo one; echo two >&2; echo -n three\n")
    bench.wait_ended(name)
    assert log_of(spec) == "one\ntwo\nthree"
    assert Path(spec.workspace, "slurm-123.out").read_text() == "one\ntwo\nthree"


def test_error_gets_its_own_log_and_file(bench: Bench) -> None:
    name = own("apart")
    spec = bench.run(name, "echo one; echo two >&2\n", output="logs/o.txt", error="logs/e.txt")
    bench.wait_ended(name)
    assert (log_of(spec), log_of(spec, "err")) == ("one\n", "two\n")
    assert Path(spec.workspace, "logs/o.txt").read_text() == "one\n"
    assert Path(spec.workspace, "logs/e.txt").read_text() == "two\n"


@pytest.mark.parametrize(("mode", "expected"), [("truncate", "new\n"), ("append", "old\nnew\n")])
def test_open_mode_decides_over_what_was_there(bench: Bench, mode: str, expected: str) -> None:
    name = own("mode")
    workspace = bench.data / "jobs" / name / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "slurm-123.out").write_text("old\n")
    spec = bench.run(name, "echo new\n", open_mode=mode)
    bench.wait_ended(name)
    assert Path(spec.workspace, "slurm-123.out").read_text() == expected
    assert log_of(spec) == "new\n"


def test_an_output_file_is_never_written_through_a_link(bench: Bench) -> None:
    name = own("link")
    victim = bench.data / "victim"
    victim.write_text("precious")
    workspace = bench.data / "jobs" / name / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "slurm-123.out").symlink_to(victim)
    (workspace / "folder").symlink_to(bench.data)
    spec = bench.run(name, "echo hello\n", error="folder/victim")
    assert bench.wait_ended(name).exit_code == 0
    assert victim.read_text() == "precious"
    assert "--output=slurm-123.out" in log_of(spec, "err") + log_of(spec)
    assert "hello" in log_of(spec)


def test_a_link_made_while_running_is_not_followed_either(bench: Bench) -> None:
    name = own("swap")
    victim = bench.data / "victim"
    victim.write_text("precious")
    script = f"ln -sf {victim} slurm-123.out; for i in 1 2 3; do echo line; sleep 0.1; done\n"
    spec = bench.run(name, script)
    assert bench.wait_ended(name).exit_code == 0
    assert victim.read_text() == "precious"
    assert log_of(spec) == "line\nline\nline\n"


def test_the_log_is_whole_after_kill_9_of_launcher_and_script(bench: Bench) -> None:
    name = own("whole")
    script = 'i=0; while true; do i=$((i+1)); echo "line $i"; done\n'
    spec = bench.run(name, script)
    log = Path(spec.logs, "1.out")
    while not log.exists() or log.stat().st_size < 20_000:
        time.sleep(0.01)
    facts = (bench.data / "allocations" / name / "claim.lock").stat()
    holder = processes.find_lock_holder(facts.st_dev, facts.st_ino)
    assert holder is not None
    os.kill(holder, 9)
    bench.wait(name, lambda _: bench.engine.observe([name])[name].presence is Presence.GONE)
    bench.engine.clean(name)
    lines = log.read_text().splitlines()
    assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    assert Path(spec.workspace, "slurm-123.out").read_text() == log.read_text()


def test_a_log_over_its_cap_loses_its_oldest_part_and_keeps_its_offsets(bench: Bench) -> None:
    name = own("capped")
    script = "head -c 3000000 /dev/zero | tr '\\0' x; sleep 1.5; echo; echo last\n"
    spec = bench.run(name, script, log_cap_bytes=1_000_000)
    bench.wait_ended(name)
    facts = Path(spec.logs, "1.out").stat()
    assert facts.st_size == 3_000_000 + len("\nlast\n")
    assert facts.st_blocks * 512 < 1_500_000
    assert Path(spec.logs, "1.out").read_bytes().endswith(b"x\nlast\n")


def test_a_script_cannot_truncate_its_log(bench: Bench) -> None:
    spec = bench.run(
        own("truncate"), "echo first; (echo x > /dev/stdout) 2>/dev/null; : > /proc/self/fd/2; echo end\n"
    )
    bench.wait_ended(own("truncate"))
    assert log_of(spec).startswith("first\n")
    assert log_of(spec).endswith("end\n")


# -- notice and signals

TRAPPED = """trap 'echo shell' {name}
"$STARVERSE_PYTHON" -c 'import signal, sys, time
signal.signal(signal.SIG{name}, lambda *_: (print("child", flush=True), sys.exit(0)))
print("set", flush=True)
while True: time.sleep(0.05)' &
child=$!
sleep 300 &
deaf=$!
wait $child; wait $child; kill -0 $deaf && echo "deaf lives"; cat $STARVERSE_NOTICE_FILE
"""


@pytest.mark.parametrize(
    ("changes", "heard"),
    [
        ({}, {"shell", "child"}),
        ({"signal_name": "USR2"}, {"child"}),
        ({"signal_name": "USR2", "signal_to_batch_shell": True}, {"shell"}),
    ],
    ids=["all that handle it", "without B: all but the batch shell", "B: the batch shell alone"],
)
def test_a_notice_reaches_who_handles_its_signal(
    bench: Bench, changes: dict[str, Any], heard: set[str]
) -> None:
    script = TRAPPED.format(name=changes.get("signal_name", "USR1"))
    spec = bench.run(own("signals"), script, grace_seconds=60, **changes)
    bench.wait_for(Path(spec.logs, "1.out"), "set")
    deadline = time.time() + 60
    bench.engine.steer(own("signals"), Desired(notice_reason="drain", notice_deadline=deadline))
    log = Path(spec.logs, "1.out")
    for word in heard:
        bench.wait_for(log, f"{word}\n")
    if "child" in heard:
        bench.wait_ended(own("signals"))
        assert "deaf lives" in log_of(spec)
        assert '"reason": "drain"' in log_of(spec)
    assert "starverse: notice: drain" in log_of(spec)
    assert {word for word in ("shell", "child") if f"{word}\n" in log_of(spec)} == heard


def test_signal_comes_the_asked_seconds_before_the_time_limit(bench: Bench) -> None:
    name = own("before")
    spec = bench.run(
        name,
        "trap 'echo got; exit 7' USR1; while true; do sleep 0.05; done\n",
        time_limit_seconds=4,
        signal_name="USR1",
        signal_seconds_before_end=3,
        signal_to_batch_shell=True,
    )
    state = bench.wait_ended(name)
    assert (state.exit_code, state.stopped_by) == (7, "time_limit")
    assert state.ready_at is not None
    assert state.ended_at is not None
    assert 0.9 <= state.ended_at - state.ready_at < 3
    assert "got" in log_of(spec)


def test_what_saves_at_term_is_waited_for_though_the_shell_has_gone(bench: Bench) -> None:
    name = own("saving")
    script = """"$STARVERSE_PYTHON" -c 'import signal, sys, time
def save(*_):
    time.sleep(0.3); print("saved", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, save); print("set", flush=True)
while True: time.sleep(0.05)'
"""
    spec = bench.run(name, script, kill_after_seconds=20)
    bench.wait_for(Path(spec.logs, "1.out"), "set")
    bench.engine.steer(name, Desired(stop=True))
    state = bench.wait_ended(name)
    assert state.exit_signal == 15
    assert "saved" in log_of(spec)


def test_a_stop_once_begun_is_seen_through_whatever_is_said_then(bench: Bench) -> None:
    name = own("through")
    spec = bench.run(name, "trap 'echo no' TERM; echo set; while true; do sleep 0.05; done\n")
    bench.wait_for(Path(spec.logs, "1.out"), "set")
    bench.engine.steer(name, Desired(stop=True))
    bench.wait_for(Path(spec.logs, "1.out"), "no")
    bench.engine.steer(name, Desired())
    state = bench.wait_ended(name)
    assert (state.exit_signal, state.stopped_by) == (9, "stop")


def test_a_machine_going_down_ends_workloads_with_term(bench: Bench) -> None:
    name = own("down")
    spec = bench.run(name, "trap 'echo bye; exit 5' TERM; echo set; while true; do sleep 0.05; done\n")
    bench.wait_for(Path(spec.logs, "1.out"), "set")
    facts = (bench.data / "allocations" / name / "claim.lock").stat()
    holder = processes.find_lock_holder(facts.st_dev, facts.st_ino)
    assert holder is not None
    os.kill(holder, 15)
    state = bench.wait_ended(name)
    assert (state.exit_code, state.stopped_by) == (5, NODE_DOWN)
    assert end_cause(EndFacts(state))[0] is EndCause.NODE_LOST
    assert "bye" in log_of(spec)


def test_a_workload_that_the_machine_told_first_has_not_failed_by_itself(bench: Bench) -> None:
    name = own("downtoo")
    spec = bench.run(name, "echo set; exec sleep 60\n")
    bench.wait_for(Path(spec.logs, "1.out"), "set")
    facts = (bench.data / "allocations" / name / "claim.lock").stat()
    holder = processes.find_lock_holder(facts.st_dev, facts.st_ino)
    assert holder is not None
    (sleeping,) = [
        pid for pid in processes.find_tagged(name) if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    ]
    os.kill(holder, signal.SIGSTOP)
    os.kill(sleeping, signal.SIGTERM)
    os.kill(holder, signal.SIGTERM)
    os.kill(holder, signal.SIGCONT)
    state = bench.wait_ended(name)
    assert (state.exit_signal, state.stopped_by) == (signal.SIGTERM, NODE_DOWN)


# -- environment, sockets, shims


def test_the_environment_is_the_grants_and_not_the_servers(bench: Bench) -> None:
    name = own("env")
    os.environ["STARVERSE_TEST_SECRET"] = "never to be seen"
    try:
        other = LocalEngine(bench.data, DeclaredCards("rtx4090:8"), use_zygote=False)
        asked = (("CUDA_VISIBLE_DEVICES", "0,1,2,3"), ("MINE", "a b=c"), ("LD_PRELOAD", "/workspace/x.so"))
        spec = build_launch(
            bench.data,
            name,
            script="unset LD_PRELOAD; env\n",
            unix_uid=TEAM_UID if os.geteuid() == 0 else None,
            environment=asked,
            resume_from="step-7",
        )
        bench.names.append(name)
        other.submit(spec)
        bench.wait_ended(name)
        other.close()
    finally:
        del os.environ["STARVERSE_TEST_SECRET"]
    seen = dict(line.split("=", 1) for line in log_of(spec).splitlines() if "=" in line)
    assert "STARVERSE_TEST_SECRET" not in seen
    assert seen["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert seen["MINE"] == "a b=c"
    assert seen["STARVERSE_RESUME_FROM"] == "/checkpoint/step-7"
    assert seen["SLURM_SUBMIT_DIR"] == "/workspace"


def test_the_api_socket_inside_reaches_the_platforms(bench: Bench) -> None:
    name = own("api")
    api = bench.data / "api.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        bind_unix(listener, api)
        listener.listen()
        threading.Thread(target=_answer_once, args=(listener,), daemon=True).start()
        script = """"$STARVERSE_PYTHON" -c 'import os, socket
line = socket.socket(socket.AF_UNIX); line.connect(os.environ["STARVERSE_API"].removeprefix("unix:"))
line.sendall(open(os.environ["STARVERSE_TOKEN_FILE"]).read().encode()); line.shutdown(socket.SHUT_WR)
print(line.recv(100).decode())'
ls -l $STARVERSE_TOKEN_FILE; command -v sbatch
"""
        spec = bench.run(name, script, api_socket=str(api), api_token="team-token")
        assert bench.wait_ended(name).exit_code == 0, log_of(spec)
    lines = log_of(spec).splitlines()
    assert lines[0] == "heard team-token"
    assert lines[1].startswith("-rw-------")
    assert lines[2] == "/run/starverse/bin/sbatch"


def _answer_once(listener: socket.socket) -> None:
    line, _ = listener.accept()
    with line:
        heard = b""
        while part := line.recv(100):
            heard += part
        line.sendall(b"heard " + heard)


# -- limits


def test_too_much_memory_ends_it_and_is_told(bench: Bench) -> None:
    name = own("eater")
    eater = 'exec "$STARVERSE_PYTHON" -c "x = bytearray(400 * 1024**2); import time; time.sleep(60)"\n'
    limits = replace(build_launch(bench.data).limits, memory_bytes=100 * MIB)
    bench.run(name, eater, limits=limits)
    state = bench.wait_ended(name)
    assert (state.out_of_memory, state.exit_signal) == (True, 9)


def test_too_much_memory_is_seen_without_control_groups(tmp_path: Path) -> None:
    name = own("watched")
    uid = TEAM_UID if os.geteuid() == 0 else None
    eater = 'exec "$STARVERSE_PYTHON" -c "x = bytearray(400 * 1024**2); import time; time.sleep(60)"\n'
    limits = replace(build_launch(tmp_path).limits, memory_bytes=100 * MIB)
    spec = build_launch(tmp_path, name, script=eater, limits=limits, unix_uid=uid)
    bench = Bench(tmp_path)
    try:
        host = bench.engine._setup()
        bench.engine._host = replace(host, cgroups=CgroupSupport())
        bench.names.append(name)
        bench.engine.submit(spec)
        state = bench.wait_ended(name)
        assert (state.out_of_memory, state.exit_signal) == (True, 9)
        assert "out of memory" in log_of(spec)
        refused = json.loads((tmp_path / "allocations" / name / "limits.json").read_text())["refused"]
        assert "memory" in refused
    finally:
        bench.close()


def test_too_many_processes_are_refused_inside_only(bench: Bench) -> None:
    name = own("forks")
    script = """"$STARVERSE_PYTHON" -c 'import os, time
made = 0
try:
    while made < 100:
        if os.fork() == 0: time.sleep(30); os._exit(0)
        made += 1
except OSError: print(made)'
"""
    limits = replace(build_launch(bench.data).limits, processes=20)
    spec = bench.run(name, script, limits=limits)
    bench.wait_ended(name)
    assert 5 < int(log_of(spec)) < 20


# -- checkpoint template


def test_the_template_publishes_at_the_end_and_is_restored_at_the_next_start(bench: Bench) -> None:
    first = bench.run(
        own("first"), "mkdir -p state; echo 41 > state/step\n", template=Template("state", 1800)
    )
    bench.wait_ended(own("first"))
    assert "published from state" in log_of(first)
    again = build_launch(bench.data, own("second")).checkpoints
    shutil.rmtree(Path(again).parent, ignore_errors=True)
    Path(again).parent.mkdir(parents=True)
    Path(first.checkpoints).rename(again)
    second = bench.run(
        own("second"), "cat state/step; echo 42 > state/step\n", template=Template("state", 1800), attempt=2
    )
    assert bench.wait_ended(own("second")).exit_code == 0, log_of(second)
    assert "41" in log_of(second).splitlines()


# -- bad luck


def test_a_report_of_an_earlier_boot_is_not_alive(tmp_path: Path) -> None:
    name = own("old")
    engine = LocalEngine(tmp_path, DeclaredCards("rtx4090:8"))
    folder = AllocationFolder(tmp_path / "allocations" / name)
    folder.path.mkdir(parents=True)
    folder.write_spec(build_launch(tmp_path, name))
    folder.write_state(LauncherState(name, 1, "running", "another-boot", 1.0, ready_at=1.0))
    assert engine.observe([name])[name].presence is Presence.GONE
    assert engine.running() == ()


def test_what_nobody_claimed_is_unknown_once_cleaned_and_never_starts(bench: Bench) -> None:
    name = own("late")
    uid = TEAM_UID if os.geteuid() == 0 else None
    spec = build_launch(bench.data, name, script="echo ran > ran\n", unix_uid=uid)
    folder = AllocationFolder(bench.data / "allocations" / name)
    folder.path.mkdir(parents=True)
    folder.write_spec(spec)
    assert bench.engine.observe([name])[name].presence is Presence.ACCEPTED
    bench.engine.clean(name)
    assert bench.engine.observe([name])[name].presence is Presence.UNKNOWN
    bench.engine.submit(spec)
    assert folder.claim() is None
    assert not Path(spec.workspace, "ran").exists()


def test_a_stranger_on_the_channel_is_hung_up_on(bench: Bench) -> None:
    name = own("channel")
    bench.run(name, "sleep 60\n")
    bench.wait(name, lambda state: state.ready_at is not None)
    state = LauncherState(name, 1, "ended", "b", time.time() + 1000)
    for token in ("wrong", ""):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10)
            line.connect(str(bench.data / "channel.sock"))
            hello = {"version": 1, "allocation_id": name, "token": token}
            line.sendall((json.dumps(hello) + "\n" + state.to_json() + "\n").encode())
            assert line.recv(10) == b""
    assert bench.engine.observe([name])[name].presence is Presence.ALIVE


def test_a_full_disk_delays_the_report_and_stops_nothing(tmp_path: Path) -> None:
    """The report is tried again and again; here something stands in its way at first."""
    name = own("full")
    spec = build_launch(tmp_path, name)
    folder = AllocationFolder(tmp_path / "allocations" / name)
    in_the_way = folder / ".report.json.new"
    in_the_way.mkdir(parents=True)
    launcher = Launcher(folder, spec)
    thread = threading.Thread(target=launcher._report, daemon=True)
    thread.start()
    assert not folder.has("report.json")
    in_the_way.rmdir()
    thread.join(10)
    assert folder.has("report.json")


def test_a_launcher_whose_folder_is_no_more_ends_its_workload(bench: Bench) -> None:
    """Somebody removed the data folder: nobody will ever ask for this workload again."""
    name = own("removed")
    spec = bench.run(name, "sleep 300\n")
    bench.wait(name, lambda state: state.ready_at is not None)
    assert processes.find_tagged(name)
    shutil.rmtree(spec.folder)
    give_up = time.monotonic() + 20
    while processes.find_tagged(name):
        assert time.monotonic() < give_up, processes.find_tagged(name)
        time.sleep(0.02)


SIGNALLED = """trap 'echo shell got it' USR1
bash -c 'trap "echo step got it" USR1; echo ready; while :; do sleep 0.05; done' &
while :; do wait; done
"""


def test_signals_go_to_whom_they_are_for_each_count_once(bench: Bench) -> None:
    name = own("signals")
    spec = bench.run(name, SIGNALLED)
    log = Path(spec.logs, "1.out")
    bench.wait_for(log, "ready")
    for count, to in ((1, "steps"), (2, "batch"), (3, "all")):
        wanted = Desired(signal_count=count, signal_name="USR1", signal_to=to)
        bench.engine.steer(name, wanted)
        bench.wait_for(log, f"signal USR1 to {'1' if to == 'batch' else ''}")
        bench.engine.steer(name, wanted)
        expected = {1: (1, 0), 2: (1, 1), 3: (2, 2)}[count]
        give_up = time.monotonic() + 30
        while (log.read_text().count("step got it"), log.read_text().count("shell got it")) != expected:
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.01)
    assert log.read_text().count("signal USR1 to") == 3
    bench.engine.steer(name, Desired(stop=True, signal_count=3, signal_name="USR1", signal_to="all"))
    assert bench.wait_ended(name).stopped_by == "stop"
