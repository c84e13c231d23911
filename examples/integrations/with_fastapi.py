"""FastAPI"""  # packages: fastapi httpx

from _tables import logits
from fastapi.testclient import TestClient

import rhocal

values, labels = logits()
rhocal.FieldScaling().fit(values, labels).save("cal.safetensors")

# begin
from fastapi import FastAPI

app = FastAPI()
predict = rhocal.load("cal.safetensors").compiled()  # predict_proba for requests of a few rows


@app.post("/probs")
def probs(rows: list[list[float]]) -> list[list[float]]:
    return predict(rows).tolist()


# end

answer = TestClient(app).post("/probs", json=values[:2].tolist())
assert answer.status_code == 200
want = rhocal.load("cal.safetensors").predict_proba(values[:2].astype("float64"))
assert abs(want - answer.json()).max() < 1e-9
