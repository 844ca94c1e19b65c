// Charts that needn't be fast, by the library: busy engines, the roofline, the ranks.
function looks() {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: {l: 56, r: 16, t: 8, b: 42},
    font: {family: 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif', size: 12, color: color("soft")},
    hoverlabel: {bgcolor: color("card"), bordercolor: color("line"), font: {color: color("text")}},
    legend: {orientation: "h", y: 1.14, x: 0}, colorway: ["tensor"].map(color), showlegend: false,
  };
}

const lineAxis = (title, more) => ({title: {text: title, font: {size: 12}}, gridcolor: color("line"), zeroline: false, linecolor: color("line"), automargin: true, ...more});
const CONFIG = {displayModeBar: false, responsive: true};

function drawCharts(data) {
  drawBusy(data);
  drawRoofline(data.roofline);
  if (document.getElementById("ranks")) drawRanks(data.ranks);
}

function drawBusy({busy}) {
  const traces = Object.entries(busy.share).map(([engine, share]) => ({
    x: busy.us, y: share, name: engine, mode: "lines", line: {color: color(engine), width: 1.6, shape: "hvh"},
    hovertemplate: "%{y:.0%}",
  }));
  Plotly.react("busy", traces, {...looks(), showlegend: true, hovermode: "x unified", margin: {l: 50, r: 16, t: 26, b: 42},
    xaxis: lineAxis("µs", {showgrid: false}), yaxis: lineAxis("", {tickformat: ".0%", range: [0, 1.03], fixedrange: true})}, CONFIG);
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

function drawRanks(ranks) {
  const names = ranks.map((r) => r.rank), own = ranks.map((r) => Math.max(r.end_us - r.waits_us, 0));
  const text = "rank %{x}: %{y:,.2f} µs";
  Plotly.react("ranks", [
    {x: names, y: own, type: "bar", name: "until its last result, without waits", marker: {color: color("tensor")}, hovertemplate: text},
    {x: names, y: ranks.map((r) => r.waits_us), type: "bar", name: "waiting for other cores, and for messages", marker: {color: color("scalar")}, hovertemplate: text},
  ], {...looks(), barmode: "stack", bargap: ranks.length > 60 ? 0.1 : 0.35, showlegend: true, margin: {l: 56, r: 16, t: 26, b: 42},
    xaxis: lineAxis("rank", {showgrid: false, type: ranks.length > 40 ? "linear" : "category"}), yaxis: lineAxis("µs", {})}, CONFIG);
}
