"""How far a metric's value can be trusted: floor, null distribution, intervals, tests, paired differences, power.

A formula of a metric belongs in `rhocal.metrics`; a question that a person asks belongs in `rhocal.evaluation`.
"""
