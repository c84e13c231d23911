"""Calibrators made of calibrators: chains, averages, cross-fitting and the automatic choice.

Nothing here has a map of its own; everything is written over the methods of the registry.
"""
