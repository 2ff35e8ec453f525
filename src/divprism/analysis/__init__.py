"""What scores mean: evaluations with intervals and baselines, comparisons, convergence, prompt groups, bounds."""
