"""One thread for torch: on tensors this small more are slower, fifty times so where other tests run beside them."""

import contextlib

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)
