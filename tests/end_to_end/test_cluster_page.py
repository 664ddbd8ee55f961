"""The page for clusters is typed on a real Slurm: its settings file, and every command in order."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from starverse.testing.live_database import IN_THE_DATA_FOLDER
from starverse.testing.live_person import clean_environment
from starverse.testing.live_server import QUICK, Ground, LiveServer
from starverse.testing.slurm_lab import SlurmLab

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(bool(SlurmLab.missing()), reason=SlurmLab.missing() or "Slurm is there"),
]
ROOT = Path(__file__).resolve().parents[2]
PAGE, TRANSLATION = ROOT / "docs/cluster.md", ROOT / "docs/zh/cluster.md"
NOT_TYPED = {r"starverse up\b": "the running server stands for it"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def commands_of(page: Path) -> list[tuple[str, tuple[str, ...]]]:
    """What stands in the page's console blocks: each command with the output below it."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = part.rstrip("\n").split("\n")
            found.append((command, tuple(output)))
    return found


def settings_of(page: Path) -> str:
    (text,) = re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    with SlurmLab(nodes=4) as running:
        yield running


@pytest.fixture
def server(lab: SlurmLab) -> Iterator[LiveServer]:
    """The server whose settings the page shows, but for its names of machines and paths."""
    settings = {
        **QUICK,
        **IN_THE_DATA_FOLDER,  # the page's own
        "server.channel": f"127.0.0.1:{free_port()}",
        "engine.kind": "slurm",
        "engine.zone": "hall1",
        "slurm.conf": str(lab.conf),
        "slurm.partitions": "all,ib,eth",
        "slurm.rest_url": lab.rest_url,
        "slurm.jwt_key": str(lab.jwt_key),
        "slurm.cards_declared": "true",
    }
    with LiveServer(Ground(cards="", settings=settings)) as running:
        yield running


def stand_ins(lab: SlurmLab, server: LiveServer) -> Mapping[str, str]:
    """What the page's machines and paths are here; the longest come first."""
    return {
        "/shared/starverse/venv/bin/python": sys.executable,
        "/shared/starverse/data": str(server.data),
        "/shared/starverse": str(server.root),
        "/backup": str(server.make_folder("backups")),
        "/etc/slurm/slurm.conf": str(lab.conf),
        "/etc/slurm/jwt.key": str(lab.jwt_key),
        "http://head1:6820": lab.rest_url,
        "http://head1:8750": server.api,
        "head1:8751": server.ground.settings["server.channel"],
        'partitions = "gpu"': 'partitions = "all,ib,eth"\ncards_declared = true',
        'db = "postgresql+psycopg://starverse@db/starverse"\n': "",
        "scontrol ": f"SLURM_CONF={lab.conf} scontrol ",
    }


def replaced(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def test_the_page_is_typed_from_the_plan_to_the_drill(lab: SlurmLab, server: LiveServer) -> None:
    names = stand_ins(lab, server)
    (server.root / "starverse.toml").write_text(replaced(settings_of(PAGE), names), "utf-8")
    program = server.make_folder("bin") / "starverse"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m starverse.cli.remote.entry "$@"\n')
    program.chmod(0o755)
    typed, lines = [], []
    for command, output in commands_of(PAGE):
        reason = next((why for pattern, why in NOT_TYPED.items() if re.match(pattern, command)), None)
        if reason is not None:
            print(f"not typed: {command}: {reason}")
            continue
        typed.append((command, output))
        lines += ["echo @@begin", replaced(command, names), 'echo "@@end $?"']
    home = server.make_folder("operator")
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=home,
        env=clean_environment()
        | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "COLUMNS": "200", "NO_COLOR": "1"}
        | {"PATH": f"{program.parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    parts = re.findall(r"@@begin\n(.*?)@@end (\d+)\n", done.stdout, re.DOTALL)
    assert len(parts) == len(typed), done.stdout
    for (command, output), (said, code) in zip(typed, parts, strict=True):
        assert code == "0", f"$ {command}\n{said}\n{server.read_log()[-3000:]}"
        missing = [line for line in output if line not in said.splitlines()]
        assert not missing, f"$ {command}\n{said}\nthe page says, the command does not: {missing}"


def test_the_translation_shows_the_same_commands_and_settings() -> None:
    assert commands_of(TRANSLATION) == commands_of(PAGE)
    assert settings_of(TRANSLATION) == settings_of(PAGE)
