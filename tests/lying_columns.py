"""Parquet and Arrow files that unpack to far more than their size, or contradict themselves.

Each function takes a random generator, so that a run with another seed tries other sizes.
"""

import io

import pyarrow as pa
from pyarrow import parquet

ZEROS = 1 << 20  # bytes of one repeated block


def _parquet(table, **options):
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, **{"compression": "zstd", **options})
    return buffer.getvalue()


def _stream(schema, batches, **options):
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return buffer.getvalue()


def _one_batch(columns, **options):
    batch = pa.RecordBatch.from_pydict(columns)
    return _stream(batch.schema, [batch], **options)


def _prompts(count):
    """Return a column of equal prompts that takes no memory."""
    return pa.DictionaryArray.from_arrays(pa.array(bytes(count), pa.int8()), ["p"])


def _int8_zeros(count):
    return pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(bytes(count))])


def _shared_text(rng, rows, megabytes):
    text = chr(int(rng.integers(97, 123))) * (megabytes << 20)
    return pa.DictionaryArray.from_arrays(_int8_zeros(rows), pa.array([text]))


def parquet_dictionary(rng, codec="zstd"):
    rows = int(rng.integers(1000, 3000))
    table = pa.table({"prompt": _prompt_column(rows), "output": _shared_text(rng, rows, 8)})
    return _parquet(table, compression=codec, dictionary_pagesize_limit=1 << 30)


def _prompt_column(rows):
    return pa.DictionaryArray.from_arrays(_int8_zeros(rows), pa.array(["p"]))


def parquet_long_cell(rng, codec="zstd"):
    size = int(rng.integers(200, 300)) << 20
    output = pa.array([bytes(size)], pa.binary())
    table = pa.table({"prompt": ["p"], "output": output})
    return _parquet(table, compression=codec, use_dictionary=False, write_statistics=False)


def parquet_many_rows(rng):
    rows = int(rng.integers(2_000_000, 4_000_000))
    return _parquet(pa.table({"prompt": _prompt_column(rows), "output": _prompt_column(rows)}))


def parquet_equal_rows(rng):
    rows = int(rng.integers(150_000, 900_000))
    return _parquet(pa.table({"prompt": _prompt_column(rows), "output": _prompt_column(rows)}))


def parquet_nothing(rng):
    return _parquet(pa.table({"output": pa.nulls(int(rng.integers(40_000_000, 50_000_000)))}))


def parquet_list_of_runs(rng):
    count = int(rng.integers(30_000_000, 50_000_000))
    offsets = pa.array([0, count], pa.int32())
    column = pa.ListArray.from_arrays(offsets, _int8_zeros(count))
    return _parquet(pa.table({"prompt": ["p"], "embedding": column}))


def parquet_list_of_lists(rng):
    count = int(rng.integers(12_000_000, 15_000_000))
    inner = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), _int8_zeros(count))
    for _ in range(6):
        inner = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), inner)
    return _parquet(pa.table({"prompt": ["p"], "embedding": inner}))


def parquet_wide(rng, columns=60_000):
    names = [f"c{i}" for i in range(columns + int(rng.integers(100)))]
    # Without an Arrow schema in the metadata and without statistics, to be written fast.
    table = pa.table([pa.array([1], pa.int8())] * len(names), names=names)
    return _parquet(table, store_schema=False, write_statistics=False, use_dictionary=False)


def parquet_duplicates(rng):
    table = pa.table([["p", "q"], ["a", "b"], ["c", "d"]], names=["prompt", "output", "output"])
    return _parquet(table)


def parquet_duplicate_fields(rng):
    arrays = [pa.array(["a", "b"]), pa.array(["c", "d"])]
    column = pa.StructArray.from_arrays(arrays, fields=[pa.field("text", pa.string())] * 2)
    return _parquet(pa.table({"prompt": ["p", "q"], "output": column}))


def parquet_deep(rng):
    column = pa.array(["a"])
    for _ in range(int(rng.integers(90, 200))):
        column = pa.StructArray.from_arrays([column], ["s"])
    return _parquet(pa.table({"prompt": ["p"], "output": column}))


def parquet_long_name(rng):
    name = "n" * (8 << 20)
    return _parquet(pa.table({"prompt": ["p"], "output": ["a"], name: [1]}))


