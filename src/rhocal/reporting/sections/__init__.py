"""The sections of the report's document: its methods, slices, cautions, summary and provenance, as plain values.

A new part of the report is a function here and a field in ``rhocal.reporting.document``.
"""
