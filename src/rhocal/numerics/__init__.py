"""Numerical building blocks that know nothing about calibration.

The softmax family, norms, bin edges, row blocks and threads, compiled kernels behind one typed module, and the array
operations (`Ops`) that a fitted map may use. Functions take arrays, trust them, and return arrays. Code that mentions
labels, files or models belongs elsewhere.
"""
