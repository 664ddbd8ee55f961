"""The tree's root: every command by name, module and one line, so that ``--help`` imports none of them."""

from __future__ import annotations

import click

from starverse import __version__
from starverse.cli.remote.commands import LazyCommand, LazyGroup

_HERE = "starverse.cli.remote"
_LOCAL = "starverse.cli.local"

COMMANDS = {
    "up": LazyCommand(f"{_LOCAL}.up", "Serve the platform: API, reconcilers, engine in one process."),
    "demo": LazyCommand(f"{_LOCAL}.demo", "Run the main job end to end and print what it proves."),
    "doctor": LazyCommand(f"{_LOCAL}.doctor", "Check everything this machine offers, with remedies."),
    "register": LazyCommand(f"{_HERE}.accounts", "Open an account.", "register"),
    "login": LazyCommand(f"{_HERE}.accounts", "Sign in.", "login"),
    "logout": LazyCommand(f"{_HERE}.accounts", "Sign out.", "logout"),
    "whoami": LazyCommand(f"{_HERE}.accounts", "Show who is signed in.", "whoami"),
    "token": LazyCommand(f"{_HERE}.tokens", "Tokens for scripts: create, ls, rm.", "group"),
    "team": LazyCommand(f"{_HERE}.teams", "Teams: create, ls, show, add, remove.", "group"),
    "offers": LazyCommand(f"{_HERE}.offers", "Show free cards and prices.", "offers"),
    "quote": LazyCommand(f"{_LOCAL}.quote", "Price cards over a time, segment by segment, without a server."),
    "heatmap": LazyCommand(f"{_LOCAL}.heat_map", "Show when cards will be free together, and at what price."),
    "simulate": LazyCommand(
        f"{_LOCAL}.simulate", "Replay a trace through the scheduler and the prices, without a server."
    ),
    "launch": LazyCommand(f"{_HERE}.instances", "Rent a GPU host: an instance.", "launch"),
    "ps": LazyCommand(f"{_HERE}.instances", "List instances.", "ps"),
    "show": LazyCommand(f"{_HERE}.instances", "Show an instance.", "show"),
    "stop": LazyCommand(f"{_HERE}.instances", "Stop instances; their files stay.", "stop"),
    "start": LazyCommand(
        f"{_HERE}.instances", "Start a stopped instance, with its cards or without.", "start"
    ),
    "resize": LazyCommand(f"{_HERE}.instances", "Give an instance other cards on the same files.", "resize"),
    "rm": LazyCommand(f"{_HERE}.instances", "Release instances with their own files.", "rm"),
    "clone": LazyCommand(f"{_HERE}.instances", "Copy a stopped instance.", "clone"),
    "extend": LazyCommand(f"{_HERE}.instances", "Put off the release of a stopped instance.", "extend"),
    "set": LazyCommand(f"{_HERE}.instances", "Change when an instance stops by itself.", "set_"),
    "ssh": LazyCommand(f"{_HERE}.instance_ssh", "Sign in to an instance.", "ssh"),
    "exec": LazyCommand(f"{_HERE}.instance_ssh", "Run a program in an instance.", "exec_"),
    "open": LazyCommand(f"{_HERE}.instance_ssh", "Open JupyterLab or a port of an instance.", "open_"),
    "ssh-config": LazyCommand(f"{_HERE}.ssh_config", "Let ssh and editors reach instances.", "group"),
    "ssh-key": LazyCommand(f"{_HERE}.ssh_keys", "Your public keys: add, ls, rm.", "group"),
    "disk": LazyCommand(
        f"{_HERE}.disks", "Disks: create, attach, resize, snapshot, cp, sync, rm and more.", "group"
    ),
    "image": LazyCommand(f"{_HERE}.images", "Images: ls, show, build, save, verify, rm.", "group"),
    "secret": LazyCommand(f"{_HERE}.secrets", "Secrets of the team: set, ls, rm.", "group"),
    "submit": LazyCommand(f"{_HERE}.submit", "Submit a batch script with this folder.", "submit"),
    "job": LazyCommand(f"{_HERE}.jobs", "Jobs: ls, show, why, logs, cancel, resume, record.", "group"),
    "queue": LazyCommand(f"{_HERE}.jobs", "List the jobs that wait or run.", "queue"),
    "cp": LazyCommand(f"{_HERE}.copy", "Copy to or from a job's folder or an instance.", "cp"),
    "dataset": LazyCommand(f"{_HERE}.datasets", "The shelf: ls, show, add, verify.", "group"),
    "wallet": LazyCommand(f"{_HERE}.wallet", "Show the team's money.", "wallet"),
    "topup": LazyCommand(f"{_HERE}.wallet", "Top up the wallet.", "topup"),
    "refund": LazyCommand(f"{_HERE}.wallet", "Pay a top-up back.", "refund"),
    "bill": LazyCommand(f"{_HERE}.bills", "Print the bill, segment by segment.", "bill"),
    "explain": LazyCommand(f"{_HERE}.bills", "Explain a charge.", "explain"),
    "shims": LazyCommand(f"{_HERE}.shims", "Install Slurm's commands into a folder.", "group"),
    "admin": LazyCommand(f"{_HERE}.admin", "What operators do.", "group"),
    "slurm": LazyCommand(f"{_LOCAL}.slurm", "Prepare a Slurm cluster: plan, check."),
    "config": LazyCommand(f"{_LOCAL}.config", "Show the settings and where each comes from."),
    "bench": LazyCommand(f"{_LOCAL}.bench", "Run a measurement by name."),
    "version": LazyCommand(f"{_HERE}.version", "Print the version.", "version"),
}

root = LazyGroup(
    "starverse",
    lazy=COMMANDS,
    help="A GPU cloud on the cards that a lab or a small operator has.",
)
root = click.version_option(__version__, "--version", message="starverse %(version)s")(root)
