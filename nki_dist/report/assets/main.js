// Puts the page together: what keys, the mouse and the source do to the view.
const SHOWN = 4; // cores at once

async function main() {
  const data = await readEvents("packed"), view = {from: 0, to: data.total_ns || 1};
  const timeline = new Timeline(data, view), memory = new Memory(data, view);
  const state = (window.report = {data, view, timeline, memory, drawn: 0});
  let waiting = false;

  function draw() {
    waiting = false;
    const began = performance.now();
    timeline.draw();
    memory.draw();
    state.drawMs = performance.now() - began;
    state.drawn++;
  }

  function redraw() {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  const {look, zoom, keys, listen} = moving(view, data.total_ns, timeline, redraw);

  function show(cores) {
    timeline.show(cores);
    memory.core = cores[0] || 0;
    element("memory-of").textContent = data.cores.length > 1 ? data.cores[memory.core] : "";
    redraw();
  }

  function choose(event) {
    timeline.chosen = event;
    const detail = element("detail");
    detail.innerHTML = "";
    if (event >= 0) {
      const core = data.rows[timeline.rowOf(event)].core;
      if (!timeline.cores.has(core)) show([core]);
      memory.core = core;
      detail.innerHTML = timeline.about(event).map(([name, text]) => `<dt>${html(name)}</dt><dd>${html(text)}</dd>`).join("");
      const waited = timeline.waited(event);
      if (waited) {
        detail.insertAdjacentHTML("beforeend", `<dt>waited for</dt><dd><button>${html(waited)}</button></dd>`);
        detail.querySelector("button").onclick = () => choose(data.cause[event]);
      }
      if (data.start[event] < view.from || data.start[event] > view.to) {
        const half = (view.to - view.from) / 2;
        look(data.start[event] - half, data.start[event] + half);
      }
      if (data.kind[event] !== MERGED) mark(data.lines[data.kinds[data.kind[event]][2]][1], true);
    }
    redraw();
  }

  function chooseLine(row) {
    const line = data.lines.findIndex(([, id]) => id === row.id);
    const same = timeline.line === line;
    timeline.line = same ? -1 : line;
    mark(same ? "" : row.id, false);
    redraw();
  }

  listen(timeline, (event, x, y) => {
    const found = timeline.at(x, y);
    hover(event, found < 0 ? "" : timeline.about(found).slice(0, 4).map(([, text]) => text).join("\n"));
  }, (x, y) => choose(timeline.at(x, y)));
  listen(memory, (event, x, y) => {
    const found = memory.at(x, y);
    hover(event, found && memory.about(found));
  }, (x, y) => {
    const found = memory.at(x, y);
    memory.chosen = found ? found[4] : "";
    redraw();
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT/.test(event.target.tagName)) return;
    if (event.key === "Enter" && event.target.classList.contains("used")) chooseLine(event.target);
    else if (event.key === "Escape") choose(-1);
    else if (keys[event.key]) keys[event.key]();
  });
  element("zoom-in").onclick = () => zoom(0.5);
  element("zoom-out").onclick = () => zoom(2);
  element("fit").onclick = () => look(0, data.total_ns);
  element("critical").onchange = (event) => {
    timeline.critical = event.target.checked;
    redraw();
  };
  document.querySelectorAll(".code .used").forEach((row) => (row.onclick = () => chooseLine(row)));
  // Long listings begin at the line that costs most.
  for (const box of document.querySelectorAll(".code")) {
    const bars = [...box.querySelectorAll(".bar b")].sort((a, b) => b.offsetWidth - a.offsetWidth);
    if (bars.length) box.scrollTop = bars[0].closest("tr").offsetTop - box.clientHeight / 2;
  }
  const engines = [...new Set(data.rows.filter((r) => r.first < r.last).map((r) => r.engine))].sort((a, b) => rank(a) - rank(b));
  const merged = data.merged.some((n) => n > 1) ? "<span>neighbouring short instructions are drawn as one</span>" : "";
  element("legend").innerHTML = engines.map((e) => `<span><i class="dot ${html(e)}"></i>${html(e)}</span>`).join("") + merged;
  const cores = element("cores");
  if (data.cores.length > SHOWN) {
    for (let n = 0; n < data.cores.length; n += SHOWN) {
      const last = Math.min(n + SHOWN, data.cores.length) - 1;
      cores.add(new Option(`${data.cores[n]} to ${data.cores[last]}`, n));
    }
    cores.hidden = false;
    cores.onchange = () => show(data.cores.map((_, n) => n).slice(+cores.value, +cores.value + SHOWN));
  }
  show(data.cores.map((_, n) => n).slice(0, SHOWN));
  draw();
  document.body.dataset.ready = "timeline";
  addEventListener("resize", redraw);
  await readLibrary();
  drawCharts(data);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    redraw();
    drawCharts(data);
  });
  document.body.dataset.ready = "all";
}

main().catch((error) => {
  document.getElementById("hint").textContent = `This page can't be drawn here: ${error}`;
  throw error;
});
