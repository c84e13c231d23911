"""Data of language models: evaluation logs, sums over tokens, and confidence stated in words.

How one format of logs is read belongs in `formats`.
"""
