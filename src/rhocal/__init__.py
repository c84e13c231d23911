"""rhocal: classifiers whose confidence can be trusted.

>>> import rhocal
>>> logits, labels = rhocal.demo_logits("tune")
>>> cal = rhocal.RhoNormScaling().fit(logits, labels)
>>> probs = cal.predict_proba(rhocal.demo_logits("test")[0])
"""

from rhocal import metrics
from rhocal._version import __version__
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
from rhocal.calibrators.artifact import load
from rhocal.calibrators.blocks import plan_for, profile_block
from rhocal.calibrators.fitting import concat_profiles as profile_of
from rhocal.calibrators.saved_profile import load_profile, profile_logits, save_profile
from rhocal.calibrators.top_k import TopK
from rhocal.data.demo import demo_logits
from rhocal.data.streams import stream
from rhocal.evaluation.evaluate import evaluate
from rhocal.evaluation.evaluation import Evaluation
from rhocal.evaluation.measure import measure
from rhocal.evaluation.monitor import Monitor
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
    "profile_block",
    "profile_logits",
    "profile_of",
    "save_profile",
    "stream",
]
