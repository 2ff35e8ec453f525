"""Small results that the tests of sentences, plots and pages share."""

import command_line
import numpy as np

import divprism as dp
from divprism.report.details import detailed

HOSTILE = '<img src=x onerror="window.hacked=1">'
KERNELS = {"kernel_x": dp.Cosine(), "kernel_t": dp.Categorical()}


def four_prompts() -> dp.Evaluation:
    """Evaluate four prompts with six outputs each; the outputs of the last are all the same."""
    t = np.repeat(np.arange(4), 6)
    x = np.eye(24)
    x[18:] = x[18]
    return dp.evaluate(x, t, **KERNELS, interval=0.95)


def four_detailed_prompts() -> dict:
    """Return the result document of `four_prompts` with its details."""
    return detailed(four_prompts(), num_repeats=2)


def alike(x: np.ndarray, t: np.ndarray) -> dict:
    """Return the document, with details, of outputs and prompts compared as ids."""
    return detailed(dp.evaluate(x, t, **KERNELS), num_repeats=2)


def run(*arguments):
    """Run `divprism` in a process of its own and return its exit code and its output as text."""
    done = command_line.run(*arguments)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done
