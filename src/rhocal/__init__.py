"""rhocal: classifiers whose confidence can be trusted.

>>> import rhocal
>>> logits, labels = rhocal.demo_logits("cal")
>>> cal = rhocal.RhoNormScaling().fit(logits, labels)
>>> test_logits, test_labels = rhocal.demo_logits("test")
>>> rhocal.evaluate(cal.predict_proba(test_logits), test_labels).state
'within'

``evaluate`` measures a model, ``compare`` tries methods on it, ``report`` and ``plot`` show it.

Names are imported when they are used. ``__init__.pyi`` lists them for type checkers; ``make stubs`` writes it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"  # above the imports: the modules below read it

from rhocal.calibrators.registry import CALIBRATORS

PUBLIC = {
    "rhocal.calibrators": ("calibrator",),
    "rhocal.calibrators.artifact": ("load",),
    "rhocal.calibrators.correctness.model": ("CorrectnessModel",),
    "rhocal.calibrators.online.calibration": ("OnlineCalibration",),
    "rhocal.calibrators.policies.policy": ("Policy",),
    "rhocal.calibrators.bootstrap.replicates": ("bootstrap",),
    "rhocal.calibrators.fitting": ("plan_for", "profile_block", "profile_logits"),
    "rhocal.calibrators.scale.bounds": ("confidence_bounds",),
    "rhocal.calibrators.top_k": ("calibrate_top_k",),
    "rhocal.data.demo": ("demo_logits",),
    "rhocal.data.formats.lm_eval": ("read_lm_eval",),
    "rhocal.data.language_models.logs": ("read_log",),
    "rhocal.data.streams": ("stream",),
    "rhocal.data.language_models.tokens": ("aggregate_tokens",),
    "rhocal.data.top_k": ("TopK",),
    "rhocal.data.language_models.verbal_confidence": ("verbal_confidence",),
    "rhocal.evaluation.adapt": ("adapt",),
    "rhocal.evaluation.comparison": ("Comparison", "compare"),
    "rhocal.evaluation.costs": ("minimize_cost",),
    "rhocal.evaluation.covariate_shift": ("estimate_weights", "reweight"),
    "rhocal.evaluation.decide": ("decide",),
    "rhocal.evaluation.decision": ("Decision",),
    "rhocal.evaluation.set_decision": ("SetDecision",),
    "rhocal.evaluation.sets": ("decide_sets",),
    "rhocal.evaluation.evaluate": ("evaluate",),
    "rhocal.evaluation.evaluation": ("Evaluation",),
    "rhocal.evaluation.measure": ("measure",),
    "rhocal.evaluation.monitor": ("Monitor",),
    "rhocal.objectives": (
        "KL", "MMCE", "NLL", "SCE", "AvUC", "Brier", "Focal", "LabelSmoothing", "SoftBinnedECE", "SoftECE", "TopBrier",
        "objective",
    ),
    "rhocal.profile.profile": ("Profile",),
    "rhocal.profile.saved": ("load_profile", "save_profile"),
    "rhocal.profile.top_k": ("profile_top_k",),
    "rhocal.reporting.plotting": ("plot",),
    "rhocal.reporting.report": ("Report", "report"),
}  # fmt: skip
"""Module → its public names, beside the families of the registry."""

PACKAGES = (
    "calibrators", "dask", "data", "errors", "evaluation", "integrations", "metrics", "numerics", "objectives", "onnx",
    "optimize", "profile", "reporting", "sklearn", "torch",
)  # fmt: skip
"""Submodules that are imported when they are used; some need an extra."""


def public_names() -> dict[str, tuple[str, str]]:
    """Public name → module and name there."""
    names = {method.class_name: (method.module, method.class_name) for method in CALIBRATORS.values()}
    for module, entries in PUBLIC.items():
        for entry in entries:
            attribute, _, alias = entry.partition(" as ")
            names[alias or attribute] = (module, attribute)
    return names


__all__ = ["CALIBRATORS", "__version__", "errors", "metrics"]
__all__ += list(public_names())


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return import_module(f"rhocal.{name}")
    names = public_names()
    if name not in names:
        raise AttributeError(f"module 'rhocal' has no attribute {name!r}")
    module, attribute = names[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)  # what users call; packages stay importable
