"""`python -m diamond_attention.jobs.child PARENT …` is `diamond …`, and ends when its parent does, however that ends.

Otherwise the training of a worker that was killed would go on unseen, and hold the folder that another worker is to
go on in.
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Of Linux: the signal that this process is sent when the thread that started it ends."""

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv.pop(1)):  # it was gone before this could be asked for
        sys.exit(128 + signal.SIGKILL)
    runpy.run_module("diamond_attention", run_name="__main__", alter_sys=True)
