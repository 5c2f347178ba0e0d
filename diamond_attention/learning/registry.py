"""The methods of learning, by name. `--method` chooses one; another is one file and one line here."""

from diamond_attention.errors import UserError
from diamond_attention.learning.contract import Method
from diamond_attention.learning.ppo_method import PPO

METHODS: dict[str, Method] = {"ppo": PPO}


def register_method(method: Method) -> None:
    """Makes a method of your own known, under the name its settings have."""
    name = method.settings.name
    if METHODS.get(name, method) != method:
        raise UserError(f"there is already a method called {name!r}; choose another name.")
    METHODS[name] = method
