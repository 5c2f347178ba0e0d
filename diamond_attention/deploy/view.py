"""What one agent sees, as numpy arrays."""

from typing import Any, NamedTuple

import numpy as np

from diamond_attention.errors import UserError


class View(NamedTuple):
    """What one agent sees this step; an `AgentView` of a world will do as well. Row 0 of agents is the viewer.

    The columns of `agents` and `tasks` are those of the policy's world, with their units: `agent.agent_features` and
    `agent.task_features` name them, and `views.py` fills them in from plain positions.
    """

    agents: Any
    """[agent, feature]: the viewer, then the peers it knows of, in any order."""
    tasks: Any
    """[task, feature]"""
    agent_present: Any = None
    """[agent], whether it is there; by default all are. Rows of who is not there mean nothing."""
    task_present: Any = None
    ranks: Any = None
    """[agent]: the numbers heard this step, the viewer's own first. May be left out of a team of one."""
    legal_actions: Any = None
    """[action], what can be done now; by default every task that is there may be chosen."""
    noise: Any = None
    """[block, task, agent], which attention weights are kept: only for policies that drop some at random. By default
    the agent draws it."""


def as_arrays(view: Any, agent_features: int, task_features: int) -> View:
    """The view as float32 and bool arrays, absent rows zero; UserError where something does not fit the policy."""
    agents = _rows(view.agents, "agents", agent_features)
    tasks = _rows(view.tasks, "tasks", task_features)
    if not len(agents):
        raise UserError("view.agents has no rows; row 0 is the agent that decides.")
    agent_present = _flags(view.agent_present, "agent_present", len(agents))
    task_present = _flags(view.task_present, "task_present", len(tasks))
    if view.ranks is None and len(agents) > 1:
        raise UserError(
            f"view.ranks is missing; it holds the numbers of all {len(agents)} agents, the viewer's first."
        )
    ranks = _numbers(np.zeros(1) if view.ranks is None else view.ranks, "ranks")
    if ranks.shape != (len(agents),):
        raise UserError(f"view.ranks has the shape {ranks.shape}, and there are {len(agents)} rows of agents.")
    agents, tasks = _where_there(agents, agent_present, "agents"), _where_there(tasks, task_present, "tasks")
    legal = None if view.legal_actions is None else np.asarray(view.legal_actions, bool)
    return View(agents, tasks, agent_present, task_present, ranks, legal, view.noise)


def _rows(rows: Any, name: str, features: int) -> np.ndarray:
    array = _numbers(rows, name)
    if array.size == 0 and array.ndim < 2:
        array = array.reshape(0, features)  # an empty list has no columns to be wrong about
    if array.ndim != 2 or array.shape[1] != features:
        raise UserError(
            f"view.{name} has the shape {array.shape}, and this policy was trained on rows of {features} features; "
            f"agent.{name[:-1]}_features names them."
        )
    return array


def _numbers(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise UserError(f"view.{name} does not hold numbers in rows of one length.") from None


def _flags(present: Any, name: str, number: int) -> np.ndarray:
    if present is None:
        return np.ones(number, bool)
    flags = np.asarray(present, bool)
    if flags.shape != (number,):
        raise UserError(f"view.{name} has the shape {flags.shape}, and there are {number} rows.")
    return flags


def _where_there(rows: np.ndarray, present: np.ndarray, name: str) -> np.ndarray:
    """Zeros in the rows of who is not there: whatever stands in them, no weight times it may be no number."""
    if not present.all():
        rows = np.where(present[:, None], rows, np.float32(0))
    if not np.isfinite(rows).all():
        raise UserError(f"view.{name} holds a value that is not a finite number; mark that row as absent instead.")
    return rows
