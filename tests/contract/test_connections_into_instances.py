"""The real OpenSSH tools against instances: on this machine, by TLS as from another node, on a real Slurm."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import Desired
from starverse.domain.workloads.sub_ids import sub_ids_first
from starverse.engines.base import EngineUnavailable
from starverse.engines.folders import FolderEngine, OpenChannel
from starverse.engines.slurm import SlurmEngine
from starverse.node.channel_server import ChannelServer
from starverse.testing.container_images import tiny_image
from starverse.testing.instance_sites import PATIENCE_SECONDS, TEAM_UID, Site, instance_site
from starverse.testing.launches import own
from starverse.testing.slurm_lab import SlurmLab
from starverse.testing.slurm_sites import lab_settings
from starverse.testing.ssh_lines import SshLine

NAME = own("inside")
BIG = bytes(range(256)) * 16_384  # 4 MiB


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    if why := SlurmLab.missing():
        pytest.skip(why)
    with SlurmLab(names=("declared-1",)) as lab:
        yield lab


@pytest.fixture(scope="module", params=["local", "local-by-tls", "slurm"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    for tool in ("bwrap", "/usr/sbin/sshd", "ssh", "rsync"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install bubblewrap openssh-server rsync")
    if request.param == "slurm":
        lab = request.getfixturevalue("lab")

        def on_slurm(data: Path, open_channel: OpenChannel | None) -> FolderEngine:
            return SlurmEngine(data, lab_settings(lab), open_channel=open_channel)

        with instance_site(on_slurm) as made:
            yield made
        return
    with instance_site(by_tls=request.param == "local-by-tls") as made:
        yield made


@pytest.fixture(scope="module")
def line(site: Site) -> Iterator[SshLine]:
    """One instance for all who only look."""
    site.launch(NAME, environment=(("GREETING", 'two words, a "quote", a \\ and # no comment'),))
    with site.ssh(NAME) as made:
        yield made


def until(holds: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "code"), [("true", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 255)]
)
def test_the_exit_code_is_that_of_the_command(line: SshLine, command: str, code: int) -> None:
    assert line.run(command).returncode == code


def test_a_session_has_the_environment_of_the_workload(line: SshLine) -> None:
    asked = 'id -u; pwd; echo "$HOME|$GREETING|$CUDA_VISIBLE_DEVICES|$STARVERSE_ALLOCATION_ID"'
    done = line.run(f"{asked}; command -v squeue sftp")
    lines = done.stdout.decode().splitlines()
    greeting = 'two words, a "quote", a \\ and # no comment'
    assert lines[:3] == ["1000", "/root", f"/root|{greeting}|0,1|{NAME}"], done
    assert lines[3:] == ["/run/starverse/bin/squeue", "/usr/bin/sftp"]


def test_bytes_pass_both_ways_unchanged(line: SshLine) -> None:
    assert line.run("cat", given=BIG).stdout == BIG


def test_a_terminal_is_one(line: SshLine) -> None:
    done = line.run("tty && stty -echo && echo $TERM && exit 3", options=("-tt",))
    assert done.returncode == 3
    assert done.stdout.startswith(b"/dev/pts/")


def test_sftp_scp_and_rsync_carry_files(line: SshLine, tmp_path: Path) -> None:
    """Names with spaces, Chinese and 250 bytes; what comes back is what went."""
    names = ["plain", "with two  spaces", "数据 集", "n" * 250]
    source = tmp_path / "source"
    source.mkdir()
    for number, name in enumerate(names):
        (source / name).write_bytes(BIG[: 100_000 * (number + 1)])
    batch = "".join(
        f'put "{source / name}" "/workspace/{name}"\nget "/workspace/{name}" "{tmp_path / name}"\n'
        for name in names
    )
    done = line.tool("sftp", "-b", "-", "user@inside", given=batch.encode())
    assert done.returncode == 0, done.stderr.decode()
    assert all((tmp_path / name).read_bytes() == (source / name).read_bytes() for name in names)
    for how in ((), ("-O",)):
        back = tmp_path / f"back{len(how)}"
        for arguments in (
            (str(source), f"user@inside:/root/by{len(how)}"),
            (f"user@inside:/root/by{len(how)}", str(back)),
        ):
            done = line.tool("scp", *how, "-r", *arguments)
            assert done.returncode == 0, done.stderr.decode()
        assert {path.name: path.read_bytes() for path in back.iterdir()} == {
            path.name: path.read_bytes() for path in source.iterdir()
        }
    for source_text, target in (
        (f"{source}/", "user@inside:/root/sync/"),
        ("user@inside:/root/sync/", f"{tmp_path}/synced/"),
    ):
        command = ["rsync", "-a", "--checksum", "-e", line.rsh, source_text, target]
        assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    assert sorted(path.name for path in (tmp_path / "synced").iterdir()) == sorted(names)


def test_a_missing_file_is_an_error_of_scp(line: SshLine, tmp_path: Path) -> None:
    for how in ((), ("-O",)):
        done = line.tool("scp", *how, "user@inside:/root/nothing", str(tmp_path))
        assert done.returncode == 1
        assert b"nothing" in done.stderr


def fetch(connection: socket.socket) -> bytes:
    """The page that the service inside has."""
    with connection:
        connection.settimeout(5)
        connection.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        said = b""
        while part := connection.recv(4096):
            said += part
    return said.partition(b"\r\n\r\n")[2]


def by_unix(path: Path) -> bytes:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
        return fetch(connection)
    except OSError:  # neither the tunnel nor the service need be there yet
        connection.close()
        return b""


def by_socks(proxy: int, port: int) -> bytes:
    """As SOCKS 5 has it (RFC 1928), to a port of the loopback interface inside."""
    connection = socket.create_connection(("127.0.0.1", proxy), timeout=5)
    connection.sendall(b"\x05\x01\x00")
    assert connection.recv(2) == b"\x05\x00"
    connection.sendall(b"\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + port.to_bytes(2, "big"))
    assert connection.recv(10)[:2] == b"\x05\x00"
    return fetch(connection)


def test_ports_are_forwarded_in_both_directions(line: SshLine, tmp_path: Path) -> None:
    """-L to a service inside, -R to one out here, -D as a SOCKS proxy; a socket with a path too."""
    nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    serve = 'echo inside > page; exec "$STARVERSE_PYTHON" -m http.server 21177 --bind 127.0.0.1'
    server = line.begin(serve, options=("-tt",), **nothing)
    with socket.create_server(("127.0.0.1", 0)) as free:
        proxy = free.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as out_here:
        port = out_here.getsockname()[1]
        forwards = ("-N", "-o", "ExitOnForwardFailure=yes", "-L", f"{tmp_path}/web:127.0.0.1:21177")
        more = ("-D", f"127.0.0.1:{proxy}", "-R", f"21179:127.0.0.1:{port}")
        tunnel = line.begin(options=(*forwards, *more))
        try:
            until(lambda: by_unix(tmp_path / "web") == b"inside\n", "-L")
            assert by_socks(proxy, 21177) == b"inside\n"
            caller = line.begin("exec 3<>/dev/tcp/127.0.0.1/21179; echo hello >&3")
            out_here.settimeout(PATIENCE_SECONDS)
            connection, _ = out_here.accept()
            with connection:
                assert connection.recv(100) == b"hello\n"
            assert caller.wait(PATIENCE_SECONDS) == 0
        finally:
            for client in (tunnel, server):
                client.kill()
                client.wait()


def test_the_agent_of_the_client_is_not_forwarded(line: SshLine, tmp_path: Path) -> None:
    path = str(tmp_path / "agent")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        until(lambda: Path(path).exists(), "no agent")
        done = subprocess.run(
            ["ssh", *line.options, "-A", "user@inside", 'echo "[$SSH_AUTH_SOCK]"'],
            env={**os.environ, "SSH_AUTH_SOCK": path},
            capture_output=True,
            check=False,
            timeout=60,
        )
    finally:
        agent.kill()
        agent.wait()
    assert done.stdout == b"[]\n"


def test_a_container_image_without_sshd_takes_connections(site: Site) -> None:
    if shutil.which("busybox") is None:
        pytest.skip("busybox is not installed: apt-get install busybox-static")
    image = site.data / "tiny"
    if not image.is_dir():
        tiny_image(image, about={"variables": {"GREETING": "from the image"}})
    ids = sub_ids_first(TEAM_UID, TEAM_UID) if os.geteuid() == 0 else 0
    name = own("container")
    site.launch(name, image=str(image), sub_ids_first=ids)
    with site.ssh(name) as line:
        done = line.run("id -u; cat /etc/os-release; echo $GREETING; cat", given=BIG)
        assert done.stdout == (b"0" if ids else b"1000") + b"\nID=tiny\nfrom the image\n" + BIG
    site.engine.steer(name, Desired(stop=True))
    site.until(name, lambda state: state.phase == "ended")


def test_nobody_else_gets_in(line: SshLine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    options = ("-i", str(other), "-o", "IdentitiesOnly=yes")
    mine = [word for word in line.options if word not in ("-i", line.options[3])]
    refused = subprocess.run(
        ["ssh", *mine, *options, "user@inside", "true"], capture_output=True, check=False, timeout=60
    )
    assert refused.returncode == 255
    assert b"Permission denied" in refused.stderr
    assert line.tool("ssh", "-l", "root", "inside", "true").returncode == 255


def test_a_hundred_sessions_at_once(line: SshLine) -> None:
    """Each with an answer of its own; ten of them on a connection, as the gateway has them."""
    with ThreadPoolExecutor(100) as pool, ExitStack() as stack:
        shared = [stack.enter_context(line.shared(f"c{number}")) for number in range(10)]

        def ask(number: int) -> tuple[int, bytes]:
            done = line.run(f"sleep 0.1; echo {number}; exit {number}", options=shared[number % 10])
            return done.returncode, done.stdout

        answers = list(pool.map(ask, range(100)))
    assert answers == [(number, b"%d\n" % number) for number in range(100)]
    until(lambda: count_sshd(line) <= 3, "sshd of sessions that are over")


def count_sshd(line: SshLine) -> int:
    return int(line.run("ps -e -o comm | grep -c '^sshd'").stdout)


def test_a_client_that_vanishes_leaves_nothing_inside(line: SshLine) -> None:
    """With a terminal and without; what was put into the background against it goes on."""
    left = "ps -e -o args | grep -c '^sleep 9'"
    plain = line.begin("setsid sleep 93 < /dev/null > /dev/null 2>&1 & sleep 91", stdin=subprocess.DEVNULL)
    terminal = line.begin(
        "sleep 92",
        options=("-tt",),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: line.run(left).stdout == b"3\n", "they did not begin")
    finally:
        for client in (plain, terminal):
            client.kill()
            client.wait()
    until(lambda: line.run(left).stdout == b"1\n", "a command outlived its client")
    assert line.run("ps -e -o args | grep '^sleep 9'").stdout == b"sleep 93\n"
    line.run("pkill -f '^sleep 93'")
    until(
        lambda: line.run("ps -e | grep -c 'sshd'").stdout.strip() in (b"2", b"3"),
        "an sshd outlived its client",
    )


def test_the_server_goes_and_comes_and_the_instance_goes_on(site: Site, line: SshLine) -> None:
    """By TLS a session goes through the server and ends with it; what runs inside does not notice."""
    assert line.run("setsid sleep 94 < /dev/null > /dev/null 2>&1 &").returncode == 0
    riding = line.begin("echo begun; exec sleep 95", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert riding.stdout is not None
    assert riding.stdout.readline() == b"begun\n"
    ready = site.until(NAME, lambda state: state.ready_at is not None).ready_at
    site.engine.close()
    if site.by_tls:
        assert riding.wait(PATIENCE_SECONDS) == 255
    site.up()
    until(lambda: line.run("true").returncode == 0, "not adopted")
    assert site.until(NAME, lambda state: True).ready_at == ready
    assert line.run("ps -e -o args | grep '^sleep 94'").stdout == b"sleep 94\n"
    line.run("pkill -f '^sleep 9'")
    riding.wait(PATIENCE_SECONDS)
    riding.stdout.close()


def test_a_server_that_the_launcher_is_not_connected_to_gets_its_stream_too(
    site: Site, line: SshLine
) -> None:
    """It has the others pass its wish on; the launcher dials the one that asked."""
    del line  # the instance runs
    if site.by_tls:
        pytest.skip("as with one server: which address is dialled is all that differs")
    second = another_server(site, "second.sock")
    second.start()
    try:
        told: list[str] = []

        def relay(word: str) -> None:
            told.append(word)
            assert hear_first(word)

        hear_first = site.engine.join_servers(lambda _word: None)
        second.join_servers(relay)
        with second.open_stream(NAME) as connection:
            assert connection.recv(4) == b"SSH-"
        assert len(told) == 1
        second.join_servers(lambda _word: None)
        with pytest.raises(EngineUnavailable, match="no connection within"):
            second.open_stream(NAME)
    finally:
        second.close()


def another_server(site: Site, socket_name: str) -> FolderEngine:
    """Another server on the same data, with a channel of its own."""
    return site.make_engine(site.data, lambda answers: ChannelServer(site.data / socket_name, answers))


def test_a_notice_is_shown_in_terminals(site: Site) -> None:
    name = own("noticed")
    site.launch(name)
    with site.ssh(name) as line:
        terminal = line.begin(
            "echo begun; cat", options=("-tt",), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert terminal.stdin is not None
        assert terminal.stdout is not None
        with terminal.stdin, terminal.stdout:
            assert terminal.stdout.readline() == b"begun\r\n"
            deadline = time.time() + 2
            site.engine.steer(name, Desired(notice_reason="reclaim", notice_deadline=deadline))
            said = [terminal.stdout.readline() for _ in range(2)]
            assert said[1].startswith(b"starverse: notice: reclaim; TERM follows at ")
            assert terminal.wait(PATIENCE_SECONDS) != 0
    assert site.until(name, lambda state: state.phase == "ended").stopped_by == "notice"
    site.engine.clean(name)


# -- what a stream is refused for, what becomes of an instance


def test_no_connection_where_nothing_takes_it(site: Site) -> None:
    with pytest.raises(EngineUnavailable, match="does not run"):
        site.engine.open_stream(own("never"))
    job = site.build(own("job"), interactive=False, script="sleep 60\n")
    site.engine.submit(job)
    site.until(own("job"), lambda state: state.ready_at is not None)
    with pytest.raises(EngineUnavailable, match="not an instance"):
        site.engine.open_stream(own("job"))
    site.engine.clean(own("job"))


def test_an_instance_without_its_sshd_never_starts(site: Site) -> None:
    """A start that fails costs nothing, so it must be told from one that ended."""
    name = own("refused")
    site.engine.submit(site.build(name, environment=(("LONG", "x" * 200_000),)))
    state = site.until(name, lambda state: state.phase == "ended")
    assert state.ready_at is None
    assert state.failure == "sshd: Argument list too long"
    site.engine.clean(name)


def test_an_instance_has_one_node(site: Site) -> None:
    name = own("two")
    if not site.engine.capabilities.binds_cards:
        pytest.skip("a cluster of one node has no second one")
    site.engine.submit(site.build(name, nodes=("declared-1", "declared-2")))
    state = site.until(name, lambda state: state.phase == "ended")
    assert (state.ready_at, state.failure) == (None, "an instance has one node")
    site.engine.clean(name)


def test_kill_9_of_the_server_ends_its_sessions_and_no_instance() -> None:
    if shutil.which("bwrap") is None or not Path("/usr/sbin/sshd").exists():
        pytest.skip("apt-get install bubblewrap openssh-server")
    name = own("served")
    with instance_site() as site:
        command = [sys.executable, "-m", "starverse.testing.instance_sites", str(site.data), name]
        site.engine.close()
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert server.stdout is not None
        try:
            through = SshLine(Path(server.stdout.readline().decode().strip()), site.data / "client_key")
            riding = through.begin(
                "setsid sleep 96 & echo begun; exec sleep 97",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            assert riding.stdout is not None
            assert riding.stdout.readline() == b"begun\n"
            assert through.run("true").returncode == 0  # by now its agent knows what runs
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
        assert riding.wait(PATIENCE_SECONDS) == 255
        riding.stdout.close()
        site.up()
        assert site.engine.running() == (name,)
        with site.ssh(name) as line:
            until(lambda: line.run("true").returncode == 0, "not adopted")
            until(lambda: line.run("ps -e -o args | grep '^sleep 9'").stdout == b"sleep 96\n", "what is left")
