"""Any scikit-learn classifier with calibrated probabilities, and a search over methods.

python examples/scikit_learn.py
"""

from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rhocal.sklearn import CalibratedClassifier, scorer

X, y = make_classification(4000, 20, n_informative=6, n_redundant=10, n_classes=3, flip_y=0.1, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

plain = make_pipeline(StandardScaler(), GaussianNB()).fit(X_train, y_train)
calibrated = CalibratedClassifier(make_pipeline(StandardScaler(), GaussianNB()), cv=5).fit(X_train, y_train)

ece = scorer("ece", n_bins=15)
for name, model in (("naive Bayes", plain), ("calibrated", calibrated)):
    print(f"{name}: ECE {-ece(model, X_test, y_test):.4f}, accuracy {model.score(X_test, y_test):.3f}")

methods = ["temperature", "rho-norm", "beta", "isotonic"]
search = GridSearchCV(CalibratedClassifier(GaussianNB(), cv=3), {"method": methods}, scoring=scorer("nll"), cv=3)
search.fit(X_train, y_train)
print(f"best by NLL: {search.best_params_['method']}, ECE {-ece(search, X_test, y_test):.4f}")
