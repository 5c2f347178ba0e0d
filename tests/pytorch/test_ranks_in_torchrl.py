"""Ranks as a transform of TorchRL: drawn, held, stored and replayed."""

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import Compose, StepCounter, TransformedEnv
from torchrl.envs.libs.vmas import VmasEnv
from torchrl.envs.utils import check_env_specs

from diamond_attention.errors import UserError
from diamond_attention.torch.torchrl_ranks import DrawRanks

TEAMS, AGENTS = 5, 3
KEY = ("agents", "rank")


def environment(hold=1, *more):
    world = VmasEnv(
        "simple_spread", num_envs=TEAMS, continuous_actions=True, seed=0, n_agents=AGENTS, obs_agents=False
    )
    return TransformedEnv(world, Compose(DrawRanks(hold=hold), *more))


@pytest.mark.parametrize("hold", [1, 3, "episode"])
def test_specs_say_what_is_there(hold):
    check_env_specs(environment(hold))


def test_every_agent_draws_a_number_every_step_with_the_bits_of_training():
    torch.manual_seed(0)
    ranks = environment().rollout(20)[KEY]
    assert ranks.shape == (TEAMS, 20, AGENTS, 1)
    assert ranks.dtype == torch.float32
    assert ((ranks >= 0) & (ranks < 1) & (ranks * 2**23 % 1 == 0)).all()
    assert len(ranks.unique()) > 0.99 * ranks.numel()
    assert abs(ranks.mean() - 0.5) < 0.06  # 300 numbers: three and a half deviations


def test_what_is_observed_next_is_what_is_acted_on_next():
    played = environment().rollout(6)
    assert torch.equal(played["next", *KEY][:, :-1], played[KEY][:, 1:])


def test_numbers_stay_in_force_as_long_as_they_are_held():
    ranks = environment(hold=3).rollout(8)[KEY]
    changed = (ranks[:, 1:] != ranks[:, :-1]).any(-1).any(-1)
    assert changed.tolist() == [[False, False, True, False, False, True, False]] * TEAMS
    ranks = environment(hold="episode").rollout(8)[KEY]
    assert (ranks == ranks[:, :1]).all()


@pytest.mark.parametrize(("hold", "redrawn_at"), [("episode", [4, 8]), (3, [3, 4, 7, 8])])
def test_a_new_episode_has_new_numbers_and_counts_anew(hold, redrawn_at):
    played = environment(hold, StepCounter(4)).rollout(10, break_when_any_done=False)
    changed = (played[KEY][:, 1:] != played[KEY][:, :-1]).any(-1).any(-1)
    assert [[step + 1 for step, each in enumerate(team) if each] for team in changed.tolist()] == [redrawn_at] * TEAMS


@pytest.mark.parametrize("hold", [1, 3, "episode"])
def test_teams_that_go_on_keep_theirs_when_others_begin(hold):
    world = environment(hold)
    before = world.reset()
    begins = torch.tensor([True, False, True, False, False])[:, None]
    after = world.reset(before.clone().set("_reset", begins))
    kept = (after[KEY] == before[KEY]).all(-1).all(-1)
    assert kept.tolist() == (~begins[:, 0]).tolist()


def test_a_hold_that_is_no_number_of_steps_and_a_group_that_is_not_there_are_refused():
    for hold in (0, 1.5, "ever"):
        with pytest.raises(UserError, match="must be a number of steps, 1 or more, or 'episode'"):
            DrawRanks(hold=hold)
    world = VmasEnv("simple_spread", num_envs=1, continuous_actions=True, seed=0)
    with pytest.raises(UserError, match="there is no group 'robots' of agents; there are"):
        TransformedEnv(world, DrawRanks(("robots",))).observation_spec  # noqa: B018


def test_two_groups_draw_apart():
    reset = TensorDict({name: TensorDict({}, [2, 3]) for name in ("left", "right")}, [2])
    drawn = DrawRanks(("left", "right"))._reset(TensorDict({}, [2]), reset)
    assert drawn["left", "rank"].shape == (2, 3, 1)
    assert not torch.equal(drawn["left", "rank"], drawn["right", "rank"])
