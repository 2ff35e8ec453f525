"""The numerical core: arrays, kernels, operators, tiles, spectra and entropies."""
