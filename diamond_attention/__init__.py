"""Diamond Attention: structured randomness for teams of identical agents.

    from diamond_attention import load_policy, Spread, TeamSize …

See README.md for ten lines that load a trained policy and let a team act. The names are those of `public.py`, which
is loaded when the first of them is asked for: it needs JAX, and who imports `diamond_attention.deploy` may have none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diamond_attention.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """A public name, or a module of the package."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _module(name)
    if module is not None:
        return module
    public = _module("public")
    if public is None:
        raise ImportError(
            f"{__name__}.{name} is not part of the install for robots, which holds {__name__}.deploy alone; "
            "install diamond-attention in its place."
        )
    return getattr(public, name)


def _module(name: str) -> Any:
    """None where the package has no such module."""
    whole = f"{__name__}.{name}"
    try:
        return import_module(whole)
    except ModuleNotFoundError as error:
        if error.name != whole:
            raise
        return None


def __dir__() -> list[str]:
    return sorted({*globals(), *_module("public").__all__})
