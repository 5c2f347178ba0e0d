"""`python -m diamond_attention.jobs.child PARENT …` is `diamond …`, and ends when its parent does, however that ends.

Otherwise the training of a worker that was killed would go on unseen, and hold the folder that another worker is to
go on in. A crash of Python ends it with a status of its own: 1 is also what a command says of seeds that failed.
"""

import ctypes
import os
import runpy
import signal
import sys
import traceback

PR_SET_PDEATHSIG = 1
"""Of Linux: the signal that this process is sent when the thread that started it ends."""
CRASHED = 70

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv.pop(1)):  # it was gone before this could be asked for
        sys.exit(128 + signal.SIGKILL)
    try:
        runpy.run_module("diamond_attention", run_name="__main__", alter_sys=True)
    except Exception:
        traceback.print_exc()
        sys.exit(CRASHED)
