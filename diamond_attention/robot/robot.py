"""One robot: it tells its number and place, hears those of its peers, and decides. No clock and no network here."""

from collections import Counter
from typing import Any

import numpy as np

from diamond_attention.deploy import Agent
from diamond_attention.robot.faults import BadEar, Faults
from diamond_attention.robot.message import STRANGE, Refused, Said, Seal
from diamond_attention.robot.peers import Peer, Peers
from diamond_attention.robot.senses import Senses, sensed_world

PATIENCE = 20
"""Steps after which a peer that was not heard is absent."""
LOST = "lost"


class Robot:
    """At every step: `speak`, then `hear` whatever arrives, then `decide`."""

    def __init__(
        self,
        agent: Agent,
        number: int,
        seal: Seal,
        *,
        epoch: int,
        patience: int = PATIENCE,
        unit: float = 1.0,
        faults: Faults | None = None,
    ):
        self.number, self.epoch = number, epoch
        self.step = -1
        """Of this epoch, from 0; before the first it has said nothing."""
        self.counts: Counter[str] = Counter()
        """Messages by what became of them: heard, lost, or why they were refused."""
        self.peers = Peers(number, epoch, patience)
        self._agent, self._seal, self._unit = agent, seal, unit
        self._world = sensed_world(agent)
        self._ear = BadEar(Faults() if faults is None else faults, number)
        self._senses = Senses((), ())
        self.rank = 0.0

    def speak(self, senses: Senses) -> bytes:
        """Begins a step. What to send to all peers."""
        self.step += 1
        self._senses = senses
        if self._agent.rank_is_due(self.step):
            self.rank = self.drawn_rank()
        return self._seal.write(self.saying())

    def drawn_rank(self) -> float:
        return float(self._agent.draw_rank())

    def saying(self) -> Said:
        return Said(self.number, self.epoch, self.step, self.rank, tuple(map(float, self._senses.own)))

    def hear(self, datagram: bytes) -> Said | None:
        """Takes in a datagram, whoever sent it; what it said, if it was a message of this fleet."""
        try:
            said = self._seal.read(datagram)
        except Refused as refused:
            self.counts[refused.reason] += 1
            return None
        if len(said.values) != len(self._world.own):
            self.counts[STRANGE] += 1
            return None
        if said.agent == self.number:
            self._take_in(said)
        elif self._ear.is_lost(said):
            self.counts[LOST] += 1
        else:
            self._ear.arrive(said, self.step)
        return said

    def decide(self) -> Any:
        """Ends a step: what to do, on what is known by now."""
        for said in self._ear.due(self.step):
            self._take_in(said)
        present = self.peers.present(self.step)
        values = np.array([peer.said.values for peer in present]).reshape(len(present), len(self._world.own))
        ranks = np.array([self._rank_of(peer) for peer in present])
        view = self._world.view(self._agent, self._senses, self.rank, values, ranks, self._unit)
        return self._agent.decide(view)

    def _take_in(self, said: Said) -> None:
        became = self.peers.hear(said, self.step)
        if became is not None:
            self.counts[became] += 1

    def _rank_of(self, peer: Peer) -> float:
        """A peer's number at this step. Where it has drawn a new one that was not heard, a guess stands in for it:
        docs/broadcast.md says why a guess, and not the old number or a place below or above all. When it draws is
        counted from what it said, by its own steps.
        """
        hold, then = self._agent.rank_hold, peer.said.step
        now = then + self.step - peer.heard
        if hold == "episode" or now // int(hold) == then // int(hold):
            return peer.said.rank
        return float(self._agent.draw_rank())
