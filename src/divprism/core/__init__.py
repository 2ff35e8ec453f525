"""The numerical core: arrays, distances, kernels, operators, tiles, spectra and entropies."""
