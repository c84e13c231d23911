"""Questions that a person asks, answered with metrics and inference: evaluate, compare, shift, monitor.

Each answer is a frozen value that prints and converts to JSON. Nothing is drawn here.
"""
