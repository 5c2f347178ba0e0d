"""Named settings. A preset says where its numbers come from and, if they are ours, what differs and why."""

from diamond_attention.learning.ppo import PpoSettings
from diamond_attention.runs.settings import PolicySettings, Settings
from diamond_attention.worlds.smaclite.world import Smaclite
from diamond_attention.worlds.xor import Xor

PRESETS: dict[str, tuple[str, Settings]] = {
    "xor": (
        "The XOR game, our settings: larger batches and an annealed learning rate, so that sparse n=k=5 is "
        "learned too. Start here.",
        Settings(
            world=Xor(),
            policy=PolicySettings(),
            ppo=PpoSettings(
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
    "xor-demo": (
        "What `diamond demo` runs: rollouts as in the paper, half the width and twice the learning rate, so that "
        "two cores finish in minutes. Learns n=k=2 and n=k=3, not more.",
        Settings(
            world=Xor(),
            policy=PolicySettings(width=32),
            ppo=PpoSettings(envs=64, steps=2, batch=128, epochs=1, learning_rate=2e-4, anneal=True),
            total_steps=40_000,
            checkpoint_every=100,
        ),
    ),
    "xor-paper": (
        "The XOR game with the numbers of the paper's appendix (what it does not state is SB3's default).",
        Settings(
            world=Xor(),
            ppo=PpoSettings(
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
            ),
            total_steps=50_000,
            checkpoint_every=100,
        ),
    ),
    "smaclite": (
        "SMAClite's 2s3z with the numbers of the paper's appendix (what it does not state is SB3's default). "
        "Choose another map with --world.map.",
        Settings(
            world=Smaclite("2s3z"),
            agents="map",
            tasks="map",
            ppo=PpoSettings(
                envs=8,
                steps=160,
                batch=320,
                epochs=10,
                gamma=0.99,
                value_coefficient=0.5,
                entropy_coefficient=0.001,
                target_kl=0.25,
                max_grad_norm=10.0,
                learning_rate=1e-4,
                anneal=False,
                ratio="joint",
            ),
            total_steps=1_200_000,
            checkpoint_every=50,
        ),
    ),
    "smaclite-gpu": (
        "SMAClite's 2s3z in a large batch for a GPU, our settings: a thousand battles at once and each agent's own "
        "ratio.",
        Settings(
            world=Smaclite("2s3z"),
            agents="map",
            tasks="map",
            ppo=PpoSettings(
                # A thousand battles fill a GPU; 64 steps are half of one, so every update sees beginnings and ends.
                envs=1024,
                steps=64,
                batch=8192,
                epochs=4,
                learning_rate=5e-4,
                anneal=True,
                entropy_coefficient=0.003,
                # Five to thirty agents move the joint ratio out of its clip together long before any one of them
                # has moved far.
                ratio="agent",
                target_kl=0.05,
            ),
            total_steps=20_000_000,
            checkpoint_every=20,
        ),
    ),
}
