"""Models that a source names where they are not read: in a field, or in the names of folders.

Their outputs would be pooled into one score, or the models taken for prompts. A field looks like
one of models if its name says so, or if it is crossed with the prompts: several values, and nearly
every prompt with each of them. A topic or a language belongs to its prompt and is not crossed; a
rating or a reason to stop is, but not evenly.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from divprism.data.readers.fields import FIELD_NAMES, ChosenFields, Fields, Findings
from divprism.data.readers.guards import shown

__all__ = [
    "UnusedFields",
    "warn_about_crossed_folders",
    "warn_about_file_names",
    "warn_about_model_folders",
]

# Names that leave no doubt, in lower case and without separators.
_MODEL_NAMES = frozenset(
    (
        *("llm", "engine", "system", "systemname", "checkpoint", "ckpt", "captioner", "lm"),
        *("modelid", "modelname", "modelversion", "modeltype", "modelpath", "models", "modelkey"),
        *("generatorname", "sampler", "policy", "provider", "backbone", "architecture", "bot"),
    )
)
# What a model was given or should answer is not its name, however few values there are.
_INPUTS = frozenset(("input", "inputs", "target", "targets"))
_MAX_VALUES = 200  # distinct values of a field beyond which they are not models
_MAX_LENGTH = 120  # characters: a longer value is a text, not a name
_MAX_FIELDS = 1_000  # fields of a record beyond which none is looked at
_MIN_ROWS = 2  # outputs that each value must have: names that occur once are ids
_CROSSED = 0.5  # share of the prompts that every value must have
_SHOWN_VALUES = 3
_FEW_VALUES = 12  # distinct values that a note mentions

# Families of models whose names hardly occur as prompts, and what names of runs look like. Words
# that are prompts as well (llama, flux) count only with a version or a variant behind them.
_FAMILY = re.compile(
    r"""(?<![a-z])(?:
    sdxl|sd[-_ ]?v?\d|stable[-_ ]?diffusion|dall[-_ ]?e\b|midjourney|pixart|kandinsky|deepfloyd
    |hunyuan|cogvideo|cogview|modelscope|zeroscope|animatediff|videocrafter|open[-_ ]?sora
    |stylegan|biggan|vqgan|gpt[-_ ]?\d|qwen|mixtral|deepseek|t5[-_]|blip|ldm\b
    |(?:flux|llama|gemma|gemini|claude|mistral|phi|imagen|wan|sana|turbo|playground)[-_.]?v?
     (?:\d|dev|schnell|pro|chat|instruct|opus|sonnet|haiku)
    |(?:model|run|checkpoint|ckpt|step|epoch|iter|exp)(?:[-_]\w{1,8}|\s?\d{1,8})$
    |(?:baseline|finetuned|fine[-_]tuned|lora)\b
    )|\d+b(?:[-_]|$)|v\d+\.\d+""",
    re.IGNORECASE | re.VERBOSE,
)
# What cameras and programs call files before a number: IMG_0001.jpg, sample-3.png.
_CAMERA = re.compile(
    r"(?:_?img|_mg|_?dsc[nf]?|dcim|pxl|pict?|mvi|mov|vid|gopr|dji|sam|screenshot|screencap"
    r"|images?|photos?|pictures?|videos?|clips?|frames?|outputs?|samples?|results?|files?"
    r"|gen|generated|generations?|seeds?|grid|tmp|temp|untitled)(?:[-_ ]?\d+)*",
    re.IGNORECASE,
)
_SEED = re.compile(r"[-_ ](?:seed|idx|cfg|sample)[-_ ]?\d*$", re.IGNORECASE)
_SECOND_NUMBER = re.compile(r"[-_]\d+$")
_INDEX = re.compile(r"[-_ ]*\d+$")
_MAX_WORDS = 3  # words of a name, split at blanks; prompts in the names of folders have more


@dataclass
class _Column:
    """The values of one field: how often each occurs, and with which prompts."""

    counts: Counter[str] = field(default_factory=Counter)
    prompts: dict[str, set[int]] = field(default_factory=dict)


class UnusedFields:
    """Fields beside the chosen ones, as they are read from records.

    Parameters
    ----------
    names : set of str
        Fields that are in use.
    is_watching : bool
        False if the source names its models, so that nothing can be overlooked.
    fields : Fields
        What the caller calls the field of models, and a field.
    """

    def __init__(self, names: set[str], is_watching: bool, fields: Fields) -> None:
        self._fields = fields
        self._used = names
        self._is_watching = is_watching
        self._columns: dict[str, _Column] = {}
        self._dropped: set[str] = set()
        self._num_rows = 0
        self._prompts: set[int] = set()

    @classmethod
    def beside(cls, choice: ChosenFields, fields: Fields) -> "UnusedFields":
        """The fields that a choice leaves unused."""
        used = {*choice.outputs, *choice.models}
        if choice.prompt is not None:
            used.add(choice.prompt)
        if choice.quality is not None:
            used.add(choice.quality)
        return cls(used, is_watching=not choice.models, fields=fields)

    def add(self, record: Mapping[str, object], prompt: str | None, num_rows: int) -> None:
        """Look at the fields of a record.

        Parameters
        ----------
        record : mapping
            The fields.
        prompt : str, optional
            Its prompt.
        num_rows : int
            Number of outputs read so far, those of this record included.
        """
        if not self._is_watching:
            return
        new_rows = num_rows - self._num_rows
        self._num_rows = num_rows
        # Numbers take less memory than prompts; a collision changes no count noticeably.
        key = hash(prompt)
        self._prompts.add(key)
        # Hundreds of fields are measurements; looking at each would cost more than reading.
        if len(record) > _MAX_FIELDS:
            self._is_watching = False
            return
        for name, value in record.items():
            if name in self._used or name in self._dropped:
                continue
            if name.lower() in FIELD_NAMES or name.lower() in _INPUTS:
                continue
            if len(name) > _MAX_LENGTH or not _is_name(value):
                self._drop(name)
                continue
            column = self._columns.setdefault(name, _Column())
            column.counts[str(value)] += new_rows
            column.prompts.setdefault(str(value), set()).add(key)
            if len(column.counts) > _MAX_VALUES:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._dropped.add(name)
        self._columns.pop(name, None)

    def warn(self, source: str, findings: Findings) -> None:
        """Warn about the field that most looks like the name of the model, if there is one."""
        if not self._is_watching:
            return
        candidates = [name for name in self._columns if self._holds_models(name)]
        # A telling name first, then the order of the fields.
        candidates.sort(key=lambda name: not _is_telling(name))
        noun, keyword = self._fields.noun, self._fields.keyword("model")
        if not candidates:
            names = [name for name in self._columns if self._has_few_values(name)]
            if names:
                name = names[0]
                findings.note(
                    f"{source}: the {noun} {name!r} has {self._described(name)} and is not used; "
                    f"if it names the model, pass `{keyword}={name}`"
                )
            return
        name = candidates[0]
        findings.warn(
            "models-pooled",
            f"the {noun} {name!r} of {source} has {self._described(name)} and looks "
            f"like the name of the model, but no {noun} of models was recognised, so all outputs "
            f"count as those of one model. Pass `{keyword}={name}` to tell the models apart.",
        )

    def _described(self, name: str) -> str:
        values = list(self._columns[name].counts)
        examples = ", ".join(shown(value) for value in values[:_SHOWN_VALUES])
        if len(values) > _SHOWN_VALUES:
            examples += ", ..."
        return f"{len(values):,} values ({examples})"

    def _has_few_values(self, name: str) -> bool:
        """Whether a field could name models that answered different prompts.

        It could as well be a topic or a language, so this is worth a note and no warning.
        """
        counts = self._columns[name].counts
        if not 2 <= len(counts) <= _FEW_VALUES or min(counts.values()) < _MIN_ROWS:
            return False
        if sum(counts.values()) < self._num_rows:
            return False
        return not all(_is_number(value) for value in counts)

    def _holds_models(self, name: str) -> bool:
        column = self._columns[name]
        if len(column.counts) < 2 or min(column.counts.values()) < _MIN_ROWS:
            return False
        # A field that only some records have does not name the model of each output.
        if sum(column.counts.values()) < self._num_rows:
            return False
        if _is_telling(name):
            return True
        if all(_is_number(value) for value in column.counts):
            return False  # a seed, an index, a rating
        fewest = min(map(len, column.prompts.values()))
        return len(self._prompts) > 1 and fewest >= _CROSSED * len(self._prompts)


def _is_name(value: object) -> bool:
    """Whether a value could be the name of a model."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    return 0 < len(str(value)) <= _MAX_LENGTH


