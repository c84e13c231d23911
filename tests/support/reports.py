"""What the tests of the report share: one document with quiet names, one with hostile ones."""

from functools import cache

import numpy as np

import rhocal
from helpers import synthetic
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.reporting.document import build_document
from rhocal.reporting.sections.provenance import InputFile, Provenance

HOSTILE = [
    "<script>window.hacked=1</script>",
    "</script><img src=x onerror='window.hacked=2'>",
    "\"quoted' & <b>bold</b>",
    "emoji 🦊🧪",
    "עברית \u202ereversed\u202c عربي",
    "x" * 200,
    "{{ 7 * 7 }} {% raw %}",
    "javascript:alert(1)",
]


@cache
def quiet(methods=("rho-norm", "histogram-binning", "temperature"), step=3):
    """An over-confident model whose calibration can be repaired: the document, and what went in."""
    drawn = [synthetic(10_000, 10, scale=1.5, seed=seed, dtype=np.float32) for seed in (1, 2)]
    tune, test = ((logits - logits.mean(1, keepdims=True), labels) for logits, labels in drawn)
    data = Predictions.from_arrays(test[0][::step], test[1][::step])
    cals = {name: rhocal.calibrator(name).fit(*tune) for name in methods}
    source = Provenance.now("demo", ["rhocal report demo.npz -o report.html"], [InputFile("demo.npz", 12, "0" * 64)])
    return build_document(data, cals, source, calibration=Predictions.from_arrays(*tune)), data, cals


@cache
def hostile():
    """Every name that reaches the page is an attack."""
    logits, labels = synthetic(600, len(HOSTILE), seed=3)
    classes = np.array(HOSTILE)
    names = iter(HOSTILE)
    cals = {next(names): rhocal.calibrator(m).fit(logits, labels) for m in ("rho-norm", "vector", "temperature", "iop")}
    cals |= {f"__proto__ {HOSTILE[5]}": rhocal.TemperatureScaling().fit(logits, labels)}
    source = Provenance.now(HOSTILE[1], [HOSTILE[0]], [InputFile(HOSTILE[2], 1, HOSTILE[1])])
    groups = classes[np.arange(600) % len(classes)]
    data = Predictions.from_arrays(logits, labels, spec=InputSpec(classes=classes))
    return build_document(data, cals, source, calibration=data, groups=groups, notes=dict.fromkeys(cals, HOSTILE[1]))
