"""A pytree as named arrays in a safetensors file; `array_file.py` reads them."""

from typing import Any

import jax
import numpy as np
import safetensors.numpy


def named_arrays(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Every array of a pytree by its name, such as weights.policy.embed_agent.first.weight."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def as_bytes(tree: Any) -> bytes:
    return safetensors.numpy.save({name: np.asarray(leaf) for name, leaf in named_arrays(tree).items()})
