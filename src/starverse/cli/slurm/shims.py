"""Slurm's commands: same names, output and exit codes (interfaces.md, Command line).

:func:`main` imports the one module that a command needs. Errors are printed as Slurm prints them,
``sbatch: error: ...``, with exit code 1; Ctrl-C exits with 130.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from starverse.cli.remote.session import Session
from starverse.cli.slurm.options import BadUsage

NAMES = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "srun", "salloc")
FAILURE = 1
INTERRUPTED = 130

Shim = Callable[[Sequence[str], Session], int]


def main(name: str, arguments: Sequence[str] | None = None, session: Session | None = None) -> int:
    """Run one of Slurm's commands; its exit code."""
    if name not in NAMES:
        raise ValueError(f"{name!r} is none of {', '.join(NAMES)}")
    words = sys.argv[1:] if arguments is None else arguments
    run = session or Session()
    shim: Shim = importlib.import_module(f"starverse.cli.slurm.{name}").main
    try:
        return shim(words, run)
    except BadUsage as error:
        run.note(f'{name}: {error}\nTry "{name} --help" for more information')
        return FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except Exception as error:
        if not print_error(name, error, run):
            raise
        return FAILURE
    finally:
        run.close()


def print_error(name: str, error: Exception, session: Session) -> bool:
    """Print an error as Slurm does, one ``name: error:`` a line; ``False`` for one that carries no detail."""
    detail = getattr(error, "detail", None)
    if not isinstance(detail, str):
        return False
    faults = getattr(error, "faults", ())
    lines = [str(fault) for fault in faults] or detail.splitlines()
    hint = getattr(error, "hint", None)
    for line in lines:
        session.note(f"{name}: error: {line}")
    if hint:
        session.note(f"{name}: hint: {hint}")
    return True
