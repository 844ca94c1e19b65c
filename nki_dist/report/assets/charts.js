// Charts that needn't be fast, by the library: busy engines, the roofline, the ranks.
function looks() {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: {l: 56, r: 16, t: 8, b: 42},
    font: {family: 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif', size: 12, color: color("soft")},
    hoverlabel: {bgcolor: color("card"), bordercolor: color("line"), font: {color: color("text")}},
    legend: {orientation: "h", y: 1.14, x: 0}, showlegend: false,
  };
}

const lineAxis = (title, more) => ({title: {text: title, font: {size: 12}}, gridcolor: color("line"), zeroline: false, linecolor: color("line"), automargin: true, ...more});
const CONFIG = {displayModeBar: false, responsive: true};

function drawCharts(data) {
  drawBusy(data);
  drawRoofline(data.roofline);
  if (document.getElementById("ranks")) drawRanks(data.ranks);
}

// A strip for each engine, one above the other; or for what else has colours of engines.
function drawBusy({busy, colors = {}}) {
  const engines = Object.keys(busy.share), high = 1 / engines.length, layout = looks();
  const traces = engines.map((engine, n) => {
    const top = 1 - n * high, axis = n ? `y${n + 1}` : "y";
    layout[n ? `yaxis${n + 1}` : "yaxis"] = lineAxis("", {domain: [top - high * 0.86, top], range: [0, 1], fixedrange: true,
      tickvals: [0.5], ticktext: [html(engine)], showgrid: false});
    return {x: busy.us, y: busy.share[engine], yaxis: axis, name: engine, mode: "lines", fill: "tozeroy", fillcolor: color(colors[engine] || engine),
      line: {width: 0, shape: "hvh"}, hovertemplate: `${html(engine)} %{y:.0%}<extra></extra>`};
  });
  Plotly.react("busy", traces, {...layout, hovermode: "x", margin: {l: 60, r: 16, t: 4, b: 40},
    xaxis: lineAxis("µs", {showgrid: false, anchor: engines.length > 1 ? `y${engines.length}` : "y"})}, CONFIG);
}

function drawRoofline({gbps, stacks, roofs, tensor, intensity, tflops}) {
  const ridge = Math.max(...Object.values(roofs)) * 1e3 / gbps;
  const left = Math.min(intensity || 1, 1) / 4, right = Math.max(intensity, ridge) * 30;
  const traces = [], notes = [];
  // Platforms give several types one peak: one line for them.
  const peaks = new Map();
  for (const [type, peak] of Object.entries(roofs)) peaks.set(peak, [...(peaks.get(peak) || []), type]);
  for (const [peak, types] of peaks) {
    const from = (peak * 1e3) / gbps;
    traces.push({x: [from, right], y: [peak, peak], mode: "lines", line: {color: color("faint"), width: 1.4}, hoverinfo: "skip"});
    notes.push({x: Math.log10(right), y: Math.log10(peak), xanchor: "right", yanchor: "bottom", showarrow: false, font: {size: 11, color: color("soft")},
      text: `${html(types.join(", "))} ${peak.toFixed(0)} TFLOPS`});
  }
  traces.push({x: [left, ridge], y: [(left * gbps) / 1e3, (ridge * gbps) / 1e3], mode: "lines", line: {color: color("dma"), width: 1.8}, hoverinfo: "skip"});
  const middle = Math.sqrt(left * ridge);
  notes.push({x: Math.log10(middle), y: Math.log10((middle * gbps) / 1e3), xanchor: "right", yanchor: "bottom", showarrow: false, font: {size: 11, color: color("soft")},
    text: `HBM ${gbps.toFixed(0)} GB/s${stacks > 1 ? ` (${stacks} stacks)` : ""}`});
  if (intensity > 0)
    traces.push({x: [intensity], y: [tflops], mode: "markers", marker: {size: 11, color: color("tensor"), line: {color: color("card"), width: 2}, symbol: tensor ? "circle" : "circle-open"},
      hovertemplate: `${intensity.toPrecision(3)} FLOP/byte<br>${tflops.toPrecision(3)} TFLOPS${tensor ? "" : " on all engines"}<extra></extra>`});
  Plotly.react("roofline", traces, {...looks(), annotations: notes,
    xaxis: lineAxis("FLOP per byte of HBM traffic", {type: "log", range: [Math.log10(left), Math.log10(right)]}),
    yaxis: lineAxis("TFLOPS", {type: "log"})}, CONFIG);
}

function drawRanks({what, bars}) {
  const names = bars.map((r) => r.number), own = bars.map((r) => Math.max(r.end_us - r.waits_us, 0));
  const text = what + " %{x}: %{y:,.2f} µs<extra></extra>", many = bars.length > 40;
  Plotly.react("ranks", [
    {x: names, y: own, type: "bar", name: "until its last result, without waits", marker: {color: color("tensor")}, hovertemplate: text},
    {x: names, y: bars.map((r) => r.waits_us), type: "bar", name: "waiting for other cores, and for messages", marker: {color: color("scalar")}, hovertemplate: text},
  ], {...looks(), barmode: "stack", bargap: bars.length < 5 ? 0.8 : many ? 0.1 : 0.35, showlegend: true, margin: {l: 56, r: 16, t: 26, b: 42},
    legend: {orientation: "h", y: 1.14, x: 0, traceorder: "normal"},
    xaxis: lineAxis(what, {showgrid: false, type: many ? "linear" : "category"}), yaxis: lineAxis("µs", {})}, CONFIG);
}
