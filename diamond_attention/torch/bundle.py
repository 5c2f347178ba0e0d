"""A module's weights as a policy bundle (docs/policy_format.md)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import torch

from diamond_attention.errors import UserError
from diamond_attention.runs.array_file import digest, name_of_non_finite
from diamond_attention.runs.bundle_format import BUNDLE_FORMAT
from diamond_attention.runs.files import json_bytes


def bundle_files(
    described: Mapping[str, Any],
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    began_with: str | None,
) -> dict[str, bytes]:
    """The two files. `described` is the policy.json whose views, actions and world these are.

    `began_with` names the policy whose weights these were before they were changed here; None: they began anew.
    Weights that were not changed give the files that were read.
    """
    broken = name_of_non_finite(arrays)
    if broken is not None:
        raise UserError(f"{broken} holds values that are not finite, so the policy is not saved; train it anew.")
    data = safetensors.numpy.save(dict(arrays))
    values = {**described, "format": BUNDLE_FORMAT, "sha256": digest(data)}
    if digest(data) != described["sha256"]:
        trained = described.get("trained")
        run = trained.get("settings") if isinstance(trained, dict) else None
        if not isinstance(trained, dict) or not isinstance(run, dict) or not isinstance(run.get("policy"), dict):
            raise UserError("the policy.json it was loaded from does not say what it was trained on.")
        values["settings"] = {**described["settings"], **settings}
        run = {**run, "policy": {**run["policy"], **settings}}
        values["trained"] = {**trained, "started_from": began_with, "settings": run}
        if began_with is None:
            values |= {"step": 0, "update": 0}
            values["trained"]["preset"] = ""
        values["changed_with"] = f"torch {torch.__version__}"
    return {"policy.safetensors": data, "policy.json": json_bytes(values)}
