"""Run divprism commands, each in a process of its own, without paying for the imports each time.

A server process imports the command line and the packages that most commands load late; each
command is a fork of it, with its own streams, environment and working directory. Only the moment
when modules load differs from `python -m divprism`, so tests about imports, memory and interrupts
start an interpreter themselves.
"""

import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.connection import Connection

SERVER = multiprocessing.get_context("forkserver")
PRELOADED = [
    "command_line", "faults", "divprism.cli", "array_api_compat.numpy",
    "encodings.cp437", "encodings.unicode_escape", "encodings.utf_8_sig", "jinja2",
    "matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg",
    "rich.console", "rich.table", "safetensors.numpy", "scipy.linalg", "scipy.stats",
    "threadpoolctl", "tokenizers", "typer.rich_utils",
]  # fmt: skip
SERVER.set_forkserver_preload(PRELOADED)
HERE = os.path.dirname(os.path.abspath(__file__))


def start_server(server=forkserver):
    """Start the server of the forks, unless it runs.

    A server imports from the folders in its environment and not from `sys.path`, and what it cannot
    import is left out in silence: without this, each fork would import these modules again.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, before]))
    try:
        server.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def run(*arguments, stdin=b"", cwd=None, timeout=120) -> subprocess.CompletedProcess[bytes]:
    """Return the exit code and both streams of `divprism ARGUMENTS` given these bytes on stdin."""
    call = ["divprism", *map(str, arguments)]
    pipes = [SERVER.Pipe(duplex=False) for _ in range(3)]
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = pipes
    theirs = theirs_in, theirs_out, theirs_err
    start_server()
    process = SERVER.Process(target=_command, args=(call, dict(os.environ), cwd, *theirs))
    process.start()
    for end in theirs:
        end.close()  # else the reader would wait for this process to close its copy
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_write, ours_in, stdin)
        out, err = threads.submit(_read, ours_out), threads.submit(_read, ours_err)
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(call, timeout)
    return subprocess.CompletedProcess(call, process.exitcode, out.result(), err.result())


def _command(call, environment, cwd, *streams: Connection) -> None:
    gc.freeze()  # else a collection writes to all that the server has imported, which copies it
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - multiprocessing has closed the first one
    os.environ.clear()
    os.environ.update(environment)
    if cwd is not None:
        os.chdir(cwd)
    sys.argv = call
    runpy.run_module("divprism", run_name="__main__", alter_sys=True)


def _write(end: Connection, data: bytes) -> None:
    """Write all bytes and close, as a shell does; a command may stop reading early."""
    try:
        with open(end.fileno(), "wb", closefd=False) as stream:
            stream.write(data)
    except BrokenPipeError:
        pass
    end.close()


def _read(end: Connection) -> bytes:
    with open(end.fileno(), "rb", closefd=False) as stream:
        data = stream.read()
    end.close()
    return data
