"""What people do with OpenSSH, through the gateway, against a real sshd behind it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from starverse.testing.gateway_sites import (
    LISTEN,
    GatewaySite,
    Visitor,
    environment_without_agent,
    free_port,
    run,
)
from starverse.testing.in_time import wait_for

pytestmark = pytest.mark.serial

MIB = 1024**2


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """48 MiB that do not compress."""
    path = tmp_path / "noise.bin"
    path.write_bytes(os.urandom(48 * MIB))
    return path


@contextlib.contextmanager
def running(command: list[str], **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended afterwards."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, **more) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.terminate()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def options_of(visitor: Visitor) -> str:
    """For programs that call ``ssh`` themselves."""
    return " ".join(["ssh", *visitor.options(), "-p", str(visitor.port)])


# -- commands


@pytest.mark.parametrize(
    ("command", "code"), [("true", 0), ("exit 7", 7), ("kill -TERM $$", 255), ("no-such-command", 127)]
)
def test_the_exit_code_is_the_command_s(wang: Visitor, command: str, code: int) -> None:
    done = wang.run("digits", command)
    assert done.returncode == code, done.stderr


def test_a_signal_is_told_as_the_signal_it_was(wang: Visitor) -> None:
    done = wang.run("digits", "-o", "LogLevel=DEBUG2", "kill -KILL $$")
    assert b"exit-signal" in done.stderr, "as plain sshd tells it"


def test_both_streams_come_apart_and_input_goes_in(wang: Visitor) -> None:
    done = wang.run("digits", "cat; echo said >&2; exit 3", input=b"asked")
    assert (done.stdout, done.stderr, done.returncode) == (b"asked", b"said\n", 3)


def test_the_environment_is_that_of_the_inside(wang: Visitor) -> None:
    done = wang.run(
        "digits",
        *("-o", "SendEnv=STARVERSE_ASKED"),
        "echo $STARVERSE_TEST $HOME $STARVERSE_ASKED $(id -u)",
        env=environment_without_agent(STARVERSE_ASKED="yes"),
    )
    assert done.stdout == b"inside /root yes 1000\n"


def test_a_command_that_outlives_its_caller_s_input_is_waited_for(wang: Visitor) -> None:
    assert wang.run("digits", "sleep 0.3; echo done").stdout == b"done\n"


def test_an_instance_goes_by_its_number_and_its_id_too(site: GatewaySite, wang: Visitor) -> None:
    other = site.instance(wang.who, "other")
    for name in (other.id, str(other.number)):
        assert wang.run(name, "echo in").stdout == b"in\n"


# -- terminals


def test_a_terminal_has_its_size_its_resizes_and_its_exit_code(wang: Visitor) -> None:
    with terminal(wang.ssh("digits", "-tt", "bash --norc")) as (process, line):
        line.send("stty size; tty\n")
        line.until(b"/dev/pts/")
        line.resize(40, 120)
        line.send('until stty size | grep -qx "$((20 * 2)) 120"; do sleep 0.05; done; stty size\n')
        line.until(b"40 120")
        line.send("exit 5\n")
        assert process.wait(20) == 5


def test_an_interrupt_typed_reaches_what_runs_in_the_terminal(wang: Visitor) -> None:
    script = "trap 'exit 9' INT; echo begun; while true; do sleep 0.1; done"
    with terminal(wang.ssh("digits", "-tt", script)) as (process, line):
        line.until(b"begun")
        line.send("\x03")
        assert process.wait(20) == 9


class Line:
    """Our end of the pseudo-terminal of a process."""

    def __init__(self, handle: int, process: subprocess.Popen[bytes]) -> None:
        self.handle = handle
        self.process = process
        self.seen = b""

    def send(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)  # which it would get of a terminal of its own

    def until(self, wanted: bytes, seconds: float = 20) -> None:
        """Read on until this was seen after what was asked for before."""
        give_up = time.monotonic() + seconds
        while wanted not in self.seen:
            ready, _, _ = select.select([self.handle], [], [], max(0.0, give_up - time.monotonic()))
            assert ready, f"no {wanted!r} in {self.seen!r}"
            self.seen += os.read(self.handle, 4096)
        self.seen = self.seen[self.seen.index(wanted) + len(wanted) :]


@contextlib.contextmanager
def terminal(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], Line]]:
    """A command on a terminal of ours."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        yield process, Line(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


