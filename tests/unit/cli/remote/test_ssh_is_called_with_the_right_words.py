"""How ssh, scp and the user's ssh_config get what they need: word by word, and what OpenSSH makes of it."""

from __future__ import annotations

import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.cli.remote.openssh import (
    Forwards,
    Target,
    exec_argv,
    identities_for,
    quoted,
    scp_argv,
    ssh_argv,
    target_of,
)
from starverse.cli.remote.ssh_config import Places, with_include, without_include
from starverse.client.shapes import SshKey
from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi, Reply

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIF1"
TARGET = Target("gpu.example.org", 2222, "lab", Path("/k/known"))


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        fake.on("GET", "/instances/lab", examples.instance())
        fake.on("GET", "/instances", {"items": examples.instances(), "next_cursor": None})
        fake.on("GET", "/ssh-keys", {"items": [examples.ssh_key()], "next_cursor": None})
        fake.on("GET", "/ssh", examples.gateway())
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path)


def understood(*argv: str, folder: Path | None = None) -> dict[str, list[str]]:
    """What OpenSSH itself makes of a command line (``ssh -G``): name -> values."""
    if shutil.which("ssh") is None:
        pytest.skip("OpenSSH's client is not installed: apt-get install openssh-client")
    done = subprocess.run(
        ["ssh", "-G", *argv[1:]], capture_output=True, text=True, check=True, cwd=folder, timeout=30
    )
    found: dict[str, list[str]] = {}
    for each in done.stdout.splitlines():
        name, _, value = each.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def test_ssh_understands_the_words_as_they_are_meant() -> None:
    target = Target("gpu.example.org", 2222, "lab", Path("/a b/100%/known"), (Path("/home/王/.ssh/id"),))
    found = understood(
        *ssh_argv(target, ["ls"], Forwards(local=("8000:localhost:80",), options=("Compression=yes",)))
    )
    assert found["hostname"] == ["gpu.example.org"]
    assert (found["port"], found["user"]) == (["2222"], ["lab"])
    assert found["userknownhostsfile"] == ["/a b/100%/known"]
    assert found["stricthostkeychecking"] == ["true"]
    assert found["forwardagent"] == ["no"]
    assert found["identityfile"][0] == "/home/王/.ssh/id"
    assert found["localforward"] == ["8000 [localhost]:80"]
    assert found["compression"] == ["yes"]


def test_a_command_that_looks_like_an_option_is_a_command() -> None:
    assert ssh_argv(TARGET, ["-v"])[-3:] == ["--", "gpu.example.org", "-v"]


def there(*words: str) -> subprocess.CompletedProcess[str]:
    """What a shell at the other end makes of them."""
    sent = exec_argv(TARGET, words)[-1]
    return subprocess.run(["sh", "-c", sent], capture_output=True, text=True, check=False, timeout=30)


def test_exec_sends_each_word_as_it_was_typed() -> None:
    words = ["print('a  b', \"$HOME\")", "", "数据 1", "-c", "--", "*"]
    assert there("printf", "%s\\n", *words).stdout.split("\n")[:-1] == words
    assert "-T" in exec_argv(TARGET, words)
    assert "-t" in exec_argv(TARGET, words, terminal=True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), 128 + 15),
        (("sh", "-c", "kill -KILL $$"), 128 + 9),
        (("sh", "-c", "kill -USR1 $$"), 128 + 10),
        (("no-such-program",), 127),
        (("/",), 126),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_exec_exits_as_shells_do(words: tuple[str, ...], code: int) -> None:
    assert there(*words).returncode == code


def test_scp_has_the_port_in_its_own_spelling_and_folders_too() -> None:
    assert scp_argv(TARGET, "out", "/here", to_instance=False)[-6:] == [
        "-P", "2222", "-r", "--", "lab@gpu.example.org:out", "/here",
    ]  # fmt: skip
    six = Target("::1", 22, "lab", Path("/k"))
    assert scp_argv(six, "/a:b", "/workspace/", to_instance=True)[-2:] == ["/a:b", "lab@[::1]:/workspace/"]


