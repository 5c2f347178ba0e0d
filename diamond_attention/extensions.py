"""Files of your own that register worlds, policies, methods and presets: `diamond … --with FILE.py`."""

import importlib.util
import sys
from pathlib import Path

from diamond_attention.errors import UserError

LOADED: list[Path] = []
"""Each file once, for processes that this one starts."""


def loaded_words() -> list[str]:
    """What a command that this one starts is told, so that it has the same files."""
    return [word for path in LOADED for word in ("--with", str(path))]


def load_extension(file: Path) -> None:
    """Runs a Python file of the user's own, which registers what it brings. No run folder ever does this."""
    path = file.resolve()
    if path in LOADED:
        return
    if not path.is_file():
        raise UserError(f"--with is {str(file)!r}, which is not a file; name a Python file that registers something.")
    name = f"diamond_extension_{len(LOADED)}_{path.stem}"  # two files of one name may lie in two folders
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"--with is {str(file)!r}, which is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, UnicodeError) as error:
        raise UserError(f"--with is {str(file)!r}, which is not Python that can be read ({error}).") from None
    LOADED.append(path)
