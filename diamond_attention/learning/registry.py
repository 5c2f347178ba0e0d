"""The methods of learning, by name. `--method` chooses one; another is one file and one line here."""

from diamond_attention.errors import UserError
from diamond_attention.learning.contract import Method
from diamond_attention.learning.ppo_method import PPO

METHODS: dict[str, Method] = {"ppo": PPO}

TAKEN = ("world", "agents", "tasks", "rank_hold", "policy", "method", "total_steps", "checkpoint_every")
"""A method's settings are a group of its name beside these in settings.json."""


def register_method(method: Method) -> None:
    """Makes a method of your own known, under the name its settings have."""
    name = method.settings.name
    if name in TAKEN:
        raise UserError(f"a method cannot be called {name!r}, which is a setting of every run; choose another name.")
    if METHODS.get(name, method) != method:
        raise UserError(f"there is already a method called {name!r}; choose another name.")
    METHODS[name] = method
