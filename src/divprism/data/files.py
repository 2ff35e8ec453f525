"""How files and standard input are opened, atomic writes, and file hashes.

Only regular files are read: a named pipe may never answer, and a device never end. Everything is
written under a temporary name first, so that a full disk or a signal leaves no part of a file.
"""

import codecs
import contextlib
import errno
import glob
import hashlib
import io
import itertools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from divprism.data.wording import escaped, first_line, reason
from divprism.errors import ArgumentError, DataError

__all__ = [
    "ESCAPING",
    "MAX_STDIN",
    "TEMPORARY",
    "check_target",
    "file_digest",
    "open_file",
    "read_file",
    "require_apart",
    "require_different",
    "standard_input",
    "umask",
    "write_text",
    "write_together",
    "write_whole",
]

ESCAPING = "divprism-escaping"
"""Name for `errors=`: letters that an encoding lacks are written as JSON escapes them."""
MAX_STDIN = 512 << 20
"""Bytes that are read from standard input; a pipe may never end."""

TEMPORARY = ".partial"
"""Suffix of files that are still being written."""

_BLOCK = 1 << 20  # bytes hashed, or read from standard input, at a time
# What cannot be read, by the test that recognises it.
_IRREGULAR: dict[Callable[[int], bool], str] = {
    stat.S_ISFIFO: "it is a named pipe; give its content on standard input, as -",
    stat.S_ISSOCK: "it is a socket",
    stat.S_ISDIR: "it is a folder",
}
_DEVICE = "it is a device, not a file"


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Replace letters that cannot be encoded by their JSON escapes: JSON stays JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    # UTF-16 spells a letter beyond 16 bits as two units, and so does JSON.
    units = missing.encode("utf-16-be", "surrogatepass")
    pairs = [units[index : index + 2].hex() for index in range(0, len(units), 2)]
    return "".join(f"\\u{pair}" for pair in pairs), error.end


codecs.register_error(ESCAPING, _escape)


def open_file(path: str | Path, name: str | None = None) -> BinaryIO:
    """Open a regular file for reading bytes; `name` stands for it in messages.

    Raises
    ------
    DataError
        If there is no such file, or if it is a folder, a pipe, a socket or a device.
    """
    label = name or escaped(path)[:200]
    try:
        # Before opening, which may have an effect on a device. A pipe could take its place after
        # the check: opened without blocking and checked again, it cannot stop this process.
        _require_regular(os.stat(path), label)
        descriptor = os.open(path, os.O_RDONLY | _BINARY | _WITHOUT_BLOCKING)
    except OSError as error:
        raise DataError(f"cannot read {label}: {reason(error)}.") from None
    except DataError:  # which is a ValueError too
        raise
    except ValueError:  # a null character
        raise DataError(f"cannot read {label}: it is not the name of a file.") from None
    file = os.fdopen(descriptor, "rb")
    status = os.fstat(descriptor)
    try:
        _require_regular(status, label)
    except DataError:
        file.close()
        raise
    if status.st_size == 0:
        # Files of /proc state no size and may never end; of all others nothing is lost.
        file.close()
        return io.BytesIO()
    return file


# Windows has a flag for bytes, since it opens files as text by default, and none for pipes.
_BINARY = getattr(os, "O_BINARY", 0)
_WITHOUT_BLOCKING = getattr(os, "O_NONBLOCK", 0)


def _require_regular(status: os.stat_result, label: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    reasons = [text for test, text in _IRREGULAR.items() if test(status.st_mode)]
    raise DataError(f"cannot read {label}: {(*reasons, _DEVICE)[0]}.")


def read_file(path: str | Path, limit: int, name: str | None = None) -> bytes:
    """Return the bytes of a regular file of at most `limit` bytes."""
    label = name or escaped(path)[:200]
    with open_file(path, name) as file:
        try:
            # One byte more is enough to see that a file is too large, or grows as it is read.
            content = file.read(limit + 1)
        except OSError as error:
            raise DataError(f"cannot read {label}: {reason(error)}.") from None
    if len(content) > limit:
        raise DataError(f"{label} is larger than {limit:,} bytes, which is more than is read.")
    return content


def standard_input() -> bytes:
    """Return everything that standard input provides, at most `MAX_STDIN` bytes.

    It is read block by block: within one long read, Ctrl-C could go unnoticed until the end.
    """
    if sys.stdin is None:
        raise DataError("standard input is closed.")
    stream = cast(io.BufferedReader, sys.stdin.buffer)
    blocks = []
    size = 0
    try:
        while block := stream.read1(_BLOCK):
            blocks.append(block)
            size += len(block)
            if size > MAX_STDIN:
                raise DataError(
                    f"standard input is longer than {MAX_STDIN >> 20} MB; write it to a file, "
                    "and name that."
                )
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"cannot read standard input: {first_line(error)}.") from None
    if not blocks:
        raise DataError("standard input is empty.")
    return b"".join(blocks)


