"""What scale families read from logits in one pass.

A `Profile` holds a few numbers per sample and evaluates logsumexp(σ·z), from the logits while they are in memory, from a
curve table afterwards; `statistics` derives the quantities that objectives see. Nothing is fitted here.
"""
