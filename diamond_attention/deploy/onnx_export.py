"""A policy as one ONNX file, for any number of agents and tasks that it plays.

The graph is what deploy computes, traced: the same functions, run on values that write down what is done with them.
docs/deploy.md lists its inputs and outputs. Everything random is an input.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diamond_attention.deploy.bundle import Bundle, bundle_of
from diamond_attention.deploy.diamond import BLOCKS
from diamond_attention.deploy.view import View
from diamond_attention.errors import UserError
from diamond_attention.runs.files import check_writable, is_there, write_file

if TYPE_CHECKING:
    from diamond_attention.runs.folder import Run

MISSING = "--to names an .onnx file needs the package onnx; install it with `pip install 'diamond-attention[onnx]'`."


def export_onnx(runs: Sequence["Run"], to: Path, which: str = "last") -> Path:
    """Writes the policy of the one run named. What it writes is checked by onnx first."""
    from diamond_attention.runs.bundle import policy_files

    if len(runs) > 1:
        raise UserError(f"--to is {to}, one file, and there are {len(runs)} seeds; name the folder of one of them.")
    if is_there(to):
        raise UserError(f"--to is {to}, which already exists; name a new file.")
    check_writable(to)
    files = policy_files(runs[0], which)
    bundle = bundle_of(json.loads(files["policy.json"]), files["policy.safetensors"], runs[0].name)
    write_file(to, onnx_model(bundle))
    return to


def onnx_model(bundle: Bundle) -> bytes:
    """The file's bytes."""
    try:
        from diamond_attention.deploy.tracing import Graph, as_model
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise UserError(MISSING) from None
    graph = Graph()
    declared = inputs_of(bundle)
    given: dict[str, Any] = {name: graph.input(name, dtype, shape) for name, dtype, shape in declared}
    noise, number, there = given.pop("noise"), given.pop("number", None), given["agent_present"]
    given["noise"] = given.pop("kept", None)
    # Whatever stands in the rows of who is not there, no weight times it may be no number.
    given["agents"] = np.where(there[..., None], given["agents"], np.float32(0))
    given["tasks"] = np.where(given["task_present"][..., None], given["tasks"], np.float32(0))
    view = View(**given)
    decided = (
        bundle.policy.decide_team(view, noise)
        if bundle.policy.together
        else bundle.policy.decide(view, number, noise)
    )
    outputs = {"action": decided.action, **decided.answer._asdict()}
    outputs.pop("entries", None)
    about = {
        "kind": bundle.kind,
        "rank_hold": str(bundle.rank_hold),
        "agent_features": json.dumps(bundle.interface.agent_features),
        "task_features": json.dumps(bundle.interface.task_features),
    }
    return as_model(graph, declared, outputs, **about)


def inputs_of(bundle: Bundle) -> list[tuple[str, Any, list[int | str]]]:
    """Name, type and axes of every input; a word is an axis of any length."""
    policy, interface = bundle.policy, bundle.interface
    agents: int | str = policy.fixed_team[0] or "agents"
    tasks: int | str = policy.fixed_team[1] or "tasks"
    continuous = interface.action.kind == "continuous"
    options: int | str = "actions" if tasks == "tasks" else interface.action.options(interface.tasks)
    team: list[int | str] = [agents] if policy.together else []
    listed: list[tuple[str, Any, list[int | str]]] = [
        ("agents", np.float32, [*team, agents, len(interface.agent_features)]),
        ("tasks", np.float32, [*team, tasks, len(interface.task_features)]),
        ("agent_present", bool, [*team, agents]),
        ("task_present", bool, [*team, tasks]),
        ("ranks", np.float32, [*team, agents]),
    ]
    if not continuous:
        listed.append(("legal_actions", bool, [*team, options]))
    if getattr(policy, "mask", "") == "dropout":
        listed.append(("kept", bool, [BLOCKS, tasks, agents]))
    if policy.asks_number:
        listed.append(("number", np.int64, []))
    noise = policy.noise_axes(agents, interface.action.number if continuous else options)
    listed.append(("noise", np.float32, noise))
    return listed
