"""Every command that the pages show is typed as a newcomer would, in order, and says what the pages say."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from starverse.domain.pricing.price_book_yaml import shipped_price_book_text
from starverse.examples.digits import write_digits
from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import block_disks_missing
from starverse.testing.live_database import IN_THE_DATA_FOLDER
from starverse.testing.live_person import PASSWORD, clean_environment
from starverse.testing.live_server import QUICK, Ground, LiveServer

ROOT = Path(__file__).resolve().parents[2]
NOT_TYPED = {
    r"make (demo|test)\b": "continuous integration runs it by itself",
    r"(make|starverse) up\b": "the running server stands for it",
}
ENDS_WITH = 7
"""Exit code of the refusal for money that a page shows."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as a page shows it, and the output below it."""

    command: str
    output: tuple[str, ...]

    @property
    def reason_not_typed(self) -> str | None:
        reasons = (why for pattern, why in NOT_TYPED.items() if re.match(pattern, self.command))
        return next(reasons, None)

    @property
    def is_refused(self) -> bool:
        return bool(self.output) and self.output[0].startswith("starverse: ")


def read_page(page: str) -> list[Shown]:
    """What stands in the page's console blocks; a line that ends in a backslash goes on."""
    text = (ROOT / page).read_text("utf-8")
    found: list[Shown] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, *output = part.rstrip("\n").split("\n")
            found.append(Shown(command, tuple(output)))
    return found


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A folder that looks like a clone, a home, and a server to talk to."""

    server: LiveServer
    clone: Path
    home: Path
    around: contextlib.ExitStack

    def type_all(self, shown: list[Shown], stand_ins: Mapping[str, str]) -> list[tuple[int, str]]:
        """Type the commands into one shell; exit code and output of each."""
        lines = []
        for one in shown:
            command = one.command
            for name, value in stand_ins.items():
                command = command.replace(name, value)
            lines += ["echo @@begin", command, 'echo "@@end $?"']
        environment = clean_environment() | {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "STARVERSE_API": self.server.api,
            "STARVERSE_PASSWORD": PASSWORD,
            "COLUMNS": "200",
            "NO_COLOR": "1",
        }
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            cwd=self.clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
        parts = re.findall(r"@@begin\n(.*?)@@end (\d+)\n", done.stdout, re.DOTALL)
        assert len(parts) == len(shown), done.stdout
        return [(int(code), output) for output, code in parts]


@pytest.fixture
def newcomer(server: LiveServer) -> Iterator[Newcomer]:
    clone, home = server.make_folder("clone"), server.make_folder("newcomer")
    examples = clone / "src" / "starverse" / "examples"
    examples.mkdir(parents=True)
    for file in (ROOT / "src" / "starverse" / "examples").glob("*.*"):
        (examples / file.name).write_bytes(file.read_bytes())
    command = clone / ".venv" / "bin" / "starverse"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m starverse.cli.remote.entry "$@"\n')
    command.chmod(0o755)
    with contextlib.ExitStack() as around:
        yield Newcomer(server, clone, home, around)


@pytest.fixture
def server() -> Iterator[LiveServer]:
    """A new one for each page: jobs count from 1, and its database is the file that pages name. The remote
    that a page copies from is on this machine."""
    settings = {**QUICK, **IN_THE_DATA_FOLDER, "policy.sync_network": "host"}
    with LiveServer(Ground(settings=settings)) as running:
        yield running


def prepare_readme(_: Newcomer) -> dict[str, str]:
    """A home without any key."""
    return {"ssh-keygen -q": "mkdir -m 700 ~/.ssh && ssh-keygen -q"}


def prepare_quickstart(newcomer: Newcomer) -> dict[str, str]:
    """The page follows the tour: somebody is registered. Where this server's data folder and the interpreter
    are."""
    return {
        "starverse whoami": "starverse register me@example.org >/dev/null && starverse whoami",
        "~/.local/share/starverse/operator-token": str(newcomer.server.data / "operator-token"),
        "python -m": f"{sys.executable} -m",
    }


def prepare_operating(newcomer: Newcomer) -> dict[str, str]:
    """The paths and names that the page uses as examples."""
    digits = newcomer.server.root / "digits"
    write_digits(digits)
    head = newcomer.server.person("head")
    head.run("team", "create", "physics")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")
    prices = re.sub(r"effective_from: \S+", f"effective_from: {tomorrow}", shipped_price_book_text())
    (newcomer.clone / "new-prices.yaml").write_text(prices, "utf-8")
    newcomer.server.make_folder("backups")
    return {
        "/srv/backup": str(newcomer.server.root / "backups"),
        "/var/lib/starverse": str(newcomer.server.data),
        "/srv/digits": str(digits),
        "drain NODE": "drain declared-1",
        "starverse ": ".venv/bin/starverse ",
    }


def prepare_backup(newcomer: Newcomer) -> dict[str, str]:
    """The page's folders; what it moves to PostgreSQL goes into another file of SQLite."""
    root = newcomer.server.root
    target = newcomer.server.make_folder("backups") / "moved.db"
    return {
        "/var/lib/starverse-restored": str(root / "restored"),
        "/var/lib/starverse": str(newcomer.server.data),
        "/srv/backup": str(root / "backups"),
        "postgresql+psycopg://starverse@db.example.org/starverse": f"sqlite:///{target}",
        "starverse ": ".venv/bin/starverse ",
    }