def parquet_delta(rng):
    text = "x" * (4 << 20)
    rows = int(rng.integers(40, 60))
    table = pa.table({"prompt": ["p"] * rows, "output": [text] * rows})
    encoding = {"output": "DELTA_BYTE_ARRAY", "prompt": "DELTA_BYTE_ARRAY"}
    return _parquet(table, use_dictionary=False, column_encoding=encoding)


def parquet_fixed_size(rng):
    width = int(rng.integers(150, 200)) << 20
    column = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), 1, [None, pa.py_buffer(bytes(width))]
    )
    return _parquet(pa.table({"prompt": ["p"], "output": column}), write_statistics=False)


def parquet_cut(rng):
    content = _parquet(pa.table({"prompt": ["p"] * 50, "output": ["a"] * 50}))
    return content[: int(rng.integers(20, len(content) - 1))]


def parquet_other_footer(rng):
    """A file whose footer describes another file, so that its sizes and offsets are wrong."""
    small = _parquet(pa.table({"prompt": ["p"] * 5, "output": ["a"] * 5}))
    large = _parquet(pa.table({"prompt": ["p"] * 999_999, "output": ["a"] * 999_999}))
    footer = int.from_bytes(large[-8:-4], "little") + 8
    return small[: int(rng.integers(100, len(small)))] + large[-footer:]


def arrow_nothing(rng):
    rows = int(rng.integers(300_000_000, 2_000_000_000))
    return _one_batch({"prompt": pa.nulls(rows), "output": pa.nulls(rows)})


def arrow_no_columns(rng):
    struct = pa.StructArray.from_buffers(pa.struct([]), 400_000_000, [None])
    return _one_batch({"output": struct})


def arrow_many_batches_of_nothing(rng):
    batch = pa.RecordBatch.from_pydict({"output": pa.nulls(900_000)})
    return _stream(batch.schema, [batch] * 500)


def arrow_runs(rng):
    count = int(rng.integers(100_000_000, 2**31 - 1))
    return _one_batch({"output": pa.RunEndEncodedArray.from_arrays(pa.array([count]), ["a"])})


def arrow_dictionary(rng):
    rows = int(rng.integers(100_000, 200_000))
    return _one_batch({"prompt": _prompt_column(rows), "output": _shared_text(rng, rows, 2)})


def arrow_dictionary_in_list(rng):
    rows = int(rng.integers(2_000, 4_000))
    offsets = pa.array(range(rows + 1), pa.int32())
    column = pa.ListArray.from_arrays(offsets, _shared_text(rng, rows, 2))
    return _one_batch({"prompt": _prompt_column(rows), "output": column})


def arrow_views(rng):
    """Return 100,000 views of the same megabyte."""
    data = bytes(ZEROS)
    # A view has its length, the first four bytes, the index of its buffer and an offset.
    view = len(data).to_bytes(4, "little") + data[:4] + bytes(8)
    rows = int(rng.integers(50_000, 100_000))
    buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.string_view(), rows, buffers)
    return _one_batch({"output": column})


def arrow_list_views(rng):
    rows = int(rng.integers(5_000, 10_000))
    values = _int8_zeros(ZEROS)
    offsets, sizes = pa.array([0] * rows, pa.int32()), pa.array([ZEROS] * rows, pa.int32())
    return _one_batch({"output": pa.ListViewArray.from_arrays(offsets, sizes, values)})


def arrow_union(rng):
    rows = int(rng.integers(100_000, 200_000))
    types = pa.array(bytes(rows), pa.int8())
    column = pa.UnionArray.from_dense(
        types, pa.array([0] * rows, pa.int32()), [pa.array(["a" * ZEROS])]
    )
    return _one_batch({"output": column})


def arrow_compressed(rng, codec="zstd"):
    size = int(rng.integers(200, 300)) << 20
    return _one_batch({"output": pa.array([bytes(size)], pa.binary())}, compression=codec)


def arrow_fixed_lists_of_nothing(rng):
    width = int(rng.integers(10**8, 2**31 - 1))
    column = pa.FixedSizeListArray.from_arrays(pa.nulls(width), width)
    return _one_batch({"embedding": column})


def arrow_lists_of_nothing(rng):
    count = int(rng.integers(10**8, 2**31 - 1))
    column = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count))
    return _one_batch({"prompt": ["p"], "embedding": column})


