"""Calibrators that learn from labeled batches as they arrive.

A correction is adopted only if the evidence for it is strong, and dropped if it turns out worse. `calibration` has the public
class, `evidence` decides, `memory` keeps samples and `repetition` recognizes batches that came before. A fit on one
calibration set belongs in `calibrators`.
"""
