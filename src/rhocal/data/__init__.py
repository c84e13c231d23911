"""Turns outside data into one validated value.

Readers (one per format) give blocks, validation turns a block into `Predictions`, and a source runs a function on every
block, here or on workers. No other package opens a file of scores, validates an array or loops over blocks. Nothing is
computed from predictions here.
"""
