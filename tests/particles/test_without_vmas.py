"""What the bridge says where VMAS is not installed."""

import numpy as np
import pytest

from diamond_attention.errors import UserError
from diamond_attention.evaluation import vmas_bridge


def test_a_missing_extra_is_said_in_one_sentence(monkeypatch):
    monkeypatch.setattr(vmas_bridge, "Environment", None)
    nothing = np.zeros((1, 2, 2), np.float32)
    for attempt in (
        lambda: vmas_bridge.step(nothing, nothing, nothing, nothing),
        lambda: vmas_bridge.roll_out(lambda state, step: nothing, agents=2, episodes=1, seed=0),
    ):
        with pytest.raises(UserError, match=r'pip install "diamond-attention\[vmas\]"'):
            attempt()
