"""`diamond reproduce`: a plan, what it does, and what is written of it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from diamond_attention.command_options import ReproduceOptions
from diamond_attention.errors import UserError
from diamond_attention.jobs.places import check_place
from diamond_attention.reproduce.entries import ENTRIES, Wanted
from diamond_attention.reproduce.make import check_patterns, do, matching
from diamond_attention.reproduce.packed import unpack
from diamond_attention.reproduce.plan import chosen, described, plan
from diamond_attention.runs.seeds import parse_seeds


def reproduce(options: ReproduceOptions) -> int:
    entries = ENTRIES if options.entry == "all" else {options.entry: ENTRIES[options.entry]}
    check_patterns([each for entry in entries.values() for each in entry.wanted], options.only)
    for source in options.merge:
        if not source.exists():
            raise UserError(f"--merge is {source}, which is not there; name a folder, or a file of packed runs.")
    made: dict[str, list[Wanted]] = {}
    for name, entry in entries.items():
        wanted = matching(entry.wanted, options.only) if options.only else chosen(entry.wanted, options.scale)
        if wanted or (entry.commands and not options.only):
            made[name] = wanted
    seeds = parse_seeds(options.seeds) if options.seeds else ()
    if not options.redraw:
        if not options.dry_run:
            check_place(options)
        every = (
            step
            for name, wanted in made.items()
            for step in plan(entries[name], wanted, options.scale, seeds, options.out)
        )
        steps = list(dict.fromkeys(every))  # entries share groups
        if options.dry_run:
            print("\n".join(described(steps, options.scale)))
            return 0
        do(steps, options)
    write(options, made)
    return 0


def write(options: ReproduceOptions, made: dict[str, list[Wanted]]) -> None:
    """The pages of all entries, and the report."""
    # Drawing takes seconds to import, and a plan needs none of it.
    from diamond_attention.reproduce.pages import write_entry
    from diamond_attention.reproduce.report import write_report

    with TemporaryDirectory() as unpacked:
        roots = [options.out]
        for number, source in enumerate(options.merge):
            if source.is_file():
                unpack(source, Path(unpacked) / str(number))
                roots.append(Path(unpacked) / str(number))
            else:
                roots.append(source)
        for name, wanted in made.items():
            print(f"wrote {write_entry(name, ENTRIES[name], wanted, roots, options.scale)}")
    report = write_report(options.out)
    if report is not None:
        print(f"wrote {report}")
