"""A GPU host as people have it: the command line, a real server, this machine's OpenSSH, scp and rsync."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import select
import shutil
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import block_disks_missing
from starverse.testing.live_person import Person
from starverse.testing.live_server import LiveServer

TOOLS = {"ssh": "openssh-client", "sshd": "openssh-server", "rsync": "rsync"}
_WHERE = os.environ.get("PATH", "") + ":/usr/sbin"
_MISSING = sorted(package for tool, package in TOOLS.items() if shutil.which(tool, path=_WHERE) is None)
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"apt-get install {' '.join(_MISSING)}")
SSH_FAILED = 255


@pytest.fixture(scope="module")
def wang(server: LiveServer) -> Person:
    """Somebody with money and a key."""
    person = server.person("wang", yuan=500)
    make_key(person)
    person.run("ssh-key", "add")
    return person


@pytest.fixture(scope="module")
def lab(wang: Person) -> Iterator[str]:
    """A host on two cards that runs."""
    wang.run("launch", "--card", "rtx4090", "--cards", "2", "--name", "lab", "--yes")
    yield "lab"
    wang.run("rm", "lab", "--yes")


def make_key(person: Person) -> Path:
    folder = person.home / ".ssh"
    folder.mkdir(mode=0o700)
    key = folder / "id_ed25519"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{person.name}@laptop", "-f", str(key)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=30)
    return key


def with_config(person: Person, *words: str) -> subprocess.CompletedProcess[str]:
    """ssh, scp or rsync with this person's ssh_config: OpenSSH asks the machine, not HOME, where that is."""
    config = str(person.home / ".ssh" / "config")
    given = ["-e", f"ssh -F {config}"] if words[0] == "rsync" else ["-F", config]
    return subprocess.run(
        [words[0], *given, *words[1:]],
        cwd=person.home,
        env=person.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


EXITS = {
    "nothing wrong": ("true", 0, 0),
    "its own code": ("exit 7", 7, 7),
    "a signal, for which ssh has no code": ("kill -9 $$", 128 + 9, SSH_FAILED),
    "no such program": ("no-such-program", 127, 127),
}


@pytest.mark.parametrize(("script", "of_exec", "of_ssh"), EXITS.values(), ids=EXITS.keys())
def test_the_exit_code_is_the_programs(
    wang: Person, lab: str, script: str, of_exec: int, of_ssh: int
) -> None:
    assert wang.call("exec", lab, "--", "sh", "-c", script).returncode == of_exec
    assert wang.call("ssh", lab, "--", script).returncode == of_ssh


def test_words_input_and_output_go_through_as_they_are(wang: Person, lab: str) -> None:
    words = ("printf", "%s\\n", "two  spaces", "$HOME", "数据 1", "it's", "")
    assert wang.run("exec", lab, "--", *words) == "two  spaces\n$HOME\n数据 1\nit's\n\n"
    assert wang.run("exec", lab, "--", "cat", stdin="一\n二") == "一\n二"
    done = wang.call("--json", "exec", lab, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    answer = json.loads(done.stdout)
    assert done.returncode == 3
    assert (answer["exit_code"], answer["stdout"], answer["stderr"]) == (3, "out\n", "err\n")


def test_a_terminal_is_a_terminal(wang: Person, lab: str) -> None:
    seen = b""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(wang.home)
        os.execvpe(sys.executable, wang.argv("ssh", lab), wang.environment())
    try:
        os.write(terminal, b"test -t 0 && echo is-$((6 * 7)); exit 5\n")
        with contextlib.suppress(OSError):  # Linux says so when the other end is closed
            while select.select([terminal], [], [], 30)[0] and (piece := os.read(terminal, 4096)):
                seen += piece
        _, status = os.waitpid(child, 0)
    finally:
        os.close(terminal)
    assert (os.waitstatus_to_exitcode(status), b"is-42" in seen) == (5, True), seen


def test_it_has_its_cards_and_says_what_it_costs(wang: Person, lab: str) -> None:
    assert wang.run("exec", lab, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").count(",") == 1
    (shown,) = [one for one in wang.ask("ps")["items"] if one["name"] == lab]
    assert (shown["state"], shown["cards"], shown["tariff"]) == ("running", 2, "on_demand")
    by_night, by_day = Decimal("1.66"), Decimal("3.32")  # and an hour may have some of both
    assert by_night <= Decimal(shown["price_hour"]) <= by_day
    assert "ssh lab@" in wang.run("show", lab)


def test_files_go_there_and_back(wang: Person, lab: str) -> None:
    place = wang.server.make_folder("files")
    (place / "论文 data").mkdir()
    (place / "论文 data" / "a b.txt").write_text("甲")
    (place / "x:y").write_text("colon")
    wang.run("cp", "论文 data", f"{lab}:/workspace/", folder=place)
    wang.run("cp", "./x:y", f"{lab}:/workspace/", folder=place)
    wang.run("cp", f"{lab}:/workspace/论文 data", "back", folder=place)
    assert (place / "back" / "a b.txt").read_text() == "甲"
    assert wang.run("cp", f"{lab}:/workspace/x:y", "-", folder=place) == "colon"
    assert wang.call("cp", f"{lab}:/workspace/none", ".", folder=place).returncode == 1
    number = wang.ask("show", lab)["number"]
    done = wang.call("cp", f"{number}:x", ".", folder=place)
    assert (done.returncode, f"write {lab}:path" in done.stderr) == (3, True)


def test_ssh_scp_and_rsync_reach_it_by_the_included_file(wang: Person, lab: str) -> None:
    config = wang.home / ".ssh" / "config"
    config.write_text("Host other\n    Port 1\n")
    wang.run("ssh-config", "install")
    place = f"{lab}.starverse"
    assert with_config(wang, "ssh", place, "hostname").returncode == 0
    assert with_config(wang, "ssh", place, "exit", "9").returncode == 9
    (wang.home / "sent.txt").write_text("by scp")
    assert with_config(wang, "scp", "sent.txt", f"{place}:/workspace/sent.txt").returncode == 0
    assert with_config(wang, "scp", "-O", f"{place}:/workspace/sent.txt", "got.txt").returncode == 0
    assert (wang.home / "got.txt").read_text() == "by scp"
    tree = wang.home / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "f").write_text("by rsync")
    done = with_config(wang, "rsync", "-a", f"{tree}/", f"{place}:/workspace/tree/")
    assert done.returncode == 0, done.stderr
    assert wang.run("exec", lab, "--", "cat", "/workspace/tree/sub/f") == "by rsync"
    wang.run("ssh-config", "rm")
    assert config.read_text() == "Host other\n    Port 1\n"
    assert stat.S_IMODE(config.stat().st_mode) == 0o644


def test_a_gateway_that_is_not_signed_is_not_believed(wang: Person, lab: str) -> None:
    (known,) = (wang.home / ".config" / "starverse").glob("known_hosts-*")
    told = wang.ask("ssh", lab)
    kind, name, *_ = known.read_text().split()
    key = (wang.home / ".ssh" / "id_ed25519.pub").read_text().split()[1]
    known.write_text(f"{kind} {name} ssh-ed25519 {key}\n")
    done = subprocess.run(
        [*told["argv"][:-1], told["argv"][-1], "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == SSH_FAILED
    assert "verification failed" in done.stderr
    assert wang.call("ssh", lab, "--", "true").returncode == 0, "our own command writes the file anew"


def test_a_port_of_the_host_is_had_here(wang: Person, lab: str) -> None:
    wang.run("exec", lab, "--", "sh", "-c", "mkdir -p /root/web && echo served >/root/web/index.html")
    serve = "cd /root/web && nohup python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &"
    wang.run("exec", lab, "--", "sh", "-c", serve)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    forwarding = subprocess.Popen(
        wang.argv("ssh", "-L", f"127.0.0.1:{port}:127.0.0.1:8123", "-N", lab),
        env=wang.environment(),
        stdin=subprocess.DEVNULL,
    )

    def page() -> bytes:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(line):
            line.request("GET", "/")
            return line.getresponse().read()
        return b""

    try:
        wait_for(lambda: page() == b"served\n", "the page of the host")
    finally:
        forwarding.terminate()
        forwarding.wait(10)
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    link = wang.run("open", lab, "8123").strip()
    assert browser.open(link, timeout=30).read() == b"served\n"
    assert browser.open(link.partition("?")[0] + "index.html", timeout=30).read() == b"served\n"
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(link.partition("?")[0], timeout=30)


def test_nobody_else_gets_in(server: LiveServer, wang: Person, lab: str) -> None:
    stranger = server.person("stranger")
    assert stranger.call("ssh", lab).returncode == 3, "another team's is not there"
    key = make_key(stranger)
    told = wang.ask("ssh", lab)
    argv = ["ssh", "-i", str(key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-p", str(told["port"])]
    argv += ["-o", f"UserKnownHostsFile={told['known_hosts']}", f"{lab}@{told['host']}", "true"]
    for registered in (False, True):
        if registered:
            stranger.run("ssh-key", "add")
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, "Permission denied" in done.stderr) == (SSH_FAILED, True), registered


def test_a_disk_is_plugged_into_a_host_that_runs_and_out_again(wang: Person, lab: str) -> None:
    wang.run("disk", "create", "我的 盘", "--size", "1GiB", "--yes")
    wang.run("disk", "attach", "我的 盘", lab)
    wang.run("exec", lab, "--", "sh", "-c", "echo 42 > '/data/我的 盘/answer'")
    assert wang.run("disk", "cp", "我的 盘:answer", "-") == "42\n"
    wang.run("disk", "detach", "我的 盘", lab)
    assert wang.call("exec", lab, "--", "ls", "/data/我的 盘/answer").returncode != 0
    wang.run("disk", "attach", "我的 盘", lab, "--read-only", "--path", "/data/ro")
    done = wang.call("exec", lab, "--", "touch", "/data/ro/x")
    assert (done.returncode, "Read-only file system" in done.stderr) == (1, True)
    assert wang.call("disk", "rm", "我的 盘", "--yes").returncode == 5, "it is in use"
    wang.run("disk", "detach", "我的 盘", lab)
    wang.run("disk", "rm", "我的 盘", "--yes")
    wang.run("disk", "restore", "我的 盘")
    assert wang.run("disk", "cp", "我的 盘:answer", "-") == "42\n"


def test_a_block_disk_has_one_writer_and_its_data_stay(wang: Person, lab: str) -> None:
    why = block_disks_missing()
    if why:
        pytest.skip(why)
    wang.run("disk", "create", "db", "--kind", "block", "--size", "1GiB", "--yes")
    wang.run("disk", "attach", "db", lab)
    wang.run("exec", lab, "--", "sh", "-c", "echo row > /data/db/table && sync")
    wang.run("launch", "--card", "rtx4090", "--name", "second", "--yes")
    assert wang.call("disk", "attach", "db", "second").returncode == 5, "it has one writer"
    wang.run("disk", "detach", "db", lab)
    wang.run("disk", "attach", "db", "second")
    assert wang.run("exec", "second", "--", "cat", "/data/db/table") == "row\n"
    wang.run("rm", "second", "--yes")


def test_the_same_files_with_other_cards_without_cards_and_in_a_copy(wang: Person) -> None:
    wang.run("launch", "--card", "rtx4090", "--name", "study", "--yes")
    wang.run("exec", "study", "--", "sh", "-c", "echo mine | tee /root/kept > /workspace/kept")
    wang.run("resize", "study", "--cards", "2", "--yes")
    seen = ("exec", "study", "--", "sh", "-c", "cat /root/kept /workspace/kept; echo $CUDA_VISIBLE_DEVICES")
    files, cards = wang.run(*seen).rsplit("\n", 2)[:2]
    assert (files, cards.count(",")) == ("mine\nmine", 1)
    wang.run("stop", "study")
    assert wang.call("exec", "study", "--", "true").returncode == 5
    done = wang.call("start", "study", "--no-gpu", "--yes")
    assert (done.returncode, "CNY 0.498 per hour" in done.stderr) == (0, True)
    assert wang.run(*seen) == "mine\nmine\n\n", "no card is to be seen"
    wang.run("stop", "study")
    wang.run("clone", "study", "--name", "study-2")
    wang.run("rm", "study", "--yes")
    wang.run("start", "study-2", "--no-gpu", "--yes")
    assert wang.run("exec", "study-2", "--", "cat", "/root/kept") == "mine\n"
    tariffs = {
        segment["tariff"]
        for charge in wang.ask("bill")["charges"]
        if charge["job"] == "instance study"
        for segment in charge["segments"]
    }
    assert tariffs == {"on_demand", "no_gpu"}
    wang.run("rm", "study-2", "--yes")


def test_a_secret_is_a_file_inside_and_on_no_command_line(wang: Person) -> None:
    wang.run("secret", "set", "hf-token", stdin="s3cret-value\n")
    wang.run("launch", "--card", "rtx4090", "--name", "quiet", "--secret", "hf-token", "--yes")
    assert wang.run("exec", "quiet", "--", "cat", "/run/starverse/secrets/hf-token") == "s3cret-value"
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            assert b"s3cret-value" not in (entry / "cmdline").read_bytes()
    assert "s3cret-value" not in wang.run("show", "quiet") + wang.server.read_log()
    wang.run("rm", "quiet", "--yes")


def test_what_cannot_be_had_is_refused_before_anything_is_there(wang: Person, lab: str) -> None:
    before = len(wang.ask("ps", "--all")["items"])
    assert wang.call("launch", "--card", "rtx4090", "--cards", "2").returncode == 2, "nobody said yes"
    refused = {
        ("--card", "rtx9999"): 2,
        ("--card", "rtx4090", "--cards", "9"): 2,
        ("--card", "rtx4090", "--image", "no-such-image"): 2,
        ("--card", "rtx4090", "--disk", "no-such-disk"): 2,
        ("--card", "rtx4090", "--name", "no spaces"): 2,
    }
    for words, code in refused.items():
        done = wang.call("launch", *words, "--yes")
        assert done.returncode == code, (words, done.stderr)
    poor = wang.server.person("poor")
    done = poor.call("launch", "--card", "rtx4090", "--cards", "8", "--yes")
    assert done.returncode in (6, 7), "eight cost more than the sign-up credit by day; two are in use"
    assert len(wang.ask("ps", "--all")["items"]) == before, lab
