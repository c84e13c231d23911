"""rhocal: classifiers whose confidence can be trusted.

>>> import rhocal
>>> logits, labels = rhocal.demo_logits("tune")
>>> cal = rhocal.RhoNormScaling().fit(logits, labels)
>>> probs = cal.predict_proba(rhocal.demo_logits("test")[0])
"""

from rhocal import metrics
from rhocal._version import __version__
from rhocal.artifact import load
from rhocal.assess import evaluate
from rhocal.blocks import plan_for, profile_block
from rhocal.calibrators import (
    CALIBRATORS,
    AutoCalibrator,
    Average,
    BayesianBinning,
    BetaCalibration,
    Chain,
    CrossFitted,
    EnsembleTemperatureScaling,
    FieldScaling,
    HistogramBinning,
    Identity,
    IntraOrderPreserving,
    IsotonicRegression,
    MatrixScaling,
    MultiDomainTemperatureScaling,
    ParameterisedTemperatureScaling,
    PlattScaling,
    PolynomialScaling,
    RhoNormScaling,
    SplineCalibration,
    StructuredScaling,
    TemperatureScaling,
    VectorScaling,
    VennAbers,
    calibrator,
    confidence_bounds,
)
from rhocal.demo import demo_logits
from rhocal.evaluation import Evaluation
from rhocal.measuring import measure
from rhocal.monitor import Monitor
from rhocal.objectives import (
    KL,
    MMCE,
    NLL,
    SCE,
    AvUC,
    Brier,
    Focal,
    LabelSmoothing,
    SoftBinnedECE,
    SoftECE,
    TopBrier,
    objective,
)
from rhocal.out_of_core import joined as profile_of
from rhocal.saved_profile import load_profile, profile, save_profile
from rhocal.streams import stream
from rhocal.top_k import TopK

__all__ = [
    "CALIBRATORS",
    "KL",
    "MMCE",
    "NLL",
    "SCE",
    "AutoCalibrator",
    "AvUC",
    "Average",
    "BayesianBinning",
    "BetaCalibration",
    "Brier",
    "Chain",
    "CrossFitted",
    "EnsembleTemperatureScaling",
    "Evaluation",
    "FieldScaling",
    "Focal",
    "HistogramBinning",
    "Identity",
    "IntraOrderPreserving",
    "IsotonicRegression",
    "LabelSmoothing",
    "MatrixScaling",
    "Monitor",
    "MultiDomainTemperatureScaling",
    "ParameterisedTemperatureScaling",
    "PlattScaling",
    "PolynomialScaling",
    "RhoNormScaling",
    "SoftBinnedECE",
    "SoftECE",
    "SplineCalibration",
    "StructuredScaling",
    "TemperatureScaling",
    "TopBrier",
    "TopK",
    "VectorScaling",
    "VennAbers",
    "__version__",
    "calibrator",
    "confidence_bounds",
    "demo_logits",
    "evaluate",
    "load",
    "load_profile",
    "measure",
    "metrics",
    "objective",
    "plan_for",
    "profile",
    "profile_block",
    "profile_of",
    "save_profile",
    "stream",
]
