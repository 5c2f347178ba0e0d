"""Diamond Attention in PyTorch: policies as modules for batches of views, out of policy bundles and back.

    from diamond_attention.torch import DiamondPolicy, as_batch

    policy = DiamondPolicy.load("spread")
    distribution, attention = policy(as_batch(views))

docs/torch.md goes from a shipped policy to a fine-tuned one. Nothing here imports JAX. `benchmarl.py` and
`torchrl_ranks.py` need BenchMARL and TorchRL, and are imported by name.
"""

from diamond_attention.deploy.interface import Action
from diamond_attention.deploy.view import View
from diamond_attention.torch.block import BlockOutput, DiamondBlock
from diamond_attention.torch.policy import DiamondPolicy
from diamond_attention.torch.views import Views, as_batch

__all__ = ["Action", "BlockOutput", "DiamondBlock", "DiamondPolicy", "View", "Views", "as_batch"]
