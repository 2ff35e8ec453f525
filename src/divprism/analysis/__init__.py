"""What scores mean: evaluations with intervals, comparisons, convergence, prompt groups."""