# -- files


@pytest.mark.parametrize("words", [["scp"], ["scp", "-O"]], ids=["scp", "scp -O"])
def test_scp_copies_both_ways_and_tells_its_exit_code(
    wang: Visitor, tmp_path: Path, noise: Path, words: list[str]
) -> None:
    there = f"digits@{LISTEN}:/root/there.bin"
    scp = [*words, *wang.options(), "-P", str(wang.port)]
    assert run([*scp, str(noise), there]).returncode == 0
    assert run([*scp, there, str(tmp_path / "back.bin")]).returncode == 0
    assert digest(tmp_path / "back.bin") == digest(noise)
    assert run([*scp, f"digits@{LISTEN}:/root/nothing", str(tmp_path)]).returncode == 1


def test_names_with_spaces_and_chinese_come_over(wang: Visitor, tmp_path: Path) -> None:
    source = tmp_path / "数据 集.txt"
    source.write_text("你好")
    scp = ["scp", *wang.options(), "-P", str(wang.port)]
    assert run([*scp, str(source), f"digits@{LISTEN}:"]).returncode == 0
    assert wang.run("digits", "cat '数据 集.txt'").stdout.decode() == "你好"


def test_sftp_puts_lists_and_gets(wang: Visitor, tmp_path: Path, noise: Path) -> None:
    batch = f"put {noise} there.sftp\nls -l there.sftp\nget there.sftp {tmp_path}/back.sftp\nrm there.sftp\n"
    sftp = ["sftp", *wang.options(), "-P", str(wang.port), "-b", "-", f"digits@{LISTEN}"]
    done = run(sftp, input=batch.encode())
    assert done.returncode == 0, done.stderr
    assert str(48 * MIB).encode() in done.stdout
    assert digest(tmp_path / "back.sftp") == digest(noise)
    assert run(sftp, input=b"get nothing\n").returncode == 1


