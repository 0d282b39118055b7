"""Runs a command that dies with its parent: `tether.py PARENT_PID COMMAND...`; a script without imports of ours."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Asks the kernel for SIGKILL at the parent's death (Linux; kept over exec), then becomes the command."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent has ended")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