def _is_telling(name: str) -> bool:
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    return plain in _MODEL_NAMES


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def warn_about_model_folders(
    folder: Path, stems: Mapping[str, Sequence[str]], findings: Findings
) -> None:
    """Warn if folders that are read as prompts look like models.

    They do if most of their names are those of models, or if their names are short and the files
    inside carry the same prompts in each: sdxl/a cat-0.png beside flux/a cat-0.png.

    Parameters
    ----------
    folder : Path
        The folder that contains them.
    stems : mapping of str to sequence of str
        By folder, the names of its files without suffix.
    findings : Findings
        Receives the warning.
    """
    if len(stems) < 2:
        return
    num_known = sum(_FAMILY.search(name) is not None for name in stems)
    if 2 * num_known < len(stems) and not _share_prompts(stems):
        return
    names = list(stems)[:_SHOWN_VALUES]
    examples = ", ".join(map(shown, names))
    paths = " ".join(shown(folder / name) for name in names)
    findings.warn(
        "model-folders-as-prompts",
        f"the folders in {shown(folder)} look like models ({examples}), but each is read as a "
        f"prompt. If they are models, compare them as sources of their own: {paths}.",
    )


def _share_prompts(stems: Mapping[str, Sequence[str]]) -> bool:
    """Whether folders with short names contain files whose names hold the same prompts."""
    if any(len(name.split()) > _MAX_WORDS for name in stems):
        return False
    prompts = []
    for files in stems.values():
        prompts.append({_INDEX.sub("", stem) for stem in files} - {""})
    # Several prompts of several words in each; "seed-1" and "seed-2" leave the one word "seed".
    common = set.intersection(*prompts)
    several = [prompt for prompt in common if len(re.split(r"[-_ ]+", prompt)) > 1]
    return len(several) >= 2 and 2 * len(common) >= len(set.union(*prompts))


