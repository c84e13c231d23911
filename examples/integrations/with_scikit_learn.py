"""scikit-learn"""  # packages: scikit-learn

from _tables import table
from sklearn.naive_bayes import GaussianNB

import rhocal

(X, y), (X_val, y_val), (X_test, y_test) = table()
estimator = GaussianNB()

# begin
from rhocal.sklearn import CalibratedClassifier

model = CalibratedClassifier(estimator, cv=5).fit(X, y)
probs = model.predict_proba(X_test)
# end

uncalibrated = GaussianNB().fit(X, y).predict_proba(X_test)
assert rhocal.metrics.nll(probs, y_test) < rhocal.metrics.nll(uncalibrated, y_test)
