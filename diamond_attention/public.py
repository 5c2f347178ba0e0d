"""Every name that `from diamond_attention import …` gives. The package itself loads this file only when asked."""

from diamond_attention.actions import ActOrChooseTask, ChooseTask, Continuous
from diamond_attention.broadcast import Broadcast
from diamond_attention.build import build_policy
from diamond_attention.distributions.categorical import Categorical
from diamond_attention.distributions.gaussian import Gaussian
from diamond_attention.errors import UserError
from diamond_attention.evaluation.evaluate import evaluate
from diamond_attention.learning.contract import Learner, Method, MethodSettings
from diamond_attention.learning.finite import first_non_finite
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.learning.registry import METHODS, register_method
from diamond_attention.play import begin_episode, play_step
from diamond_attention.policies.contract import Acted, PerAgentPolicy, Policy
from diamond_attention.policies.diamond import DiamondPolicy
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.policies.kind import Described, Interface, PolicyKind
from diamond_attention.policies.registry import POLICIES, register_policy
from diamond_attention.ranges import Between, check_ranges
from diamond_attention.ranks import draw_ranks, hear_ranks
from diamond_attention.runs.bundle import export_policy, load_policy
from diamond_attention.runs.folder import find_runs, open_run
from diamond_attention.runs.presets import PRESETS, register_preset
from diamond_attention.runs.restore import load_run
from diamond_attention.runs.settings import Settings
from diamond_attention.runs.train import resume, train
from diamond_attention.view import AgentView, TeamView, as_each_viewer_lists
from diamond_attention.worlds.conformance import check_world
from diamond_attention.worlds.contract import Feature, Padding, Scoring, TeamSize, Transition, World
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.registry import WORLDS, register_world
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

PolicySettings = DiamondSettings
"""The name from when there was one kind of policy."""

__all__ = [
    "METHODS",
    "POLICIES",
    "PRESETS",
    "WORLDS",
    "ActOrChooseTask",
    "Acted",
    "AgentView",
    "Between",
    "Broadcast",
    "Categorical",
    "ChooseTask",
    "Continuous",
    "Described",
    "DiamondPolicy",
    "DiamondSettings",
    "Feature",
    "Food",
    "Gaussian",
    "Interface",
    "Learner",
    "Method",
    "MethodSettings",
    "Padding",
    "PerAgentPolicy",
    "Policy",
    "PolicyKind",
    "PolicySettings",
    "PpoSettings",
    "Scoring",
    "Settings",
    "Smaclite",
    "Spread",
    "TeamSize",
    "TeamView",
    "Transition",
    "UserError",
    "World",
    "Xor",
    "as_each_viewer_lists",
    "begin_episode",
    "build_policy",
    "check_ranges",
    "check_world",
    "draw_ranks",
    "evaluate",
    "export_policy",
    "find_runs",
    "first_non_finite",
    "hear_ranks",
    "load_policy",
    "load_run",
    "open_run",
    "play_step",
    "register_method",
    "register_policy",
    "register_preset",
    "register_world",
    "resume",
    "train",
]