def warn_about_file_names(folder: Path, prompts: Sequence[str], findings: Findings) -> None:
    """Warn if prompts from the names of files look like models, cameras or seeds.

    They do if at least half of them are called so, or if all of them end in a number, without
    which there are fewer: a cat_0_42.png holds an index and a seed.

    Parameters
    ----------
    folder : Path
        The folder of the files.
    prompts : sequence of str
        What comes before the index in each name.
    findings : Findings
        Receives the warning.
    """
    names = list(dict.fromkeys(prompts))
    suspects = [name for name in names if _is_no_prompt(name)]
    if 2 * len(suspects) < len(names):
        shorter = {_SECOND_NUMBER.sub("", name) for name in names}
        if not all(map(_SECOND_NUMBER.search, names)) or len(shorter) == len(names):
            return
        suspects = names
    examples = ", ".join(map(shown, suspects[:_SHOWN_VALUES]))
    findings.warn(
        "file-names-as-prompts",
        f"the names of files in {shown(folder)} look like those of models, cameras or seeds "
        f"({examples}), but each is read as a prompt. If they are no prompts, pass a list of "
        "prompts as `prompts`, or add a metadata.jsonl with file_name and prompt.",
    )


def _is_no_prompt(name: str) -> bool:
    patterns = (_FAMILY.search(name), _CAMERA.fullmatch(name), _SEED.search(name))
    return any(match is not None for match in patterns)


def warn_about_crossed_folders(
    folder: Path, models: Sequence[str], prompts: Sequence[str], findings: Findings
) -> None:
    """Warn if folders that are read as models could as well be the prompts: a fox/sdxl/0.png.

    The same folders in each folder are a grid, which looks alike from both sides. Names settle
    which side the models are: names of models on one side only, or more words on the other.

    Parameters
    ----------
    folder : Path
        The folder that contains them.
    models : sequence of str
        The names of the outer folders.
    prompts : sequence of str
        The names of the folders inside them.
    findings : Findings
        Receives the warning.
    """
    if all(name.isdecimal() for name in prompts):
        return  # of GenEval, whose prompts are in files
    outer, inner = _share_of_models(models), _share_of_models(prompts)
    are_known = outer >= _CROSSED > inner
    if are_known or (inner < _CROSSED and _mean_words(models) < _mean_words(prompts)):
        return
    first = ", ".join(map(shown, models[:_SHOWN_VALUES]))
    second = ", ".join(map(shown, prompts[:_SHOWN_VALUES]))
    findings.warn(
        "folders-ambiguous",
        f"the folders in {shown(folder)} contain folders of the same names, so that either could "
        f"be the models: {first} are read as models, and {second} as prompts. If it is the other "
        "way round, make the models the outer folders, or add a metadata.jsonl with file_name, "
        "prompt and model.",
    )


def _share_of_models(names: Sequence[str]) -> float:
    return sum(_FAMILY.search(name) is not None for name in names) / len(names)


def _mean_words(names: Sequence[str]) -> float:
    return sum(len(re.split(r"[_ ]+", name)) for name in names) / len(names)
