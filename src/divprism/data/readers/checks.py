"""Checks of a join: unused files, files used twice, and names that differ only by case."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from divprism.data.media import MEDIA_SUFFIXES, media_kind
from divprism.data.readers.fields import Findings
from divprism.data.readers.folders import note_strays
from divprism.data.readers.guards import Root, listing, shown
from divprism.data.samples import Samples, files_of_item
from divprism.data.wording import NOUNS, counted, excerpts
from divprism.errors import DataError

__all__ = ["check_one_kind", "check_surplus", "warn_case"]


def check_surplus(samples: Samples, root: Root, findings: Findings) -> None:
    """Warn about files that a table does not name, or names more than once.

    Parameters
    ----------
    samples : Samples
        What was read from the table.
    root : Root
        The folder of the table.
    findings : Findings
        Receives notes and warnings.
    """
    named = _all_files(samples.outputs)
    # By real path: "a.png" and "./a.png" are the same file.
    uses = Counter(root.real(path) for path in named)
    repeated = [path for path, count in uses.items() if count > 1]
    if repeated:
        how_many = counted(len(repeated), "file is", "files are")
        findings.warn(
            "files-named-twice", f"{how_many} named more than once (first: {shown(repeated[0])})."
        )
    # An unused file often means that the table and the folder do not belong together.
    surplus = _unused_files(named, set(uses), root)
    if surplus:
        how_many = counted(len(surplus), "file is", "files are")
        findings.warn(
            "files-not-named",
            f"{how_many} not named in {shown(samples.source)} (first: {shown(surplus[0])}).",
        )
    warn_case(sorted(uses), "file name", findings)
    note_strays(root.folder, samples.source, findings)


def _all_files(items: Iterable[object]) -> list[Path]:
    files: list[Path] = []
    for item in items:
        files += files_of_item(item)
    return files


def _unused_files(named: Sequence[Path], used: set[str], root: Root) -> list[Path]:
    """Return files of the same type as the named ones, in their folders, that are not used."""
    suffixes = _suffixes_of_type(named)
    unused = []
    for folder in sorted({path.parent for path in named}):
        for path in listing(folder):
            if path.suffix.lower() not in suffixes:
                continue
            # Cheap test first: most files are used and are not links.
            if root.real_if_plain(path) not in used and root.real(path) not in used:
                unused.append(path)
    return unused


def _suffixes_of_type(paths: Sequence[Path]) -> set[str]:
    """Return all suffixes of the media types in use: a video beside images is not surplus."""
    used = {path.suffix.lower() for path in paths}
    suffixes: set[str] = set()
    for group in MEDIA_SUFFIXES.values():
        if group & used:
            suffixes |= group
    return suffixes


def check_one_kind(paths: Sequence[Path], folder: Path) -> None:
    """Refuse a mix of images, videos and sounds, whose embeddings are not comparable."""
    counts = Counter(media_kind(path.name) for path in paths)
    kinds = [kind for kind in ("video", "image", "audio") if counts[kind]]
    if len(kinds) < 2:
        return
    parts = [counted(counts[kind], NOUNS[kind], f"{NOUNS[kind]}s") for kind in kinds]
    way_out = "score one kind at a time"
    if counts["audio"]:
        others = " or ".join(f"'{kind}'" for kind in kinds[:-1])
        way_out += f": pass `output_kind='audio'` for the sounds, {others} for the rest"
    raise DataError(f"{shown(folder)} mixes {' with '.join(parts)}; {way_out}.")


def warn_case(names: Sequence[str], noun: str, findings: Findings) -> None:
    """Warn about names that differ only by case: some file systems merge them."""
    spellings: dict[str, set[str]] = {}
    for name in names:
        spellings.setdefault(name.casefold(), set()).add(name)
    clashes = [sorted(group) for group in spellings.values() if len(group) > 1]
    if clashes:
        first = excerpts(clashes[0][0], clashes[0][1], 60)
        how_many = counted(len(clashes), f"group of {noun}s differs", f"groups of {noun}s differ")
        findings.warn("names-differ-by-case", f"{how_many} only by case (first: {first}).")
