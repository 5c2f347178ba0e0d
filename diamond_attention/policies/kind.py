"""What a kind of policy is to the rest of the project: its settings, its builder, and how readers call it."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from jaxtyping import PRNGKeyArray

from diamond_attention.actions import ActionKind
from diamond_attention.errors import UserError
from diamond_attention.policies.contract import Policy

KindSettings = Any
"""A frozen dataclass with a field `kind`, whose one value is the kind's name."""


Frame = Literal["own", "common", "place"]
"""How a peer sees what one column of a view tells: in a way of its own, which the viewer cannot know; the same as the
viewer; or as one component of a place relative to itself, which a subtraction gives. Components stand in the same
order for agents and tasks. A world that says the second or third of any column lets every agent see everybody, and
every task."""


class Interface(NamedTuple):
    """What a policy is given and what it must answer: all a builder may know of a world."""

    agent_features: int
    task_features: int
    action_kind: ActionKind
    max_agents: int
    """Only kinds that do not play any team size may build on these two."""
    max_tasks: int
    sees_peers: bool = True
    """False where what an agent sees of its peers is always the same, so that a flat observation leaves them out."""
    has_places: bool = False
    """Whether rows of a view begin with a place, and those of agents go on with a velocity."""
    agent_frames: tuple[Frame, ...] = ()
    """Of each feature, how peers see the same; nothing where the world does not say."""
    task_frames: tuple[Frame, ...] = ()
    own_legal_actions: bool = False
    """Whether an action may be legal for one agent and not for another, which its peers then cannot know."""


def needs_of_flat(sees_peers: bool) -> str:
    """What a robot needs that decides on a flat view of its own, in which every peer has a place."""
    return "peers in a fixed order; one team size" if sees_peers else "nothing; one team size"


class Described(NamedTuple):
    """One kind of policy with its settings, for readers of tables and figures."""

    key: str
    """Short and without spaces: what rows of results call it."""
    label: str
    colour: str = "#000000"
    """Of Okabe and Ito's palette, which colour-blind readers can tell apart."""
    caption: str = "Each row of a block sums to one."
    """What can be read off a picture of its attention weights."""
    ranks_do: str = ""
    """What ranks do to whom an agent attends to, in a sentence."""
    hides_in: tuple[int, ...] = ()
    """Blocks, counted from 0, in which lower-ranked peers have no weight at all."""
    damps: str = ""
    """What becomes of lower-ranked peers where they count less without being hidden: "damped by …"."""
    hears_ranks: bool = False
    """Whether ranks change anything, so that a picture should show them."""
    place: int = 100
    """In tables and legends: the paper's policy first, then its ablations, then others."""

    needs: str = ""
    """What a robot needs to decide, besides its own view; by default a number from each peer if ranks are heard."""

    @property
    def robot_needs(self) -> str:
        return self.needs or ("a number from each peer" if self.hears_ranks else "nothing")

    def in_play(self, dropout: str) -> str:
        """The label of a line whose rows were played with dropout on or off (or, empty, without any)."""
        return f"{self.label}, {dropout} in play" if dropout and self.key == "dropout" else self.label


def described_by_its_name(settings: KindSettings) -> Described:
    return Described(settings.kind, settings.kind)


def plays_as_it_learned(settings: KindSettings, dropout: bool | None) -> KindSettings:
    if dropout is not None:
        raise UserError(f"--dropout was given, but policy.kind is {settings.kind}, which has none; leave it out.")
    return settings


class PolicyKind(NamedTuple):
    """A line of `POLICIES`."""

    settings: type
    build: Callable[[KindSettings, Interface, PRNGKeyArray], Policy]
    any_size: bool = True
    """False: it is trained on one team size, and plays only those for which it has the same arrays."""
    memory_settings: tuple[str, ...] = ()
    """The settings to lower when a device runs out of memory."""
    describe: Callable[[KindSettings], Described] = described_by_its_name
    in_play: Callable[[KindSettings, bool | None], KindSettings] = plays_as_it_learned
    """The settings to build with when a trained policy plays; the second argument is what --dropout asks for."""