def prepare_checkpoints(newcomer: Newcomer) -> dict[str, str]:
    """The page follows the tour: somebody is registered and stands in the examples' folder."""
    command = newcomer.clone / ".venv" / "bin" / "starverse"
    before = f"cd src/starverse/examples; {command} register me@example.org"
    return {"starverse submit": f"{before} && {command} submit"}


def signed_in(newcomer: Newcomer, *more: str) -> str:
    """What stands before a page's first command: the tour was walked, so that somebody is registered and has
    money."""
    steps = (
        f"export PATH={newcomer.clone}/.venv/bin:$PATH",
        "mkdir -m 700 ~/.ssh",
        "starverse register me@example.org >/dev/null",
        "starverse topup 500 --yes >/dev/null",
        *more,
    )
    return "".join(f"{step} && " for step in steps)


KEY = (
    "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519",
    "starverse ssh-key add >/dev/null 2>&1",
)


def prepare_instances(newcomer: Newcomer) -> dict[str, str]:
    """OpenSSH asks the machine, not HOME, where the files of its user are."""
    return {
        "ssh-keygen -q": f"{signed_in(newcomer)} ssh-keygen -q",
        "ssh lab.starverse": "ssh -F ~/.ssh/config lab.starverse",
        "rsync -a": 'rsync -e "ssh -F $HOME/.ssh/config" -a',
    }


def prepare_images(newcomer: Newcomer) -> dict[str, str]:
    first = "starverse image build base"
    return {first: signed_in(newcomer, *KEY) + first}


def prepare_disks(newcomer: Newcomer) -> dict[str, str]:
    """A server that speaks WebDAV and has a paper."""
    if block_disks_missing():
        pytest.skip(block_disks_missing())
    store = newcomer.server.make_folder("store")
    (store / "papers").mkdir()
    (store / "papers" / "论文 1.txt").write_text("text")
    url = newcomer.around.enter_context(served_by_rclone(store))
    (newcomer.clone / "rclone.conf").write_text(f"[nas]\ntype = webdav\nurl = {url}\nvendor = other\n")
    first = "starverse launch --card rtx4090 --name lab --yes"
    return {first: signed_in(newcomer, *KEY) + first}


def prepare_forecast(newcomer: Newcomer) -> dict[str, str]:
    """A trace of sixty days: by day nothing is free."""
    hours = [0 if 8 <= hour % 24 < 20 else 8 for hour in range(60 * 24)]
    trace = {"metadata": {"gap_seconds": 3600}, "data": hours}
    (newcomer.clone / "trace.json").write_text(json.dumps(trace))
    first = "starverse heatmap --card rtx4090"
    return {first: signed_in(newcomer) + first}


def prepare_simulate(newcomer: Newcomer) -> dict[str, str]:
    """Two logs of jobs, nodes, and two price books."""
    log = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:00:00,3600,2,7200,vc1\n"
    (newcomer.clone / "jobs.csv.gz").write_bytes(gzip.compress(log.encode()))
    account = "JobID|Account|Submit|ElapsedRaw|AllocTRES\n"
    account += "1|lab|2026-03-02T10:00:00|3600|cpu=4,gres/gpu=2,mem=16G,node=1\n"
    (newcomer.clone / "sacct.txt").write_text(account)
    nodes = "count,cards,model,cpus,memory_gib,zone,fabric\n1,2,rtx4090,16,64,all,eth\n"
    (newcomer.clone / "nodes.csv").write_text(nodes)
    for name in ("now", "next"):
        (newcomer.clone / f"{name}.yaml").write_text(shipped_price_book_text())
    return {"starverse ": ".venv/bin/starverse "}


