"""Named settings. A preset says where its numbers come from and, if they are ours, what differs and why."""

import dataclasses
from typing import Any

from diamond_attention.errors import UserError
from diamond_attention.learning.ppo_settings import PpoSettings
from diamond_attention.learning.registry import METHODS, settings_like
from diamond_attention.policies.commitments import CommitmentsSettings
from diamond_attention.policies.diamond_settings import DiamondSettings
from diamond_attention.runs.settings import Settings
from diamond_attention.worlds.dispatch import Dispatch
from diamond_attention.worlds.food import Food
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.spread import Spread
from diamond_attention.worlds.xor import Xor

# What the paper's three regimes share, with the sizes of the XOR game's rollouts.
PAPER = PpoSettings(
    envs=64,
    steps=2,
    batch=128,
    epochs=1,
    gamma=0.99,
    value_coefficient=0.5,
    entropy_coefficient=0.0,
    target_kl=0.25,
    max_grad_norm=10.0,
    learning_rate=1e-4,
    anneal=False,
    ratio="joint",
)

# Simple Spread and Food Collection. The appendix's numbers, and where it is silent:
#   normalise_values   rewards are in the hundreds an episode; a critic that must grow to that scale first learns late
#   anneal             worth a quarter of the reward on Simple Spread
PAPER_PARTICLES = dataclasses.replace(PAPER, steps=160, batch=1024, epochs=10, anneal=True, normalise_values=True)

# Ours. What made the difference while developing (single seeds, so anecdotes): R at N=4 after 16 M steps of Simple
# Spread with the rank mask, before the views said which row is the viewer's (with that: −57, two seeds).
#   gamma 0.95 instead of 0.99          −65 for −77: who takes which landmark is settled within some twenty steps
#   learning rate 1e-3 for 3e-4         −76 for −87
#   episodes cut at 100 steps for 400   −76 for −75, but −50 for −60 at N=2
# What made it worse: first actions with a deviation of 0.5 instead of 1 (spread-cpu: −60 for −54 while training).
# One epoch instead of two −71 for −63, and half the width −73 for −63, for 1.7 and 1.3 times the speed.
# And what made no difference: bfloat16 (−77 for −76), half the rollout length, the joint ratio, learning rate 2e-3.
FAST_PARTICLES = PpoSettings(
    envs=4096,
    steps=32,
    batch=8192,
    epochs=2,
    learning_rate=1e-3,
    anneal=True,
    gamma=0.95,
    target_kl=None,
    max_grad_norm=0.5,
    ratio="agent",
    precision="bfloat16",
    normalise_values=True,
    cut_after=100,
)

# Two cores: half the width (a quarter of the arithmetic), and smaller batches, since no device has to be filled.
SMALL_PARTICLES = dataclasses.replace(FAST_PARTICLES, envs=256, batch=1024, precision="float32")

# Food Collection is trained as Simple Spread is, with collisions five times as dear. Four agents rarely meet and have
# little reason to learn how to pass each other; eight meet often. R with 8 agents and 4 foods after 16 M steps, two
# seeds each, no mask, collisions counted 1, 3, 5 and 12 times: 101, 121, 143, 136; with 4 and 4: 7, 15, 11, 13.
CAUTIOUS_FOOD = Food(caution=5.0)

SPREAD_PAPER = Settings(
    world=Spread(), agents="4", method=PAPER_PARTICLES, total_steps=1_200_000, checkpoint_every=10
)
SPREAD_GPU = Settings(world=Spread(), agents="4", method=FAST_PARTICLES, total_steps=24_000_000, checkpoint_every=50)
SPREAD_CPU = Settings(
    world=Spread(),
    agents="4",
    policy=DiamondSettings(width=32),
    method=SMALL_PARTICLES,
    total_steps=2_500_000,
    checkpoint_every=20,
)

# Scattered starts are what makes a team fit for other battles. Every battle of a map begins alike, and a team that
# has seen only that one learns it by heart: 450,000 steps of 2s3z, three seeds each, then sampled play on the
# original starts of 2s3z and, never seen, 3s5z: 0.96 and 0.02 without jitter, 0.89 and 0.29 with
# (results/smaclite.csv). In half of the battles only, because a team that has seen only scattered starts plays the
# original one worse.
SMACLITE_GPU = Settings(
    world=Smaclite("2s3z", jitter=2.0, jitter_share=0.5),
    agents="map",
    tasks="map",
    method=PpoSettings(
        envs=512,
        steps=32,
        batch=2048,
        epochs=4,
        learning_rate=5e-4,
        anneal=True,
        entropy_coefficient=0.003,
        # Five to thirty agents move the joint ratio out of its clip together long before any one of them has moved
        # far.
        ratio="agent",
        target_kl=0.05,
        precision="bfloat16",
    ),
    total_steps=3_000_000,
    checkpoint_every=50,
)

