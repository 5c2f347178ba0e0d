"""The modules in PyTorch answer as the policies in JAX, and have the same gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from deployed import CASES, each_view, files_of, in_jax, made, random_policy, team_views

from diamond_attention.attention import DiamondBlock as JaxBlock
from diamond_attention.deploy.bundle import read_bundle
from diamond_attention.runs.arrays import named_arrays
from diamond_attention.runs.bundle import load_policy
from diamond_attention.runs.bundle_format import shipped_policies
from diamond_attention.torch import DiamondBlock, DiamondPolicy, as_batch

KINDS = [name for name in CASES if name.startswith("diamond")]
SHIPPED = [name for name in shipped_policies() if read_bundle(name).kind == "diamond"]
CLOSE = 1e-5


def assert_close(ours, theirs, name):
    """To 1e-5 of the largest number of the array, or of one where all are smaller."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, name
    np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(theirs), err_msg=name)
    ours, theirs = (np.where(np.isfinite(each), each, 0) for each in (ours, theirs))
    scale = max(1.0, np.abs(theirs).max(initial=0))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE * scale, err_msg=name)


def made_in_torch(name, tmp_path):
    world, settings = CASES[name]
    for file, data in files_of(world, settings, random_policy(world, settings)).items():
        (tmp_path / file).write_bytes(data)
    return DiamondPolicy.load(tmp_path)


def answers_of(distribution):
    """The numbers that a distribution of JAX or of torch is made of; torch's logits are normalised, so JAX's are."""
    if isinstance(distribution, torch.distributions.Categorical):
        return [distribution.logits]
    if isinstance(distribution, torch.distributions.Independent):
        return [distribution.base_dist.mean, distribution.base_dist.stddev.log()]
    if hasattr(distribution, "logits"):
        return [jax.nn.log_softmax(distribution.logits)]
    return [distribution.mean, distribution.log_std]


def loss_of(answers, weights, library):
    """Any number that all answers count in: impossible choices have no gradient."""
    total = 0.0
    for answer, weight in zip(answers, weights, strict=True):
        total = total + (library.where(library.isfinite(answer), answer, 0 * weight) * weight).sum()
    return total


@eqx.filter_jit
def in_jax_with_gradients(policy, views, weights):
    def loss(policy, rows):
        given = views._replace(agents=rows[0], tasks=rows[1])
        distribution, attention = jax.vmap(policy)(given)
        answers = [*jax.vmap(lambda d: tuple(answers_of(d)))(distribution), *attention]
        return loss_of(answers, weights, jnp), answers

    both = eqx.filter_value_and_grad(lambda parts: loss(*parts), has_aux=True)
    (_, answers), (gradient, rows) = both((policy, (jnp.asarray(views.agents), jnp.asarray(views.tasks))))
    return answers, gradient, rows


def assert_same(jax_policy, policy, bundle, agents, tasks, seed):
    views = team_views(bundle, agents, tasks, seed)
    seen = in_jax(views)
    batch = as_batch(list(each_view(views)))
    if policy.mask == "dropout" and policy.dropout_at_execution:
        batch = batch._replace(kept=torch.tensor(np.asarray(views.noise)))
    elif policy.mask == "dropout":
        seen = seen._replace(noise=None)
    rows = [torch.tensor(np.asarray(each), requires_grad=True) for each in (seen.agents, seen.tasks)]
    policy.zero_grad()
    distribution, attention = policy(batch._replace(agents=rows[0], tasks=rows[1]))
    answers = [*answers_of(distribution), *attention]
    generator = np.random.default_rng(seed)
    weights = [generator.normal(size=answer.shape).astype(np.float32) for answer in answers]
    loss_of(answers, [torch.tensor(weight) for weight in weights], torch).backward()

    theirs, gradient, their_rows = in_jax_with_gradients(jax_policy, seen, weights)
    for number, (ours, those) in enumerate(zip(answers, theirs, strict=True)):
        assert_close(ours.detach(), those, f"answer {number}")
    gradients = named_arrays(eqx.filter(gradient, eqx.is_array))
    parameters = dict(policy.named_parameters())
    assert set(parameters) == set(gradients)
    moved = 0
    for name, those in gradients.items():
        ours = parameters[name].grad
        assert_close(np.zeros_like(those) if ours is None else ours, those, name)
        moved += bool(np.abs(those).max(initial=0) > 1e-4)
    assert moved > len(gradients) / 2  # else zero would be compared with zero
    for ours, those, there in zip(rows, their_rows, (views.agent_present, views.task_present), strict=True):
        assert_close(ours.grad, np.where(there[..., None], those, 0), "rows")  # who is not there has no features


@pytest.mark.parametrize("name", KINDS)
def test_every_mask_and_head_is_that_of_jax_with_its_gradients(name, tmp_path):
    """With who is absent, what is illegal, ranks that tie, and nonsense in the rows of who is not there."""
    jax_policy, bundle = made(name)
    policy = made_in_torch(name, tmp_path)
    world = CASES[name][0]
    for seed in range(3):
        assert_same(jax_policy, policy, bundle, world.max_agents, world.max_tasks, seed)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_policy_is_that_of_jax_with_its_gradients(name):
    jax_policy, _ = load_policy(name)
    policy, bundle = DiamondPolicy.load(name), read_bundle(name)
    for seed in range(2):
        assert_same(jax_policy, policy, bundle, 9, 7, seed)


def test_the_cases_have_every_mask_and_every_third_block():
    from diamond_attention.deploy.diamond import MASKS

    settings = [CASES[name][1] for name in KINDS]
    assert {each.mask for each in settings} == set(MASKS)
    assert {CASES[name][0].name for name in KINDS} == {"xor", "spread", "dispatch"}  # every kind of action
    assert {each.third_block for each in settings} == {"choice", "paper"}


def test_a_block_alone_is_that_of_jax():
    generator = np.random.default_rng(0)
    theirs, ours = JaxBlock(8, key=jax.random.key(0)), DiamondBlock(8)
    ours.load_state_dict({name: torch.tensor(np.asarray(array)) for name, array in named_arrays(theirs).items()})
    tasks, agents = (generator.normal(size=(rows, 8)).astype(np.float32) for rows in (3, 4))
    terms = np.where(generator.random((2, 3, 4)) < 0.5, -np.inf, 0).astype(np.float32)
    terms[:, 1] = -np.inf  # a row in which everybody is hidden
    expected = theirs(tasks, agents, terms)
    given = [torch.tensor(each) for each in (tasks, agents, terms)]
    alone = ours(*given)
    many = ours(*(each.expand(2, 5, *each.shape) for each in given))  # any leading axes
    # JAX's block leaves in two parts what it saw and what it is; torch's joins them.
    joined = {name: np.concatenate(getattr(expected, name), axis=-1) for name in ("tasks", "agents")}
    for name, right in {**joined, "weights": expected.weights}.items():
        assert_close(getattr(alone, name).detach(), right, name)
        assert_close(getattr(many, name)[1, 3].detach(), right, name)
    assert not alone.weights[1].any()
