# Written by `make stubs` from the registry and rhocal/__init__.py.

from rhocal import calibrators as calibrators
from rhocal import dask as dask
from rhocal import data as data
from rhocal import errors as errors
from rhocal import evaluation as evaluation
from rhocal import integrations as integrations
from rhocal import metrics as metrics
from rhocal import numerics as numerics
from rhocal import objectives as objectives
from rhocal import onnx as onnx
from rhocal import optimize as optimize
from rhocal import profile as profile
from rhocal import reporting as reporting
from rhocal import sklearn as sklearn
from rhocal import torch as torch
from rhocal.calibrators import calibrator as calibrator
from rhocal.calibrators.artifact import load as load
from rhocal.calibrators.binary.bbq import BayesianBinning as BayesianBinning
from rhocal.calibrators.binary.beta import BetaCalibration as BetaCalibration
from rhocal.calibrators.binary.histogram_binning import HistogramBinning as HistogramBinning
from rhocal.calibrators.binary.isotonic import IsotonicRegression as IsotonicRegression
from rhocal.calibrators.binary.platt import PlattScaling as PlattScaling
from rhocal.calibrators.binary.quadratic import QuadraticCalibration as QuadraticCalibration
from rhocal.calibrators.binary.spline import SplineCalibration as SplineCalibration
from rhocal.calibrators.binary.venn_abers import VennAbers as VennAbers
from rhocal.calibrators.bootstrap.replicates import bootstrap as bootstrap
from rhocal.calibrators.cascade.cascade import Cascade as Cascade
from rhocal.calibrators.cascade.kept import KeptCascade as KeptCascade
from rhocal.calibrators.compose.auto import AutoCalibrator as AutoCalibrator
from rhocal.calibrators.compose.chain import Chain as Chain
from rhocal.calibrators.compose.ensemble import Average as Average
from rhocal.calibrators.compose.ensemble import CrossFitted as CrossFitted
from rhocal.calibrators.correctness.model import CorrectnessModel as CorrectnessModel
from rhocal.calibrators.fitting import plan_for as plan_for
from rhocal.calibrators.fitting import profile_block as profile_block
from rhocal.calibrators.fitting import profile_logits as profile_logits
from rhocal.calibrators.linear.matrix import MatrixScaling as MatrixScaling
from rhocal.calibrators.linear.structured import StructuredScaling as StructuredScaling
from rhocal.calibrators.linear.vector import VectorScaling as VectorScaling
from rhocal.calibrators.online.calibration import OnlineCalibration as OnlineCalibration
from rhocal.calibrators.order.ets import EnsembleTemperatureScaling as EnsembleTemperatureScaling
from rhocal.calibrators.order.iop import IntraOrderPreserving as IntraOrderPreserving
from rhocal.calibrators.order.polynomial import PolynomialScaling as PolynomialScaling
from rhocal.calibrators.policies.policy import Policy as Policy
from rhocal.calibrators.registry import CALIBRATORS as CALIBRATORS
from rhocal.calibrators.scale.bounds import confidence_bounds as confidence_bounds
from rhocal.calibrators.scale.field import FieldScaling as FieldScaling
from rhocal.calibrators.scale.identity import Identity as Identity
from rhocal.calibrators.scale.multi_domain import MultiDomainTemperatureScaling as MultiDomainTemperatureScaling
from rhocal.calibrators.scale.pts import ParameterizedTemperatureScaling as ParameterizedTemperatureScaling
from rhocal.calibrators.scale.rho_norm import RhoNormScaling as RhoNormScaling
from rhocal.calibrators.scale.temperature import TemperatureScaling as TemperatureScaling
from rhocal.calibrators.top_k import calibrate_top_k as calibrate_top_k
from rhocal.data.demo import demo_logits as demo_logits
from rhocal.data.formats.lm_eval import read_lm_eval as read_lm_eval
from rhocal.data.language_models.logs import read_log as read_log
from rhocal.data.language_models.tokens import aggregate_tokens as aggregate_tokens
from rhocal.data.language_models.verbal_confidence import verbal_confidence as verbal_confidence
from rhocal.data.streams import stream as stream
from rhocal.data.top_k import TopK as TopK
from rhocal.evaluation.adapt import adapt as adapt
from rhocal.evaluation.comparison import Comparison as Comparison
from rhocal.evaluation.comparison import compare as compare
from rhocal.evaluation.costs import minimize_cost as minimize_cost
from rhocal.evaluation.covariate_shift import estimate_weights as estimate_weights
from rhocal.evaluation.covariate_shift import reweight as reweight
from rhocal.evaluation.decide import decide as decide
from rhocal.evaluation.decision import Decision as Decision
from rhocal.evaluation.evaluate import evaluate as evaluate
from rhocal.evaluation.evaluation import Evaluation as Evaluation
from rhocal.evaluation.measure import measure as measure
from rhocal.evaluation.monitor import Monitor as Monitor
from rhocal.evaluation.set_decision import SetDecision as SetDecision
from rhocal.evaluation.sets import decide_sets as decide_sets
from rhocal.objectives import KL as KL
from rhocal.objectives import MMCE as MMCE
from rhocal.objectives import NLL as NLL
from rhocal.objectives import SCE as SCE
from rhocal.objectives import AvUC as AvUC
from rhocal.objectives import Brier as Brier
from rhocal.objectives import Focal as Focal
from rhocal.objectives import LabelSmoothing as LabelSmoothing
from rhocal.objectives import SoftBinnedECE as SoftBinnedECE
from rhocal.objectives import SoftECE as SoftECE
from rhocal.objectives import TopBrier as TopBrier
from rhocal.objectives import objective as objective
from rhocal.profile.profile import Profile as Profile
from rhocal.profile.saved import load_profile as load_profile
from rhocal.profile.saved import save_profile as save_profile
from rhocal.profile.top_k import profile_top_k as profile_top_k
from rhocal.reporting.plotting import plot as plot
from rhocal.reporting.report import Report as Report
from rhocal.reporting.report import report as report

__version__: str

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
    "Cascade",
    "Chain",
    "Comparison",
    "CorrectnessModel",
    "CrossFitted",
    "Decision",
    "EnsembleTemperatureScaling",
    "Evaluation",
    "FieldScaling",
    "Focal",
    "HistogramBinning",
    "Identity",
    "IntraOrderPreserving",
    "IsotonicRegression",
    "KeptCascade",
    "LabelSmoothing",
    "MatrixScaling",
    "Monitor",
    "MultiDomainTemperatureScaling",
    "OnlineCalibration",
    "ParameterizedTemperatureScaling",
    "PlattScaling",
    "Policy",
    "PolynomialScaling",
    "Profile",
    "QuadraticCalibration",
    "Report",
    "RhoNormScaling",
    "SetDecision",
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
    "adapt",
    "aggregate_tokens",
    "bootstrap",
    "calibrate_top_k",
    "calibrator",
    "compare",
    "confidence_bounds",
    "decide",
    "decide_sets",
    "demo_logits",
    "errors",
    "estimate_weights",
    "evaluate",
    "load",
    "load_profile",
    "measure",
    "metrics",
    "minimize_cost",
    "objective",
    "plan_for",
    "plot",
    "profile_block",
    "profile_logits",
    "profile_top_k",
    "read_lm_eval",
    "read_log",
    "report",
    "reweight",
    "save_profile",
    "stream",
    "verbal_confidence",
]
