"""Compiles a preset's training program for an H200 without having one, and says what it would do there.

    pip install --no-deps jax-cuda12-pjrt jax-cuda12-plugin nvidia-cuda-nvcc-cu12     # of jax's own version
    python experiments/gpu_program.py spread-gpu [--seeds 1] [--method masac]
    python experiments/gpu_program.py 2s3z [--envs 8192] [--kernels]    # battles alone, as `diamond bench` has them

For every loop of the program that starts more than two kernels: how many a turn starts, the bytes they read and write
if nothing stays in the cache, and how long that takes at the memory's full bandwidth. That time is a floor: a program
that takes twice as long is bound by memory, one that takes ten times as long by something else. It is also the
quickest way to learn that XLA refuses a program on a GPU, which the CPU's tests cannot tell, and it names products
that XLA is known to get wrong. With `--kernels` battles are stepped as with DIAMOND_KERNELS=on, and Triton compiles
those kernels, too.
"""

import argparse
import os
import re
import time
from collections import Counter
from typing import Any, NamedTuple

BANDWIDTH = 4.8e12
"""Of the H200's memory, bytes a second."""

H200 = f"""
gpu_device_info {{
  threads_per_block_limit: 1024  threads_per_warp: 32
  shared_memory_per_block: 49152  shared_memory_per_core: 233472  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048  core_count: 132  fpus_per_core: 128
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  memory_bandwidth: {BANDWIDTH:.0f}  l2_cache_size: 52428800  device_memory_size: 150000000000
  clock_rate_ghz: 1.98  cuda_compute_capability {{ major: 9 minor: 0 }}
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "NVIDIA H200"
"""

BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "s64": 8, "u64": 8, "s32": 4, "u32": 4, "s8": 1, "u8": 1, "pred": 1}
NO_KERNEL = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "while", "after-all", "conditional"}
FEW_KERNELS = 2
"""A loop that starts no more of them gets no line."""


class Loop(NamedTuple):
    name: str
    kinds: Counter
    moved: int
    """Bytes read and written in one turn."""
    turns: str = "?"
    """How many the compiler knows of; a loop that ends when its data say so has no such number."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", help="a preset, or a map of SMAClite")
    parser.add_argument("--seeds", type=int, default=1, help="of a preset")
    parser.add_argument("--method", help="of a preset, instead of its own")
    parser.add_argument("--envs", type=int, default=8192, help="battles at once, of a map")
    parser.add_argument("--kernels", action="store_true", help="battles in kernels of our own")
    options = parser.parse_args()
    began = time.monotonic()
    if options.kernels:
        take_kernels()
    text, memory = compiled(options.what, options.seeds, options.envs, options.method)
    print(f"compiled in {time.monotonic() - began:.0f} s; {memory / 1e9:.1f} GB of device memory")
    print(f"{'kernels':>8} {'MB moved':>9} {'ms at least':>12} {'turns':>6}   one turn of")
    for loop in loops(text):
        kinds = ", ".join(f"{count} {kind}" for kind, count in loop.kinds.most_common(4))
        number, at_least = loop.kinds.total(), 1e3 * loop.moved / BANDWIDTH
        print(f"{number:>8} {loop.moved / 1e6:>9.0f} {at_least:>12.3f} {loop.turns:>6}   {loop.name} ({kinds})")
    for product in doubtful_products(text):
        print(f"DOUBTFUL: the batch of this product is not its first dimension: {product}")
    for what, number in starts(text).items():
        print(f"{number:,} kernels in one turn of {what}, with those of the loops inside it")


def take_kernels() -> None:
    """As if this machine had the GPU that is compiled for."""
    from diamond_attention.worlds.smaclite import battle_kernels, kernels

    kernels.are_used = lambda dtype: True
    battle_kernels.are_used_for = lambda scenario, correct_walls: True


def h200() -> Any:
    """Where a program for an H200 would put its arrays: give shapes this sharding, lower and compile."""
    import jax
    import nvidia.cuda_nvcc
    from jax.experimental import topologies

    # Before JAX is asked for a device, or it would look for a real one.
    jax.config.update("jax_platforms", "cpu")
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"

    flags = f"--xla_gpu_cuda_data_dir={next(iter(nvidia.cuda_nvcc.__path__))}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    chip = topologies.get_topology_desc("h200", "cuda", topology="1x1x1", target_config=H200).devices[0]
    return jax.sharding.SingleDeviceSharding(chip)


def compiled(what: str, seeds: int, envs: int, method: str | None = None) -> tuple[str, int]:
    """The optimised program as text, and the bytes of device memory it needs."""
    place = h200()
    import jax
    import jax.numpy as jnp

    from diamond_attention.bench.battles import random_battles
    from diamond_attention.bench.timing import program_bytes
    from diamond_attention.learning.seeds import advance_seeds, stack_seeds
    from diamond_attention.runs.assemble import begin_learning, build_learner, method_of
    from diamond_attention.runs.presets import PRESETS, with_method

    function: Any
    if what in PRESETS:
        settings = PRESETS[what][1] if method is None else with_method(PRESETS[what][1], method)
        function = advance_seeds(method_of(settings), build_learner(settings))
        arguments = (stack_seeds([begin_learning(settings, seed) for seed in range(seeds)]), jnp.asarray(1))
    else:
        function, battles = random_battles(what, envs)
        arguments = (battles, jax.random.key(0))
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), arguments)
    program = function.lower(*shapes).compile()
    return program.as_text(), program_bytes(program) or 0


def loops(text: str) -> list[Loop]:
    """The bodies of the program's loops, those that move most first."""
    bodies = computations(text)
    turns = dict(re.findall(r'body=%?([\w.\-]+).*?known_trip_count":\{"n":"(\d+)"', text))
    found = [
        loop_of(name, bodies[name])._replace(turns=turns.get(name, "?"))
        for name in set(re.findall(r"body=%?([\w.\-]+)", text))
    ]
    return sorted((loop for loop in found if loop.kinds.total() > FEW_KERNELS), key=lambda loop: -loop.moved)


