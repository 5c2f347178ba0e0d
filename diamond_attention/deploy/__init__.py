"""A trained policy without JAX: numpy alone, for a robot or any other program that decides.

    from diamond_attention.deploy import Agent, spread_view

    agent = Agent.load("spread")
    action = agent.decide(spread_view(…))

docs/deploy.md goes from a trained run to a decision on a robot. Nothing here imports JAX or a simulator, and nothing
is read but the policy bundle.
"""

from diamond_attention.deploy.agent import Agent
from diamond_attention.deploy.view import View
from diamond_attention.deploy.views import (
    Unit,
    dispatch_view,
    food_view,
    next_velocity,
    smaclite_view,
    spread_view,
    xor_view,
)
from diamond_attention.errors import UserError

__all__ = [
    "Agent",
    "Unit",
    "UserError",
    "View",
    "dispatch_view",
    "food_view",
    "next_velocity",
    "smaclite_view",
    "spread_view",
    "xor_view",
]
