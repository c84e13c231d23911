"""Intervals of single probabilities: a method is fitted again on resampled samples or clusters.

`resampling` draws, `refitted_method` states which choices of a fit are made again, and `replicates` has the public function.
Intervals of metrics belong in `metrics/inference`.
"""
