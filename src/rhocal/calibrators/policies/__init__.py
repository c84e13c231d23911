"""Policies: what a calibrator does with its probabilities where it is deployed.

A policy is a fixed rule that is saved and exported with its calibrator. How its threshold is chosen and certified belongs in
`evaluation`.
"""
