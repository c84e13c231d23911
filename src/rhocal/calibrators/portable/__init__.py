"""Fitted maps where rhocal is not installed: as a program in JSON, and as SQL.

The formula of a map is recorded once, as a program; the texts follow from it. Formats that need a library have a package of
their own.
"""

from __future__ import annotations

from rhocal.calibrators.portable.document import portable_map
from rhocal.calibrators.portable.sql import to_sql

__all__ = ["portable_map", "to_sql"]