def arrow_long_message(rng):
    """A message that claims a body of an exabyte."""
    content = bytearray(_one_batch({"prompt": ["p"], "output": ["a"]}))
    body = content.rfind((8).to_bytes(8, "little"))
    content[body : body + 8] = int(rng.integers(2**40, 2**60)).to_bytes(8, "little")
    return bytes(content)


def arrow_long_metadata_length(rng):
    return b"\xff\xff\xff\xff" + int(rng.integers(2**24, 2**31)).to_bytes(4, "little") + bytes(99)


def arrow_duplicates(rng):
    batch = pa.RecordBatch.from_arrays([["a"], ["b"]], names=["output", "output"])
    return _stream(batch.schema, [batch])


def arrow_deep(rng):
    kind = pa.string()
    for _ in range(int(rng.integers(500, 3000))):
        kind = pa.list_(kind)
    return _stream(pa.schema([("output", kind)]), [])


def arrow_wide(rng):
    names = [f"c{i}" for i in range(60_000)]
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int8())] * 60_000, names=names)
    return _stream(batch.schema, [batch])


def _with_times(rng, kind):
    """Return a table with a column of times that are far from now."""
    far = pa.array([int(value) for value in rng.integers(2**60, 2**62, 20)])
    texts = [f"text {number}" for number in range(20)]
    return pa.table({"prompt": texts, "output": texts, "when": far.view(kind)})


def arrow_far_times(rng):
    table = _with_times(rng, pa.timestamp(str(rng.choice(["s", "ms", "us"]))))
    return _stream(table.schema, table.to_batches())


def arrow_far_durations(rng):
    table = _with_times(rng, pa.duration(str(rng.choice(["s", "ms"]))))
    return _stream(table.schema, table.to_batches())


def parquet_time_zone(rng):
    return _parquet(_with_times(rng, pa.timestamp("us", "\x1b[31mnowhere")))


def parquet_large_metadata(rng):
    """An honest table with 16 MB of metadata: read."""
    table = pa.table({"prompt": ["p", "q"], "output": ["a", "b"]})
    return _parquet(table.replace_schema_metadata({"notes": "x" * (16 << 20)}))


def arrow_honest_shares(rng):
    """Prompts in a dictionary, outputs in views: what polars and datasets write."""
    prompts = pa.array(["p", "q", "p"]).dictionary_encode()
    outputs = pa.array(["one", "two", "an output longer than twelve bytes"], pa.string_view())
    return _one_batch({"prompt": prompts, "output": outputs})


def _with_codecs(make, codecs):
    cases = {}
    for codec in codecs:
        cases[f"{make.__name__} {codec}"] = lambda rng, codec=codec: make(rng, codec)
    return cases


_PARQUET = (
    *(parquet_many_rows, parquet_nothing, parquet_list_of_runs, parquet_list_of_lists),
    *(parquet_wide, parquet_duplicates, parquet_duplicate_fields, parquet_deep),
    *(parquet_long_name, parquet_delta, parquet_fixed_size, parquet_cut, parquet_other_footer),
    *(parquet_time_zone, parquet_equal_rows),
)
_ARROW = (
    *(arrow_nothing, arrow_no_columns, arrow_many_batches_of_nothing, arrow_runs),
    *(arrow_dictionary, arrow_dictionary_in_list, arrow_views, arrow_list_views, arrow_union),
    *(arrow_fixed_lists_of_nothing, arrow_lists_of_nothing, arrow_long_message, arrow_deep),
    *(arrow_long_metadata_length, arrow_duplicates, arrow_wide),
    *(arrow_far_times, arrow_far_durations),
)
PARQUET = {
    **{make.__name__: make for make in _PARQUET},
    **_with_codecs(parquet_dictionary, ("zstd", "gzip", "brotli", "lz4", "snappy")),
    **_with_codecs(parquet_long_cell, ("zstd", "lz4")),
}
"""Parquet files that must be refused, by name."""
ARROW = {
    **{make.__name__: make for make in _ARROW},
    **_with_codecs(arrow_compressed, ("zstd", "lz4")),
}
"""Arrow streams that must be refused, by name."""
HONEST = {
    "a.parquet": parquet_large_metadata,
    "a.arrow": arrow_honest_shares,
}
"""Files that look odd and must be read, by file name."""