DISPATCH = Settings(
    world=Dispatch(),
    agents="4",
    tasks="4",
    policy=DiamondSettings(width=32),
    method=PpoSettings(
        envs=512,
        steps=4,
        batch=512,
        epochs=2,
        learning_rate=1e-3,
        anneal=True,
        # What a wave leaves undone waits for the next one; nothing else carries over.
        gamma=0.5,
        entropy_coefficient=0.003,
        ratio="agent",
        normalise_values=True,
    ),
    total_steps=1_000_000,
    checkpoint_every=50,
)

# Small teams only, with more tasks than agents, as many, and fewer: what is learned there is played at any size, with
# 64 vehicles and jobs at 0.98 of the optimum. As many depots as vehicles; from one depot the same policy gets 0.999
# (five seeds, docs/commitments.md).
DISPATCH_COMMITMENTS = dataclasses.replace(
    DISPATCH,
    world=Dispatch(depots=6),
    agents="2:6",
    tasks="2:6",
    policy=CommitmentsSettings(),
    method=dataclasses.replace(DISPATCH.ppo, learning_rate=5e-3),
    total_steps=250_000,
)

PRESETS: dict[str, tuple[str, Settings]] = {
    "xor": (
        "The XOR game, our settings: larger batches and an annealed learning rate, so that sparse n=k=5 is "
        "learned too. Start here.",
        Settings(
            world=Xor(),
            policy=DiamondSettings(),
            method=PpoSettings(
                # One step a rollout: every XOR episode is one step long, so two would only halve the teams.
                # 512 teams instead of 64: at n=k=5 random play wins 4 % of games, and a gradient from five
                # wins a batch is noise.
                envs=512,
                steps=1,
                batch=512,
                epochs=1,
                learning_rate=1e-4,
                anneal=True,
            ),
            total_steps=153_600,
            checkpoint_every=50,
        ),
    ),
    "xor-commitments": (
        "The XOR game by commitments, trained with up to three players and four actions; play it with 64.",
        Settings(
            world=Xor(),
            agents="2:3",
            tasks="2:4",
            policy=CommitmentsSettings(),
            # A hundred times the learning rate of xor: what a claim is worth, one number, has far to go, and every
            # game in which two players collide is rarer than the one before.
            method=PpoSettings(envs=512, steps=1, batch=512, epochs=1, learning_rate=1e-2, anneal=True),
            total_steps=153_600,
            checkpoint_every=50,
        ),
    ),
    "xor-demo": (
        "What `diamond demo` runs: rollouts as in the paper, half the width and twice the learning rate, so that "
        "two cores finish in minutes. Learns n=k=2 and n=k=3, not more.",
        Settings(
            world=Xor(),
            policy=DiamondSettings(width=32),
            method=PpoSettings(envs=64, steps=2, batch=128, epochs=1, learning_rate=2e-4, anneal=True),
            total_steps=40_000,
            checkpoint_every=100,
        ),
    ),
    "xor-paper": (
        "The XOR game with the numbers of the paper's appendix (what it does not state is SB3's default).",
        Settings(
            world=Xor(),
            method=PAPER,
            total_steps=50_000,
            checkpoint_every=100,
        ),
    ),
    "spread": (
        "Simple Spread, trained at N=4, with the numbers of the paper's appendix; where it is silent, values are "
        "normalised and the learning rate annealed.",
        SPREAD_PAPER,
    ),
    "spread-gpu": (
        "Simple Spread, our settings, for a GPU: large batches, and twenty times the steps of the appendix.",
        SPREAD_GPU,
    ),
    "spread-cpu": (
        "Simple Spread, our settings, for two CPU cores: a good policy in minutes.",
        SPREAD_CPU,
    ),
    "food": (
        "Food Collection, trained with 4 agents and 4 foods, with the numbers of the paper's appendix; where it is "
        "silent, values are normalised and the learning rate annealed.",
        dataclasses.replace(
            SPREAD_PAPER, world=Food(), method=dataclasses.replace(PAPER_PARTICLES, entropy_coefficient=0.001)
        ),
    ),
    "food-gpu": (
        "Food Collection, our settings, for a GPU.",
        dataclasses.replace(SPREAD_GPU, world=CAUTIOUS_FOOD),
    ),
    "food-cpu": (
        "Food Collection, our settings, for two CPU cores.",
        dataclasses.replace(SPREAD_CPU, world=CAUTIOUS_FOOD),
    ),
    "dispatch": (
        "Dispatch: four vehicles at one depot choose among four jobs, all at once; for two CPU cores. Other "
        "symmetries with --world.depots.",
        DISPATCH,
    ),
    "dispatch-commitments": (
        "Dispatch by commitments, trained with two to six vehicles and jobs, for two CPU cores; play it with 64.",
        DISPATCH_COMMITMENTS,
    ),
    "smaclite": (
        "SMAClite's 2s3z with the numbers of the paper's appendix (what it does not state is SB3's default). "
        "Choose another map with --world.map.",
        Settings(
            world=Smaclite("2s3z"),
            agents="map",
            tasks="map",
            method=dataclasses.replace(PAPER, envs=8, steps=160, batch=320, epochs=10, entropy_coefficient=0.001),
            total_steps=1_200_000,
            checkpoint_every=50,
        ),
    ),
    "smaclite-gpu": (
        "SMAClite's 2s3z for a GPU, our settings: many battles at once, scattered starts, each agent's own ratio.",
        SMACLITE_GPU,
    ),
    "smaclite-cpu": (
        "SMAClite's 2s3z for two CPU cores, our settings: half the width and small batches.",
        dataclasses.replace(
            SMACLITE_GPU,
            policy=DiamondSettings(width=32),
            method=dataclasses.replace(SMACLITE_GPU.ppo, envs=64, batch=512, precision="float32"),
            total_steps=900_000,
            checkpoint_every=100,
        ),
    ),
}


