"""Ten common jobs: the code that does each with rhocal, and with the other library that needs the fewest lines.

``z``, ``y`` are logits and labels of a calibration set, ``zt``, ``yt`` of a test set, ``p`` probabilities of the test set,
``X``, ``t`` a table with its labels, ``model`` and ``loader`` a torch network and its data, ``batches`` an iterator of logits
and labels.
"""

JOBS: dict[str, dict[str, str]] = {
    "ECE of probabilities": {
        "rhocal": "import rhocal\nrhocal.metrics.ece(p, yt)",
        "torchmetrics": "import torch\nfrom torchmetrics.functional.classification import multiclass_calibration_error\n"
        "multiclass_calibration_error(torch.tensor(p), torch.tensor(yt), num_classes=10, n_bins=10)",
    },
    "Temperature scaling of logits": {
        "rhocal": "import rhocal\nrhocal.TemperatureScaling().fit(z, y).predict_proba(zt)",
        "probmetrics": "from probmetrics.calibrators import get_calibrator\nfrom scipy.special import softmax\n"
        'calibrator = get_calibrator("temp-scaling")\ncalibrator.fit(softmax(z, axis=1), y)\n'
        "calibrator.predict_proba(softmax(zt, axis=1))",
    },
    "Reliability diagram": {
        "rhocal": "import rhocal\nrhocal.plot(p, yt)",
        "scikit-learn": "from sklearn.calibration import CalibrationDisplay\n"
        "CalibrationDisplay.from_predictions(yt == p.argmax(axis=1), p.max(axis=1), n_bins=10)",
    },
    "Classifier calibrated by cross-validation": {
        "rhocal": "from rhocal.sklearn import CalibratedClassifier\nfrom sklearn.naive_bayes import GaussianNB\n"
        "CalibratedClassifier(GaussianNB(), cv=5).fit(X, t)",
        "scikit-learn": "from sklearn.calibration import CalibratedClassifierCV\nfrom sklearn.naive_bayes import GaussianNB\n"
        "CalibratedClassifierCV(GaussianNB(), cv=5).fit(X, t)",
    },
    "Test whether a model is calibrated": {
        "rhocal": "import rhocal\nrhocal.evaluate(p, yt).p_value",
        "MAPIE": "from mapie.metrics.calibration import kolmogorov_smirnov_p_value\n"
        "kolmogorov_smirnov_p_value((yt == p.argmax(axis=1)).astype(int), p.max(axis=1))",
    },
    "Interval of ECE": {
        "rhocal": 'import rhocal\nrhocal.evaluate(p, yt)["ece"].low',
        "uncertainty-calibration": "import calibration\ncalibration.get_calibration_error_uncertainties(p, yt)",
    },
    "Save and load a calibrator": {
        "rhocal": 'import rhocal\nrhocal.TemperatureScaling().fit(z, y).save("cal.safetensors")\n'
        'rhocal.load("cal.safetensors")',
        "scikit-learn": "import joblib\nfrom sklearn.isotonic import IsotonicRegression\n"
        'joblib.dump(IsotonicRegression().fit(p.max(axis=1), yt == p.argmax(axis=1)), "cal.joblib")\n'
        'joblib.load("cal.joblib")',
    },
    "PyTorch model with its temperature": {
        "rhocal": 'import rhocal.torch\nrhocal.torch.calibrate(model, loader, "temperature")',
        "torch": "import torch\n"
        "scale = torch.nn.Parameter(torch.zeros(1))\n"
        "with torch.no_grad():\n    outputs = [(model(x), labels) for x, labels in loader]\n"
        "logits, labels = (torch.cat(part) for part in zip(*outputs, strict=True))\n"
        'optimizer = torch.optim.LBFGS([scale], line_search_fn="strong_wolfe")\n'
        "def loss():\n    optimizer.zero_grad()\n"
        "    value = torch.nn.functional.cross_entropy(scale.exp() * logits, labels)\n"
        "    value.backward()\n    return value\n"
        "optimizer.step(loss)",
    },
    "Compare three methods on a test set": {
        "rhocal": 'import rhocal\nrhocal.compare(z, y, test=(zt, yt), methods=["temperature", "svs", "isotonic"])',
        "probmetrics": "from probmetrics.calibrators import get_calibrator\nfrom scipy.special import softmax\n"
        "from sklearn.metrics import log_loss\n"
        'for name in ("temp-scaling", "svs", "isotonic"):\n    calibrator = get_calibrator(name)\n'
        "    calibrator.fit(softmax(z, axis=1), y)\n"
        "    print(name, log_loss(yt, calibrator.predict_proba(softmax(zt, axis=1))))",
    },
    "ECE of batches that do not fit into memory": {
        "rhocal": 'import rhocal\nrhocal.measure(rhocal.stream(batches))["ece"]',
        "torchmetrics": "import torch\nfrom torchmetrics.classification import MulticlassCalibrationError\n"
        "metric = MulticlassCalibrationError(num_classes=10, n_bins=10)\n"
        "for logits, labels in batches:\n    metric.update(torch.tensor(logits), torch.tensor(labels))\n"
        "metric.compute()",
    },
}
