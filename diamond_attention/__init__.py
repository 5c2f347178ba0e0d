"""Diamond Attention: structured randomness for teams of identical agents.

    from diamond_attention import build_policy, Xor, TeamSize …

See README.md for ten lines that build a policy, call it on one view and step a world.
"""

from diamond_attention.actions import ActOrChooseTask, ChooseTask, Continuous
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.runs.assemble import build_policy
from diamond_attention.runs.presets import PRESETS
from diamond_attention.runs.record import find_runs, open_run
from diamond_attention.runs.settings import PolicySettings, Settings
from diamond_attention.runs.train import export_policy, load_policy, load_run, resume, train
from diamond_attention.view import AgentView, TeamView
from diamond_attention.worlds.conformance import check_world
from diamond_attention.worlds.contract import TeamSize, Transition, World
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

__all__ = [
    "PRESETS",
    "ActOrChooseTask",
    "AgentView",
    "ChooseTask",
    "Continuous",
    "DiamondPolicy",
    "Food",
    "PolicySettings",
    "Settings",
    "Smaclite",
    "Spread",
    "TeamSize",
    "TeamView",
    "Transition",
    "UserError",
    "World",
    "Xor",
    "build_policy",
    "check_world",
    "evaluate",
    "export_policy",
    "find_runs",
    "load_policy",
    "load_run",
    "open_run",
    "resume",
    "train",
]
