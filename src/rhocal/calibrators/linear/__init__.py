"""Families that are linear in the logits: a scale, a bias or a full matrix over the classes.

They treat classes differently, so they can change the decision and cannot be used where classes are exchangeable.
"""
