"""The experiments of the papers, each with a verdict; run `python -m experiments.papers`."""
