"""rhocal: classifiers whose confidence can be trusted.

>>> import rhocal
>>> logits, labels = rhocal.demo_logits("tune")
>>> cal = rhocal.RhoNormScaling().fit(logits, labels)
>>> probs = cal.predict_proba(rhocal.demo_logits("test")[0])
"""

from rhocal import metrics
from rhocal._version import __version__
from rhocal.artifact import load
from rhocal.calibrators import (
    CALIBRATORS,
    AutoCalibrator,
    Average,
    Chain,
    CrossFitted,
    FieldScaling,
    HistogramBinning,
    Identity,
    MatrixScaling,
    ParameterisedTemperatureScaling,
    RhoNormScaling,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
    calibrator,
    confidence_bounds,
)
from rhocal.demo import demo_logits
from rhocal.objectives import KL, NLL, SCE, AvUC, Brier, SoftBinnedECE, TopBrier, objective

__all__ = [
    "CALIBRATORS",
    "KL",
    "NLL",
    "SCE",
    "AutoCalibrator",
    "AvUC",
    "Average",
    "Brier",
    "Chain",
    "CrossFitted",
    "FieldScaling",
    "HistogramBinning",
    "Identity",
    "MatrixScaling",
    "ParameterisedTemperatureScaling",
    "RhoNormScaling",
    "SoftBinnedECE",
    "StructuredScaling",
    "TemperatureScaling",
    "TopBrier",
    "VectorScaling",
    "__version__",
    "calibrator",
    "confidence_bounds",
    "demo_logits",
    "load",
    "metrics",
    "objective",
]
