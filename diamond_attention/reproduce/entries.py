"""What every table and figure of the paper needs: which settings, how many seeds, how they are played. One list."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from diamond_attention.errors import UserError
from diamond_attention.jobs.contract import Words
from diamond_attention.policies.diamond_settings import MASKS

# --- What an entry is -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Seeds of one setting, trained together. Entries may share one: it is trained once."""

    name: str
    train: Words
    """What `diamond train` is told: a preset, then options."""
    seeds: int
    """In full; fewer than these are shown as missing."""


@dataclass(frozen=True)
class Wanted:
    """A group, and how an entry has it played."""

    group: Group
    plays: tuple[Words, ...]
    """What `diamond evaluate` is told, one evaluation each; the last two words are how many episodes."""
    row: str = ""
    """The line of the table that it stands in; by default one of its own."""
    quick: bool = True
    """Whether a quick table has it too."""

    @property
    def line(self) -> str:
        return self.row or self.group.name


Figure = Literal["team_size", "heatmap", "faults", "depots"]


@dataclass(frozen=True)
class Entry:
    """A table or figure of the paper, or one beyond it."""

    title: str
    wanted: tuple[Wanted, ...] = ()
    table: Literal["played", "trained and played", "by fault"] | None = "played"
    """What its columns are; "by fault": groups, with a line for each fault of the broadcast. None: a figure alone."""
    figure: Figure | None = None
    commands: tuple[Words, ...] = ()
    """Other commands. Each writes what it makes where its last word says, below the folder of everything; {device} is
    gpu in full and cpu otherwise."""


# --- XOR ------------------------------------------------------------------------------------------

OURS: dict[str, Words] = {
    "rank": ("--policy.mask", "rank"),
    "none": ("--policy.mask", "none"),
    "dropout": ("--policy.mask", "dropout"),
}
COMPARED_MASKS = ("rank", "floor", "none")
"""The paper's, the one of ours that blinds nobody, and none."""
XOR_BASELINES: dict[str, Words] = {
    "mappo": (),
    "ippo": (),
    # Published for its particle worlds. With the preset's own numbers it stays at chance on some seeds.
    "mat": ("--mat.learning-rate", "7e-4", "--mat.entropy-coefficient", "0.01"),
    "qmix": (),
    "masac": (),
    "gsa": (),
    "ph-marl": (),
}
XOR_SIZES = ((2, 2), (2, 3), (3, 3))


def both_ways(mask: str, play: Words) -> tuple[Words, ...]:
    """Dropout is played on and off: the paper does not say which."""
    return tuple(("--dropout", way, *play) for way in ("on", "off")) if mask == "dropout" else (play,)


def table_1() -> Iterator[Wanted]:
    for preset in ("xor-paper", "xor"):
        for key, options in (OURS | XOR_BASELINES).items():
            method = () if key in OURS else ("--method", key)
            for n, k in XOR_SIZES:
                size = ("--players", str(n), "--actions", str(k))
                group = Group(f"{preset}_{key}_{n}x{k}", (preset, *size, *method, *options), seeds=10)
                # Trained with two players and three actions, played with three of each: the paper's middle column.
                play = ("--players", str(k), "--episodes", "1000")
                quick = preset == "xor" and (n == k == 2 or key in ("rank", "none"))
                yield Wanted(group, both_ways(key, play), row=f"{preset}_{key}", quick=quick)


def other_masks() -> Iterator[Wanted]:
    """The masks of ours that blind nobody must still solve the game."""
    for mask in ("signed", "floor", "first", "split"):
        for n in (2, 3, 5):
            words = ("xor", "--players", str(n), "--actions", str(n), "--policy.mask", mask)
            play = ("--players", str(n), "--episodes", "1000")
            yield Wanted(Group(f"xor_{mask}_{n}x{n}", words, seeds=5), (play,), row=f"xor_{mask}", quick=n == 2)


def large_xor() -> Iterator[Wanted]:
    shaped = ("--world.shaped", "--total-steps")
    for n, options in ((5, ()), (8, (*shaped, "409600")), (12, (*shaped, "1024000"))):
        words = ("xor", "--players", str(n), "--actions", str(n), "--policy.mask", "rank", *options)
        play = ("--players", str(n), "--episodes", "1000")
        yield Wanted(Group(f"xor_rank_{n}x{n}", words, seeds=5), (play,), row="xor_rank", quick=n == 5)
        if n == 12:
            faster = Group("xor_rank_12x12_learning-rate=3e-4", (*words, "--ppo.learning-rate", "3e-4"), seeds=5)
            yield Wanted(faster, (play,), quick=False)


