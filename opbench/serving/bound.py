"""A program that becomes another one, which is asked to end (SIGTERM) when whoever started it is gone, killed or not:
an orphaned server would keep its GPU. Where the system can't do that (it takes Linux) it only becomes the other.

`PYTHON bound.py PID COMMAND [ARGUMENT …]`; PID is whoever starts it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # It may have gone before the call above.
        if os.getppid() != int(sys.argv[1]):
            sys.exit(1)
    os.execv(sys.argv[2], sys.argv[2:])
