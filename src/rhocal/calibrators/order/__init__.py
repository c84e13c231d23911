"""Families that are not one scale per sample and still keep the order of a sample's classes."""
