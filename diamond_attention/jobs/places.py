"""Places by the names that `--on` takes. A new one is a file of its own and one entry here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from diamond_attention.command_options import JobOptions
from diamond_attention.jobs.contract import Place
from diamond_attention.jobs.here import Here
from diamond_attention.jobs.ray_cluster import RayCluster, check_ray


class Kind(NamedTuple):
    """Of places."""

    check: Callable[[], None]
    """Raises UserError if there is none."""
    make: Callable[[JobOptions, Path], Place]


PLACES = {
    "here": Kind(lambda: None, lambda options, out: Here(options.jobs or 1)),
    "ray": Kind(check_ray, lambda options, out: RayCluster(out, options.cpus, options.gpus, options.jobs)),
}


def check_place(options: JobOptions) -> None:
    """Raises UserError if nothing could be run where it is to run; asked before a long plan is made."""
    PLACES[options.on].check()


@contextmanager
def place_for(options: JobOptions, out: Path) -> Iterator[Place]:
    """Where the commands of a plan go, for as long as they need it."""
    place = PLACES[options.on].make(options, out)
    try:
        yield place
    finally:
        place.close()
