"""How results are shown.

Curves are data, plots draw them, a report is one JSON document and its page a pure function of it; terminal tables and the
model card use the same values. The only importer of matplotlib, plotly and jinja2. No statistic is computed here.
"""
