"""The program that runs an ONNX model in a process of its own.

A graph of a few bytes can ask for any amount of memory or time, and onnxruntime has no limit of its
own. This program checks the graph, gives up the right to open files, and then computes one vector
for each item that arrives on its standard input. It is started by its path, so it imports nothing
of divprism but the module beside it.

Arguments: a JSON object (see `Task`), then the module path.
Input: for each item its length in four bytes, then its bytes (pixels, tokens of four bytes, or the
floats of a window of sound).
Output: a letter, a length in four bytes, and as many bytes; see READY, VECTOR and REFUSED.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import re
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from threading import Thread
from typing import Any, BinaryIO

__all__ = ["FREE_MEMORY", "HEADER", "READY", "REFUSED", "VECTOR", "Task"]

HEADER = struct.Struct("<cI")
"""Letter and length before each part of the output."""
READY, VECTOR, REFUSED = b"R", b"V", b"X"
"""The model is loaded; a vector in single precision; a reason in ASCII, after which this ends."""
FREE_MEMORY = 1 << 30
"""Bytes that a model of any size may take, beyond those for its file and each thread."""

Task = dict[str, Any]
"""The model file, its hash, limits, and settings:

path, sha256, memory (bytes), threads, modality, shape (of the pixels, or of the input of a sound),
axes (order of the axes of the pixels, without the batch), has_batch (whether the input of a sound
has an axis for the batch), mean, std, max_tokens, pad_id, output, pooling, normalize.
"""

_LENGTH = struct.Struct("<I")
_MAX_WIDTH = 1 << 20
# By the name that onnxruntime gives to the type of a tensor.
_FLOATS = {"tensor(float)": "float32", "tensor(float16)": "float16"}
_INTEGERS = {"tensor(int64)": "int64", "tensor(int32)": "int32"}
_TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def _limit(memory: int) -> None:
    """Limit the memory of this process, and let it write no file, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # macOS has no limit of address space.
    with contextlib.suppress(ValueError, OSError):
        total = _address_space() + memory
        resource.setrlimit(resource.RLIMIT_AS, (total, total))


def _close_the_file_system() -> None:
    """Let this process open no file from now on, whatever a model asks for."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def _address_space() -> int:
    """Return the bytes of address space that the interpreter and its libraries take themselves."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 2 << 30


def _checked(content: bytes, graph: Any) -> bytes:
    """Return the model without what was not checked: onnxruntime gets these bytes."""
    import onnx

    try:
        model = onnx.ModelProto.FromString(content)
    except Exception:
        raise graph.RefusedError("it is not an ONNX model, or it is truncated") from None
    graph.check_graph(model)
    return bytes(model.SerializeToString())


