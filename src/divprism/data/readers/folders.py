"""Layouts of folders: what lies in one, and which prompt each file belongs to."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from divprism.data.media import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from divprism.data.readers.fields import Fields, Findings, samples_from_records
from divprism.data.readers.guards import Root, listing, parse_json, read_whole, shown
from divprism.data.readers.pairing import by_list, by_name
from divprism.data.readers.tables import TABLE_SUFFIXES, Record, kind_of, read_table
from divprism.data.readers.values import as_file
from divprism.data.samples import Item, Samples, Text, Video, clean_text
from divprism.errors import DataError

__all__ = [
    "check_surplus",
    "find_table",
    "media_files",
    "natural",
    "read_datasets_folder",
    "read_media_folder",
    "tell_prompts_by_case",
]

_MEDIA = IMAGE_SUFFIXES | VIDEO_SUFFIXES
_UNREAD = (
    {
        ".apng",
        ".dng",
        ".exr",
        ".heic",
        ".heif",
        ".ico",
        ".j2k",
        ".jxl",
        ".pbm",
        ".pnm",
        ".psd",
        ".svg",
        ".tga",
    }
    | {".3gp", ".flv", ".ogv", ".wmv", ".y4m"}
) - _MEDIA


def natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Sort key that puts 2.png before 10.png.

    >>> [path.name for path in sorted(map(Path, ["10.png", "2.png", "a.png"]), key=natural)]
    ['2.png', '10.png', 'a.png']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", path.name)
    return [
        (int(part), "") if part[0] in "0123456789" else (10**18, part.casefold()) for part in parts
    ], path.name


def media_files(folder: Path, root: Root) -> list[Path]:
    """Pictures and videos directly in a folder, in natural order; links that lead outside are refused."""
    found = [path for path in listing(folder) if path.suffix.lower() in _MEDIA]
    for path in found:
        root.require_inside(path, shown(path))
    return sorted((path for path in found if path.is_file()), key=natural)


def find_table(folder: Path) -> list[Path]:
    """The table that describes a folder: metadata.*, else samples of lm-eval, else the only table there is."""
    tables = [
        path
        for path in listing(folder)
        if kind_of(path) in TABLE_SUFFIXES - {".txt"} and path.is_file()
    ]
    described = [
        path for path in tables if path.name.split(".")[0] == "metadata" and not _is_stray(path)
    ]
    samples = [path for path in tables if re.fullmatch(r"samples_.+\.jsonl(\.gz)?", path.name)]
    if described:
        tables = described
    elif samples:
        return _distinct_tasks(samples, folder)
    else:
        tables = [path for path in tables if not _is_stray(path)]
    if len(tables) > 1:
        names = ", ".join(shown(path.name) for path in tables[:5])
        raise DataError(
            f"{shown(folder)} holds {len(tables)} tables ({names}); name the one to read."
        )
    return tables


def _distinct_tasks(samples: list[Path], folder: Path) -> list[Path]:
    """One run of each task: samples_<task>_<date>.jsonl."""
    tasks = Counter(
        re.sub(r"_\d{4}-\d\d-\d\dT.*|\.jsonl(\.gz)?$", "", path.name) for path in samples
    )
    task, count = tasks.most_common(1)[0]
    if count > 1:
        raise DataError(
            f"{shown(folder)} holds {count} runs of {shown(task)}; name the file of the one to read."
        )
    return samples


def _is_stray(path: Path) -> bool:
    """Whether a .json beside pictures or folders is an object that names no file: the arguments of a run, say."""
    if kind_of(path) != ".json" or path.is_symlink():  # where a link leads is checked by the reader
        return False
    if not any(other.suffix.lower() in _MEDIA or other.is_dir() for other in listing(path.parent)):
        return False
    try:
        content = parse_json(read_whole(path, shown(path)), shown(path))
    except DataError:
        return False  # the reader says what is wrong with it
    if not isinstance(content, dict) or (len(content) == 1 and _are_records(*content.values())):
        return False
    names = [*content, *(name for value in content.values() for name in _names_within(value))]
    values = [
        value for value in content.values() if isinstance(value, str) and _is_media(value)
    ]  # prompt -> file: refused
    return not any(map(_is_media, names)) and not any(
        _is_there(path.parent, name) for name in (*names, *values)
    )


def _are_records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _names_within(value: Any) -> list[str]:
    entries = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return [entry for entry in entries if isinstance(entry, str)]


def _is_media(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in _MEDIA


def _is_there(folder: Path, name: str) -> bool:
    try:
        return (
            not os.path.isabs(name) and ".." not in Path(name).parts and (folder / name).is_file()
        )
    except (OSError, ValueError):
        return False


def _note_strays(folder: Path, table: str, findings: Findings) -> None:
    for path in listing(folder):
        if kind_of(path) == ".json" and shown(path) != table and path.is_file() and _is_stray(path):
            findings.notes.append(f"{shown(path)}: not read, for it names no file of the folder")


def check_surplus(samples: Samples, root: Root, findings: Findings) -> None:
    """Tell of files that the table does not name, of files that it names twice, and of names that differ by case only."""
    named = [path for output in samples.outputs for path in _files(output)]
    used = Counter(root.real(path) for path in named)
    twice = [path for path, count in used.items() if count > 1]
    if twice:
        findings.add(f"{len(twice):,} files are named more than once (first: {shown(twice[0])}).")
    kinds = _kinds(named)
    there = [path for place in sorted({path.parent for path in named}) for path in listing(place)]
    unknown = [
        path
        for path in there
        if path.suffix.lower() in kinds and root.real_if_plain(path) not in used
    ]
    surplus = [path for path in unknown if root.real(path) not in used]
    if surplus:
        findings.add(
            f"{len(surplus):,} files are not named in {shown(samples.source)} (first: {shown(surplus[0])})."
        )
    _tell_case(sorted(used), "file names", findings)
    _note_strays(root.folder, samples.source, findings)


def _files(output: Item | object) -> Sequence[Path]:
    source = getattr(output, "source", None)
    return (source,) if isinstance(source, Path) else source if isinstance(source, tuple) else ()


def _kinds(paths: Sequence[Path]) -> set[str]:
    """The suffixes of the same sort as those in use: a video beside pictures is no surplus."""
    suffixes = {path.suffix.lower() for path in paths}
    return set().union(*(group for group in (IMAGE_SUFFIXES, VIDEO_SUFFIXES) if group & suffixes))


def _tell_case(names: Sequence[str], what: str, findings: Findings) -> None:
    folded: dict[str, set[str]] = {}
    for name in names:
        folded.setdefault(name.casefold(), set()).add(name)
    clashes = [sorted(group) for group in folded.values() if len(group) > 1]
    if clashes:
        first = " and ".join(shown(name[:60]) for name in clashes[0][:2])
        findings.add(f"{len(clashes):,} {what} differ by case only (first: {first}).")


def tell_prompts_by_case(samples: Samples, findings: Findings) -> None:
    """Tell of prompts that differ by case only: often one prompt that was written twice."""
    if isinstance(samples.prompts, tuple):
        _tell_case(
            [prompt.text for prompt in samples.prompts if isinstance(prompt, Text)],
            "prompts",
            findings,
        )


def read_media_folder(
    folder: Path, fields: Fields, root: Root, findings: Findings, prompts: Sequence[Item] | None
) -> Samples:
    """Pictures or videos without a table: a folder per prompt, `{prompt}-{index}.ext`, or a list of prompts beside them."""
    _note_strays(folder, "", findings)
    direct = media_files(folder, root)
    paired: Sequence[Item] | None = None
    if flat := _are_outputs(direct, fields, root, findings, listed=prompts is not None):
        _check_one_kind(direct, folder)
        items = [_as_item(path) for path in direct]
    else:
        items, paired = _in_folders(folder, fields, root, findings)
    odd = _unread(folder, 0 if flat else 2)
    if not items:
        raise DataError(
            " ".join(
                [
                    f"{shown(folder)} holds neither a table nor pictures, videos or folders of them.",
                    *odd,
                ]
            )
        )
    for text in odd:
        findings.add(text)
    if paired is None:
        names = [_stem(item) for item in items]
        paired = (
            by_list(names, prompts, folder, findings)
            if prompts is not None
            else by_name(names, folder, findings)
        )
    elif prompts is not None:
        raise DataError(f"{shown(folder)} has a folder per prompt, so --prompts is one too many.")
    samples = Samples(tuple(items), None if paired is None else tuple(paired), None, shown(folder))
    _tell_case([str(path) for item in items for path in _files(item)], "file names", findings)
    return samples


def _are_outputs(
    direct: Sequence[Path], fields: Fields, root: Root, findings: Findings, *, listed: bool
) -> bool:
    """Whether the files of a folder are its outputs, not the folders in it; the few of the other sort are told.

    A list of prompts goes with files, frames with folders; else those that are at least twice as many are read.
    """
    if not direct:
        return False
    folder, clips = root.folder, fields.output_kind == "video"
    places = [path for path in listing(folder) if path.is_dir() and not _leads_outside(path, root)]
    inside = {path: count for path in places if (count := _count(path, clips))}
    if not inside:
        return True
    deep = sum(inside.values())
    frames = clips and not _holds_videos(direct)
    if frames or (not listed and 2 * len(direct) <= deep):
        findings.add(
            f"{len(direct):,} files beside the folders in {shown(folder)} are not read (first: {shown(direct[0].name)})."
        )
        return False
    if not listed and 2 * deep > len(direct):
        raise DataError(
            f"{shown(folder)} holds {len(direct):,} outputs, and {deep:,} more in folders beside them; keep the two apart."
        )
    first = shown(min(inside, key=natural).name)
    findings.add(
        f"{len(inside):,} folders beside the files in {shown(folder)} are not read (first: {first})."
    )
    return True


def _leads_outside(path: Path, root: Root) -> bool:
    try:
        root.require_inside(path, "")
    except DataError:
        return True
    return False


def _count(folder: Path, clips: bool) -> int:
    """Outputs in a folder and the folders in it; with `clips`, the pictures of each folder are one."""
    count = 0
    for _, inner, names in os.walk(folder):
        inner[:] = [
            name for name in inner if not name.startswith((".", "__MACOSX"))
        ]  # as `listing` leaves them out
        suffixes = [os.path.splitext(name)[1].lower() for name in names if not name.startswith(".")]
        pictures = sum(suffix in IMAGE_SUFFIXES for suffix in suffixes)
        count += sum(suffix in VIDEO_SUFFIXES for suffix in suffixes) + (
            min(pictures, 1) if clips else pictures
        )
    return count


def _unread(folder: Path, depth: int) -> list[str]:
    """What is said of links that lead nowhere, of pipes, and of pictures and videos of kinds that are not read."""
    there = list(_within(folder, depth))
    named = [path for path in there if path.suffix.lower() in _MEDIA or path.is_symlink()]
    broken = [path for path in named if not path.is_file() and not path.is_dir()]
    foreign = [path for path in there if path.suffix.lower() in _UNREAD]
    texts = []
    if broken:
        texts.append(
            f"{len(broken):,} files or links in {shown(folder)} lead nowhere or cannot be read (first: {shown(broken[0])})."
        )
    if foreign:
        texts.append(
            f"{len(foreign):,} pictures or videos in {shown(folder)} are of kinds not read here (first: {shown(foreign[0])})."
        )
    return texts


def _within(folder: Path, depth: int) -> Iterator[Path]:
    for path in listing(folder):
        yield path
        if depth and path.is_dir():
            yield from _within(path, depth - 1)


def _folders(place: Path, root: Root) -> list[Path]:
    """Folders directly in a folder, in natural order; links that lead outside are refused."""
    found = sorted((path for path in listing(place) if path.is_dir()), key=natural)
    for path in found:
        root.require_inside(path, shown(path))
    return found


def _in_folders(
    folder: Path, fields: Fields, root: Root, findings: Findings
) -> tuple[list[Item], list[Text] | None]:
    """Outputs in natural order, and the prompt of each if there is a folder per prompt."""
    places = _folders(folder, root)
    geneval = any(
        (place / "metadata.jsonl").is_file() and (place / "samples").is_dir() for place in places
    )
    items: list[Item] = []
    prompts: list[Text] = []
    empty: list[Path] = []
    beside: list[Path] = []
    for place in places:
        found, prompt, rest = (_in_geneval if geneval else _in_place)(place, fields, root)
        items += found
        prompts += [] if prompt is None else [prompt] * len(found)
        empty += [] if found else [place]
        beside += rest
    if empty and items:
        findings.add(
            f"{len(empty):,} of {len(places):,} folders in {shown(folder)} hold no output (first: {shown(empty[0].name)})."
        )
    if beside:
        findings.add(
            f"{len(beside):,} files or folders beside outputs are not read (first: {shown(beside[0])})."
        )
    if prompts and len(prompts) < len(items):
        raise DataError(f"{shown(folder)} mixes folders of frames with folders per prompt.")
    _check_one_kind([item.source for item in items if isinstance(item.source, Path)], folder)  # type: ignore[attr-defined]
    if prompts:
        how = (
            "folders of GenEval, outputs in samples/ and grids left out"
            if geneval
            else "a folder per prompt"
        )
        findings.notes.append(
            f"{shown(folder)}: {how}, {len({prompt.text for prompt in prompts}):,} prompts"
        )
    return items, prompts or None


_Place = tuple[
    list[Item], Text | None, list[Path]
]  # outputs, their prompt (None: the folder is a clip), what is not read


def _in_place(place: Path, fields: Fields, root: Root) -> _Place:
    """A folder that is named by its prompt; if outputs are videos, it may be a clip of frames, or hold folders that are."""
    clips = fields.output_kind == "video"
    files = media_files(place, root)
    inner = {path: frames for path in _folders(place, root) if (frames := media_files(path, root))}
    if clips and files and not _holds_videos(files):
        return [Video(tuple(files), shown(place))], None, list(inner)
    for path, frames in inner.items():
        if _holds_videos(frames):
            raise DataError(
                f"{shown(place.parent)} holds videos two folders deep; name {shown(place)}, whose folders are read as "
                "a folder per prompt."
            )
        if not clips:
            raise DataError(
                f"{shown(path)} holds pictures two folders deep: with --output-kind video, folders like it are clips made of "
                f"frames; if they are prompts instead, name {shown(place)}."
            )
    found = [
        *map(_as_item, files),
        *(Video(tuple(frames), shown(path)) for path, frames in inner.items()),
    ]
    return found, Text(clean_text(place.name), shown(place)), []


def _in_geneval(place: Path, fields: Fields, root: Root) -> _Place:
    """A folder of GenEval: the prompt in its metadata.jsonl, outputs in samples/, and perhaps a grid of them."""
    table, samples = place / "metadata.jsonl", place / "samples"
    beside = [path for path in media_files(place, root) if path.stem != "grid"]
    files: list[Path] = []
    if samples.is_dir():
        root.require_inside(samples, shown(samples))
        files = media_files(samples, root)
    if not files:
        return [], None, beside
    if not table.is_file():
        raise DataError(
            f"{shown(place)} has samples/ but no metadata.jsonl, which tells the prompt in the folders beside it."
        )
    root.require_inside(table, shown(table))
    name = fields.prompt or "prompt"
    rows = list(islice(read_table(table, ".jsonl", shown(table)), 2))
    prompt = rows[0].fields.get(name) if len(rows) == 1 else None
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(
            f"{shown(table)} must be one line with the prompt in {name!r}, as GenEval writes it."
        )
    return [_as_item(path) for path in files], Text(clean_text(prompt), shown(table)), beside


def _holds_videos(paths: Sequence[Path]) -> bool:
    return any(path.suffix.lower() in VIDEO_SUFFIXES for path in paths)


def _as_item(path: Path) -> Item:
    return as_file(path, "video" if path.suffix.lower() in VIDEO_SUFFIXES else "image")


def _check_one_kind(paths: Sequence[Path], folder: Path) -> None:
    videos = sum(path.suffix.lower() in VIDEO_SUFFIXES for path in paths)
    if 0 < videos < len(paths):
        raise DataError(
            f"{shown(folder)} mixes {videos:,} videos with {len(paths) - videos:,} pictures; score one kind at a time."
        )


def _stem(item: Item) -> str:
    path = _files(item)[0]
    return (
        path.parent.name
        if isinstance(item, Video) and isinstance(item.source, tuple)
        else path.stem
    )


def read_datasets_folder(folder: Path, fields: Fields, root: Root, findings: Findings) -> Samples:
    """A folder written by `save_to_disk` of Hugging Face datasets."""
    if (folder / "dataset_dict.json").is_file():
        splits = [path for path in listing(folder) if (path / "state.json").is_file()]
        if len(splits) != 1:
            names = ", ".join(shown(path.name) for path in splits)
            raise DataError(
                f"{shown(folder)} holds the splits {names}; name one of them as {shown(folder)}/SPLIT."
            )
        folder = splits[0]
        root.require_inside(folder, shown(folder))
    files = _arrow_files(folder, root)
    if not files:
        raise DataError(f"{shown(folder)} is a datasets folder without any .arrow file.")

    def records() -> Iterator[Record]:
        for path in files:
            root.require_inside(path, shown(path))
            yield from read_table(path, ".arrow", shown(path))

    samples, _ = samples_from_records(records(), fields, root, findings, shown(folder))
    return samples


def _arrow_files(folder: Path, root: Root) -> list[Path]:
    """The files that state.json lists, so not what `map` and the like have cached."""
    state = folder / "state.json"
    root.require_inside(state, shown(state))
    content = parse_json(read_whole(state, shown(state)), shown(state))
    files = content.get("_data_files") if isinstance(content, dict) else None
    names = (
        [entry.get("filename") if isinstance(entry, dict) else None for entry in files]
        if isinstance(files, list)
        else [None]
    )
    within = Root(folder, root.allow_outside)
    found = [within.find(name, shown(state)) for name in names if isinstance(name, str)]
    if len(found) < len(names):
        raise DataError(
            f"{shown(state)} does not list its files under '_data_files', as `save_to_disk` writes them."
        )
    return found
