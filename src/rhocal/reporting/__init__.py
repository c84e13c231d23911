"""How results are shown.

``curves`` are data and ``plots`` draw them; ``document`` collects a report as one JSON document from ``sections``, and ``page``
renders it; terminal ``tables`` and the ``model_card`` show the same values. The only importer of matplotlib, plotly, jinja2
and rich. Statistics belong in ``rhocal.metrics``, questions about a model in ``rhocal.evaluation``.
"""