def doubtful_products(text: str) -> list[str]:
    """Products of stacked matrices whose stack is not the first dimension of what is multiplied.

    XLA (jax 0.11.2) takes the stack for the first all the same when it works out where a matrix ends, and a GPU then
    multiplies other parts of memory. It comes of stacking two numbers of many and multiplying them by a matrix.
    """
    products = re.findall(r"^.*__cublas.*$", text, re.MULTILINE)
    first = re.compile(r'"(?:lhs|rhs)_batch_dimensions":\["(?!0")')
    return [line.split(", custom_call_target")[0].strip() for line in products if first.search(line)]


def computations(text: str) -> dict[str, list[str]]:
    """The program's parts by name, as lines; the whole begins in the one called `ENTRY`."""
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            lines = bodies[head.group(2)] = bodies["ENTRY" if head.group(1) else head.group(2)] = []
        else:
            lines.append(line)
    return bodies


def starts(text: str) -> dict[str, int]:
    """Of every loop that ends when its data say so: how many kernels a turn starts, all loops inside it gone through.

    A loop inside of which nobody knows the number of turns either is gone through once.
    """
    bodies = computations(text)

    def of(name: str) -> int:
        number = loop_of(name, bodies[name]).kinds.total()
        for body, turns in inner_loops(bodies[name]):
            number += of(body) * (turns or 1)
        return number

    return {body: of(body) for lines in bodies.values() for body, turns in inner_loops(lines) if turns is None}


def inner_loops(lines: list[str]) -> list[tuple[str, int | None]]:
    """The bodies of a part's loops, and how many turns are known of."""
    found = []
    for line in lines:
        body = re.search(r" while\(.*body=%?([\w.\-]+)", line)
        if body:
            turns = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            found.append((body.group(1), int(turns.group(1)) if turns else None))
    return found


def loop_of(name: str, lines: list[str]) -> Loop:
    shapes: dict[str, int] = {}
    kinds: Counter = Counter()
    moved = 0
    for line in lines:
        found = re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*?)\)", line)
        if not found:
            continue
        result, shape, kind, operands = found.groups()
        shapes[result] = size_of(shape)
        if kind not in NO_KERNEL:
            names = [operand.split()[-1].lstrip("%") for operand in operands.split(",") if operand.strip()]
            moved += shapes[result] + sum(shapes.get(operand, 0) for operand in names)
            named = {"__cublas": "matrix product", "xla.gpu.triton": "kernel of ours"}
            kinds[next((name for mark, name in named.items() if mark in line), kind)] += 1
    # Only a minibatch has gradients; a loop that holds others is shown without them.
    holds = "\n".join(lines)
    what = "a minibatch" if "transpose(jvp" in holds else name
    return Loop(what + (", its own loops apart" if " while(" in holds else ""), kinds, moved)


def size_of(shape: str) -> int:
    """Bytes of an array, or of all arrays of a tuple, as HLO writes them: f32[8,4]{1,0}."""
    total = 0
    for kind, sides in re.findall(r"\b(\w+)\[([\d,]*)\]", shape):
        size = BYTES.get(kind, 0)
        for side in sides.split(","):
            size *= int(side) if side else 1
        total += size
    return total


if __name__ == "__main__":
    main()
