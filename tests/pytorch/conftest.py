"""`make test-torch` runs these, in an environment with the extra `benchmarl`; `make test` leaves them out.

One thread for torch, as in tests/vmas.
"""

try:
    import torch

    torch.set_num_threads(1)
    collect_ignore_glob = []
except ImportError:
    collect_ignore_glob = ["test_*.py"]
