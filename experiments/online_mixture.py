"""How much does choosing models while sampling lose against the best mixture?

    python experiments/online_mixture.py [--num-seeds 20]

Five models answer with some of 30 equally unlike answers: two of them give the same few, two give
many, and one gives only its own. All start unknown. The regret after n samples is w' G w of the
true inner products G at the shares w of the samples, less its least value. Prints the mean regret
over seeds times 1000, with its standard error, of the bandit for several values of `exploration`,
of uniform choice, and of the best single model (known from the start). It takes some two
minutes; the results are in docs/how-to/mixtures.md.
"""

import argparse

import numpy as np

import divprism as dp
from divprism.analysis.simplex import least_square

NUM_ANSWERS = 30
SIZES = (20, 100, 500, 2000)
EXPLORATIONS = (0.01, 0.03, 0.1, 0.3, 1.0)
ANSWERS = {  # the answers of each model and how often it gives them, up to a factor
    "few": {0: 3, 1: 2, 2: 1},
    "same few": {0: 3, 1: 2, 2: 1},
    "many": dict.fromkeys(range(12), 1),
    "other many": dict.fromkeys(range(8, 20), 1),
    "own": dict.fromkeys(range(20, 24), 1),
}
NAMES = list(ANSWERS)


def probabilities() -> np.ndarray:
    """How often each model gives each answer, a row for each model."""
    rows = np.zeros((len(NAMES), NUM_ANSWERS))
    for row, answers in zip(rows, ANSWERS.values(), strict=True):
        for answer, times in answers.items():
            row[answer] = times
    return rows / rows.sum(axis=1, keepdims=True)


def shares_over_time(law: np.ndarray, seed: int, exploration: float) -> np.ndarray:
    """The shares of the models after each of the sizes."""
    rng = np.random.default_rng(seed)
    bandit = dp.MixtureBandit(NAMES, dp.Cosine(), exploration=exploration)
    shares = []
    for size in range(1, max(SIZES) + 1):
        name = bandit.choose()
        answer = rng.choice(NUM_ANSWERS, p=law[NAMES.index(name)])
        bandit.update(name, np.eye(NUM_ANSWERS)[[answer]])
        if size in SIZES:
            shares.append(np.array(list(bandit.counts.values())) / size)
    return np.array(shares)


def main() -> None:
    """Print a table: a row for each rule, a column for each number of samples."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-seeds", type=int, default=20)
    num_seeds = parser.parse_args().num_seeds
    law = probabilities()
    gram = law @ law.T
    best = least_square(gram)
    least = float(best.weights @ gram @ best.weights)
    print(f"best weights {best.weights.round(3)}, {1 / least:.2f} distinct answers")
    print("| rule | " + " | ".join(f"n = {size:,}" for size in SIZES) + " |")
    print("|---|" + "---:|" * len(SIZES))
    even = np.full(len(NAMES), 1 / len(NAMES))
    fixed = {"uniform": even, "best single model": np.eye(len(NAMES))[np.argmin(np.diag(gram))]}
    for title, weights in fixed.items():
        regret = 1000 * (float(weights @ gram @ weights) - least)
        print(f"| {title} | " + " | ".join([f"{regret:.1f}"] * len(SIZES)) + " |")
    for exploration in EXPLORATIONS:
        runs = [shares_over_time(law, seed, exploration) for seed in range(num_seeds)]
        squares = np.einsum("sni,ij,snj->sn", runs, gram, runs)
        regrets = 1000 * (squares - least)
        errors = regrets.std(axis=0, ddof=1) / np.sqrt(num_seeds)
        cells = [f"{a:.2f} ± {b:.2f}" for a, b in zip(regrets.mean(axis=0), errors, strict=True)]
        print(f"| exploration {exploration:g} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