def _session(content: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # One thread per item: the order of sums depends on the threads inside an operator.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Without this, the first bytes decide, and another format would pass unchecked.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


class _Model:
    """A session, and how an item becomes its input and a vector its output."""

    def __init__(self, session: Any, task: Task, refused: type[Exception]) -> None:
        self.session = session
        self.task = task
        self.refused = refused
        self.output = self._chosen_output()
        inputs = session.get_inputs()
        if task["modality"] == "text":
            self.dtypes = self._text_inputs(inputs)
        elif task["modality"] == "audio":
            self.dtypes = self._single_input(inputs, task["shape"])
        else:
            self.dtypes = self._pixel_input(inputs)

    def vector(self, item: bytes) -> bytes:
        """Return the vector of an item, as bytes in single precision."""
        import numpy as np

        count = 0
        if self.task["modality"] == "text":
            count = len(item) // 4
            feeds = self._tokens(item)
        elif self.task["modality"] == "audio":
            feeds = self._sound(item)
        else:
            feeds = self._pixels(item)
        (values,) = self.session.run([self.output], feeds)
        values = np.asarray(values)
        # Models of one waveform return a row per frame, or one vector.
        if not self.task.get("has_batch", True):
            values = values[None]
        vector = self._pooled(values, count).astype(np.float32)
        if self.task["normalize"]:
            length = float(np.linalg.norm(vector.astype(np.float64)))
            if length == 0:
                raise self.refused("it returned zeros only, which have no direction to normalize")
            vector = vector / np.float32(length)
        return bytes(np.ascontiguousarray(vector, "<f4").tobytes())

    def _chosen_output(self) -> str:
        names = [output.name for output in self.session.get_outputs()]
        wanted = self.task["output"]
        if wanted is None and len(names) == 1:
            return str(names[0])
        if wanted not in names:
            shown = ", ".join(ascii(name[:60]) for name in names[:20])
            raise self.refused(f"`output` must be one of its outputs, {shown}")
        return str(wanted)

    def _pixel_input(self, inputs: list[Any]) -> dict[str, str]:
        shape = [self.task["shape"][axis] for axis in self.task["axes"]]
        return self._single_input(inputs, [1, *shape])

    def _single_input(self, inputs: list[Any], shape: list[int | None]) -> dict[str, str]:
        if len(inputs) != 1 or inputs[0].type not in _FLOATS:
            raise self.refused("it must have a single input, of floating-point numbers")
        self._check_shape(inputs[0], shape)
        return {inputs[0].name: _FLOATS[inputs[0].type]}

    def _text_inputs(self, inputs: list[Any]) -> dict[str, str]:
        length = None
        if self.task["pad_id"] is not None:
            length = self.task["max_tokens"]
        dtypes = {}
        for entry in inputs:
            is_known = entry.name in _TEXT_INPUTS or len(inputs) == 1
            if not is_known or entry.type not in _INTEGERS:
                raise self.refused(
                    f"its input {entry.name[:60]!a} is not one of {', '.join(_TEXT_INPUTS)}, "
                    "of whole numbers"
                )
            self._check_shape(entry, [1, length])
            dtypes[entry.name] = _INTEGERS[entry.type]
        return dtypes

    def _check_shape(self, entry: Any, expected: list[int | None]) -> None:
        """Compare the axes of an input that have a fixed length with what it will get."""
        stated = list(entry.shape)
        agrees = len(stated) == len(expected)
        for length, wanted in zip(stated, expected, strict=False):
            # Axes of any length have a name, or none.
            agrees = agrees and (not isinstance(length, int) or length == wanted)
        if not agrees:
            raise self.refused(
                f"its input {entry.name[:60]!a} has the shape {_spelled(stated)}, and its "
                f"settings give {_spelled(expected)}"
            )

    def _pixels(self, item: bytes) -> dict[str, Any]:
        import numpy as np

        pixels = np.frombuffer(item, np.uint8).reshape(self.task["shape"])
        mean = np.array(self.task["mean"], np.float32)
        std = np.array(self.task["std"], np.float32)
        scaled = (pixels.astype(np.float32) / np.float32(255) - mean) / std
        ((name, dtype),) = self.dtypes.items()
        arranged = np.ascontiguousarray(scaled.transpose(self.task["axes"])[None])
        return {name: arranged.astype(dtype, copy=False)}

    def _sound(self, item: bytes) -> dict[str, Any]:
        import numpy as np

        values = np.frombuffer(item, "<f4").reshape(self.task["shape"])
        ((name, dtype),) = self.dtypes.items()
        return {name: values.astype(dtype, copy=False)}

    def _tokens(self, item: bytes) -> dict[str, Any]:
        import numpy as np

        tokens = np.frombuffer(item, "<u4").astype(np.int64)
        mask = np.ones_like(tokens)
        if self.task["pad_id"] is not None:
            missing = (0, self.task["max_tokens"] - len(tokens))
            tokens = np.pad(tokens, missing, constant_values=self.task["pad_id"])
            mask = np.pad(mask, missing)
        by_name = {"attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        feeds = {}
        for name, dtype in self.dtypes.items():
            feeds[name] = by_name.get(name, tokens)[None].astype(dtype)
        return feeds

    def _pooled(self, values: Any, num_tokens: int) -> Any:
        """Return one vector from an output for a batch of one."""
        shape = values.shape
        # Kinds of floating-point numbers.
        if values.dtype.kind != "f" or len(shape) < 2 or shape[0] != 1 or values.size == 0:
            raise self.refused(f"its output must be numbers for a batch of one; it is {shape}")
        pooling = self.task["pooling"]
        first = values[0].astype("float32")
        if pooling == "none":
            if first.size != max(first.shape):
                raise self.refused(
                    f"its output has the shape {shape}, so `pooling` must not be none"
                )
            vector = first.reshape(-1)
        elif first.ndim == 2:
            # Tokens x width; padding comes last.
            tokens = first[: num_tokens or len(first)]
            vector = {"mean": tokens.mean(axis=0), "first": tokens[0], "last": tokens[-1]}[pooling]
        elif pooling == "mean" and first.ndim > 2:
            # Width x positions, as convolutions return them.
            vector = first.reshape(len(first), -1).mean(axis=1)
        else:
            raise self.refused(
                f"its output has the shape {shape}, which is not for `pooling` {pooling}"
            )
        if len(vector) > _MAX_WIDTH:
            raise self.refused(f"its vectors have {len(vector):,} numbers; at most {_MAX_WIDTH:,}")
        return vector


def _spelled(shape: list[Any]) -> str:
    lengths = []
    for length in shape:
        if isinstance(length, int):
            lengths.append(str(length))
        else:
            lengths.append("any")
    return f"({', '.join(lengths)})"


def _items(source: BinaryIO) -> Iterator[bytes]:
    while header := source.read(_LENGTH.size):
        (length,) = _LENGTH.unpack(header)
        item = source.read(length)
        if len(item) < length:
            return
        yield item


def _serve(model: _Model, threads: int, send: Callable[[bytes, bytes], None]) -> None:
    """Answer every item in order; the items of a batch run at the same time."""
    pending: Queue[Future[bytes] | None] = Queue()
    # Read on a thread of its own: the other side writes a whole batch before it reads.
    pool = ThreadPoolExecutor(threads)

    def read() -> None:
        with contextlib.suppress(OSError):
            for item in _items(sys.stdin.buffer):
                pending.put(pool.submit(model.vector, item))
        pending.put(None)

    Thread(target=read, daemon=True).start()
    while (future := pending.get()) is not None:
        send(VECTOR, future.result())


def _neighbour(name: str) -> Any:
    """Import a module of this folder alone: the package would import much more."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _main(send: Callable[[bytes, bytes], None]) -> None:
    task = json.loads(sys.argv[1])
    # Started isolated from the folder and the user's settings; packages are where they were.
    sys.path += [folder for folder in sys.argv[2:] if folder not in sys.path]
    # All of them now: later no file can be opened.
    for library in ("numpy", "onnx", "onnxruntime"):
        importlib.import_module(library)
    graph = _neighbour("_onnx_graph")
    with open(task["path"], "rb") as file:
        content = file.read()
    if hashlib.sha256(content).hexdigest() != task["sha256"]:
        raise graph.RefusedError("it changed while it was read")
    _limit(task["memory"])
    _close_the_file_system()
    content = _checked(content, graph)
    model = _Model(_session(content), task, graph.RefusedError)
    del content
    send(READY, b"")
    _serve(model, task["threads"], send)


def _reason(error: BaseException) -> str:
    if isinstance(error, MemoryError) or "bad_alloc" in str(error) or "allocate" in str(error):
        return "it needs more memory than is available, or than a model of its size may take"
    lines = str(error).splitlines() or [type(error).__name__]
    if isinstance(error, UnicodeDecodeError):
        return "it is not an ONNX model, or it is damaged"
    if type(error).__name__ == "RefusedError":
        return lines[0]
    # "... while running Range node. Name:'' Status Message: delta in Range can not be zero!"
    failed = re.search(r"running (\w+) node.*Status Message: (.*)", lines[0])
    if failed is not None:
        message = failed[2].rstrip(".")[:200]
        # Some begin with the line of source code that raised them, and say nothing else.
        if message.startswith("/"):
            return f"its operator {failed[1]} fails"
        return f"its operator {failed[1]} fails ({message})"
    # "[ONNXRuntimeError] : 1 : FAIL : Load model from ..."
    text = lines[0].split(" : ", 3)[-1].rstrip(".")
    return f"onnxruntime cannot run it ({text[:200]})"


def _start() -> None:
    # Ctrl-C reaches this process as well; the one that started it decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Libraries may print to the standard output: what they print must not become an answer.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(letter: bytes, content: bytes) -> None:
        sink.write(HEADER.pack(letter, len(content)) + content)
        sink.flush()

    try:
        _main(send)
    except BrokenPipeError:
        pass
    except BaseException as error:  # whatever onnxruntime raises becomes one sentence
        with contextlib.suppress(OSError):
            send(REFUSED, _reason(error).encode("ascii", "backslashreplace"))
    # Without waiting for threads that still compute.
    os._exit(0)


if __name__ == "__main__":
    _start()
