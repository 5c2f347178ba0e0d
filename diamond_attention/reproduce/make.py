"""Does what a plan says, and gathers what came of it, here and on other machines."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from diamond_attention.command_options import ReproduceOptions
from diamond_attention.errors import UserError
from diamond_attention.jobs.carry_out import carry_out, complain
from diamond_attention.jobs.contract import Step
from diamond_attention.jobs.places import place_for
from diamond_attention.reproduce.entries import Group, Wanted
from diamond_attention.reproduce.plan import Scale, note_played, runs_in
from diamond_attention.runs.folder import Run
from diamond_attention.runs.progress import choose_progress
from diamond_attention.runs.rows import append_rows


def matching(wanted: Sequence[Wanted], only: Sequence[str]) -> list[Wanted]:
    """Those whose group's name matches one of the patterns; all where there is none."""
    return [each for each in wanted if not only or any(fnmatch(each.group.name, one) for one in only)]


def check_patterns(wanted: Sequence[Wanted], only: Sequence[str]) -> None:
    for pattern in only:
        if not matching(wanted, [pattern]):
            names = ", ".join(each.group.name for each in wanted[:3])
            raise UserError(f"--only is {pattern!r}, which matches no group; there are {names} …")


# --- Doing ----------------------------------------------------------------------------------------


def do(steps: Sequence[Step], options: ReproduceOptions) -> None:
    """Every command that is not done, side by side, here or on a cluster."""
    if all(step.done for step in steps):
        return
    with place_for(options, options.out) as place:
        note = partial(note_ended, options.out, options.scale)
        broken = carry_out(steps, place, note, choose_progress(quiet=False), options.retries)
    complain(broken)


def note_ended(out: Path, scale: Scale, step: Step, seconds: float) -> None:
    """Notes that a step did what it was for, and how long it took."""
    if step.words[0] == "evaluate":
        note_played(out / step.group, step.words)
    append_rows(out / "times.csv", [{"scale": scale, "what": step.what, "seconds": round(seconds, 1)}])


# --- Gathering ------------------------------------------------------------------------------------


def gather(group: Group, roots: Sequence[Path], scale: Scale) -> list[Run]:
    """The runs of a group in all folders, each seed once."""
    found: dict[int, Run] = {}
    for root in roots:
        for run in runs_in(root / group.name, group, scale):
            if run.seed in found:
                raise UserError(
                    f"seed {run.seed} of {group.name} is in {found[run.seed].path.parent} and in "
                    f"{run.path.parent}; leave one of the folders out."
                )
            found[run.seed] = run
    return [found[seed] for seed in sorted(found)]


def missing_seeds(group: Group, runs: Sequence[Run]) -> Iterator[int]:
    """Of a full table."""
    there = {run.seed for run in runs}
    return (seed for seed in range(group.seeds) if seed not in there)
