"""Where models repeat themselves: exact prompts, outputs that occur often, models side by side.

A group of prompts by the kernel may hold several prompts and says nothing about one of them. All
here is about exact prompts, as they were given: texts, ids or files, not their vectors.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divprism.analysis.groups import ExactPromptGrouping, prompt_groups
from divprism.analysis.groups.grouping import FEWEST_OUTPUTS
from divprism.analysis.groups.result import describe_row
from divprism.analysis.matching import prompt_keys
from divprism.core.arrays import is_torch_array, to_numpy
from divprism.data.items import Text
from divprism.data.samples import Samples
from divprism.data.wording import loose_spelling
from divprism.report.words import ERRORS_APART
from divprism.scores.settings import Settings

__all__ = ["ExactPrompts", "side_by_side"]

_NAMED_PROMPTS = 3  # of those that tie for the lowest score
_LISTED_PROMPTS = 10  # in the table of the least diverse prompts
_LISTED_OUTPUTS = 3  # of those that occur most often
_SHOWN_MODELS = 6  # side by side
_SHOWN_OUTPUTS = 4  # of a model under a prompt, side by side; five if there are no more
_SHOWN_APART = 3  # prompts side by side on which the models differ most
_ROUNDING = 1e-9  # nats: models whose scores are closer than that do not differ
_FEWEST_WITH_MIDDLE = 3  # prompts
_SHOWN_ALIKE = 2  # prompts side by side on which every model repeats itself
_SHOWN_SPREAD = 4  # prompts side by side where prompts have too few outputs to be scored
# A prompt with far fewer outputs than others is not ranked with them: a few outputs are alike by
# chance, and all prompts would be compared at that few.
_ENOUGH = 0.5  # of the median number of outputs
_AT_THE_ENDS = ".!?,;:\"' "  # of a text: they make no other answer of it

Key = Hashable


@dataclass(frozen=True)
class _Scored:
    """An exact prompt with enough outputs: its diversity, and a row of it."""

    row: int
    size: int
    vendi: float
    rarefied: float
    error: float


@dataclass(frozen=True, eq=False)
class ExactPrompts:
    """The exact prompts of one model.

    Attributes
    ----------
    items : Samples
        Prompts and outputs as they were given.
    vectors : array, or tuple of items
        The outputs as they were scored.
    rows : dict of list of int
        By prompt, the rows of its outputs.
    scored : dict of _Scored
        By prompt, the least diverse first: those with enough outputs.
    equal_size : int
        Number of outputs at which prompts are compared.
    """

    items: Samples
    vectors: Any
    rows: dict[Key, list[int]]
    scored: dict[Key, _Scored]
    equal_size: int

    @classmethod
    def of(cls, samples: Samples, settings: Settings) -> "ExactPrompts":
        """The exact prompts of some samples; none where these have no prompts."""
        items = samples.given or samples
        vectors: Any = samples.outputs
        if is_torch_array(vectors):
            # In one step, and bfloat16 as single precision, which NumPy knows.
            vectors = to_numpy(vectors)
        if items.prompts is None:
            return cls(items, vectors, {}, {}, 0)
        [keys] = prompt_keys({"": items}).values()
        rows: dict[Key, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        min_size = _enough(map(len, rows.values()))
        # Without two prompts to compare there is no need for the spectra behind their scores.
        if sum(len(of_prompt) >= min_size for of_prompt in rows.values()) < 2:
            return cls(items, vectors, rows, {}, 0)
        split = prompt_groups(
            samples,
            grouping=ExactPromptGrouping(),
            num_modes=0,
            num_examples=1,
            min_size=min_size,
            settings=settings,
        )
        scored: dict[Key, _Scored] = {}
        for group in split.groups:
            if group.small or group.rarefied is None or group.rarefied_error is None:
                continue
            row, size = group.prompts[0], round(group.size)
            values = group.vendi, group.rarefied, group.rarefied_error
            scored[keys[row]] = _Scored(row, size, *values)
        return cls(items, vectors, rows, scored, split.equal_size)

    def least_diverse(self) -> dict[str, Any] | None:
        """The prompts with the lowest score, with all ties; None below two prompts."""
        if len(self.scored) < 2:
            return None
        # The least diverse prompt comes first.
        lowest = next(iter(self.scored.values()))
        tied = {key: one for key, one in self.scored.items() if _is_tied(one, lowest)}
        # Of prompts that tie, those whose repetition is easiest to see: the same words, many times.
        ordered = sorted(tied, key=lambda key: (-self._most_repeated(key)[1], -tied[key].size))
        others = [key for key in self.scored if key not in tied]
        values = [one.rarefied for one in self.scored.values()]
        listed = [*ordered, *others][:_LISTED_PROMPTS]
        return {
            "vendi": lowest.rarefied,
            "median": float(np.median(values)),
            "num_outputs": self.equal_size,
            "is_sampled": any(one.size > self.equal_size for one in tied.values()),
            "num_prompts": len(tied),
            "prompts": [self.prompt(key) for key in ordered[:_NAMED_PROMPTS]],
            "worst": [self._listed(key) for key in listed],
            "num_compared": len(self.scored),
            "num_small": len(self.rows) - len(self.scored),
        }

    def most_repeated(self) -> list[dict[str, Any]]:
        """The outputs that occur most often under all prompts, each with its count."""
        listed: list[dict[str, Any]] = []
        if not isinstance(self.items.outputs, tuple):
            return listed  # a vector has nothing to show
        every_row = range(len(self.items))
        for row, count in self.counted(every_row)[:_LISTED_OUTPUTS]:
            if count > 1:
                listed.append({"output": describe_row(self.items.outputs, row), "count": count})
        return listed

    def counted(self, rows: Iterable[int]) -> list[tuple[int, int]]:
        """The distinct outputs among some rows: a row of each, and its count; most first.

        Texts that differ only in case, spaces or punctuation at their ends count as the same.
        """
        by_spelling: dict[Hashable, Counter[Hashable]] = {}
        firsts: dict[Hashable, int] = {}
        for row in rows:
            exact, loose = self._spellings(row)
            by_spelling.setdefault(loose, Counter())[exact] += 1
            firsts.setdefault(exact, row)
        counted = []
        for spellings in by_spelling.values():
            # Shown in its most common spelling.
            [(exact, _)] = spellings.most_common(1)
            counted.append((firsts[exact], spellings.total()))
        # The sort is stable: outputs of equal count keep their order.
        return sorted(counted, key=lambda pair: -pair[1])

    def _spellings(self, row: int) -> tuple[Hashable, Hashable]:
        """What makes an output the same as another one: exactly, and to a reader."""
        if isinstance(self.items.outputs, tuple):
            item = self.items.outputs[row]
            if isinstance(item, Text):
                loose = loose_spelling(item.text)
                # Of "?" and "!" nothing would be left, and they are two answers.
                return item.text, loose.strip(_AT_THE_ENDS) or loose
        # Images by their vectors: files are not read again, and copies of one image are equal.
        vector = np.asarray(self.vectors[row])
        key: Hashable = vector.tobytes()
        if vector.dtype == object:
            key = str(self.vectors[row])
        return key, key

    def cell(self, key: Key) -> dict[str, Any]:
        """What a model gave for a prompt: how diverse, and its most frequent outputs."""
        outputs = []
        counted = self.counted(self.rows[key])
        # A line "and 1 more output" would take the room of that output.
        if len(counted) > _SHOWN_OUTPUTS + 1:
            counted = counted[:_SHOWN_OUTPUTS]
        for row, count in counted:
            outputs.append(describe_row(self.items.outputs, row) | {"count": count})
        vendi = None
        if key in self.scored:
            vendi = self.scored[key].vendi
        return {"vendi": vendi, "size": len(self.rows[key]), "outputs": outputs}

    def prompt(self, key: Key) -> dict[str, Any]:
        """A prompt as it was given."""
        return describe_row(self.items.prompts, self.rows[key][0])

    def _most_repeated(self, key: Key) -> tuple[int, int]:
        """A row of the most frequent output of a prompt, and its count."""
        return self.counted(self.rows[key])[0]

    def _listed(self, key: Key) -> dict[str, Any]:
        """A row of the table of the least diverse prompts."""
        row, count = self._most_repeated(key)
        repeated = None
        # A vector has nothing to show.
        if count > 1 and isinstance(self.items.outputs, tuple):
            repeated = {"output": describe_row(self.items.outputs, row), "count": count}
        one = self.scored[key]
        return {
            "prompt": self.prompt(key),
            "vendi": one.rarefied,
            "size": one.size,
            "repeated": repeated,
        }


def _enough(counts: Iterable[int]) -> int:
    """The number of outputs from which on a prompt is compared with others."""
    median = float(np.median(list(counts)))
    return max(FEWEST_OUTPUTS, math.ceil(_ENOUGH * median))


def _is_tied(one: _Scored, lowest: _Scored) -> bool:
    apart = ERRORS_APART * math.hypot(lowest.error, one.error)
    # Scores that read the same are the same to a reader.
    reads_the_same = f"{one.rarefied:.3g}" == f"{lowest.rarefied:.3g}"
    return reads_the_same or one.rarefied - lowest.rarefied <= apart


def side_by_side(models: Mapping[str, ExactPrompts]) -> dict[str, Any] | None:
    """A few prompts that all models share, with the outputs of each model.

    Those on which models differ most, those on which each model repeats itself, and one in the
    middle. Where prompts have too few outputs to be scored, evenly spread ones. None for fewer than
    two models, or where they share no prompt.
    """
    every = list(models.values())
    if len(every) < 2:
        return None
    shared = _shared_prompts(every)
    if not shared:
        return None
    shown = []
    for key, reason in _chosen_prompts(shared, every):
        cells = {model: models[model].cell(key) for model in _spread_models(list(models))}
        shown.append({"prompt": every[0].prompt(key), "reason": reason, "models": cells})
    return {"prompts": shown, "num_prompts": len(shared)}


def _spread_models(names: Sequence[str]) -> list[str]:
    """Names of at most six models, evenly spread from the first to the last."""
    steps = np.linspace(0, len(names) - 1, min(_SHOWN_MODELS, len(names)))
    return [names[round(step)] for step in steps]


def _shared_prompts(models: Sequence[ExactPrompts]) -> list[Key]:
    """The prompts that all models have, in the order of the first one."""
    others = set(models[0].rows).intersection(*(model.rows for model in models))
    return [key for key in models[0].rows if key in others]


def _chosen_prompts(shared: Sequence[Key], models: Sequence[ExactPrompts]) -> list[tuple[Key, str]]:
    """Which prompts are shown, each with the reason."""
    in_all = set(shared).intersection(*(model.scored for model in models))
    scored = [key for key in shared if key in in_all]
    if not scored:
        steps = np.linspace(0, len(shared) - 1, min(_SHOWN_SPREAD, len(shared)))
        return [(shared[round(step)], "spread") for step in steps]
    columns = []
    for model in models:
        columns.append([math.log(model.scored[key].vendi) for key in scored])
    logs = np.array(columns).T
    spread = np.ptp(logs, axis=1)
    chosen: dict[Key, str] = {}
    # By spread, the largest first; a stable sort keeps the order of the prompts in ties.
    order = np.argsort(-spread, kind="stable")
    for index in order[:_SHOWN_APART]:
        if spread[index] > _ROUNDING:
            chosen[scored[index]] = "apart"
    middle = order[len(order) // 2]
    # Where models differ on no prompt, or on one of two, there is no middle.
    if spread[middle] > _ROUNDING and len(scored) >= _FEWEST_WITH_MIDDLE:
        chosen.setdefault(scored[middle], "middle")
    num_alike = 0
    for index in np.argsort(logs.max(axis=1), kind="stable"):
        if num_alike == _SHOWN_ALIKE:
            break
        if scored[index] not in chosen:
            chosen[scored[index]] = "alike"
            num_alike += 1
    return list(chosen.items())