def write_whole(path: Path, write: Callable[[BinaryIO], object], *, sync: bool = False) -> None:
    """Write a file atomically: readers see the old content or the new, never a part of it.

    Parameters
    ----------
    path : Path
        The file to create or replace; its folder must exist.
    write : callable
        Writes the content to the binary file that it receives.
    sync : bool, optional
        Flush the content to disk before the file gets its name, so that even a power failure
        cannot leave a partial file.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    if path.exists() and not path.is_file():
        # A rename would put a file in the place of a device or a pipe.
        raise FileExistsError(errno.EEXIST, "it exists and is not a regular file")
    # In the same folder, because a rename is atomic only within one file system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            # `flush` empties the buffer of Python, `fsync` that of the operating system.
            if sync:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).chmod(_permissions(path))
        Path(temporary).replace(path)
    finally:
        # After a successful rename there is nothing left under this name.
        Path(temporary).unlink(missing_ok=True)


def write_text(path: str | Path, text: str | bytes) -> None:
    """Write a text to a file in one step; a pipe or a device is written to, never replaced.

    Raises
    ------
    DataError
        If the file cannot be written. What was there before is still there.
    """
    content = text
    if isinstance(content, str):
        content = content.encode("utf-8", ESCAPING)
    try:
        target = _target(path)
        if target.exists() and not target.is_file():
            _write_to_device(target, content)
        else:
            write_whole(target, lambda file: file.write(content))
    except OSError as error:
        raise DataError(f"cannot write {escaped(path)[:200]}: {reason(error)}.") from None
    # A loop of links, and a null character in the name.
    except (RuntimeError, ValueError) as error:
        raise DataError(f"cannot write {escaped(path)[:200]}: {first_line(error)}.") from None


def check_target(path: str | Path) -> None:
    """Refuse, before anything is computed, a file that `write_text` could not write."""
    try:
        target = _target(path)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        os.stat(target.parent)
        if not target.exists() and not os.access(target.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise DataError(f"cannot write {escaped(path)[:200]}: {reason(error)}.") from None
    # A loop of links, and a null character in the name.
    except (RuntimeError, ValueError) as error:
        raise DataError(f"cannot write {escaped(path)[:200]}: {first_line(error)}.") from None


def _target(path: str | Path) -> Path:
    """Return where to write: the file that a link leads to, so that the link stays a link."""
    given = Path(path)
    # A pipe behind /dev/stdout has no path that could be resolved.
    if given.exists() and not given.is_file():
        return given
    return given.resolve()


def require_apart(targets: Iterable[str | Path], sources: Iterable[str | Path]) -> None:
    """Raise ArgumentError if what is written would replace a file that is read; a link counts.

    A source may be a file, a folder, of which every file counts, or a pattern.
    """
    for target, source in itertools.product(targets, tuple(sources)):
        is_read = False
        # An absent file, or a name that no file can have.
        with contextlib.suppress(OSError, ValueError):
            is_read = os.path.isfile(target) and _holds(source, os.path.realpath(target))
        if is_read:
            named = escaped(target)[:200]
            raise ArgumentError(
                f"the result would replace {named}, which is or may be what it is made from; "
                "name another file."
            )


def _holds(source: str | Path, path: str) -> bool:
    """Whether a file is the source, is in it, or is matched by it."""
    real = os.path.realpath(source)
    if os.path.isdir(real):
        return _is_within(path, real) or any(_is_within(path, end) for end in _ends_of_links(real))
    if os.path.lexists(source):
        return os.path.samefile(real, path)
    # A pattern may match folders, which `divprism embed` has written.
    return any(_holds(name, path) for name in glob.glob(str(source)))


def _is_within(path: str, real: str) -> bool:
    """Whether a path is that of a file or folder, or of something inside of it."""
    try:
        return os.path.commonpath([real, path]) == real
    except ValueError:  # two drives of Windows
        return False


def _ends_of_links(folder: str) -> Iterator[str]:
    """Yield what links in a folder, at any depth, lead to."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entry = os.path.join(parent, name)
            if os.path.islink(entry):
                yield os.path.realpath(entry)


def require_different(targets: Iterable[Path]) -> None:
    """Raise ArgumentError if two results would be written to the same file."""
    seen = set()
    for target in targets:
        real = os.path.realpath(target)
        # Devices, such as /dev/stdout, take any number of results.
        if real in seen and (os.path.isfile(real) or not os.path.exists(real)):
            raise ArgumentError(f"two results would be written to {escaped(target)[:200]}.")
        seen.add(real)


def _write_to_device(path: Path, content: bytes) -> None:
    # Opening a pipe that nobody reads would block forever; without blocking it is an error.
    descriptor = os.open(path, os.O_WRONLY | _BINARY | _WITHOUT_BLOCKING)
    # From here on a slow reader is waited for.
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def write_together(
    folder: Path, contents: dict[str, Callable[[BinaryIO], object]], absent: str | None = None
) -> None:
    """Write several files of a folder: all of them, or, where one cannot be written, none.

    The last of them marks the folder as complete: it is removed before the others are replaced.

    Parameters
    ----------
    folder : Path
        The folder, which is created where it does not exist.
    contents : dict
        What writes each file, by the name of the file.
    absent : str, optional
        A file of an earlier run to remove.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    done = False
    # Of its own for each process: two that write to one folder do not mix their files.
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".", suffix=TEMPORARY))
    try:
        for name, write in contents.items():
            write_whole(temporary / name, write)
        # From here on only names change, which a full disk allows.
        marker = next(reversed(contents))
        (folder / marker).unlink(missing_ok=True)
        if absent is not None:
            (folder / absent).unlink(missing_ok=True)
        for name in contents:
            (temporary / name).replace(folder / name)
        done = True
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if is_new and not done:
            folder.rmdir()


def file_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file, read block by block; raises OSError if it cannot be read."""
    # In blocks: videos may be larger than memory.
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()


def _permissions(path: Path) -> int:
    """Return the permissions of a file that is replaced, which may be private, or of a new one."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o777
    except FileNotFoundError:
        # mkstemp creates private files.
        return 0o666 & ~umask()


def umask() -> int:
    """Return the permissions that new files of this process do not get."""
    # The mask can only be read by setting it. To one under which files are private, because other
    # threads may create some meanwhile.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
