"""The methods of learning, by name. `--method` chooses one; another is one file and one line here."""

from dataclasses import fields
from inspect import get_annotations
from typing import Any

from diamond_attention.errors import UserError
from diamond_attention.learning.contract import Method, MethodSettings
from diamond_attention.learning.ippo import IPPO
from diamond_attention.learning.mappo import MAPPO
from diamond_attention.learning.masac import MASAC
from diamond_attention.learning.mat import MAT
from diamond_attention.learning.ph_marl import GSA, PH_MARL
from diamond_attention.learning.ppo_method import PPO
from diamond_attention.learning.qmix import QMIX

METHODS: dict[str, Method] = {
    "ppo": PPO,
    "mappo": MAPPO,
    "ippo": IPPO,
    "mat": MAT,
    "qmix": QMIX,
    "masac": MASAC,
    "gsa": GSA,
    "ph-marl": PH_MARL,
}

TAKEN = ("world", "agents", "tasks", "rank_hold", "policy", "method", "total_steps", "checkpoint_every")
"""A method's settings are a group of its name beside these in settings.json."""


def settings_like(method: Method, other: MethodSettings) -> Any:
    """A method's settings; of a relative, such as MAPPO of PPO, with the other's numbers for all it does not say."""
    kind: Any = method.settings
    own = {name for each in kind.__mro__[:-1] if not isinstance(other, each) for name in get_annotations(each)}
    shared = {field.name for field in fields(kind)} - own
    return kind(**{name: getattr(other, name) for name in shared if hasattr(other, name)})


def register_method(method: Method) -> None:
    """Makes a method of your own known, under the name its settings have."""
    name = method.settings.name
    if name in TAKEN:
        raise UserError(f"a method cannot be called {name!r}, which is a setting of every run; choose another name.")
    if METHODS.get(name, method) != method:
        raise UserError(f"there is already a method called {name!r}; choose another name.")
    METHODS[name] = method
