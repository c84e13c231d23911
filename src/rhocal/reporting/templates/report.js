"use strict";
// The page computes only bins, as unions of the fine sums of the document, as rhocal.reporting.curves.fine does in Python.
(async () => {
  const doc = JSON.parse(document.getElementById("report").textContent);
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const one = (selector, inside = document) => inside.querySelector(selector);
  const root = document.documentElement;
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const fixed = (value, digits = 4) => value.toFixed(digits);
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  const count = (n) => n.toLocaleString("en", { maximumFractionDigits: 1 });
  // Plotly reads a few tags in texts; names must stay names.
  const plain = (text) => {
    const letters = [...text];
    const cut = letters.length > 28 ? letters.slice(0, 27).join("") + "…" : text;
    return cut.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  };
  // Okabe and Ito's colors, distinct for color-blind readers; dashes and symbols are distinct in gray.
  const COLORS = ["#8a8f98", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800"];
  const DASHES = ["dot", "solid", "dash", "dashdot", "longdash", "longdashdot", "solid", "dash"];
  const SYMBOLS = ["circle-open", "circle", "square", "diamond", "triangle-up", "cross", "x", "star"];
  const state = { bins: doc.bins.default, scheme: "width" };

  // Bins ---------------------------------------------------------------------------------------------------------
  const edges = doc.bins.edges;
  function rebin(fine, n) {
    const bins = Array.from({ length: n }, (_, b) => ({ low: b / n, high: (b + 1) / n, weight: 0, confidence: 0, correct: 0, variance: 0, n: 0 }));
    fine.index.forEach((at, k) => {
      const bin = bins[Math.min(n - 1, Math.floor(((edges[at] + edges[at + 1]) / 2) * n))];
      bin.weight += fine.weight[k];
      bin.confidence += fine.confidence[k];
      bin.correct += fine.correct[k];
      bin.variance += fine.variance[k];
      bin.n += (fine.n_samples || fine.weight)[k];
    });
    return bins;
  }
  const total = (bins, key) => bins.reduce((sum, bin) => sum + bin[key], 0);
  const error = (bins) => bins.reduce((sum, bin) => sum + Math.abs(bin.correct - bin.confidence), 0) / total(bins, "weight");
  // The weights of bins sum to the effective sample size: they are what bands and intervals need.
  const floor = (bins) => bins.reduce((sum, bin) => sum + Math.sqrt((2 / Math.PI) * bin.variance), 0) / total(bins, "weight");
  function describeBins(bins) {
    const n = total(bins, "weight");
    return bins.filter((bin) => bin.weight > 0).map((bin) => {
      const mean = bin.confidence / bin.weight, accuracy = bin.correct / bin.weight;
      const reach = (1.96 * Math.sqrt(bin.variance)) / bin.weight;
      const z2 = 1.96 ** 2 / bin.weight; // Wilson's interval of the accuracy
      const middle = (accuracy + z2 / 2) / (1 + z2);
      const half = (1.96 / (1 + z2)) * Math.sqrt((accuracy * (1 - accuracy)) / bin.weight + z2 / (4 * bin.weight));
      return { ...bin, mean, accuracy, share: bin.weight / n, bandLow: Math.max(0, mean - reach), bandHigh: Math.min(1, mean + reach),
        low95: Math.max(0, middle - half), high95: Math.min(1, middle + half) };
    });
  }

  // Plots --------------------------------------------------------------------------------------------------------
  const config = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };
  function layout(x, y, more = {}) {
    const axis = (title) => ({ title: { text: title, standoff: 6 }, gridcolor: css("--line"), zeroline: false, linecolor: css("--line"), fixedrange: true, automargin: true });
    return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("--ink"), size: 12, family: "system-ui, sans-serif" },
      margin: { l: 46, r: 20, t: 8, b: 40 }, showlegend: false, hovermode: "closest", dragmode: false,
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") } },
      xaxis: axis(x), yaxis: axis(y), ...more };
  }
  const SHARES = { range: [0, 1.02], tickvals: [0, 0.25, 0.5, 0.75, 1], tickformat: ".0%" }; // axes from 0 to 100 %
  const shown = () => all("input[name=method]").filter((box) => box.checked).map((box) => Number(box.value));

  function showError(at) {
    const method = doc.methods[at], panel = one(`.panel[data-method="${at}"]`);
    const whole = rebin(method.bins[state.scheme], state.bins), bins = describeBins(whole);
    // At the default bins the document has the floor of the verdict, which is drawn; others are approximated.
    const drawn = state.bins === doc.bins.default ? method.values[state.scheme === "width" ? "ece" : "adaptive_ece"].floor : null;
    const value = error(whole), perfect = drawn ?? floor(whole);
    const shownValue = one(".ece", panel);
    shownValue.textContent = fixed(value);
    shownValue.dataset.value = String(value);
    one(".scheme-name", panel).textContent = state.scheme === "width" ? "ECE" : "AdaECE";
    one(".floor", panel).textContent = fixed(perfect);
    one(".chart", panel).setAttribute("aria-label", `Reliability diagram of ${method.name}: ${bins.length} bins of equal ${state.scheme}, calibration error ${fixed(value)}, floor ${fixed(perfect)}; mean confidence ${percent(method.mean_confidence)}, accuracy ${percent(method.mean_accuracy)}.`);
    fillTable(one("table.bins tbody", panel), bins);
  }
  function drawReliability(at) {
    const method = doc.methods[at], chart = one(`.panel[data-method="${at}"] .chart`);
    const bins = describeBins(rebin(method.bins[state.scheme], state.bins));
    const ink = css("--ink"), color = dark() ? "#6cb6ff" : "#0b5cad";
    const text = bins.map((bin) => `confidence ${percent(bin.mean)}, accuracy ${percent(bin.accuracy)}<br>${count(bin.n)} samples (${percent(bin.share)})<br>if calibrated: ${percent(bin.bandLow)} – ${percent(bin.bandHigh)}`);
    const histogram = describeBins(rebin(method.bins.width, state.bins));
    Plotly.react(chart, [
      { x: [...bins.map((b) => b.mean), ...bins.map((b) => b.mean).reverse()], y: [...bins.map((b) => b.bandHigh), ...bins.map((b) => b.bandLow).reverse()],
        type: "scatter", mode: "lines", fill: "toself", fillcolor: css("--band"), line: { width: 0 }, hoverinfo: "skip" },
      { x: [0, 1], y: [0, 1], mode: "lines", line: { color: css("--soft"), dash: "dash", width: 1.5 }, hoverinfo: "skip" },
      { x: bins.flatMap((b) => [b.mean, b.mean, null]), y: bins.flatMap((b) => [b.mean, b.accuracy, null]), mode: "lines", line: { color: dark() ? "#ff9a85" : "#d55e00", width: 3 }, hoverinfo: "skip" },
      { x: bins.map((b) => b.mean), y: bins.map((b) => b.accuracy), mode: "lines+markers", line: { color: color, width: 1.5 }, marker: { color: color, size: 8, line: { color: css("--card"), width: 1 } },
        error_y: { type: "data", symmetric: false, array: bins.map((b) => b.high95 - b.accuracy), arrayminus: bins.map((b) => b.accuracy - b.low95), color: color, thickness: 1, width: 0 },
        text, hovertemplate: "%{text}<extra></extra>" },
      { x: histogram.map((b) => (b.low + b.high) / 2), y: histogram.map((b) => b.share), width: histogram.map((b) => b.high - b.low), type: "bar", yaxis: "y2",
        marker: { color: css("--bar"), line: { color: color, width: 0.6 } }, text: histogram.map((b) => `${percent(b.share)} of samples`), textposition: "none", hovertemplate: "%{text}<extra></extra>" },
    ], layout("confidence", "accuracy", {
      xaxis: { ...layout("confidence", "").xaxis, ...SHARES, anchor: "y2" },
      yaxis: { ...layout("", "accuracy").yaxis, ...SHARES, range: [-0.01, 1.02], domain: [0.26, 1] },
      yaxis2: { ...layout("", "share").yaxis, domain: [0, 0.2], rangemode: "tozero", nticks: 3, tickformat: ".0%" },
      shapes: [["mean_confidence", "dash"], ["mean_accuracy", "solid"]].map(([key, dash]) => ({ type: "line", yref: "y2 domain", x0: method[key], x1: method[key], y0: 0, y1: 1, line: { color: ink, width: 1.5, dash } })),
    }), config);
  }

  function fillTable(body, bins) {
    body.replaceChildren(...bins.map((bin) => {
      const row = document.createElement("tr");
      for (const text of [percent(bin.mean), percent(bin.accuracy), count(bin.n), `${percent(bin.bandLow)} – ${percent(bin.bandHigh)}`]) {
        row.appendChild(document.createElement("td")).textContent = text;
      }
      return row;
    }));
  }

  function overlay(id, x, y, line, more = {}) {
    const chart = document.getElementById(id);
    const traces = shown().map((at) => line(doc.methods[at], at)).filter(Boolean);
    Plotly.react(chart, [...(more.under || []), ...traces], layout(x, y, { showlegend: true, legend: { orientation: "h", y: -0.22, font: { size: 11 } }, margin: { l: 50, r: 20, t: 8, b: 40 }, ...more.layout }), config);
  }
  const style = (at) => ({ color: COLORS[at % 8], dash: DASHES[at % 8], width: 2 });
  const dots = (at) => ({ color: COLORS[at % 8], symbol: SYMBOLS[at % 8], size: 5, opacity: 0.75 });
  const CURVES = {
    risk: () => overlay("risk", "share answered, most confident first", "error rate", (m, at) => ({ x: m.risk_coverage.coverage, y: m.risk_coverage.risk, name: plain(m.name), mode: "lines", line: style(at), hovertemplate: "%{x:.0%} answered: %{y:.1%} wrong" }),
      { layout: { xaxis: { ...layout("share answered, most confident first", "").xaxis, ...SHARES }, yaxis: { ...layout("", "error rate").yaxis, rangemode: "tozero", tickformat: ".0%" } } }),
    map: () => overlay("map", "confidence before", "confidence after", (m, at) => m.map && { x: m.map.raw, y: m.map.calibrated, name: plain(m.name), mode: "markers", marker: dots(at), hovertemplate: "%{x:.1%} becomes %{y:.1%}" },
      { under: [{ x: [0, 1], y: [0, 1], mode: "lines", line: { color: css("--soft"), dash: "dash", width: 1 }, hoverinfo: "skip", showlegend: false }], layout: { xaxis: square("confidence before"), yaxis: square("confidence after") } }),
    temperature: () => overlay("temperature", "norm of the centered logits", "temperature", (m, at) => m.temperature && { x: m.temperature.amplitude, y: m.temperature.temperature, name: plain(m.name), mode: "markers", marker: dots(at), hovertemplate: "norm %{x:.3g}: temperature %{y:.3g}" }),
  };
  CURVES.positive = () => {
    const reach = 1.05 * Math.max(...shown().map((at) => doc.methods[at].positive_curve).flatMap((curve) => [...curve.probability, ...curve.high]), 1e-6);
    const axis = (title) => ({ ...layout(title, "").xaxis, range: [0, Math.min(1.02, reach)], tickformat: reach < 0.1 ? ".1%" : ".0%" });
    overlay("positive", "mean probability", "prevalence", (m, at) => ({ x: m.positive_curve.probability, y: m.positive_curve.prevalence, name: plain(m.name), mode: "lines+markers", line: style(at), marker: { ...dots(at), size: 7 },
      error_y: { type: "data", symmetric: false, array: m.positive_curve.high.map((high, b) => high - m.positive_curve.prevalence[b]), arrayminus: m.positive_curve.low.map((low, b) => m.positive_curve.prevalence[b] - low), thickness: 1, width: 0 },
      text: m.positive_curve.n_samples.map((n) => `${count(n)} samples`), hovertemplate: "mean probability %{x:.2%}, prevalence %{y:.2%}<br>%{text}" }),
      { under: [{ x: [0, 1], y: [0, 1], mode: "lines", line: { color: css("--soft"), dash: "dash", width: 1 }, hoverinfo: "skip", showlegend: false }], layout: { xaxis: axis("mean probability"), yaxis: axis("prevalence") } });
  };
  const decided = doc.decisions;
  const target = () => decided.targets[Number(document.getElementById("target").value)];
  function showTarget() {
    const t = target();
    document.getElementById("target-shown").textContent = `${Number((100 * t.target).toPrecision(3))} %`;
    document.getElementById("certified").textContent = t.threshold === null ? "No threshold is certified: more labels are needed, or the model makes more errors."
      : `Automate ${percent(t.coverage)} of samples: probability at least ${fixed(t.threshold)}. ${(100 * t.risk).toFixed(2)} % of them are wrong here; the bound is ${(100 * t.bound).toFixed(2)} %.`;
  }
  CURVES.decisions = () => {
    const t = target(), curve = decided.curve, color = dark() ? "#6cb6ff" : "#0b5cad";
    const reach = Math.min(1, 2 * Math.max(t.target, ...curve.risk.slice(-1)));
    const point = t.threshold === null ? [] : [{ x: [t.coverage], y: [t.risk], name: "certified", mode: "markers", marker: { color, size: 11, symbol: "diamond" }, hovertemplate: "%{x:.1%} automated, %{y:.2%} wrong" }];
    Plotly.react(document.getElementById("decisions"), [
      { x: curve.coverage, y: curve.bound, name: "upper bound at this threshold", mode: "lines", line: { color, width: 1, dash: "dash" }, hovertemplate: "%{x:.1%} automated: at most %{y:.2%} wrong" },
      { x: curve.coverage, y: curve.risk, name: "observed", mode: "lines", line: { color, width: 2 }, hovertemplate: "%{x:.1%} automated: %{y:.2%} wrong" }, ...point,
    ], layout("", "", { showlegend: true, legend: { orientation: "h", y: -0.22, font: { size: 11 } }, margin: { l: 50, r: 20, t: 8, b: 40 },
      xaxis: { ...layout("share automated", "").xaxis, ...SHARES }, yaxis: { ...layout("", "error rate").yaxis, range: [0, reach], tickformat: ".1%" },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: t.target, y1: t.target, line: { color: css("--soft"), dash: "dot", width: 1.5 } }] }), config);
  };
  const square = (title) => ({ ...layout(title, "").xaxis, ...SHARES });
  function drawGrid(chart) {
    const trials = doc.methods[Number(chart.dataset.method)].fit.trials.filter((row) => row.rho !== undefined && row.ece !== undefined);
    Plotly.react(chart, [{ x: trials.map((r) => r.rho), y: trials.map((r) => r.ece), mode: "lines+markers", line: { color: COLORS[1] }, hovertemplate: "ρ = %{x}: ECE %{y:.4f}<extra></extra>" }], layout("ρ", "ECE on the calibration set"), config);
  }

  // Charts are drawn when they come near the window: a page of many opens as fast as one of few.
  const near = new Set(), stale = new Set(all(".chart"));
  function drawChart(chart) {
    stale.delete(chart);
    if (chart.id) CURVES[chart.id]();
    else if (chart.classList.contains("grid")) drawGrid(chart);
    else drawReliability(Number(chart.closest(".panel").dataset.method));
  }
  const hidden = (chart) => chart.closest("[hidden], details:not([open])") !== null;
  const drawNear = () => [...stale].filter((chart) => near.has(chart) && !hidden(chart)).forEach(drawChart);
  // Paper has another width than the window: as pictures with a fixed shape the charts fit any.
  const drawAll = () => all(".chart").filter((chart) => !hidden(chart)).forEach((chart) => {
    drawChart(chart);
    const svg = one(".main-svg", chart), width = svg.getAttribute("width"), height = svg.getAttribute("height");
    chart.style.setProperty("--shape", `${width} / ${height}`);
    all(".main-svg", chart).forEach((layer) => layer.setAttribute("viewBox", `0 0 ${width} ${height}`));
  });
  function redraw(charts = all(".chart")) {
    charts.forEach((chart) => stale.add(chart));
    drawNear();
  }
  const binned = () => {
    shown().forEach(showError);
    redraw(all(".chart.reliability"));
  };
  const chosen = () => {
    all(".panel[data-method]").forEach((panel) => { panel.hidden = !shown().includes(Number(panel.dataset.method)); });
    binned();
    redraw();
  };

  // Controls ------------------------------------------------------------------------------------------------------
  const button = document.getElementById("theme");
  const showTheme = () => { button.textContent = dark() ? "Switch to light" : "Switch to dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; showTheme(); redraw(); });
  showTheme();
  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }
  // Spreadsheets run cells that begin like a formula; an apostrophe makes them text.
  const cell = (value) => (typeof value === "number" ? String(value) : `"${String(value ?? "").replace(/^([=+\-@\t\r])/, "'$1").replace(/"/g, '""')}"`);
  function methodsTable() {
    const metrics = Object.keys(doc.metrics);
    const rows = doc.methods.map((m) => [m.name, ...metrics.flatMap((key) => { const v = m.values[key]; return [v.value, v.low, v.high, v.floor]; }), m.verdict]);
    const head = ["method", ...metrics.flatMap((key) => [key, `${key}_low`, `${key}_high`, `${key}_floor`]), "verdict"];
    return [head, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }
  document.getElementById("download").addEventListener("click", () => save("report.json", "application/json", JSON.stringify(doc)));
  document.getElementById("download-table").addEventListener("click", () => save("methods.csv", "text/csv", methodsTable()));
  all(".chart").forEach((chart) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "picture";
    button.textContent = "Save as SVG";
    button.addEventListener("click", async () => {
      if (stale.has(chart)) drawChart(chart);
      const address = await Plotly.toImage(chart, { format: "svg", width: chart.clientWidth, height: chart.clientHeight });
      const title = one("h3", chart.closest(".panel") || chart.parentElement)?.textContent || "picture";
      save(`${title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60)}.svg`, "image/svg+xml", decodeURIComponent(address.slice(address.indexOf(",") + 1)));
    });
    chart.after(button);
  });
  all("table.sortable").forEach((table) => {
    const heads = all("thead th", table);
    heads.forEach((head, column) => one("button", head)?.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.filter((h) => h.hasAttribute("aria-sort")).forEach((h) => h.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => Number(row.cells[column].dataset.sort);
      const body = one("tbody", table);
      all("tr", body).sort((a, b) => (key(a) - key(b)) * (down ? -1 : 1)).forEach((row) => body.appendChild(row));
    }));
  });

  let waiting = 0;
  document.getElementById("bins").addEventListener("input", (event) => {
    state.bins = Number(event.target.value);
    document.getElementById("bins-shown").textContent = event.target.value;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(binned);
  });
  if (decided) {
    showTarget();
    document.getElementById("target").addEventListener("input", () => { showTarget(); redraw([document.getElementById("decisions")]); });
  }
  all("input[name=scheme]").forEach((radio) => radio.addEventListener("change", () => { state.scheme = radio.value; binned(); }));
  all("input[name=method]").forEach((box) => box.addEventListener("change", chosen));
  all("details.fit").forEach((part) => part.addEventListener("toggle", drawNear));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { showTheme(); redraw(); });
  shown().forEach(showError);

  try {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.appendChild(script);
  } catch (problem) {
    document.getElementById("failed").hidden = false;
    return;
  }
  const observer = new IntersectionObserver((entries) => {
    entries.forEach((entry) => near[entry.isIntersecting ? "add" : "delete"](entry.target));
    drawNear();
    root.dataset.ready = "yes";
  }, { rootMargin: "300px" });
  all(".chart").forEach((chart) => observer.observe(chart));
  addEventListener("beforeprint", drawAll);
  addEventListener("afterprint", () => redraw());
})();
