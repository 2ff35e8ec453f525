"""Folders of images, videos or sounds without a table: the prompt of each file from the layout."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from divprism.data.items import Item, Media, Text, Video, clean_text
from divprism.data.media import IMAGE_SUFFIXES, is_still, media_kind
from divprism.data.readers.checks import check_one_kind, warn_case
from divprism.data.readers.fields import Fields, Findings
from divprism.data.readers.folders import (
    MEDIA_SUFFIXES,
    media_files,
    note_strays,
    subfolders,
    suffixes_of,
)
from divprism.data.readers.guards import Root, is_hidden, listing, shown
from divprism.data.readers.hidden_models import (
    warn_about_crossed_folders,
    warn_about_model_folders,
)
from divprism.data.readers.model_folders import is_geneval, model_folders
from divprism.data.readers.natural_order import natural
from divprism.data.readers.pairing import by_list, by_name
from divprism.data.readers.tables import read_table
from divprism.data.readers.values import as_file
from divprism.data.samples import Samples, Side, files_of_item
from divprism.data.wording import NOUNS, counted
from divprism.errors import DataError

__all__ = ["read_media_folder"]

# Media outside the allow lists; they get a warning instead of being overlooked.
_UNSUPPORTED = frozenset(
    (
        *(".apng", ".dng", ".exr", ".heic", ".heif", ".ico", ".j2k", ".jxl"),
        *(".pbm", ".pnm", ".psd", ".svg", ".tga"),
        *(".3gp", ".flv", ".ogv", ".wmv", ".y4m"),
        *(".ac3", ".amr", ".ape", ".au", ".mid", ".midi", ".wma", ".wv"),
    )
)


def read_media_folder(
    folder: Path, fields: Fields, root: Root, findings: Findings, prompts: Sequence[Item] | None
) -> Samples:
    """Return the images, videos or sounds of a folder with their prompts.

    Prompts come from a folder per prompt, also below a folder per model, from names of the form
    `{prompt}-{index}.ext`, or from a list of prompts.

    Parameters
    ----------
    folder : Path
        The folder.
    fields : Fields
        `output_kind="video"` reads folders of images as the frames of a video; "audio" reads
        sounds beside other files.
    root : Root
        The folder that files must be in.
    findings : Findings
        Receives notes and warnings.
    prompts : sequence of Item, optional
        The list of prompts.
    """
    note_strays(folder, "", findings)
    direct = media_files(folder, root, fields.output_kind)
    paired: Sequence[Item] | None = None
    models: tuple[str, ...] | None = None
    # Files in the folder itself, or in folders inside it: never a mix of both.
    flat = _are_outputs(direct, fields, root, findings, listed=prompts is not None)
    if flat:
        check_one_kind(direct, folder)
        items = [_as_item(path) for path in direct]
        unread = _unread(folder, depth=0)
    else:
        folders = model_folders(folder, root, fields.output_kind)
        if folders:
            items, paired, models = _of_models(folders, folder, fields, root, findings)
        else:
            items, paired = _in_folders(folder, fields, root, findings)
        # Two levels: a folder per prompt, and folders of frames in it.
        unread = _unread(folder, depth=2)
    if not items:
        problem = (
            f"{shown(folder)} contains neither a table nor images, videos, sounds or "
            "folders of them"
        )
        way_out = "name a file, or the folder that contains one"
        raise DataError("; ".join([problem, *unread.values(), way_out]) + ".")
    for code, text in unread.items():
        findings.warn(code, f"{text}.")
    if paired is not None and prompts is not None:
        raise DataError(f"{shown(folder)} has a folder per prompt; leave out `prompts`.")
    if paired is None:
        names = [_stem(item) for item in items]
        paired = _paired_by_name(names, prompts, folder, findings)
    side: Side | None = None
    if paired is not None:
        side = tuple(paired)
    # macOS and Windows merge such names when the folder is copied.
    files = [str(path) for item in items for path in files_of_item(item)]
    warn_case(files, "file name", findings)
    return Samples(tuple(items), side, models, shown(folder))


def _paired_by_name(
    names: Sequence[str], prompts: Sequence[Item] | None, folder: Path, findings: Findings
) -> list[Item] | None:
    if prompts is None:
        return by_name(names, folder, findings)
    return by_list(names, prompts, folder, findings)


def _are_outputs(
    direct: Sequence[Path], fields: Fields, root: Root, findings: Findings, *, listed: bool
) -> bool:
    """Whether the files of a folder are its outputs, rather than the folders in it.

    A list of prompts goes with files, and frames with folders. Otherwise the larger group is
    read if it is at least twice the other, which gets a warning: a contact sheet beside folders,
    or a folder of grids beside files.
    """
    if not direct:
        return False
    folder = root.folder
    as_frames = fields.output_kind == "video"
    counts = _outputs_in_folders(folder, root, fields.output_kind)
    if not counts:
        return True
    num_direct, num_deep = len(direct), sum(counts.values())
    # Images beside folders of frames are previews, however many.
    previews = as_frames and all(map(is_still, direct))
    if previews or (not listed and 2 * num_direct <= num_deep):
        how_many = counted(num_direct, "file", "files")
        findings.warn(
            "ignored-files",
            f"ignored {how_many} beside the folders in {shown(folder)} "
            f"(first: {shown(direct[0].name)}).",
        )
        return False
    # Neither group dominates, so there is no telling which one the outputs are.
    if not listed and 2 * num_deep > num_direct:
        raise DataError(
            f"{shown(folder)} contains {num_direct:,} outputs, and {num_deep:,} more in folders "
            "beside them; keep the two in separate folders."
        )
    first = shown(min(counts, key=natural).name)
    how_many = counted(len(counts), "folder", "folders")
    findings.warn(
        "ignored-folders",
        f"ignored {how_many} beside the files in {shown(folder)} (first: {first}).",
    )
    return True


def _outputs_in_folders(folder: Path, root: Root, kind: str | None) -> dict[Path, int]:
    """Return the number of outputs in each folder that has any."""
    counts = {}
    for path in listing(folder):
        # A link out of the root is not followed; whether it is an error depends on the layout.
        if not path.is_dir() or root.leads_outside(path):
            continue
        count = _num_outputs(path, kind)
        if count:
            counts[path] = count
    return counts


def _num_outputs(folder: Path, kind: str | None) -> int:
    """Count the outputs in a folder and below; as frames, the images of a folder are one."""
    count = 0
    others = suffixes_of(kind) - IMAGE_SUFFIXES
    for _, inner, names in os.walk(folder):
        # Hidden files are left out as in `listing`; changing the list keeps `walk` out of folders.
        inner[:] = [name for name in inner if not is_hidden(name)]
        suffixes = [os.path.splitext(name)[1].lower() for name in names if not is_hidden(name)]
        num_images = 0
        if kind != "audio":
            num_images = sum(suffix in IMAGE_SUFFIXES for suffix in suffixes)
        if kind == "video":
            num_images = min(num_images, 1)
        count += num_images + sum(suffix in others for suffix in suffixes)
    return count


def _unread(folder: Path, depth: int) -> dict[str, str]:
    """Return warnings, by code, about dangling links, pipes, and media in unsupported formats."""
    paths = list(_walk(folder, depth))
    broken = [path for path in paths if _is_unreadable(path)]
    unsupported = [path for path in paths if path.suffix.lower() in _UNSUPPORTED]
    texts = {}
    if broken:
        how_many = counted(len(broken), "file or link", "files or links")
        texts["unreadable-files"] = (
            f"cannot read {how_many} in {shown(folder)} (first: {shown(broken[0])})"
        )
    if unsupported:
        how_many = counted(len(unsupported), "media file", "media files")
        texts["unsupported-files"] = (
            f"ignored {how_many} in {shown(folder)} with an unsupported suffix "
            f"(first: {shown(unsupported[0])})"
        )
    return texts


def _is_unreadable(path: Path) -> bool:
    """Whether a path should be a file or folder, but is a dangling link or a pipe."""
    if path.suffix.lower() not in MEDIA_SUFFIXES and not path.is_symlink():
        return False
    return not path.is_file() and not path.is_dir()


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    for path in listing(folder):
        yield path
        if depth and path.is_dir():
            yield from _walk(path, depth - 1)


@dataclass
class _Group:
    """The content of one folder: its outputs, their prompt, and files that are not read.

    `prompt` is None if the folder is not named after a prompt: it is a video, or has no output.
    """

    items: list[Item] = field(default_factory=list)
    prompt: Text | None = None
    unused: list[Path] = field(default_factory=list)


def _of_models(
    folders: Sequence[Path], folder: Path, fields: Fields, root: Root, findings: Findings
) -> tuple[list[Item], list[Text], tuple[str, ...]]:
    """Return the outputs, prompts and models of folders that are named after models."""
    items: list[Item] = []
    prompts: list[Text] = []
    models: list[str] = []
    names = [shown(path.name) for path in folders]
    findings.note(f"{shown(folder)}: a folder per model ({', '.join(names)})")
    for path, name in zip(folders, names, strict=True):
        outputs, paired = _in_folders(path, fields, root, findings, are_prompts=True)
        items += outputs
        prompts += paired or []
        models += [name] * len(outputs)
    check_one_kind(_single_files(items), folder)
    inner = {inner.name: None for path in folders for inner in subfolders(path, root)}
    warn_about_crossed_folders(folder, [path.name for path in folders], list(inner), findings)
    others = [path for path in subfolders(folder, root) if path not in folders]
    if others:
        findings.warn(
            "ignored-folders",
            f"ignored {counted(len(others), 'folder', 'folders')} without outputs beside the "
            f"models in {shown(folder)} (first: {shown(others[0].name)}).",
        )
    return items, prompts, tuple(models)


def _in_folders(
    folder: Path, fields: Fields, root: Root, findings: Findings, *, are_prompts: bool = False
) -> tuple[list[Item], list[Text] | None]:
    """Return outputs in natural order, and the prompt of each if there is a folder per prompt."""
    folders = subfolders(folder, root)
    read, layout = _folder_of_prompt, "a folder per prompt"
    if any(is_geneval(path) for path in folders):
        read, layout = _folder_of_geneval, "folders of GenEval, outputs in samples/, grids left out"
    groups = [read(path, fields, root) for path in folders]
    items: list[Item] = []
    prompts: list[Text] = []
    for group in groups:
        items += group.items
        if group.prompt is not None:
            prompts += [group.prompt] * len(group.items)
    _warn_about_groups(folders, groups, folder, findings)
    # A folder of frames has no prompt of its own; pairing would then be partial.
    if prompts and len(prompts) < len(items):
        raise DataError(f"{shown(folder)} mixes folders of frames with folders per prompt.")
    check_one_kind(_single_files(items), folder)
    if not prompts:
        return items, None
    num_prompts = len({prompt.text for prompt in prompts})
    findings.note(f"{shown(folder)}: {layout}, {num_prompts:,} prompts")
    if read is _folder_of_prompt and not are_prompts:
        names = {
            path.name: [_stem(item) for item in group.items]
            for path, group in zip(folders, groups, strict=True)
        }
        warn_about_model_folders(folder, names, findings)
    return items, prompts


def _single_files(items: Sequence[Item]) -> list[Path]:
    """Return the files of items that are one file; the frames of a video are left out."""
    files: list[Path] = []
    for item in items:
        if isinstance(item, Media) and isinstance(item.source, Path):
            files.append(item.source)
    return files


def _warn_about_groups(
    folders: Sequence[Path], groups: Sequence[_Group], folder: Path, findings: Findings
) -> None:
    empty = [path for path, group in zip(folders, groups, strict=True) if not group.items]
    if empty and len(empty) < len(folders):
        findings.warn(
            "folders-without-outputs",
            f"no outputs in {len(empty):,} of {len(folders):,} folders of {shown(folder)} "
            f"(first: {shown(empty[0].name)}).",
        )
    unused: list[Path] = []
    for group in groups:
        unused += group.unused
    if unused:
        how_many = counted(len(unused), "file or folder", "files or folders")
        findings.warn(
            "ignored-files", f"ignored {how_many} beside the outputs (first: {shown(unused[0])})."
        )


def _folder_of_prompt(folder: Path, fields: Fields, root: Root) -> _Group:
    """Read a folder that is named after its prompt.

    If outputs are videos, the folder may be the frames of one, or contain folders of frames.
    """
    as_frames = fields.output_kind == "video"
    files = media_files(folder, root, fields.output_kind)
    inner = {}
    for path in subfolders(folder, root):
        frames = media_files(path, root, fields.output_kind)
        if frames:
            inner[path] = frames
    # The folder is the video itself; folders inside it, such as thumbs/, are not outputs.
    if as_frames and files and all(map(is_still, files)):
        return _Group([Video(tuple(files), shown(folder))], unused=list(inner))
    for path, frames in inner.items():
        _check_depth(path, frames, folder, as_frames)
    items = [_as_item(path) for path in files]
    items += [Video(tuple(frames), shown(path)) for path, frames in inner.items()]
    return _Group(items, Text(clean_text(folder.name), shown(folder)))


def _check_depth(path: Path, files: Sequence[Path], folder: Path, as_frames: bool) -> None:
    """Refuse media two folders deep, unless they are the frames of videos.

    The outer folders could be models or prompts; guessing wrong would pair every file wrongly.
    """
    moving = [path for path in files if not is_still(path)]
    if moving:
        noun = NOUNS[media_kind(moving[0].name) or "video"]
        raise DataError(
            f"{shown(folder.parent)} contains {noun}s two folders deep; name {shown(folder)}, "
            "whose folders are read as a folder per prompt."
        )
    if not as_frames:
        raise DataError(
            f"{shown(path)} contains images two folders deep; if they are the frames of a video, "
            f"pass `output_kind='video'`; if the folder is a prompt, name {shown(folder)}."
        )


def _folder_of_geneval(folder: Path, fields: Fields, root: Root) -> _Group:
    """Read a folder of GenEval: the prompt in metadata.jsonl, outputs in samples/."""
    table, samples = folder / "metadata.jsonl", folder / "samples"
    # GenEval also writes grid.png, an overview of the samples.
    kind = fields.output_kind
    unused = [path for path in media_files(folder, root, kind) if path.stem != "grid"]
    files: list[Path] = []
    if samples.is_dir():
        root.require_inside(samples, shown(samples))
        files = media_files(samples, root, kind)
    if not files:
        return _Group(unused=unused)
    if not table.is_file():
        raise DataError(
            f"{shown(folder)} has samples/ but no metadata.jsonl, which contains the prompt in "
            "the other folders."
        )
    root.require_inside(table, shown(table))
    prompt = _prompt_of_geneval(table, fields.prompt or "prompt")
    return _Group([_as_item(path) for path in files], prompt, unused)


def _prompt_of_geneval(table: Path, name: str) -> Text:
    # Two records are enough to see that there is more than one.
    records = list(islice(read_table(table, ".jsonl", shown(table)), 2))
    prompt = None
    if len(records) == 1:
        prompt = records[0].fields.get(name)
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(
            f"{shown(table)} must be one line with the prompt in {name!r}, as GenEval writes it."
        )
    return Text(clean_text(prompt), shown(table))


def _as_item(path: Path) -> Item:
    return as_file(path, media_kind(path.name) or "image")


def _stem(item: Item) -> str:
    """Return the name that may contain the prompt: of the file, or of the folder of frames."""
    path = files_of_item(item)[0]
    if isinstance(item, Video) and isinstance(item.source, tuple):
        return path.parent.name
    return path.stem
