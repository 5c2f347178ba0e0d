"""How far a seed that four devices share is from the same seed on one: `python experiments/device_differences.py`.

Small networks, three updates, the CPU counted as four devices; the largest difference of any weight. Sums are taken
in another order there, and no more. What that becomes depends on the method, so beside the steepest stands what
another compilation of the same program does on one device. Writes results/device_differences.csv, a row an update.
"""

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parents[1] / "results"
UPDATES = 3
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
"""Programs that compile quickly, as the tests have them; XLA's own choice is the other compilation."""
FOUR = "--xla_force_host_platform_device_count=4 "
ON_POLICY = "--{0}.envs 6 --{0}.steps 4 --{0}.batch 12"
OFF_POLICY = "--{0}.envs 6 --{0}.steps 2 --{0}.warmup 12 --{0}.batch 10 --{0}.replay 48 --{0}.gradient-steps 2"
LEARNED = {
    **dict.fromkeys(("ppo", "mappo", "ippo", "mat"), f"{ON_POLICY} --total-steps 72"),
    **dict.fromkeys(("qmix", "masac", "gsa", "ph-marl"), f"{OFF_POLICY} --total-steps 36"),
}
"""Six teams, which four devices cannot share evenly, and minibatches likewise."""
Arrays = dict[str, np.ndarray]
TRAININGS = [("spread", "ph-marl"), ("spread", "ppo"), *(("xor", method) for method in LEARNED)]
COMPILED_AGAIN = TRAININGS[:2]
"""The steepest, and one to compare it with."""


def learn(preset: str, method: str, devices: str, file: str) -> None:
    """In a process of its own: every array of the learner after each update, by the number of devices."""
    import jax

    from diamond_attention.command_words import parse_train
    from diamond_attention.runs.arrays import named_arrays
    from diamond_attention.runs.assemble import begin_learning, build_learner, method_of
    from diamond_attention.runs.learners import Learners

    settings = parse_train(preset, ["--method", method, *LEARNED[method].format(method).split()]).settings
    arrays = {}
    for number in map(int, devices.split(",")):
        used = jax.devices("cpu")[:number] if number > 1 else ()
        learners = Learners(method_of(settings), build_learner(settings), [begin_learning(settings, 0)], used)
        for update in range(1, UPDATES + 1):
            learners.advance(1)
            now = named_arrays(learners.states()[0], f"{number} {update} ")
            arrays |= {name: np.array(value) for name, value in now.items()}  # the next update writes where these are
    np.savez(file, **arrays)


def learned(preset: str, method: str, devices: str, flags: str) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "arrays.npz")
        words = [sys.executable, __file__, preset, method, devices, file]
        subprocess.run(words, env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}, check=True)
        with np.load(file) as arrays:
            return dict(arrays)


def difference(one: Arrays, other: Arrays, devices: int, update: int) -> str:
    """The largest of any weight, of one device's from those of so many."""
    start = f"1 {update} weights."
    names = [name.removeprefix(start) for name in one if name.startswith(start)]
    return (
        f"{max(float(np.max(np.abs(one[start + n] - other[f'{devices} {update} weights.{n}']))) for n in names):.1e}"
    )


def main() -> None:
    from diamond_attention.runs.environment import describe_environment

    ran_on, rows = describe_environment(), []
    for preset, method in TRAININGS:
        arrays = learned(preset, method, "1,4", FOUR + QUICK)
        others = [("four devices", arrays, 4)]
        if (preset, method) in COMPILED_AGAIN:
            others.append(("one device, compiled otherwise", learned(preset, method, "1", FOUR), 1))
        for what, other, devices in others:
            for update in range(1, UPDATES + 1):
                row = {"preset": preset, "method": method, "what": what, "update": update}
                row["largest_difference"] = difference(arrays, other, devices, update)
                rows.append({**row, "jax": ran_on["versions"]["jax"], "commit": ran_on["commit"]})
                print(rows[-1], flush=True)
        with (RESULTS / "device_differences.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        learn(*sys.argv[1:])
    else:
        main()
