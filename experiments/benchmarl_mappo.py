r"""MAPPO of BenchMARL on Simple Spread of VMAS: another implementation's result, to compare ours with.

    python benchmarl_mappo.py --frames 2400000 --seeds 1 2 3 --out benchmarl_mappo.json
    python benchmarl_mappo.py --model diamond --frames 400000 --envs 100 --passes 2 --gamma 0.95 --lmbda 0.95 \
        --width 32 --seeds 1 2 --out benchmarl_diamond.json

For each seed: train, then play fresh episodes with the most likely actions, and write one JSON row. The score is
R = (1/N) Σ_t r of an episode of 400 steps, where r is the reward that VMAS gives to all agents alike, as VMAS gives
it: it is scaled only in training. A frame is one step of one team.

Three things are not BenchMARL's defaults:

- What is learned from is scale · (r + offset). BenchMARL fits its critic to returns as they come, which are near −900
  here with discount 0.99, while its first guess is zero. With the offset, what random actions earn is near zero too.
  Without it, in episodes of 400 steps, R was worse after 240,000 frames than at the start.
- Training episodes are cut after 100 steps, as ours are. There are no walls, and the first policy may drift: one seed
  of two had R near −1700 from its first iteration on with 400 steps, and below −1100 after 240,000 frames still.
- A cut is not an end: what would follow is still in the critic's value. BenchMARL's environment marks the time limit
  as an end after which nothing is worth anything, which agents that see no clock cannot foresee.

With `--model diamond` the policy is Diamond Attention and every agent draws a rank each step. Peers are then not in
the observation, since the model hears them, and actions come from a normal distribution as everywhere here, so that
`--policy FOLDER` can save a bundle. The critic is the same. A row also has R of training episodes, sampled.

All teams are reset at once, so `--steps` should be `--cut`: else each iteration sees one part of the episode only.
"""

import argparse
import copy
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from benchmarl.algorithms import MappoConfig
from benchmarl.environments import VmasTask
from benchmarl.environments.vmas.common import VmasClass
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.common import ModelConfig
from benchmarl.models.mlp import MlpConfig
from tensordict import TensorDictBase
from torchrl.envs import Compose, EnvBase, RewardScaling, StepCounter, Transform, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from diamond_attention.torch.benchmarl import DiamondConfig, policies_of
from diamond_attention.torch.torchrl_ranks import DrawRanks

AGENTS = 4
EPISODE_STEPS = 400
WIDTHS = {"mlp": 256, "diamond": 64}
EVALUATION_SEED = 1_000_000  # Added to the seed of the training, so that episodes are new but can be played again.
PACKAGES = ("benchmarl", "vmas", "torchrl", "tensordict", "torch")


@dataclass(frozen=True)
class Settings:
    """What is written beside each result; the numbers not here are BenchMARL's defaults."""

    frames: int
    envs: int
    steps: int
    lr: float
    minibatch: int
    passes: int
    scale: float
    offset: float
    cut: int
    gamma: float
    lmbda: float
    entropy: float
    model: str
    width: int


class TrainingSpread(VmasClass):
    """Simple Spread with the rewards that are learned from, and episodes that are cut and not ended."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            VmasTask.SIMPLE_SPREAD.name,
            {"max_steps": None, "n_agents": AGENTS, "obs_agents": settings.model == "mlp"},
        )
        self.settings = settings

    def get_env_transforms(self, env: EnvBase) -> list[Transform]:
        scale, offset, cut = self.settings.scale, self.settings.offset, self.settings.cut
        learned_from = RewardScaling(loc=scale * offset, scale=scale, in_keys=[("agents", "reward")])
        return [learned_from, StepCounter(cut), *self.ranks()]

    def ranks(self) -> list[Transform]:
        return [] if self.settings.model == "mlp" else [DrawRanks()]


class Progress(Callback):
    """Prints R of the training episodes that were completed, with sampled actions; nan if none was."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.started = time.monotonic()
        self.curve: list[tuple[int, float]] = []

    def on_train_end(self, training_td: TensorDictBase, group: str) -> None:
        a_step = self.experiment.mean_return / self.settings.cut / self.settings.scale - self.settings.offset
        r = a_step * EPISODE_STEPS / AGENTS
        self.curve.append((self.experiment.total_frames, round(r, 1)))
        losses = {name: training_td[name].mean().item() for name in ("loss_critic", "entropy") if name in training_td}
        words = "  ".join(f"{name} {value:.3g}" for name, value in losses.items())
        seconds = time.monotonic() - self.started
        print(f"{self.experiment.total_frames:>9,} frames {seconds:6.0f} s  R {r:8.1f}  {words}", flush=True)


