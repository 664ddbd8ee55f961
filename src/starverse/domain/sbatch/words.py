"""Option words to options, as getopt_long reads them for sbatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starverse.domain.sbatch.options import BY_NAME, BY_SHORT, Option, Status, Takes, find_long
from starverse.domain.sbatch.origins import COMMAND_LINE, OptionFault, Origin
from starverse.domain.sbatch.scripts import Word

_DASHES = "‐‑‒–—−"


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it was given: ``value`` is ``""`` where it takes nothing."""

    option: Option
    value: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class CommandLine:
    """``sbatch [options] script [arguments]``; ``script`` is the path as typed, ``None``: none was given."""

    option_words: tuple[str, ...]
    script: str | None
    arguments: tuple[str, ...]


def split_command_line(words: Sequence[str]) -> CommandLine:
    """Find the script's path: the first word that is neither an option nor the value of one."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            rest = tuple(words[at + 1 :])
            return CommandLine(tuple(words[:at]), rest[0] if rest else None, rest[1:])
        if not word.startswith("-") or word == "-":
            return CommandLine(tuple(words[:at]), word, tuple(words[at + 1 :]))
        at += 2 if _takes_next_word(word) else 1
    return CommandLine(tuple(words), None, ())


def read_words(words: Sequence[Word]) -> tuple[list[Given], list[OptionFault]]:
    """All options in order, and what cannot be read. Never raises; reading goes on after a fault."""
    given: list[Given] = []
    faults: list[OptionFault] = []
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else None
        if word.text.startswith("--") and len(word.text) > 2:
            used = _read_long(word, following, given, faults)
        elif word.text.startswith("-") and len(word.text) > 1 and word.text != "--":
            used = _read_short(word, following, given, faults)
        else:
            faults.append(OptionFault(word.text, word.text, _not_an_option(word.text), word.origin))
            used = 1
        at += used
    return given, faults


def _takes_next_word(word: str) -> bool:
    if word.startswith("--"):
        name, equals, _ = word[2:].partition("=")
        option, _expected = find_long(name)
        return option is not None and option.takes is Takes.VALUE and not equals
    for index, letter in enumerate(word[1:], start=1):
        option = BY_SHORT.get(letter)
        if option is None or option.takes is Takes.OPTIONAL:
            return False
        if option.takes is Takes.VALUE:
            return index == len(word) - 1
    return False


def _read_long(word: Word, following: Word | None, given: list[Given], faults: list[OptionFault]) -> int:
    name, equals, value = word.text[2:].partition("=")
    option, expected = find_long(name)
    if option is None:
        faults.append(OptionFault(f"--{name}", value, expected, word.origin))
        return 1
    if equals or option.takes is not Takes.VALUE:
        if equals and option.takes is Takes.NOTHING:
            faults.append(OptionFault(option.typed, value, f"{option.typed} without a value", word.origin))
        else:
            given.append(Given(option, value, word.origin))
        return 1
    return _read_value(option, word, following, given, faults)


def _read_short(word: Word, following: Word | None, given: list[Given], faults: list[OptionFault]) -> int:
    letters = word.text[1:]
    long_name = letters.partition("=")[0]
    if len(long_name) > 2 and long_name in BY_NAME:
        faults.append(OptionFault(word.text, word.text, f"two dashes: --{letters}", word.origin))
        return 1
    for index, letter in enumerate(letters):
        option = BY_SHORT.get(letter)
        rest = letters[index + 1 :]
        if option is None:
            expected = "an option of sbatch; `sbatch --help` lists them"
            faults.append(OptionFault(f"-{letter}", word.text, expected, word.origin))
            return 1
        if option.takes is Takes.VALUE and not rest:
            return _read_value(option, word, following, given, faults)
        if option.takes is not Takes.NOTHING:
            if rest.startswith("="):
                expected = f"-{letter}{rest[1:]} or {option.typed}{rest}: no = after a single letter"
                faults.append(OptionFault(f"-{letter}", rest, expected, word.origin))
            else:
                given.append(Given(option, rest, word.origin))
            return 1
        given.append(Given(option, "", word.origin))
    return 1


def _read_value(
    option: Option, word: Word, following: Word | None, given: list[Given], faults: list[OptionFault]
) -> int:
    """The next word is the value, but only on the same line and when it is not itself an option."""
    missing = f"a value: {option.typed}={option.placeholder or 'VALUE'}"
    if following is None or following.origin != word.origin:
        faults.append(OptionFault(option.typed, "", missing, word.origin))
        return 1
    if following.text.startswith("--") and find_long(following.text[2:].partition("=")[0])[0] is not None:
        faults.append(OptionFault(option.typed, "", missing, word.origin))
        return 1
    given.append(Given(option, following.text, word.origin))
    return 2


def _not_an_option(text: str) -> str:
    if text and text[0] in _DASHES:
        return f"plain dashes (-) instead of {text[0]!r}, which editors put in"
    return "an option; quote a value with spaces, such as --job-name='two words'"


def command_line_words(words: Sequence[str]) -> list[Word]:
    return [Word(text, COMMAND_LINE) for text in words]


def refused(given: Given) -> OptionFault | None:
    """The fault of an option that the table refuses; ``None`` for every other."""
    if given.option.status is not Status.REFUSED:
        return None
    return OptionFault(given.option.typed, given.value, f"it left out: {given.option.text}", given.origin)
