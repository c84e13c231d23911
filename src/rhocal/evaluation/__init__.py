"""Questions about a model, answered with metrics and inference: evaluate, compare, rank, shift, monitor.

Each answer is a frozen value that prints and converts to JSON. Nothing is drawn here.
"""