def mixed_xor() -> Iterator[Wanted]:
    """One policy for all teams of 2 to 12 players, who have 12 actions."""
    sizes = ("--players", "2:12", "--actions", "12")
    words = ("xor", *sizes, "--policy.mask", "rank", "--world.shaped", "--total-steps", "1024000")
    yield Wanted(Group("xor_rank_2-to-12x12", words, seeds=3), ((*sizes, "--episodes", "1000"),), quick=False)


# --- Simple Spread and Food Collection ------------------------------------------------------------

SIZES = ("--agents", "2:8")
FOUR_FOODS = ("--tasks", "4")
HOME = ("--agents", "4")
GREEDY = ("--greedy", "--episodes", "64")


def off_policy(method: str, *options: str) -> Words:
    """Four times the teams of a preset's start, and as many minibatches for each step as in tuning."""
    return ("--method", method, f"--{method}.envs", "2048", *options, f"--{method}.no-keep-replay", *RARELY_SAVED)


RARELY_SAVED = ("--checkpoint-every", "2000")
PPO_RELATIVES = {name: (f"--{name}.learning-rate", "3e-3", f"--{name}.epochs", "20") for name in ("mappo", "ippo")}
NEAREST = ("--policy.goal", "nearest")
FIXED_SIZE: dict[str, Words] = {
    **{name: ("--method", name, *told, "--policy.width", "256") for name, told in PPO_RELATIVES.items()},
    "mat": (
        *("--method", "mat", "--mat.learning-rate", "3e-4", "--mat.epochs", "10", "--policy.width", "128"),
        *("--policy.heads", "4", "--mat.envs", "1024", "--mat.batch", "2048"),
        # Half the steps of the others, each of which takes it ten times as long.
        *("--total-steps", "12000000"),
    ),
    "qmix": off_policy("qmix", "--qmix.gradient-steps", "96"),
    "masac": off_policy("masac", "--masac.gradient-steps", "96"),
}
ANY_SIZE: dict[str, Words] = {
    "gsa": off_policy("gsa"),
    "gsa-nearest": (*off_policy("gsa"), *NEAREST),
    "gsa-released": (*off_policy("gsa"), "--policy.one-sided"),
    "ph-marl": off_policy("ph-marl"),
    "ph-marl-nearest": (*off_policy("ph-marl"), *NEAREST),
}


QUICK_IN_SPREAD = (*COMPARED_MASKS, "dropout", "mappo", "qmix", "gsa")
"""Of a panel; of Food Collection's only the masks that are compared, and Table 1 has every baseline."""


def panel(world: str, sizes: Words, home: Words) -> Iterator[Wanted]:
    """One panel: ours with every mask, the paper's own numbers, and the baselines."""
    quick = QUICK_IN_SPREAD if world == "spread" else COMPARED_MASKS
    for mask in MASKS:
        group = Group(f"{world}_{mask}", (f"{world}-gpu", "--policy.mask", mask), seeds=5)
        yield Wanted(group, both_ways(mask, (*sizes, *GREEDY)), quick=mask in quick)
    for mask in OURS:
        paper = ("--policy.mask", mask, "--policy.third-block", "paper", "--world.no-mark-viewer")
        yield Wanted(
            Group(f"{world}-paper_{mask}", (world, *paper), seeds=5),
            both_ways(mask, (*sizes, *GREEDY)),
            quick=(world, mask) == ("spread", "rank"),
        )
    for name, options in FIXED_SIZE.items():
        group = Group(f"{world}_{name}", (f"{world}-gpu", *options), seeds=3)
        yield Wanted(group, ((*home, *GREEDY),), quick=name in quick)
    for name, options in ANY_SIZE.items():
        # Told goals are published for Simple Spread, where a landmark stays where it is.
        if world == "spread" or name.endswith("nearest"):
            group = Group(f"{world}_{name}", (f"{world}-gpu", *options), seeds=3)
            yield Wanted(group, ((*sizes, *GREEDY),), quick=name in quick)


