"""Several devices: seeds lie side by side on them and, where seeds are fewer, so do the teams of each seed.

A part is some of the seeds and the devices that train them. Parts hear nothing of each other: a part of one device
runs the very program that this device alone would run with those seeds. The devices of a larger part share its teams
and minibatches, as far as the method says so (`Learner.share`), and XLA adds what they must tell each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from diamond_attention.learning.contract import Learner, LearnerState

ENV = "env"


class Part(NamedTuple):
    first: int
    """Place of its first seed among all."""
    seeds: int
    devices: tuple[jax.Device, ...]

    @property
    def places(self) -> range:
        return range(self.first, self.first + self.seeds)

    @property
    def processes(self) -> list[int]:
        return sorted({device.process_index for device in self.devices})


def parts_of(seeds: int, devices: Sequence[Any]) -> list[Part]:
    """Seeds first: a device each, or several seeds; of seeds fewer than devices, each has as many devices.

    >>> [(part.seeds, len(part.devices)) for part in parts_of(5, range(4))]
    [(2, 1), (1, 1), (1, 1), (1, 1)]
    >>> [(part.seeds, part.devices) for part in parts_of(2, range(5))]
    [(1, (0, 1)), (1, (2, 3))]
    """
    number = min(seeds, len(devices))
    each = len(devices) // number
    split = np.array_split(np.arange(seeds), number)
    return [Part(int(own[0]), len(own), tuple(devices[i * each : (i + 1) * each])) for i, own in enumerate(split)]


@dataclass(frozen=True)
class _Laid:
    """A batch, however many rows it has, as several devices hold it. A value, so that equal learners stay equal."""

    over: NamedSharding

    def __call__(self, batch: Any) -> Any:
        return jax.lax.with_sharding_constraint(batch, self.over)


def shared_by(learner: Learner, devices: Sequence[jax.Device]) -> Learner:
    """The same learner where these devices share its batches."""
    each_its_rows = NamedSharding(_mesh(devices), PartitionSpec(ENV))
    return learner._replace(share=_Laid(each_its_rows), whole=_Laid(all_on(devices)))


def all_on(devices: Sequence[jax.Device]) -> NamedSharding:
    """Every device has all of it."""
    return NamedSharding(_mesh(devices), PartitionSpec())


def _mesh(devices: Sequence[jax.Device]) -> Mesh:
    return Mesh(np.array(devices), (ENV,))


def place(stacked: LearnerState, devices: Sequence[jax.Device]) -> LearnerState:
    """Arrays of the host on those devices, or on the one that JAX computes on; of other processes' devices not."""
    if len(devices) < 2:
        return jax.device_put(stacked, *devices)
    everywhere = all_on(devices)
    return jax.tree.map(
        lambda array: jax.make_array_from_callback(array.shape, everywhere, lambda part: array[part]), stacked
    )
