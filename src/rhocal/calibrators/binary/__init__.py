"""Families that map the score of one class to its probability, one class at a time.

With more than two classes every class gets a map of its own (one versus rest), or the top label alone is mapped.
"""