def without_caution() -> Iterator[Wanted]:
    """Food Collection with every collision counted once."""
    for mask in COMPARED_MASKS:
        words = ("food-gpu", "--policy.mask", mask, "--world.caution", "1")
        yield Wanted(Group(f"food_{mask}_caution=1", words, seeds=5), ((*SIZES, *FOUR_FOODS, *GREEDY),), quick=False)


def by_agents_and_foods() -> Iterator[Wanted]:
    for wanted in panel("food", (), ()):
        if wanted.group.name in ("food_rank", "food_none"):
            yield Wanted(wanted.group, ((*SIZES, "--tasks", "2:8", *GREEDY),))


def large_spread() -> Iterator[Wanted]:
    for wanted in panel("spread", SIZES, HOME):
        if wanted.group.name in ("spread_rank", "spread_none", "spread_floor"):
            yield Wanted(wanted.group, (("--agents", "16,32", "--greedy", "--episodes", "32"),))


def from_one_point() -> Iterator[Wanted]:
    """Everybody starts from one point, or scattered: both ends of what the depots of Dispatch are steps between."""
    for world, home in (("spread", HOME), ("food", (*HOME, *FOUR_FOODS))):
        play = (*home, "--episodes", "64")
        for mask in COMPARED_MASKS:
            words = (f"{world}-gpu", "--policy.mask", mask)
            together = Group(f"{world}_{mask}_start=depot", (*words, "--world.start", "depot"), seeds=5)
            quick = (world, mask) == ("spread", "none")
            yield Wanted(together, (play,), quick=quick)
            yield Wanted(Group(f"{world}_{mask}", words, seeds=5), (play,), quick=quick)


# --- SMAClite -------------------------------------------------------------------------------------

BATTLES = ("--jitter", "0", "--episodes", "128")
SMACLITE_BASELINES: dict[str, Words] = {
    **dict.fromkeys(("mappo", "mat"), ()),
    # After 900,000 steps it wins every battle with its most likely actions, and four of five with drawn ones.
    "ippo": ("--total-steps", "2000000"),
    # As many steps as its authors give it on this map of the original game.
    "qmix": ("--total-steps", "2000000", "--qmix.no-keep-replay", "--checkpoint-every", "1000"),
}
ORIGINAL_STARTS = ("--world.jitter", "0")


def table_2() -> Iterator[Wanted]:
    both = ("--map", "2s3z,3s5z", *BATTLES)
    for mask, options in OURS.items():
        paper = Group(f"smaclite-paper_{mask}", ("smaclite", *options), seeds=5)
        yield Wanted(paper, both_ways(mask, both), quick=False)
        yield Wanted(Group(f"smaclite_{mask}", ("smaclite-gpu", *options), seeds=5), both_ways(mask, both))
    for name, options in SMACLITE_BASELINES.items():
        words = ("smaclite-cpu", "--method", name, *ORIGINAL_STARTS, *options)
        group = Group(f"smaclite_{name}", words, seeds=3)
        yield Wanted(group, (("--map", "2s3z", *BATTLES),), quick=name in ("mappo", "qmix"))


def transfer() -> Iterator[Wanted]:
    """Every mask of the paper on battles it has not seen, and what was tried to win 3s5z without having seen it."""
    rank = OURS["rank"]
    tried: dict[str, Words] = {
        **{f"smaclite_{mask}": options for mask, options in OURS.items()},
        "smaclite_rank_original-starts": (*rank, *ORIGINAL_STARTS),
        "smaclite_rank_9M": (*rank, "--total-steps", "9000000"),
        # Starts scattered further, and more often.
        "smaclite_rank_scattered": (*rank, "--world.jitter", "3", "--world.jitter-share", "0.75"),
        # All unit types of 3s5z, but no battle of eight against eight. With 3s5z_vs_3s6z, which is 3s5z and one enemy
        # more, 3s5z would be all but trained on.
        "smaclite_rank_two-maps": (*rank, "--world.map", "2s3z,3s_vs_5z"),
    }
    for name, options in tried.items():
        group = Group(name, ("smaclite-gpu", *options), seeds=5)
        yield Wanted(group, battles_of(name, SEEN_AND_NEW), quick=name == "smaclite_rank")


SEEN_AND_NEW = ("--map", "2s3z,3s5z,3s5z_vs_3s6z,3s_vs_5z")


