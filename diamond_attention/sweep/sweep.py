"""`diamond sweep`: many trainings, what is done with them, and one table."""

import sys
from collections.abc import Sequence

from diamond_attention.command_options import SweepOptions
from diamond_attention.jobs.carry_out import Broken, carry_out, complain
from diamond_attention.jobs.contract import Step
from diamond_attention.jobs.places import check_place, place_for
from diamond_attention.runs.progress import choose_progress
from diamond_attention.runs.seeds import parse_seeds
from diamond_attention.sweep.combinations import Axis, combinations_of
from diamond_attention.sweep.plan import as_lines, plan, runs_in


def sweep(options: SweepOptions, axes: Sequence[Axis]) -> int:
    seeds = parse_seeds(options.seeds)
    combinations = combinations_of(options, axes)
    steps = list(plan(combinations, options, seeds))
    left = {step.group for step in steps if not step.done}
    if options.print:
        for line in as_lines(steps):
            print(line)
        return 0
    if left:
        check_place(options)
    number = len(combinations)
    print(
        f"{number} combination{'s' if number > 1 else ''} of {len(seeds)} seed(s), {len(left)} to do; "
        f"in {options.out}",
        flush=True,
    )
    broken: list[Broken] = []
    if left:
        with place_for(options, options.out) as place:
            broken = carry_out(steps, place, nothing_to_note, choose_progress(quiet=False), options.retries)
    # Drawing tables takes a second to import, and a plan needs none of it.
    from diamond_attention.sweep.table import show_table

    found = [(each, runs_in(options.out / each.name, each, seeds)) for each in combinations]
    show_table(found, options.out)
    failures = [run.failure for _, runs in found for run in runs if run.failure is not None]
    for failure in failures:
        print(f"failed, and not counted: {failure.get('sentence', '')}", file=sys.stderr)
    complain(broken)
    return 1 if failures else 0


def nothing_to_note(step: Step, seconds: float) -> None:
    """What was done is seen in its folder."""
