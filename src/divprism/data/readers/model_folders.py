"""Folders of models that hold a folder per prompt each: model/prompt/*.png.

Folders two deep may also be videos, with their frames inside. Those of models hold the same
prompts; videos are numbered.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from divprism.data.media import is_video
from divprism.data.readers.folders import media_files, subfolders
from divprism.data.readers.guards import Root

__all__ = ["is_geneval", "model_folders"]

_INDEX = re.compile(r"[-_ ]*\d+$")
_FEWEST = 2  # prompts that models have in common; one name may be that of any folder


def model_folders(folder: Path, root: Root, kind: str | None) -> list[Path]:
    """Return the folders of models in a folder, in natural order; none if it holds anything else.

    Parameters
    ----------
    folder : Path
        The folder that may contain them.
    root : Root
        The folder that links must not leave.
    kind : str or None
        What outputs are declared to be. With "video", images in folders are the frames of videos,
        and only files of videos count.
    """
    models = []
    are_numbered = True
    prompts: list[set[str]] = []
    for path in subfolders(folder, root):
        if media_files(path, root, kind):
            return []  # a folder per prompt, or the frames of a video
        inner = [inner for inner in subfolders(path, root) if _has_outputs(inner, root, kind)]
        if inner:
            models.append(path)
            prompts.append({prompt.name for prompt in inner})
            are_numbered = are_numbered and all(map(is_geneval, inner))
    if len(models) < 2:
        return []
    if are_numbered or _are_prompts(prompts):
        return models
    return []


def is_geneval(folder: Path) -> bool:
    """Whether a folder is that of a prompt as GenEval writes it, whose name is a number."""
    return (folder / "metadata.jsonl").is_file() and (folder / "samples").is_dir()


def _has_outputs(folder: Path, root: Root, kind: str | None) -> bool:
    if is_geneval(folder):
        return True
    files = media_files(folder, root, kind)
    if kind == "video":
        return any(map(is_video, files))
    return bool(files)


def _are_prompts(names: Sequence[set[str]]) -> bool:
    """Whether the names of folders, by the folder above, are mostly the same, and no numbers."""
    common = set.intersection(*names)
    # video-1 and video-2 leave one name, and 0 and 1 leave none.
    distinct = {_INDEX.sub("", name) for name in common} - {""}
    return len(distinct) >= _FEWEST and 2 * len(common) >= len(set.union(*names))
