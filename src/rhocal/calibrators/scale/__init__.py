"""Families that multiply a sample's logits by one positive number, its scale.

The order of a sample's classes never changes. What these families share (features, ridges, the search for a scale) is here
too. A map that treats classes differently belongs in `linear`, one that is not a scale but keeps the order in `order`.
"""
