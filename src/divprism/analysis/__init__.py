"""Evaluations with intervals and baselines, comparisons, convergence, prompt groups, bounds."""
