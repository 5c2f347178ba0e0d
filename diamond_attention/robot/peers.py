"""What a robot believes of its peers: the newest message of each, and how long ago it came.

The rules, which hold for every packet that is lost, late, duplicated or out of order, and for peers that join, leave,
crash or start again:

- Of each peer only the newest message counts: that of the highest (epoch, step). What is not newer is dropped, be it
  a duplicate, overtaken on its way, or recorded and sent again.
- Age is counted in the robot's own steps since a message arrived. No time and no step of one robot is ever compared
  with those of another, so it does not matter how far clocks are apart or who started when.
- A peer that was not heard for more than `patience` steps is absent, and comes back with its next newer message.
  Nobody says goodbye: leaving, crashing and being out of reach are the same.
- A process that starts again has a higher epoch, so its first message is newer than all it ever sent.
- How far a peer had come is never forgotten, also when it is absent: else what it said could be recorded and said
  again in its name after it has left. The table grows to one row for each number of an agent, and no further.
"""

from dataclasses import dataclass

from diamond_attention.robot.message import Said

HEARD = "heard"
OLD = "not new"
"""Why a message of a peer is dropped: it is not newer than what is known."""
MINE = "my number"
"""It comes from another process that has this robot's number, or this robot's earlier life."""


@dataclass(slots=True)
class Peer:
    said: Said
    heard: int
    """The robot's own step at which it arrived."""


class Peers:
    def __init__(self, own: int, epoch: int, patience: int):
        self.own, self.epoch, self.patience = own, epoch, patience
        self._known: dict[int, Peer] = {}

    def hear(self, said: Said, step: int) -> str | None:
        """Takes a message in at the robot's own step; what became of it: HEARD, or why it was dropped. Nothing became
        of the robot's own, which a multicast brings back to it.
        """
        if said.agent == self.own:
            return None if said.epoch == self.epoch else MINE
        known = self._known.get(said.agent)
        if known is not None and (said.epoch, said.step) <= (known.said.epoch, known.said.step):
            return OLD
        self._known[said.agent] = Peer(said, step)
        return HEARD

    def present(self, step: int) -> list[Peer]:
        """By their numbers, so that what is decided does not depend on the order in which packets came."""
        return [peer for _, peer in sorted(self._known.items()) if step - peer.heard <= self.patience]

    def __len__(self) -> int:
        """Peers that were ever heard."""
        return len(self._known)