@contextlib.contextmanager
def served_by_rclone(folder: Path) -> Iterator[str]:
    """Its address while ``rclone serve webdav`` runs."""
    if shutil.which("rclone") is None:
        pytest.skip("rclone is not installed: apt-get install rclone")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    words = ["rclone", "serve", "webdav", str(folder), "--addr", f"127.0.0.1:{port}", "--config", "/dev/null"]
    serving = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        wait_for(answers, "rclone to serve")
        yield f"http://127.0.0.1:{port}"
    finally:
        serving.terminate()
        serving.wait(10)


PAGES: dict[str, Callable[[Newcomer], dict[str, str]]] = {
    "README.md": prepare_readme,
    "docs/en/quickstart.md": prepare_quickstart,
    "docs/en/operating.md": prepare_operating,
    "docs/en/backup.md": prepare_backup,
    "docs/en/checkpoints.md": prepare_checkpoints,
    "docs/en/instances.md": prepare_instances,
    "docs/en/disks.md": prepare_disks,
    "docs/en/images.md": prepare_images,
    "docs/en/forecast.md": prepare_forecast,
    "docs/en/simulate.md": prepare_simulate,
}
FOR_DEVELOPERS = {
    "CONTRIBUTING.md": "its commands change the tree or run the tests",
    "docs/benchmarks.md": "measuring takes long",
}
ON_A_CLUSTER = {"docs/cluster.md", "docs/zh/cluster.md"}
"""Typed on a real Slurm by ``test_cluster_page.py``."""


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(newcomer: Newcomer, page: str) -> None:
    shown = read_page(page)
    for one in shown:
        if one.reason_not_typed:
            print(f"{page}: not typed: {one.command}: {one.reason_not_typed}")
    typed = [one for one in shown if one.reason_not_typed is None]
    assert typed
    stand_ins = PAGES[page](newcomer)
    by_night = any(
        line["tariff"] == "on_demand" and line["rate"] != "1.66"
        for offer in newcomer.server.operator.client.cards.offers()
        for line in offer["prices"]
    )
    for one, (code, output) in zip(typed, newcomer.type_all(typed, stand_ins), strict=True):
        if one.is_refused and by_night:
            print(f"{page}: at half price this fits into the sign-up credit: {one.command}")
            continue
        assert code == (ENDS_WITH if one.is_refused else 0), f"$ {one.command}\n{output}"
        said = {shape(line) for line in output.splitlines()}
        missing = [line for line in one.output if shape(line) not in said]
        assert not missing, f"$ {one.command}\n{output}\nthe page says, the command does not: {missing}"


def translations() -> dict[str, str]:
    """Each translated page -> the page that it translates."""
    found = {page.name: "README.md" for page in ROOT.glob("README.*.md")}
    return found | {
        f"docs/zh/{page.name}": f"docs/en/{page.name}"
        for page in (ROOT / "docs/zh").glob("*.md")
        if f"docs/zh/{page.name}" not in ON_A_CLUSTER
    }


@pytest.mark.parametrize("page", sorted(translations()))
def test_translations_show_the_same_commands(page: str) -> None:
    def commands(name: str) -> list[str]:
        return [re.sub(r"\s+#.*", "", one.command) for one in read_page(name)]

    assert commands(page) == commands(translations()[page])


def test_every_page_with_commands_is_typed() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    with_commands = {str(page.relative_to(ROOT)) for page in pages if read_page(str(page.relative_to(ROOT)))}
    for page, reason in FOR_DEVELOPERS.items():
        print(f"{page}: not typed: {reason}")
    assert with_commands == {*PAGES, *translations(), *FOR_DEVELOPERS, *ON_A_CLUSTER} & with_commands
    assert set(PAGES) <= with_commands


def shape(line: str) -> str:
    """A line without its ids, figures and widths."""
    plain = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}", "ID", " ".join(line.split()))
    return re.sub(r"\d+(\.\d+)?", "0", plain)
