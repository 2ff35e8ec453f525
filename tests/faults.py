"""Run a divprism command in a process whose surroundings are faulty.

Each command is a fork of the server of `command_line`, which has no threads: a fork of a test
process, whose libraries have started threads, may wait for a lock that no thread will release.
"""

# ruff: noqa: SIM115
import fcntl
import gc
import importlib
import os
import resource
import signal
import subprocess
import sys
import traceback

import numpy as np
import pytest
from command_line import SERVER, start_server

import divprism as dp

MEMORY = 3 << 30  # bytes of address space: an endless file must be refused long before
STREAMS = ("stdin", "stdout", "stderr")


def nothing():
    """Leave everything as it is."""


def run_faulty(*arguments, cwd, prepare=nothing, timeout=60):
    """Return the result of a command that runs after `prepare`, a function that can be pickled."""
    pipes = [SERVER.Pipe(duplex=False) for _ in range(2)]
    for _, writer in pipes:
        # A megabyte, so that nobody needs to read meanwhile; a file would be on a faulty disk.
        fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)
    writers = [writer for _, writer in pipes]
    call = list(map(str, arguments))
    start_server()
    process = SERVER.Process(target=_child, args=(call, cwd, prepare, dict(os.environ), *writers))
    process.start()
    for writer in writers:
        writer.close()
    process.join(timeout)
    if process.exitcode is None:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        pytest.fail(f"{arguments} did not end")
    streams = []
    for reader, _ in pipes:
        with open(reader.fileno(), "rb", closefd=False) as stream:
            streams.append(stream.read())
        reader.close()
    return subprocess.CompletedProcess(arguments, process.exitcode, *streams)


def _child(call, cwd, prepare, environment, *writers):
    gc.freeze()  # as in `command_line`
    code = 99
    try:
        os.setpgid(0, 0)
        os.chdir(cwd)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, writer in enumerate(writers, 1):
            os.dup2(writer.fileno(), number)
            writer.close()
        for number, (name, mode) in enumerate(zip(STREAMS, "rww", strict=True)):
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))
        os.environ.clear()
        os.environ.update(environment)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        prepare()
        sys.argv = ["divprism", *call]
        code = _main()
    finally:
        os._exit(code)


def _main():
    """Run the command line as an interpreter would, and return its exit code."""
    from divprism.cli import main

    code = 0
    try:
        main()
    except SystemExit as left:
        code = left.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = 120  # as Python exits if it cannot flush
    return code


def close_stream(number):
    """Start without a stream, as some daemons do."""
    os.close(number)
    setattr(sys, STREAMS[number], None)


def fill_stream(number):
    """Let a stream go to a full disk."""
    os.dup2(os.open("/dev/full", os.O_RDWR), number)


def read_from(path):
    """Let standard input be a device or a folder."""
    os.dup2(os.open(path, os.O_RDONLY), 0)


def read_from_a_writer():
    """Let standard input be a file that is open for writing only."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 0)


def break_pipe():
    """Let stdout be a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def become_unknown():
    """Become a user without a name and a home, as in some containers."""
    # The interpreter of the tests may be in a folder that this user cannot read.
    for module in (
        "email.parser",
        "encodings.utf_8_sig",
        "importlib.readers",
        "rich.table",
        "rich.console",
    ):
        importlib.import_module(module)
    dp.evaluate(np.eye(3), np.eye(3)).to_dict()
    for name in ("HOME", "DIVPRISM_CACHE", "XDG_CACHE_HOME", "MPLCONFIGDIR"):
        os.environ.pop(name, None)
    os.setgroups([])
    os.setgid(12345)
    os.setuid(12345)


def limit_files():
    """Let no file grow beyond 600 bytes, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))


def set_encoding(encoding):
    """Print in another encoding than UTF-8."""
    for name in STREAMS[1:]:
        number = getattr(sys, name).fileno()
        setattr(sys, name, open(number, "w", encoding=encoding, errors="strict", closefd=False))


def leave_no_folder():
    """Work in a folder that has been removed."""
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