def test_rsync_brings_a_tree_there_and_back(wang: Visitor, tmp_path: Path, noise: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    noise.rename(tree / "deep" / "noise.bin")
    (tree / "link").symlink_to("deep")
    rsync = ["rsync", "-a", "--delete", "-e", options_of(wang)]
    assert run([*rsync, f"{tree}/", f"digits@{LISTEN}:tree/"]).returncode == 0
    assert run([*rsync, f"digits@{LISTEN}:tree/", f"{tmp_path}/back/"]).returncode == 0
    assert digest(tmp_path / "back" / "deep" / "noise.bin") == digest(tree / "deep" / "noise.bin")
    assert (tmp_path / "back" / "link").readlink() == Path("deep")
    assert run([*rsync, f"digits@{LISTEN}:nothing/", f"{tmp_path}/back/"]).returncode == 23


@pytest.mark.parametrize("mebibytes", [256])
def test_what_is_large_comes_whole_both_ways(wang: Visitor, mebibytes: int) -> None:
    count = f"head -c {mebibytes}M /dev/zero"
    expected = hashlib.sha256(bytes(mebibytes * MIB)).hexdigest()
    there = f"bash -c {count!r} | {options_of(wang)} digits@{LISTEN} sha256sum"
    back = f"{options_of(wang)} digits@{LISTEN} {count!r} | sha256sum"
    for line in (there, back):
        done = run(["bash", "-o", "pipefail", "-c", line])
        assert done.stdout.split()[0].decode() == expected, done.stderr


def test_a_reader_that_stops_holds_up_its_own_session_only(site: GatewaySite, wang: Visitor) -> None:
    before = resident_bytes()
    flood = wang.ssh("digits", "head -c 400M /dev/zero")
    with subprocess.Popen(flood, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as held:
        assert held.stdout is not None
        got = len(held.stdout.read(MIB))
        assert wang.run("digits", "echo in").stdout == b"in\n", "others go on"
        assert resident_bytes() - before < 60 * MIB, "what is not read is not taken in"
        while part := held.stdout.read(MIB):
            got += len(part)
        assert (got, held.wait(30)) == (400 * MIB, 0)


def resident_bytes() -> int:
    """Of this process, in which the gateway runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- forwards


@contextlib.contextmanager
def echo_server(family: socket.AddressFamily, address: str | tuple[str, int]) -> Iterator[None]:
    """Answers what it hears, in capitals, until the other side says no more."""
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen(50)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = listener.accept()
                    with line:
                        heard = b""
                        while part := line.recv(65536):
                            heard += part
                        line.sendall(heard.upper())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def ask(line: socket.socket, text: bytes = b"hello") -> bytes:
    """Say something, say no more, hear the answer to its end."""
    with line:
        line.sendall(text)
        line.shutdown(socket.SHUT_WR)
        answer = b""
        while part := line.recv(65536):
            answer += part
        return answer


def connect(port: int) -> socket.socket:
    """As soon as somebody listens there."""

    def attempt() -> socket.socket | None:
        try:
            return socket.create_connection((LISTEN, port), timeout=20)
        except ConnectionRefusedError:
            return None

    line = wait_for(attempt, f"somebody listens on {port}", 20)
    assert isinstance(line, socket.socket)
    return line


def test_a_port_inside_is_had_outside(wang: Visitor) -> None:
    inside, outside = free_port(), free_port()
    with (
        echo_server(socket.AF_INET, (LISTEN, inside)),
        running(wang.ssh("digits", "-N", "-L", f"{outside}:{LISTEN}:{inside}", "-T")),
    ):
        assert ask(connect(outside)) == b"HELLO"
        assert ask(connect(outside), b"x" * 5 * MIB) == b"X" * 5 * MIB


def test_a_port_outside_is_had_inside(wang: Visitor) -> None:
    outside, inside = free_port(), free_port()
    with (
        echo_server(socket.AF_INET, (LISTEN, outside)),
        running(wang.ssh("digits", "-N", "-R", f"{inside}:{LISTEN}:{outside}", "-T")),
    ):
        assert ask(connect(inside)) == b"HELLO"


def test_a_port_of_one_instance_is_had_in_another(wang: Visitor) -> None:
    """As the page on instances says it: out of one, into the other, by the machine of whoever needs it."""
    served, between, had = free_port(), free_port(), free_port()
    with (
        echo_server(socket.AF_INET, (LISTEN, served)),
        running(wang.ssh("digits", "-N", "-L", f"{between}:{LISTEN}:{served}", "-T")),
        running(wang.ssh("digits", "-N", "-R", f"{had}:{LISTEN}:{between}", "-T")),
    ):
        assert ask(connect(between)) == b"HELLO"
        assert ask(connect(had)) == b"HELLO"


def test_a_port_that_is_chosen_inside_is_told(wang: Visitor) -> None:
    outside = free_port()
    command = wang.ssh("digits", "-o", "LogLevel=INFO", "-N", "-R", f"0:{LISTEN}:{outside}", "-T")
    with (
        echo_server(socket.AF_INET, (LISTEN, outside)),
        running(command, stderr=subprocess.PIPE) as process,
    ):
        assert process.stderr is not None
        said = process.stderr.readline()
        assert b"Allocated port" in said
        assert ask(connect(int(said.split()[2]))) == b"HELLO"


def test_a_proxy_of_socks_reaches_ports_inside(wang: Visitor) -> None:
    inside, outside = free_port(), free_port()
    with (
        echo_server(socket.AF_INET, (LISTEN, inside)),
        running(wang.ssh("digits", "-N", "-D", str(outside), "-T")),
    ):
        line = connect(outside)
        line.sendall(b"\x05\x01\x00")
        assert line.recv(2) == b"\x05\x00"
        line.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(LISTEN) + inside.to_bytes(2, "big"))
        assert line.recv(10)[1] == 0
        assert ask(line) == b"HELLO"


def test_a_port_that_nobody_listens_on_is_refused_and_the_connection_goes_on(wang: Visitor) -> None:
    nobody = free_port()
    done = wang.run("digits", "-W", f"{LISTEN}:{nobody}", "-T")
    assert done.returncode == 255
    assert wang.run("digits", "true").returncode == 0


def test_unix_sockets_are_forwarded_both_ways(site: GatewaySite, wang: Visitor, tmp_path: Path) -> None:
    there, here = site.sshd.folder / "home" / "inside.sock", tmp_path / "here.sock"
    with (
        running(wang.ssh("digits", "-N", "-R", f"/root/back.sock:{tmp_path}/ours.sock", "-T")),
        echo_server(socket.AF_UNIX, str(tmp_path / "ours.sock")),
    ):
        back = site.sshd.home / "back.sock"
        wait_for(back.exists, "the socket inside", 20)
        assert ask(connect_unix(back)) == b"HELLO"
    with (
        echo_server(socket.AF_UNIX, str(there)),
        running(wang.ssh("digits", "-N", "-L", f"{here}:/root/inside.sock", "-T")),
    ):
        there.chmod(0o777)
        wait_for(here.exists, "the socket here", 20)
        assert ask(connect_unix(here)) == b"HELLO"


def connect_unix(path: Path) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(20)
    line.connect(str(path))
    return line


def test_agent_and_x11_are_not_passed_on(wang: Visitor, tmp_path: Path) -> None:
    started = run(["ssh-agent", "-a", str(tmp_path / "agent"), "-s"])
    pid = int(started.stdout.split(b"SSH_AGENT_PID=")[1].split(b";")[0])
    try:
        asking = environment_without_agent(SSH_AUTH_SOCK=str(tmp_path / "agent"), DISPLAY=":77")
        done = wang.run("digits", "-A", "-Y", "echo agent=$SSH_AUTH_SOCK display=$DISPLAY", env=asking)
        assert done.stdout == b"agent= display=\n"
    finally:
        os.kill(pid, signal.SIGTERM)


# -- what editors do


def test_an_editor_s_remote_works_over_one_shared_connection(wang: Visitor, tmp_path: Path) -> None:
    """As VS Code Remote: a shared connection, a script on bash's input, a port of a server inside."""
    shared = ["-o", f"ControlPath={tmp_path}/master"]
    port, outside = free_port(), free_port()
    master = ["-o", "ControlMaster=yes", "-o", "ControlPersist=no", *shared, "-N", "-T"]
    with running(wang.ssh("digits", *master)):
        wait_for((tmp_path / "master").exists, "the master", 20)
        script = b"uname -s; echo $$ > server.pid; echo ready=$((6*7)); exit 0\n"
        done = wang.run("digits", *shared, "-T", "bash", input=script)
        assert (done.returncode, done.stdout.split()) == (0, [b"Linux", b"ready=42"])
        with echo_server(socket.AF_INET, (LISTEN, port)):
            forward = [*shared, "-O", "forward", "-L", f"{outside}:{LISTEN}:{port}"]
            assert run(wang.ssh("digits", *forward, "-T")).returncode == 0
            assert ask(connect(outside)) == b"HELLO"
            cancel = [*shared, "-O", "cancel", "-L", f"{outside}:{LISTEN}:{port}"]
            assert run(wang.ssh("digits", *cancel, "-T")).returncode == 0
        for _ in range(20):  # who has said all and heard all closes at once, before the exit code is known
            assert wang.run("digits", *shared, "-T", "bash", input=b"exit 3\n").returncode == 3
        with ThreadPoolExecutor(12) as many:
            codes = list(many.map(lambda n: wang.run("digits", *shared, f"exit {n}").returncode, range(12)))
        assert codes == list(range(12)), "sessions of one connection do not mix"
        assert wang.run("digits", *shared, "cat", input=b"y" * MIB).stdout == b"y" * MIB


# -- many


def test_fifty_at_once_all_come_in(wang: Visitor) -> None:
    def one(number: int) -> tuple[int, bytes]:
        done = wang.run("digits", f"head -c 100000 /dev/zero | sha256sum; exit {number}", seconds=120)
        return done.returncode, done.stdout[:64]

    with ThreadPoolExecutor(50) as many:
        found = list(many.map(one, range(50)))
    expected = hashlib.sha256(bytes(100_000)).hexdigest().encode()
    assert found == [(number, expected) for number in range(50)]