def register_preset(name: str, description: str, settings: Settings) -> None:
    """Makes settings of your own known as a preset: `diamond train NAME --with FILE.py`."""
    if PRESETS.get(name, (description, settings)) != (description, settings):
        raise UserError(f"there is already a preset called {name!r}; choose another name.")
    PRESETS[name] = (description, settings)


# --- Other methods --------------------------------------------------------------------------------

# One choice and its reward: nothing comes after it, so slow copies may follow fast, and little need be kept.
ONE_STEP: dict[str, Any] = {
    **{"envs": 512, "gradient_steps": 4, "batch": 512, "replay": 16_384, "warmup": 2048},
    **{"learning_rate": 1e-3, "tau": 0.02},
}
# Chosen at three agents (results/baseline_tuning.csv). As our PPO: a short horizon, and episodes cut at 100 steps.
# QMIX and MASAC score best at 1e-2 there, after 4 M steps; within 24 M steps of four agents they broke at that rate.
PARTICLES: dict[str, Any] = {
    **{"envs": 512, "steps": 8, "gradient_steps": 24, "batch": 1024, "replay": 262_144, "warmup": 16_384},
    **{"learning_rate": 3e-3, "anneal": True, "gamma": 0.95, "cut_after": 100},
}
SOFT_PARTICLES: dict[str, Any] = {**PARTICLES, "reward_scale": 0.1, "alpha_learning_rate": 1e-3}
# Actors of a few thousand numbers bear a higher rate.
GSA_PARTICLES: dict[str, Any] = {**SOFT_PARTICLES, "learning_rate": 1e-2}
PH_MARL_PARTICLES: dict[str, Any] = {**GSA_PARTICLES, "tau": 0.02}
# Chosen on 2s3z from scattered starts.
QMIX_SMACLITE: dict[str, Any] = {
    **{"envs": 64, "steps": 8, "gradient_steps": 16, "batch": 512, "replay": 131_072, "warmup": 8192},
    **{"learning_rate": 3e-4, "anneal": True, "reward_scale": 0.1},
}

CHOSEN: dict[str, dict[str, dict[str, Any]]] = {
    "qmix": {"xor": ONE_STEP, "spread": PARTICLES, "food": PARTICLES, "smaclite": QMIX_SMACLITE},
    "masac": {"xor": ONE_STEP, "spread": SOFT_PARTICLES, "food": SOFT_PARTICLES},
    "gsa": {"xor": ONE_STEP, "spread": GSA_PARTICLES, "food": GSA_PARTICLES},
    "ph-marl": {"xor": ONE_STEP, "spread": PH_MARL_PARTICLES, "food": PH_MARL_PARTICLES},
}
"""Method -> world -> the numbers that off-policy methods begin with there; no preset has any for them."""


def with_method(settings: Settings, name: str) -> Settings:
    """The same run by another method, with that one's own policy.

    Its numbers are those chosen for it in this world; else its defaults or, of a relative such as MAPPO of PPO, the
    numbers of these settings.
    """
    method = METHODS[name]
    numbers = CHOSEN.get(name, {}).get(settings.world.name)
    chosen = settings_like(method, settings.method) if numbers is None else method.settings(**numbers)
    return dataclasses.replace(settings, method=chosen, policy=method.policy)
