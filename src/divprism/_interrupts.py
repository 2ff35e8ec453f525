"""Ctrl-C while the command line imports this package, before its own code can catch it."""

import os
import signal
import sys

_call = [os.path.basename(word).removesuffix(".exe") for word in sys.orig_argv[1:3]]
_is_command = _call[:1] == ["divprism"] or _call == ["-m", "divprism"]
# A signal that somebody ignores stays ignored, and programs of others keep their handlers.
if _is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Without a traceback: nothing is open yet. `__main__` restores the handler.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
