"""Slurm through its commands, by absolute path: our shims have the same names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from starverse.engines.slurm.facts import JobRequest, SlurmJob, SlurmNode, SlurmRefused, SlurmUnavailable
from starverse.engines.slurm.parsing import (
    SACCT_COLUMNS,
    SQUEUE_COLUMNS,
    read_sacct,
    read_scontrol_nodes,
    read_squeue,
)

FOLDERS = "/usr/bin:/usr/local/bin:/opt/slurm/bin:/usr/local/slurm/bin"
"""Where the commands are looked for when no folder is named."""

CONFIG_SECONDS_MAX = 60.0

_AWAY = (
    *("Unable to contact slurm controller", "Connection refused", "Socket timed out", "Connection timed out"),
    *("Zero Bytes were transmitted", "Unable to connect", "slurmdbd", "DNS SRV", "configuration source"),
    *("Protocol authentication error", "temporarily", "Communication connection failure", "Try again"),
    *("Slurm backup controller in standby mode", "Munge", "munge"),
)
"""Complaints after which nothing is known of what was asked; any other one is a no."""


class Commands:
    """``folder`` ``""``: looked for. ``conf`` ``""``: the cluster's own ``slurm.conf``. ``call_seconds_max``
    bounds each call: a command that hangs must not hang the platform."""

    def __init__(self, folder: str = "", conf: str = "", *, call_seconds_max: float = 10.0) -> None:
        found = folder or _find_folder()
        if not found:
            raise SlurmRefused(f"no Slurm commands in {FOLDERS.replace(':', ', ')}; name slurm.commands")
        self.folder = Path(found)
        self._conf = conf
        self._seconds = call_seconds_max
        self._accounting: bool | None = None
        self._requeues: tuple[bool, float] | None = None
        self._version = ""

    def describe(self) -> str:
        if not self._version:
            self._version = self._run("sinfo", "--version").strip()
        return f"{self._version}, by the commands in {self.folder}"

    def jobs(self, partitions: Sequence[str]) -> tuple[SlurmJob, ...]:
        limit = ["-p", ",".join(partitions)] if partitions else []
        text = self._run("squeue", "-h", "-a", *limit, "-o", SQUEUE_COLUMNS)
        return tuple(job for job in read_squeue(text) if not job.over)

    def find(self, name: str) -> tuple[SlurmJob, ...]:
        found = read_squeue(self._run("squeue", "-h", "-a", "-t", "all", "-n", name, "-o", SQUEUE_COLUMNS))
        if not found and self._has_accounting():
            found = read_sacct(
                self._run(
                    "sacct", "-n", "-P", "-X", "-a", "-S", "now-30days", "--name", name, "-o", SACCT_COLUMNS
                )
            )
        return found

    def _has_accounting(self) -> bool:
        """Whether sacct knows of ended jobs; asked once."""
        if self._accounting is None:
            config = self._run("scontrol", "show", "config")
            self._accounting = "accounting_storage/slurmdbd" in config
        return self._accounting

    def requeues_by_default(self) -> bool:
        """Whether Slurm starts jobs again that say nothing of it (JobRequeue); asked once a minute."""
        now = time.monotonic()
        if self._requeues is None or now - self._requeues[1] > CONFIG_SECONDS_MAX:
            config = self._run("scontrol", "show", "config")
            never = re.search(r"^JobRequeue\s*=\s*0\s*$", config, re.MULTILINE)
            self._requeues = (never is None, now)
        return self._requeues[0]

    def nodes(self) -> tuple[SlurmNode, ...]:
        return read_scontrol_nodes(self._run("scontrol", "-o", "-a", "show", "nodes"))

    def submit(self, request: JobRequest) -> str:
        words = [
            *("--parsable", f"--job-name={request.name}", "--dependency=singleton", "--no-requeue"),
            *(f"--nodes={len(request.nodes)}", f"--nodelist={','.join(request.nodes)}"),
            *(f"--ntasks={len(request.nodes)}", "--ntasks-per-node=1", f"--cpus-per-task={request.cpus}"),
            *(
                f"--mem={request.memory_mib}M",
                f"--time={request.time_minutes}",
                f"--comment={request.comment}",
            ),
            *(
                f"--chdir={request.folder}",
                f"--output={request.output}",
                "--open-mode=append",
                "--export=ALL",
            ),
        ]
        if request.gres:
            words.append(f"--gres={request.gres}")
        if request.partition:
            words.append(f"--partition={request.partition}")
        answer = self._run("sbatch", *words, text=request.script, environment=dict(request.environment))
        return answer.strip().partition(";")[0]

    def cancel(self, name: str) -> None:
        self._run("scancel", "--quiet", f"--name={name}")

    def close(self) -> None:
        """Nothing is kept open."""

    def _run(
        self, command: str, *words: str, text: str = "", environment: Mapping[str, str] | None = None
    ) -> str:
        path = self.folder / command
        try:
            done = subprocess.run(
                [str(path), *words],
                input=text,
                env={**_environment(self._conf), **(environment or {})},
                capture_output=True,
                text=True,
                timeout=self._seconds,
                cwd="/",
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmUnavailable(f"{command} did not answer within {self._seconds:g} s") from error
        except OSError as error:
            raise SlurmUnavailable(f"{path} cannot be run: {error.strerror}") from error
        if done.returncode != 0:
            said = (
                done.stderr.strip().splitlines()[-1]
                if done.stderr.strip()
                else f"exit code {done.returncode}"
            )
            away = any(word in done.stderr for word in _AWAY) or not done.stderr.strip()
            raise (SlurmUnavailable if away else SlurmRefused)(f"{command}: {said}")
        return done.stdout


def _find_folder() -> str:
    found = shutil.which("sbatch", path=FOLDERS)
    return str(Path(found).parent) if found else ""


def _environment(conf: str) -> dict[str, str]:
    """Little of the server's: options of sbatch may hide in variables (``SBATCH_*``, ``SLURM_*``)."""
    wanted = ("LANG", "LC_ALL", "HOME", "LD_LIBRARY_PATH", "TZ")  # TZ: times are printed as we read them
    kept = {name: os.environ[name] for name in wanted if name in os.environ}
    named = conf or os.environ.get("SLURM_CONF", "")
    return {"PATH": FOLDERS, **kept, **({"SLURM_CONF": named} if named else {})}
