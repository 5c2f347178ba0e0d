"""What the project tells a person: an error that can be put right, and a notice of what was done instead."""

import warnings


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