def battles_of(name: str, maps: Words) -> tuple[Words, ...]:
    """From the map's own starts, and with every unit up to half a length away: neighbours stand 1.05 apart along one
    axis, so that none change places.
    """
    mask = "dropout" if "dropout" in name else "rank"
    plays = ((*maps, "--jitter", jitter, "--episodes", "128") for jitter in ("0", "0.5"))
    return tuple(way for play in plays for way in both_ways(mask, play))


def on_two_cores() -> Iterator[Wanted]:
    """What two cores train, and what scattered starts are worth, all else equal."""
    spread = Group("spread-cpu_rank", ("spread-cpu", *OURS["rank"]), seeds=3)
    yield Wanted(spread, ((*SIZES, *GREEDY),), quick=False)
    for name, options in (("smaclite-cpu_rank", ()), ("smaclite-cpu_rank_original-starts", ORIGINAL_STARTS)):
        words = ("smaclite-cpu", *OURS["rank"], "--total-steps", "450000", *options)
        yield Wanted(Group(name, words, seeds=3), battles_of(name, ("--map", "2s3z,3s5z")), quick=False)


# --- Dispatch -------------------------------------------------------------------------------------

DEPOTS = (1, 2, 3, 4)


def by_depots() -> Iterator[Wanted]:
    """Four vehicles and four jobs: all from one depot, up to one depot each."""
    trained: dict[str, Words] = {mask: ("--policy.mask", mask) for mask in COMPARED_MASKS}
    trained["mat"] = ("--method", "mat")
    trained["commitments"] = ("--policy.kind", "commitments", "--ppo.learning-rate", "5e-3")
    for name, options in trained.items():
        for depots in DEPOTS:
            more = ("--world.depots", str(depots)) if depots > 1 else ()
            own = f"dispatch_{name}_depots={depots}" if depots > 1 else f"dispatch_{name}"
            group = Group(own, ("dispatch", *options, *more), seeds=5)
            quick = depots in (1, 4) and name != "mat"
            yield Wanted(group, (("--episodes", "500"),), row=f"dispatch_{name}", quick=quick)


# --- Commitments ----------------------------------------------------------------------------------

XOR_COMMITMENTS = Group("xor_commitments", ("xor-commitments",), seeds=5)
SMALL_TEAMS = ("--agents", "2:6", "--tasks", "2:6", "--world.depots", "6")


def on_small_teams(policy: str, travel_weight: str) -> Group:
    """Dispatch learned with two to six vehicles and jobs, by commitments or under a mask."""
    masked = ("dispatch", *SMALL_TEAMS, "--policy.mask", policy)
    words = ("dispatch-commitments",) if policy == "commitments" else masked
    return Group(f"dispatch_{policy}_travel={travel_weight}", (*words, "--world.travel-weight", travel_weight), 5)


def commitments_xor() -> Iterator[Wanted]:
    """Trained on a few small sizes, or on one; played with up to 64 players."""
    one_size = Group("xor_commitments_2x3", ("xor-commitments", "--players", "2", "--actions", "3"), seeds=5)
    yield Wanted(one_size, (("--players", "3", "--actions", "3", "--episodes", "1000"),))
    # One evaluation a team: side by side, all would be as large as the largest.
    sizes = (("3", "3"), ("8", "8,12"), ("16", "16,24"), ("32", "32,48"), ("64", "64,96"))
    plays = tuple(("--players", players, "--actions", actions, "--episodes", "500") for players, actions in sizes)
    yield Wanted(XOR_COMMITMENTS, plays)


def commitments_dispatch() -> Iterator[Wanted]:
    """Small teams play large ones: from one depot, from as many as vehicles, and with dearer ways."""
    sizes = (("--agents", "6", "--tasks", "6"), ("--agents", "64", "--tasks", "64,96"))
    # More depots than vehicles are as many as vehicles.
    plays = tuple((*size, "--depots", depots, "--episodes", "64") for depots in ("1", "64") for size in sizes)
    for weight in ("0.3", "1"):
        for name in ("commitments", *COMPARED_MASKS):
            quick = (name, weight) == ("commitments", "0.3")
            yield Wanted(on_small_teams(name, weight), plays, quick=quick)
    mat = ("dispatch", "--method", "mat", "--agents", "6", "--tasks", "6", "--world.depots", "6")
    at_home = ("--depots", "6", "--episodes", "64")
    yield Wanted(Group("dispatch_mat_6x6", mat, seeds=5), (at_home,), quick=False)


# --- An imperfect broadcast -----------------------------------------------------------------------


