"""Links of the documents lead somewhere, and the commands they show exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from starverse.cli.remote.root import root
from starverse.client.sbatch_words import FLAGS, VALUES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FRONT_PAGES = (
    "README.md",
    "README.zh-CN.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "GLOSSARY.md",
    "CHANGELOG.md",
    "LICENSE",
)


def short(file: Path) -> str:
    return str(file.relative_to(ROOT))


def console_lines(text: str) -> list[str]:
    """The commands after ``$`` in ```console blocks; a line that ends in a backslash goes on."""
    lines = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        joined = block.replace("\\\n", " ")
        lines += [line[2:].strip() for line in joined.splitlines() if line.startswith("$ ")]
    return lines


def anchors_of(text: str) -> set[str]:
    heads = re.findall(r"^#+ +(.+?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def starverse_calls(text: str) -> list[list[str]]:
    """Words of each call of ours in the page's console blocks, up to a pipe or a redirection."""
    calls = []
    for line in console_lines(text):
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words[:1] == ["starverse"]:
            ends = [i for i, word in enumerate(words) if word in ("|", ">", ">>", "&", "&&", ";")]
            calls.append(words[1 : ends[0] if ends else None])
    return calls


@pytest.mark.parametrize("name", FRONT_PAGES)
def test_the_front_pages_are_there(name: str) -> None:
    assert (ROOT / name).stat().st_size > 500


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = page.parent / file if file else page
        if not there.exists() or (anchor and anchor not in anchors_of(there.read_text("utf-8"))):
            dead.append(target)
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_commands_shown_exist_with_their_options(page: Path) -> None:
    for words in starverse_calls(page.read_text("utf-8")):
        command: click.Command = root
        rest = list(words)
        while rest and isinstance(command, click.Group) and not rest[0].startswith("-"):
            found = command.get_command(click.Context(command), rest[0])
            assert found is not None, f"`starverse {' '.join(words)}`: there is no {rest[0]}"
            command = found
            rest.pop(0)
        if command.ignore_unknown_options or command.allow_extra_args:
            continue
        known = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
        known |= {"--help", "-h", "--version"}
        if words[0] == "submit":
            known |= {f"--{name}" for name in FLAGS | VALUES}
        rest = rest[: rest.index("--")] if "--" in rest else rest  # what follows is another program's
        given = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
        assert not [word for word in given if word not in known], f"`starverse {' '.join(words)}`"


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_make_targets_shown_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    shown = re.findall(r"(?:`|\$ )make ([a-z-]+)", page.read_text("utf-8"))
    assert not [name for name in shown if name not in targets]
