"""How far a seed that four devices share is from the same seed on one: `python experiments/device_differences.py`.

Small networks, three updates, the CPU counted as four devices. Sums are taken in another order there, and no more;
what that becomes depends on the method, so beside it stands what another compilation of the same program does on one
device. Writes results/device_differences.csv, a row for each update.
"""

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
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
TRAININGS = [*(("xor", method) for method in LEARNED), ("spread", "ppo"), ("spread", "ph-marl")]
COMPILED_AGAIN = TRAININGS[-2:]
"""The steepest, and one to compare it with."""


def learn(devices: int, trainings: Iterable[tuple[str, str]], folder: str) -> None:
    """In a process of its own: every array of the learner after each update, in a file for each training."""
    import jax

    from diamond_attention.command_words import parse_train
    from diamond_attention.runs.arrays import named_arrays
    from diamond_attention.runs.assemble import begin_learning, build_learner, method_of
    from diamond_attention.runs.learners import Learners

    for preset, method in trainings:
        settings = parse_train(preset, ["--method", method, *LEARNED[method].format(method).split()]).settings
        used = jax.devices("cpu")[:devices] if devices > 1 else ()
        learners = Learners(method_of(settings), build_learner(settings), [begin_learning(settings, 0)], used)
        arrays = {}
        for update in range(1, UPDATES + 1):
            learners.advance(1)
            arrays |= named_arrays(learners.states()[0], f"{update}.")
        np.savez(Path(folder) / f"{preset} {method}.npz", **arrays)
        print(f"{preset} {method} on {devices} device(s)", flush=True)
        jax.clear_caches()


def learned(devices: int, trainings: Sequence[tuple[str, str]], flags: str) -> dict[tuple[str, str], Arrays]:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, str(devices), folder, *(" ".join(each) for each in trainings)]
        subprocess.run(words, env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}, check=True)
        found = {}
        for preset, method in trainings:
            with np.load(Path(folder) / f"{preset} {method}.npz") as arrays:
                found[preset, method] = dict(arrays)
        return found


def difference(one: Arrays, other: Arrays, update: int) -> dict[str, object]:
    names = [name for name in one if name.startswith(f"{update}.")]
    floats = [name for name in names if np.issubdtype(one[name].dtype, np.floating)]
    largest = max(float(np.max(np.abs(one[name] - other[name]), initial=0)) for name in floats)
    same = all(np.array_equal(one[name], other[name]) for name in names if name not in floats)
    return {"largest_difference": f"{largest:.1e}", "whole_numbers": "equal" if same else "differ"}


def main() -> None:
    from diamond_attention.runs.environment import describe_environment

    ran_on, rows = describe_environment(), []
    alone = learned(1, TRAININGS, FOUR + QUICK)
    others = {
        "four devices": learned(4, TRAININGS, FOUR + QUICK),
        "one device, compiled otherwise": learned(1, COMPILED_AGAIN, FOUR),
    }
    for what, found in others.items():
        for (preset, method), arrays in found.items():
            for update in range(1, UPDATES + 1):
                row = {"preset": preset, "method": method, "what": what, "update": update}
                row |= difference(alone[preset, method], arrays, update)
                rows.append({**row, "jax": ran_on["versions"]["jax"], "commit": ran_on["commit"]})
                print(rows[-1], flush=True)
    with (RESULTS / "device_differences.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        learn(int(sys.argv[1]), [tuple(each.split()) for each in sys.argv[3:]], sys.argv[2])
    else:
        main()