def experiment_of(settings: Settings, seed: int, folder: str) -> Experiment:
    config = ExperimentConfig.get_from_yaml()
    config.max_n_frames = settings.frames
    config.gamma = settings.gamma
    config.lr = settings.lr
    config.on_policy_n_envs_per_worker = settings.envs
    config.on_policy_collected_frames_per_batch = settings.envs * settings.steps
    config.on_policy_minibatch_size = settings.minibatch
    config.on_policy_n_minibatch_iters = settings.passes
    config.evaluation = config.render = config.create_json = False
    config.loggers = []
    config.save_folder = folder
    algorithm = MappoConfig.get_from_yaml()
    algorithm.lmbda = settings.lmbda
    algorithm.entropy_coef = settings.entropy
    cells = [WIDTHS["mlp"]] * 2 if settings.model == "diamond" else [settings.width] * 2
    layers = MlpConfig(num_cells=cells, activation_class=torch.nn.Tanh, layer_class=torch.nn.Linear)
    network: ModelConfig = layers
    if settings.model == "diamond":
        algorithm.use_tanh_normal, algorithm.scale_mapping = False, "exp"
        # Its own position and velocity, then each landmark relative to it.
        network = DiamondConfig(width=settings.width, task_columns=(4, 4 + 2 * AGENTS), task_features=2)
    return Experiment(
        task=TrainingSpread(settings),
        algorithm_config=algorithm,
        model_config=network,
        critic_model_config=copy.deepcopy(layers),
        seed=seed,
        config=config,
        callbacks=[Progress(settings)],
    )


@torch.no_grad()
def scores(experiment: Experiment, episodes: int, seed: int) -> list[float]:
    """R of each of so many fresh episodes, played with the most likely actions."""
    make = experiment.task.get_env_fun(num_envs=episodes, continuous_actions=True, seed=seed, device="cpu")
    # Without the transforms of training: VMAS's own rewards.
    world = TransformedEnv(make(), Compose(*experiment.task.ranks()))
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        played = world.rollout(EPISODE_STEPS, experiment.policy, break_when_any_done=False)
    rewards = played["next", "agents", "reward"].squeeze(-1)
    if rewards.shape != (episodes, EPISODE_STEPS, AGENTS) or not torch.equal(rewards[..., 0], rewards[..., -1]):
        raise RuntimeError(f"expected one reward for all agents at each step; got rewards {tuple(rewards.shape)}")
    return (rewards[..., 0].double().sum(dim=1) / AGENTS).tolist()


def row_of(settings: Settings, seed: int, episodes: int, folder_for_policy: Path | None) -> dict[str, Any]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        experiment = experiment_of(settings, seed, folder)
        before = scores(experiment, episodes, EVALUATION_SEED + seed)
        experiment.run()
    seconds = time.monotonic() - started
    if folder_for_policy is not None:
        policies_of(experiment)[0].save(folder_for_policy / f"seed_{seed}", like="spread")
    each = scores(experiment, episodes, EVALUATION_SEED + seed)
    return {
        "method": "MAPPO (BenchMARL)" if settings.model == "mlp" else "MAPPO (BenchMARL), Diamond Attention",
        "world": "VMAS simple_spread",
        "agents": AGENTS,
        "episode_steps": EPISODE_STEPS,
        "seed": seed,
        "frames": experiment.total_frames,
        "seconds": round(seconds, 1),
        "R": round(statistics.mean(each), 2),
        "R_sd": round(statistics.stdev(each), 2) if episodes > 1 else None,
        "episodes": episodes,
        "R_each": [round(r, 2) for r in each],
        "R_untrained": round(statistics.mean(before), 2),
        "R_sampled_by_frames": next(c.curve for c in experiment.callbacks if isinstance(c, Progress)),
        "settings": vars(settings),
        "versions": {package: version(package) for package in PACKAGES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frames", type=int, default=2_400_000, help="steps of teams to learn from")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--envs", type=int, default=120, help="teams that play side by side")
    parser.add_argument("--steps", type=int, default=100, help="steps of each team in an iteration")
    parser.add_argument("--lr", type=float, default=1e-3, help="Adam's step size")
    parser.add_argument("--minibatch", type=int, default=1000, help="frames in a minibatch")
    parser.add_argument("--passes", type=int, default=5, help="times that an iteration's frames are learned from")
    parser.add_argument("--scale", type=float, default=0.01, help="what rewards are multiplied by in training")
    parser.add_argument("--offset", type=float, default=9.0, help="what is added to rewards before that")
    parser.add_argument("--cut", type=int, default=100, help="steps after which training episodes are cut")
    parser.add_argument("--gamma", type=float, default=0.99, help="discount")
    parser.add_argument("--lmbda", type=float, default=0.9, help="of generalised advantage estimation")
    parser.add_argument("--entropy", type=float, default=0.0, help="reward for staying random")
    parser.add_argument("--model", choices=WIDTHS, default="mlp", help="of policy and critic")
    parser.add_argument("--width", type=int, help="of its layers; by default 256, of diamond 64")
    parser.add_argument("--policy", type=Path, metavar="FOLDER", help="where policies are saved, of --model diamond")
    parser.add_argument("--episodes", type=int, default=64, help="to evaluate on")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    options = parser.parse_args()
    options.width = options.width or WIDTHS[options.model]
    torch.set_num_threads(1)
    settings = Settings(**{name: getattr(options, name) for name in Settings.__dataclass_fields__})
    rows = []
    for seed in options.seeds:
        rows.append(row_of(settings, seed, options.episodes, options.policy))
        print(json.dumps(rows[-1]), flush=True)
        options.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
