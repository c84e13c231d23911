"""The cascade: shared stages that treat all classes alike, with cross-fitted steps for single classes in between.

Formulas (``scores``, ``shared``, ``steps``) are written once over ``Ops``: the fit and the fitted map use the same ones. They
are fitted by ``evidence`` (shared stages) and by ``candidates`` and ``rounds`` (steps); ``fitting`` has their order.
"""
