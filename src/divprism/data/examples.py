"""The texts of the demo, as data to try things on."""

from importlib import resources

from divprism.data.readers import load
from divprism.data.samples import Samples

__all__ = ["DEMO_TEXTS", "demo_samples"]

DEMO_TEXTS = resources.files("divprism") / "data" / "demo" / "generators.jsonl"
"""Answers of three generators: a line for each, with its model and prompt."""


def demo_samples() -> Samples:
    """Return the answers of three small text generators to the same six prompts, six to each.

    "parrot" ignores its prompts and repeats itself, "clerk" follows its prompts and repeats itself,
    and "poet" follows its prompts and varies. They are what `divprism demo` scores.

    Examples
    --------
    >>> samples = demo_samples()
    >>> len(samples), sorted(set(samples.models))
    (108, ['clerk', 'parrot', 'poet'])
    """
    with resources.as_file(DEMO_TEXTS) as path:
        return load(path)
