"""Words that cannot be read, refused in one sentence: tyro, which reads them, would print a box of many lines."""

import contextlib
import difflib
import io
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tyro

from diamond_attention.errors import LONGEST_SHOWN, UserError, shown

LONGEST_QUOTE = 200
"""Characters of a box that no rule below knows."""
ANY_WIDTH = "100000"
"""Columns, so that tyro breaks no line."""
RULE = "─"
"""Stands between the paragraphs of a box."""
TAKES = {"INT": "a whole number", "FLOAT": "a number", "PATH": "a path", "STR": "a word"}
"""What tyro calls what an option takes, and what we call it."""


def check_words(arguments: Sequence[str]) -> None:
    """Raises UserError for a word, or for the value of an option, with nothing in it: `--out ''` and `--out=`."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("-") and equals:
            of, meant = _option(name), value
        else:
            of, meant = _option(before) if before.startswith("-") and "=" not in before else "one of the words", word
        if not meant.strip():
            raise UserError(f"{of} is empty; write what it should be, or leave it out.")


def read_options(kind: Any, arguments: Sequence[str], program: str, default: Any = None) -> Any:
    """What tyro reads from these words; `program` is how the command began: "diamond train xor"."""
    said = io.StringIO()
    given = {} if default is None else {"default": default}
    asks_for_help = "-h" in arguments or "--help" in arguments
    try:
        with contextlib.redirect_stderr(said), contextlib.nullcontext() if asks_for_help else _columns(ANY_WIDTH):
            return tyro.cli(kind, args=list(arguments), prog=program, config=(tyro.conf.FlagCreatePairsOff,), **given)
    except SystemExit as stopped:
        if stopped.code != 2:  # help was asked for, and given
            raise
        raise UserError(_in_one_sentence(said.getvalue(), arguments, program)) from None
    except (AssertionError, OSError) as error:
        if not arguments[0].startswith("--tyro-"):  # the options with which tyro writes completions for a shell
            raise
        raise UserError(f"{_option(arguments[0])} failed: {str(error)[:LONGEST_QUOTE]}.") from None


@contextlib.contextmanager
def _columns(width: str) -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = width
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _in_one_sentence(box: str, arguments: Sequence[str], program: str) -> str:
    """What a box says: a title, paragraphs with rules between them, and where to find help.

    A box of a kind that is not known here is quoted, as far as a sentence goes.
    """
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│ ") for line in box.splitlines()]
    lines = [re.sub(r"^[-─]{3,}$", RULE, line) for line in lines if line and not line.startswith(("╭", "╰"))]
    said = "\n".join(lines)
    if unknown := re.search(r"^Unrecognized options:\s(.+)$", said, re.MULTILINE):
        return _unknown(unknown[1], lines, arguments, program)
    if choice := re.search(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?)\)\.", said, re.S):
        choices = re.findall(r"'(.*?)'", choice[3])
        if "None" in choices:  # may be left out; tyro then lists the choices in any order
            choices = sorted({*choices} - {"None"})
        return f"{_typed(choice[2], arguments)} is {shown(choice[1])}; it must be one of {', '.join(choices)}."
    if valueless := re.search(r"Missing value for argument '(.*?)'", said):
        name = _typed(valueless[1], arguments)
        return f"{name if name.startswith('-') else f'`{program}`: {name}'} needs a value after it."
    if missing := re.search(r"^Missing from .*:\n(.+)\n(.+?) ?\(required\)", said, re.MULTILINE):
        return f"`{program}` needs {missing[1]} ({missing[2].rstrip('.')}); see `{program} --help`."
    if wrong := re.search(r"^Error parsing (\S+): (.*)$", said, re.MULTILINE):
        return _wrong(wrong[1], wrong[2], said, arguments)
    return f"`{program}`: {' '.join(said.partition(RULE)[0].split())[:LONGEST_QUOTE].rstrip('.')}."


def _unknown(listed: str, lines: Sequence[str], arguments: Sequence[str], program: str) -> str:
    """The first word that tyro could not place, with what it may have been meant to be."""
    word = next((word for word in arguments if listed == word or listed.startswith(f"{word}, ")), listed)
    if not word.startswith("-"):
        for name, equals, value in (each.partition("=") for each in arguments):
            if name.startswith("-") and equals and value == word:
                return f"{_option(name)} takes no value, and got {shown(word)}; write {_option(name)} alone."
        return f"`{program}` has no use for {shown(word)}; options begin with --, and `{program} --help` lists them."
    name = word.partition("=")[0]
    alike = [option for line in lines if line.startswith("--") for option in re.findall(r"--[\w.-]+", line)]
    nearest = [*difflib.get_close_matches(name, alike, 1), *alike]
    hint = f"did you mean {nearest[0]}?" if nearest else f"`{program} --help` lists all."
    return f"`{program}` has no option {_option(name)}; {hint}"


def _wrong(names: str, why: str, said: str, arguments: Sequence[str]) -> str:
    """`names` are an option's spellings, or what a word without an option is called."""
    name = _typed(names, arguments)
    quoted = re.findall(r"'(.*?)'", why)
    values = [value for option, value in _given(arguments) if option == name]
    # Of an option that takes several words tyro quotes all.
    value = ", ".join(quoted) if len(quoted) > 1 or not values else values[-1]
    takes = re.search(rf"^{re.escape(name)} ([^\s,]+)|, {re.escape(name)} ([^\s,]+)", said, re.MULTILINE)
    kinds = (takes[1] or takes[2]).split("|") if takes else []
    must = " or ".join(TAKES.get(kind, kind) for kind in (kind.strip("{}[]") for kind in kinds))
    return f"{name} is {shown(value)}; " + (f"it must be {must}." if must else "it cannot be read.")


def _typed(names: str, arguments: Sequence[str]) -> str:
    """Of an option's spellings the one that was typed."""
    spellings = re.split(r"/|, ", names)
    return next((option for option, _ in _given(arguments) if option in spellings), spellings[0])


def _given(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options as tyro spells them, each with its value."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            yield name.replace("_", "-"), value if equals else following


def _option(name: str) -> str:
    return name if len(name) <= LONGEST_SHOWN and name.isprintable() else shown(name)
