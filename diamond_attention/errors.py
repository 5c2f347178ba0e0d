"""What the project tells a person: an error that can be put right, and a notice of what was done instead."""

import warnings
from typing import Any

LONGEST_SHOWN = 60


class UserError(Exception):
    """Something the user can put right. Its message is one sentence that names the setting and the remedy."""


class Notice(UserWarning):
    """Something that must not pass in silence, such as an older checkpoint used in place of a broken one."""


def notice(sentence: str) -> None:
    """From Python a warning, which can be filtered or made an error; the command prints it as one line."""
    warnings.warn(sentence, Notice, stacklevel=3)


def printable(text: str) -> str:
    """Without control characters, so that text from somebody's file cannot move a terminal's cursor or colour it."""
    return "".join(letter if letter.isprintable() or letter == " " else "\ufffd" for letter in text)


def shown(value: Any) -> str:
    """A value as a sentence quotes it: what was typed by mistake can be longer than any sentence.

    >>> shown("many"), shown(10**100)
    ("'many'", '100000000000000000000000000000000000000000000000000000000000…')
    """
    try:
        text = str(value) if isinstance(value, int | float) else repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