def faults() -> Iterator[Words]:
    """What `diamond evaluate` is told of the broadcast: nothing, and then one fault at a time."""
    yield ()
    for share in ("0.1", "0.3", "0.5", "0.7", "0.9"):
        yield ("--broadcast.lost", share)
    for share in ("0.1", "0.5", "0.9"):
        for rule in ("lowest", "highest"):
            yield ("--broadcast.lost", share, "--broadcast.unheard", rule)
    for name, values in (("late", ("0.5", "1")), ("bits", ("1", "2", "4", "8")), ("always-first", ("1", "2"))):
        yield from ((f"--broadcast.{name}", value) for value in values)


def imperfect() -> Iterator[Wanted]:
    for mask in ("rank", "floor"):
        options = ("--policy.mask", mask)
        for n in (2, 5):
            size = ("--players", str(n), "--actions", str(n))
            seeds = 10 if (mask, n) == ("rank", 2) else 5  # as many as the other entries that have it
            group = Group(f"xor_{mask}_{n}x{n}", ("xor", *size, *options), seeds)
            yield under_faults(group, ("--players", str(n)), 1000)
        yield under_faults(Group(f"dispatch_{mask}", ("dispatch", *options), 5), (), 250)
        yield under_faults(Group(f"spread_{mask}", ("spread-gpu", *options), 5), HOME, 256)
    five, depot = ("--players", "5", "--actions", "5"), ("--agents", "4", "--tasks", "4", "--depots", "1")
    yield under_faults(XOR_COMMITMENTS, five, 1000)
    yield under_faults(on_small_teams("commitments", "0.3"), depot, 250)


def under_faults(group: Group, size: Words, episodes: int) -> Wanted:
    play = (*size, "--greedy", "--episodes", str(episodes))
    # Twenty evaluations each: a quick table has those of one group.
    return Wanted(group, tuple((*fault, *play) for fault in faults()), quick=group.name == "xor_rank_2x2")


BENCHES = ("xor", "spread-{device}", "smaclite-{device}")

# --- The list -------------------------------------------------------------------------------------

ENTRIES: dict[str, Entry] = {
    "table1": Entry("Table 1: success in the XOR game", tuple(table_1()), table="trained and played"),
    "xor-masks": Entry("XOR under other masks", tuple(other_masks())),
    "spread": Entry(
        "Simple Spread: trained at N=4, played at 2 to 8",
        tuple(panel("spread", SIZES, HOME)),
        figure="team_size",
    ),
    "food": Entry(
        "Food Collection: trained at N=4, played at 2 to 8",
        (*panel("food", (*SIZES, *FOUR_FOODS), (*HOME, *FOUR_FOODS)), *without_caution()),
        figure="team_size",
    ),
    "heatmap": Entry(
        "Food Collection by agents and foods",
        tuple(by_agents_and_foods()),
        table=None,
        figure="heatmap",
    ),
    "attention": Entry(
        "What agents attend to",
        table=None,
        commands=(("figure", "spread", "food", "--to", "attention"),),
    ),
    "table2": Entry("Table 2: win rates in SMAClite", tuple(table_2())),
    "transfer": Entry("SMAClite: battles never seen", tuple(transfer())),
    "large-teams": Entry(
        "Far larger teams",
        (*large_xor(), *mixed_xor(), *large_spread()),
    ),
    "two-cores": Entry("What two cores train", tuple(on_two_cores())),
    "dispatch": Entry("Dispatch: how symmetric it is decides", tuple(by_depots()), figure="depots"),
    "one-point": Entry("From one point, and scattered", tuple(from_one_point())),
    "faults": Entry("An imperfect broadcast of ranks", tuple(imperfect()), table="by fault", figure="faults"),
    "commitments": Entry(
        "Commitments: small teams trained, large teams played",
        (*commitments_xor(), *commitments_dispatch()),
    ),
    "speed": Entry(
        "Speed",
        table=None,
        commands=tuple(("bench", name, "--to", f"speed/{name}.json") for name in BENCHES),
    ),
}


def register_entry(name: str, entry: Entry) -> None:
    """Makes a table of your own known: `diamond reproduce NAME --with FILE.py`."""
    if ENTRIES.get(name, entry) != entry or name == "all":
        raise UserError(f"there is already a result called {name!r}; choose another name.")
    ENTRIES[name] = entry
