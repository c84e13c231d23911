"""Prometheus (rhocal monitor)"""  # packages: prometheus-client pyarrow

import contextlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
from _tables import logits
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import parquet

values, labels = logits()
Path("predictions").mkdir()
columns = {f"{k}": values[:, k] for k in range(10)}
parquet.write_table(pa.table(columns | {"labels": labels}), "predictions/part-0.parquet")

# begin
command = "rhocal monitor predictions -s state.json --follow --serve 127.0.0.1:0"
# end

service = subprocess.Popen(
    [sys.executable, "-m", *command.split()], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
)
try:
    address = re.search(r"http://127[.]0[.]0[.]1:\d+", service.stderr.readline())[0]
    for _ in range(100):
        time.sleep(0.2)
        with contextlib.suppress(urllib.error.HTTPError):  # 503 before the first look
            text = urllib.request.urlopen(f"{address}/metrics", timeout=10).read().decode()
            families = list(text_string_to_metric_families(text))
            samples = {sample.name: sample.value for family in families for sample in family.samples}
            if 1500 in samples.values():
                break
    assert samples["rhocal_monitor_alarm"] == 1  # these logits are over-confident
finally:
    service.kill()
    service.wait()