def test_the_program_that_takes_over_ignores_no_signal_that_python_does() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("this system has no /proc, which tells what is ignored")
    code = f"from starverse.cli.remote.session import replace_process; replace_process(['cat', '{status}'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (ignored,) = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("SigIgn")]
    assert int(ignored, 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_an_instance_that_says_nothing_of_ssh_is_reached_as_the_gateway_says() -> None:
    one = examples.instance(ssh={})
    target = target_of(one, examples.gateway(), Path("/k"))  # type: ignore[arg-type]
    assert (target.host, target.port, target.user) == ("gpu.example.org", 2222, "lab")


QUOTED = {"/k": "/k", "/a b": '"/a b"', "/50%": "/50%%"}


@pytest.mark.parametrize(("plain", "written"), QUOTED.items(), ids=QUOTED.keys())
def test_file_names_are_written_as_ssh_config_reads_them(plain: str, written: str) -> None:
    assert quoted(plain) == written


def test_the_keys_tried_first_are_those_that_are_registered(tmp_path: Path) -> None:
    (tmp_path / "id_a.pub").write_text(f"{KEY} wang@laptop\n")
    (tmp_path / "id_a").write_text("private")
    (tmp_path / "id_b.pub").write_text(f"{KEY}b other\n")
    (tmp_path / "yubi.pub").write_text(f"{KEY}c\n")
    (tmp_path / "id_a-cert.pub").write_text(f"{KEY} cert\n")
    registered: list[SshKey] = [
        {"id": "1", "name": "n", "fingerprint": "f", "public_key": f"{KEY} else"},
        {"id": "2", "name": "m", "fingerprint": "g", "public_key": f"{KEY}c"},
    ]
    assert identities_for(tmp_path, registered) == [tmp_path / "id_a", tmp_path / "yubi.pub"]
    assert identities_for(tmp_path / "none", registered) == []


def test_ssh_knows_the_gateway_by_a_file_of_our_own(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    ran = line.run("ssh", "lab", "--", "nvidia-smi", "-L")
    assert ran.code != 0
    (argv,) = line.became
    assert argv[-5:] == ["lab", "--", "gpu.example.org", "nvidia-smi", "-L"]
    (place,) = (tmp_path / ".config" / "starverse").glob("known_hosts-*")
    assert f"UserKnownHostsFile={place}" in argv
    assert place.read_text() == examples.gateway()["known_hosts"] + "\n"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


def test_a_terminal_is_opened_here_by_ssh(line: CommandLine) -> None:
    line.run("open", "lab", "terminal", terminal=True)
    line.run("open", "lab", "terminal", "--no-browser", terminal=True)
    assert [argv[-1] for argv in line.became] == ["gpu.example.org"]


def test_words_after_the_instance_are_the_commands_and_need_no_dashes(line: CommandLine) -> None:
    line.run("ssh", "-L", "1:localhost:2", "-N", "lab")
    line.run("ssh", "lab", "ls", "-l", "--json")
    assert line.became[0][-7:] == ["-L", "1:localhost:2", "-N", "-l", "lab", "--", "gpu.example.org"]
    assert line.became[1][-3:] == ["ls", "-l", "--json"]


def test_an_option_that_stands_too_late_is_told(line: CommandLine) -> None:
    for words in (("ssh", "lab", "-N"), ("exec", "lab", "-t", "--", "htop"), ("exec", "lab")):
        assert line.run(*words).code == 2, words
    assert line.became == []


def test_with_json_ssh_says_how_and_runs_nothing(line: CommandLine) -> None:
    told = line.run("--json", "ssh", "lab").json
    assert (told["host"], told["port"], told["user"], told["argv"][0]) == (
        "gpu.example.org",
        2222,
        "lab",
        "ssh",
    )
    assert line.became == []


def test_nobody_is_let_in_without_a_key_or_into_what_does_not_run(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/ssh-keys", {"items": [], "next_cursor": None})
    ran = line.run("ssh", "lab")
    assert (ran.code, "starverse ssh-key add" in ran.err) == (4, True)
    api.on("GET", "/instances/lab", examples.stopped())
    ran = line.run("exec", "lab", "--", "true")
    assert (ran.code, "start it: starverse start lab" in ran.err) == (5, True)
    assert line.became == []


def test_files_of_an_instance_go_by_scp_and_those_of_a_job_do_not(
    api: FakeApi, line: CommandLine, tmp_path: Path
) -> None:
    line.run("cp", "lab:/workspace/out", ".")
    line.run("cp", "a:b/../c", "lab:")
    line.run("cp", "./a:b", "lab:")
    line.run("cp", "lab:log.txt", "-")
    assert [argv[-2:] for argv in line.became[:2]] == [
        ["lab@gpu.example.org:/workspace/out", str(tmp_path)],
        [f"{tmp_path}/a:b", "lab@gpu.example.org:."],
    ]
    assert line.became[2][-1].endswith(" cat -- log.txt")
    assert api.requests("GET", "/jobs/lab/files") == []


def test_a_number_is_a_jobs_and_one_that_no_job_has_is_explained(api: FakeApi, line: CommandLine) -> None:
    missing = Reply(404, {"code": "not_found", "detail": "There is no job 31."})
    api.on("GET", "/jobs/31/files/out", missing)
    api.on("GET", "/instances/31", examples.instance())
    ran = line.run("cp", "31:out", ".")
    assert (ran.code, ran.err) == (
        3,
        "starverse: 31 is the instance lab; no job has this number\nhint: write lab:path\n",
    )
    api.on("GET", "/jobs/32/files/out", missing)
    assert line.run("cp", "32:out", ".").err == "starverse: There is no job 31.\n"


def test_a_file_that_is_there_is_asked_about_before_scp_writes_over_it(
    line: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "out.txt").write_text("old")
    assert line.run("cp", "lab:runs/out.txt", ".", stdin="n\n", terminal=True).code == 1
    assert line.became == []
    line.run("cp", "lab:runs/out.txt", ".", "--yes", terminal=True)
    assert len(line.became) == 1


# -- the user's own file

CONFIGS = {
    "empty": "",
    "hosts": "Host a\n    Port 1\n",
    "no newline at the end": "Host a\n    Port 1",
    "windows": "Host a\r\n    Port 1\r\n",
    "begins empty": "\n\nHost a\n",
    "an include of others": "Include ~/.ssh/other.conf\nHost a\n",
    "ours below a host": "Host a\n    Include ~/.ssh/starverse.conf\n",
    "not utf-8": b"# \xff\xfe\nHost a\n".decode("utf-8", "surrogateescape"),
    "form feeds": "# a\x0c\x0b\x85b\nHost a\n",
}


@pytest.mark.parametrize("before", CONFIGS.values(), ids=CONFIGS.keys())
def test_our_line_comes_once_at_the_top_and_goes_without_a_trace(before: str, tmp_path: Path) -> None:
    places = Places(tmp_path / ".ssh")
    once = with_include(before, places)
    assert once.endswith(before)
    assert once.splitlines()[0] == f"Include {tmp_path}/.ssh/starverse.conf"
    assert with_include(once, places) == once
    assert without_include(once, places) == before


def test_a_line_that_includes_ours_already_is_enough(tmp_path: Path) -> None:
    for line in ("Include starverse.conf", "include=~/.ssh/starverse.conf", "Include a.conf starverse.conf"):
        before = f"# mine\n{line}\nHost a\n"
        assert with_include(before, Places(tmp_path)) == before


def test_installing_writes_our_files_and_leaves_the_users_as_it_was(
    line: CommandLine, tmp_path: Path
) -> None:
    ssh = tmp_path / ".ssh"
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    ssh.mkdir(mode=0o700)
    (dotfiles / "config").write_text("Host a\n    Port 7\n")
    (dotfiles / "config").chmod(0o640)
    (ssh / "config").symlink_to(dotfiles / "config")
    (ssh / "cloud.pub").write_text(examples.ssh_key()["public_key"])
    assert line.run("ssh-config", "install").code == 0
    assert line.run("ssh-config", "install").code == 0
    assert (ssh / "config").is_symlink()
    assert stat.S_IMODE((dotfiles / "config").stat().st_mode) == 0o640
    found = understood("ssh", "-F", str(ssh / "config"), "lab.starverse")
    assert (found["hostname"], found["port"], found["user"]) == (["gpu.example.org"], ["2222"], ["lab"])
    assert found["userknownhostsfile"] == [str(ssh / "starverse_known_hosts")]
    assert found["stricthostkeychecking"] == ["true"]
    assert found["identityfile"] == [str(ssh / "cloud.pub")]
    assert understood("ssh", "-F", str(ssh / "config"), "a")["port"] == ["7"]
    assert line.run("ssh-config", "rm").code == 0
    assert (dotfiles / "config").read_text() == "Host a\n    Port 7\n"
    assert sorted(path.name for path in ssh.iterdir()) == ["cloud.pub", "config"]
    assert line.run("ssh-config", "rm").code == 0


def test_installing_where_there_is_no_folder_makes_one_for_its_owner_alone(
    line: CommandLine, tmp_path: Path
) -> None:
    assert line.run("ssh-config", "install", "--json").json["instances"] == 4
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / ".ssh").iterdir()}
    assert modes == {"config": 0o600, "starverse.conf": 0o600, "starverse_known_hosts": 0o600}
    assert stat.S_IMODE((tmp_path / ".ssh").stat().st_mode) == 0o700


def test_a_file_that_cannot_be_read_is_left_and_told(line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "config").mkdir(parents=True)
    ran = line.run("ssh-config", "install")
    assert (ran.code, str(tmp_path / ".ssh" / "config") in ran.err) == (1, True)
    assert [path.name for path in (tmp_path / ".ssh").iterdir()] == ["config"]


def test_show_prints_what_install_writes(line: CommandLine, tmp_path: Path) -> None:
    shown = line.run("ssh-config", "show").out
    assert list(tmp_path.glob(".ssh/*")) == []
    line.run("ssh-config", "install")
    assert (tmp_path / ".ssh" / "starverse.conf").read_text() == shown
    assert "Host lab.starverse\n" in shown
    assert "Host *.starverse\n" in shown


def test_names_of_now_follow_a_launch_and_a_removal_where_it_is_installed(
    api: FakeApi, line: CommandLine, tmp_path: Path
) -> None:
    line.run("ssh-config", "install")
    api.on("GET", "/instances", {"items": [examples.instance("fresh")], "next_cursor": None})
    api.on("GET", "/offers", {"items": examples.offers(), "next_cursor": None})
    api.on("POST", "/instances", Reply(201, examples.instance("fresh")))
    assert line.run("launch", "--card", "rtx4090", "--yes").code == 0
    assert "Host fresh.starverse\n" in (tmp_path / ".ssh" / "starverse.conf").read_text()
    api.on("GET", "/instances/fresh", examples.instance("fresh"))
    api.on("DELETE", "/instances/0191-fresh", Reply(204))
    api.on("GET", "/instances", Reply(500, {"code": "internal", "detail": "broken"}))
    ran = line.run("rm", "fresh", "--yes")
    assert (ran.code, "is as it was: broken" in ran.err) == (0, True)
