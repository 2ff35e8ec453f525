"""Layouts of folders: what lies in one, and which prompt each file belongs to."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from divprism.errors import DataError
from divprism.media import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from divprism.readers.fields import Fields, Findings, as_file, samples_from_records
from divprism.readers.guards import Root, listing, shown
from divprism.readers.tables import TABLE_SUFFIXES, Record, kind_of, read_table
from divprism.samples import Clip, Item, Samples, Text, clean_text

__all__ = [
    "check_surplus",
    "find_table",
    "media_files",
    "natural",
    "read_datasets_folder",
    "read_media_folder",
    "tell_prompts_by_case",
]

_NUMBERED = re.compile(r"(?s)(.+)-(\d+)")
_INDEXED = re.compile(r"(\d+)[-_](\d+)")


def natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Sort key that puts 2.png before 10.png.

    >>> [path.name for path in sorted(map(Path, ["10.png", "2.png", "a.png"]), key=natural)]
    ['2.png', '10.png', 'a.png']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", path.name)
    return [(int(part), "") if part[0] in "0123456789" else (10**18, part.casefold()) for part in parts], path.name


def media_files(folder: Path, root: Root) -> list[Path]:
    """Pictures and videos directly in a folder, in natural order; links that lead outside are refused."""
    found = [path for path in listing(folder) if path.suffix.lower() in IMAGE_SUFFIXES | VIDEO_SUFFIXES]
    for path in found:
        root.require_inside(path, shown(path))
    return sorted((path for path in found if path.is_file()), key=natural)


def find_table(folder: Path) -> list[Path]:
    """The table that describes a folder: metadata.*, else samples of lm-eval, else the only table there is."""
    tables = [path for path in listing(folder) if kind_of(path) in TABLE_SUFFIXES - {".txt"} and path.is_file()]
    described = [path for path in tables if path.name.split(".")[0] == "metadata"]
    samples = [path for path in tables if re.fullmatch(r"samples_.+\.jsonl(\.gz)?", path.name)]
    if described:
        tables = described
    elif samples:
        return _distinct_tasks(samples, folder)
    if len(tables) > 1:
        names = ", ".join(shown(path.name) for path in tables[:5])
        raise DataError(f"{shown(folder)} holds {len(tables)} tables ({names}); name the one to read.")
    return tables


def _distinct_tasks(samples: list[Path], folder: Path) -> list[Path]:
    """One run of each task: samples_<task>_<date>.jsonl."""
    tasks = Counter(re.sub(r"_\d{4}-\d\d-\d\dT.*|\.jsonl(\.gz)?$", "", path.name) for path in samples)
    task, count = tasks.most_common(1)[0]
    if count > 1:
        raise DataError(f"{shown(folder)} holds {count} runs of {shown(task)}; name the file of the one to read.")
    return samples


def check_surplus(samples: Samples, root: Root, findings: Findings) -> None:
    """Tell of files that the table does not name, of files that it names twice, and of names that differ by case only."""
    named = [path for output in samples.outputs for path in _files(output)]
    used = Counter(root.real(path) for path in named)
    twice = [path for path, count in used.items() if count > 1]
    if twice:
        findings.add(f"{len(twice):,} files are named more than once (first: {shown(twice[0])}).")
    kinds = _kinds(named)
    there = [path for place in sorted({path.parent for path in named}) for path in listing(place)]
    unknown = [path for path in there if path.suffix.lower() in kinds and root.real_if_plain(path) not in used]
    surplus = [path for path in unknown if root.real(path) not in used]
    if surplus:
        findings.add(f"{len(surplus):,} files are not named in {shown(samples.source)} (first: {shown(surplus[0])}).")
    _tell_case(sorted(used), "file names", findings)


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
        _tell_case([prompt.text for prompt in samples.prompts if isinstance(prompt, Text)], "prompts", findings)


def read_media_folder(folder: Path, fields: Fields, root: Root, findings: Findings, prompts: Sequence[Item] | None) -> Samples:
    """Pictures or videos without a table: a folder per prompt, `{prompt}-{index}.ext`, or a list of prompts beside them."""
    items, groups = _outputs_of(folder, fields, root)
    if not items:
        raise DataError(f"{shown(folder)} holds neither a table nor pictures, videos or folders of them.")
    if groups is not None:
        findings.notes.append(f"{shown(folder)}: a folder per prompt, {len(set(groups)):,} prompts")
        paired: Sequence[Item] | None = [Text(clean_text(name), shown(folder / name)) for name in groups]
        if prompts is not None:
            raise DataError(f"{shown(folder)} has a folder per prompt, so --prompts is one too many.")
    else:
        names = [_stem(item) for item in items]
        paired = _by_list(names, prompts, folder, findings) if prompts is not None else _by_name(names, folder, findings)
    samples = Samples(tuple(items), None if paired is None else tuple(paired), None, shown(folder))
    _tell_case([str(path) for item in items for path in _files(item)], "file names", findings)
    return samples


def _outputs_of(folder: Path, fields: Fields, root: Root) -> tuple[list[Item], list[str] | None]:
    """Outputs in natural order, and the folder that each lies in if there is a folder per prompt."""
    direct = media_files(folder, root)
    if direct:
        _check_one_kind(direct, folder)
        return [_as_item(path) for path in direct], None
    items: list[Item] = []
    groups: list[str] = []
    clips = fields.output_kind == "video"
    subfolders = [path for path in listing(folder) if path.is_dir()]
    for path in subfolders:
        root.require_inside(path, shown(path))
    for place in sorted(subfolders, key=natural):
        files = media_files(place, root)
        inner = [path for path in listing(place) if path.is_dir()]
        if files and clips and all(path.suffix.lower() in IMAGE_SUFFIXES for path in files):
            items.append(Clip(tuple(files), shown(place)))  # the folder is a clip, not a prompt
            continue
        found: list[Item] = [_as_item(path) for path in files]
        for path in sorted(inner, key=natural):
            root.require_inside(path, shown(path))
            if frames := media_files(path, root):
                found.append(Clip(tuple(frames), shown(path)))
        items += found
        groups += [place.name] * len(found)
    if groups and len(groups) < len(items):
        raise DataError(f"{shown(folder)} mixes folders of frames with folders per prompt.")
    _check_one_kind([item.source for item in items if isinstance(item.source, Path)], folder)  # type: ignore[attr-defined]
    return items, groups or None


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
    return path.parent.name if isinstance(item, Clip) and isinstance(item.source, tuple) else path.stem


def _by_name(names: Sequence[str], folder: Path, findings: Findings) -> list[Item] | None:
    """Prompts from `{prompt}-{index}.ext`; None if the names do not follow it."""
    matches = [_NUMBERED.fullmatch(name) for name in names]
    unlike = [name for name, match in zip(names, matches, strict=True) if match is None]
    if len(unlike) == len(names):
        findings.notes.append(
            f"{shown(folder)}: {len(names):,} files whose names tell no prompt; only vendi and rke can be had"
        )
        return None
    if unlike:
        raise DataError(
            f"{len(unlike):,} of {len(names):,} files in {shown(folder)} are not named prompt-index: {shown(unlike[0])}, ..."
        )
    prompts = [match[1] for match in matches if match is not None]
    findings.notes.append(f"{shown(folder)}: files named prompt-index, {len(set(prompts)):,} prompts")
    return [Text(clean_text(prompt), shown(folder)) for prompt in prompts]


def _by_list(names: Sequence[str], prompts: Sequence[Item], folder: Path, findings: Findings) -> list[Item]:
    """Prompts from a list: by prompt-index names, by the number of the prompt in the name, or one by one in natural order."""
    by_text = {prompt.text: prompt for prompt in prompts if isinstance(prompt, Text)}
    numbered = [_NUMBERED.fullmatch(name) for name in names]
    found = [by_text.get(match[1]) if match else None for match in numbered]
    if by_text and all(prompt is not None for prompt in found):
        unused = len(by_text) - len({prompt.text for prompt in found if isinstance(prompt, Text)})
        if unused:
            findings.add(f"{unused:,} of {len(by_text):,} prompts have no file in {shown(folder)}.")
        return [prompt for prompt in found if prompt is not None]
    indexed = [_INDEXED.fullmatch(name) for name in names]
    if all(indexed) and len(names) != len(prompts):
        numbers = [int(match[1]) for match in indexed if match is not None]
        first = min(numbers)
        if first > 1 or max(numbers) - first >= len(prompts):
            raise DataError(
                f"files in {shown(folder)} count prompts from {first} to {max(numbers)}, of {len(prompts):,} given."
            )
        missing = len(prompts) - len(set(numbers))
        if missing:
            findings.add(f"{missing:,} of {len(prompts):,} prompts have no file in {shown(folder)}.")
        findings.notes.append(f"{shown(folder)}: files named prompt number and index, prompts counted from {first}")
        return [prompts[number - first] for number in numbers]
    if len(names) != len(prompts):
        raise DataError(
            f"{len(names):,} files in {shown(folder)} and {len(prompts):,} prompts do not pair up one to one; "
            "say which belong together in a metadata.jsonl with file_name and prompt."
        )
    findings.notes.append(f"{shown(folder)}: paired in natural order of names, {shown(names[0])} to {shown(names[-1])}")
    return list(prompts)


def read_datasets_folder(folder: Path, fields: Fields, root: Root, findings: Findings) -> Samples:
    """A folder written by `save_to_disk` of Hugging Face datasets."""
    if (folder / "dataset_dict.json").is_file():
        splits = [path for path in listing(folder) if (path / "state.json").is_file()]
        if len(splits) != 1:
            names = ", ".join(shown(path.name) for path in splits)
            raise DataError(f"{shown(folder)} holds the splits {names}; name one of them as {shown(folder)}/SPLIT.")
        folder = splits[0]
    files = sorted((path for path in listing(folder) if path.suffix == ".arrow" and path.is_file()), key=natural)
    if not files:
        raise DataError(f"{shown(folder)} is a datasets folder without any .arrow file.")

    def records() -> Iterator[Record]:
        for path in files:
            root.require_inside(path, shown(path))
            yield from read_table(path, ".arrow", shown(path))

    samples, _ = samples_from_records(records(), fields, root, findings, shown(folder))
    return samples
