"""The paper's experiment as one command: a configuration of networks, runs over seeds and devices, tables at the end.

``config`` reads and validates what to train, ``plan`` lists runs with their cost, ``scheduler`` keeps one process busy for each
device (``worker`` is that process), ``results`` writes the tables.
"""
