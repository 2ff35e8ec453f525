"""Kernels that do something to the process they run in: workers of a cluster import them."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import divprism as dp


def is_first(folder, name):
    """Whether nobody has asked for this name before."""
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class Troubled(dp.Gaussian):
    """A Gaussian that first looks whether its process is the one to suffer.

    `trouble` is "kill", "memory", "always-memory", "slow" or "count"; `home` is the process of the
    test, which is spared; `folder` remembers who suffered already.
    """

    trouble: str = ""
    home: int = 0
    folder: str = ""

    def block(self, a, b):
        """Kernel values, after the trouble."""
        if os.getpid() != self.home:
            getattr(self, "_" + self.trouble.replace("-", "_"))()
        return super().block(a, b)

    def _kill(self):
        if is_first(self.folder, "killed"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _memory(self):
        if is_first(self.folder, "filled"):
            self._always_memory()

    def _always_memory(self):
        held = []
        # The nanny looks at the memory of its worker every 100 ms, and ends it.
        while True:
            held.append(bytearray(os.urandom(2**10)) * 2**12)
            time.sleep(0.002)

    def _slow(self):
        slow = Path(self.folder) / "slow"
        if is_first(self.folder, "slow"):
            slow.write_text(str(os.getpid()))
        if slow.read_text() == str(os.getpid()):
            time.sleep(0.05)

    def _count(self):
        # No trouble: one byte for each block.
        with (Path(self.folder) / str(os.getpid())).open("ab") as count:
            count.write(b".")
        # So long that Dask looks at its copies several times in a pass.
        time.sleep(0.02)
