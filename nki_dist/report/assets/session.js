// A session's page: the line of launches, a row for each kernel.
const COLORS = ["tensor", "vector", "dma", "gpsimd", "scalar", "cc"];

function drawLaunches({kernels, spans}) {
  const traces = kernels.map((name, n) => {
    const mine = spans.filter(([kernel]) => kernel === n);
    return {type: "bar", orientation: "h", name, y: mine.map(() => n), base: mine.map((s) => s[1]), x: mine.map((s) => s[2]), width: 0.72,
      marker: {color: color(COLORS[n % COLORS.length]), line: {width: 0}},
      text: mine.map((s) => (s[3] > 1 ? `${s[3].toLocaleString("en")} × ` : "") + `${html(name)}<br>${timeText(s[1] * 1e3, 0.1)} + ${took(s[2] * 1e3)}`),
      textposition: "none", hovertemplate: "%{text}<extra></extra>"};
  });
  document.getElementById("launches").style.height = `${76 + 26 * kernels.length}px`;
  Plotly.react("launches", traces, {...looks(), barmode: "overlay", hovermode: "closest", dragmode: "zoom", margin: {l: 60, r: 16, t: 4, b: 40},
    xaxis: lineAxis("µs", {showgrid: true}),
    yaxis: lineAxis("", {fixedrange: true, showgrid: false, range: [kernels.length - 0.5, -0.5], tickvals: kernels.map((_, n) => n), ticktext: kernels.map(html)})}, CONFIG);
}

async function main() {
  const data = JSON.parse(new TextDecoder().decode(await unpacked("packed")));
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await unpacked("library"));
  document.head.append(script);
  drawLaunches(data);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawLaunches(data));
  window.report = data;
  document.body.dataset.ready = "all";
}

main().catch((error) => {
  document.getElementById("hint").textContent = `This page can't be drawn here: ${error}`;
  throw error;
});
