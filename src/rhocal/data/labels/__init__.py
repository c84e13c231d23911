"""Labels, and the other values that belong to one sample: weights, groups, clusters.

Which label names which column (`columns`, `class_order`), labels of masked classes (`masked`), and labels that arrive later
than the scores (`late`). Scores belong in the modules of `data`.
"""
