// Puts the page together: what keys, the mouse and the source do to the view.
const SHOWN = 4; // cores at once

async function main() {
  const data = await readData(), view = {from: 0, to: data.total_ns || 1};
  const timeline = new Timeline(data, view), memory = new Memory(data, view);
  const state = (window.report = {data, view, timeline, memory, drawn: 0});
  const element = (id) => document.getElementById(id), tip = element("tip");
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

  function look(from, to) {
    const least = Math.max(data.total_ns / 1e6, 1), span = Math.min(Math.max(to - from, least), data.total_ns || 1);
    view.from = Math.max(0, Math.min(from, data.total_ns - span));
    view.to = view.from + span;
    redraw();
  }

  function zoom(factor, x = (GUTTER + timeline.width) / 2) {
    const time = timeline.time(x);
    look(time - (time - view.from) * factor, time + (view.to - time) * factor);
  }

  const move = (share) => look(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

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

  // Mark a row of the source, and bring it into its box's view.
  function mark(id, scroll) {
    document.querySelectorAll(".chosen").forEach((row) => row.classList.remove("chosen"));
    const row = id && element(id);
    if (!row) return;
    row.classList.add("chosen");
    const box = row.closest(".code");
    if (scroll) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }

  function chooseLine(row) {
    const line = data.lines.findIndex(([, id]) => id === row.id);
    const same = timeline.line === line;
    timeline.line = same ? -1 : line;
    mark(same ? "" : row.id, false);
    redraw();
  }

  function hover(event, text) {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const {width, height} = tip.getBoundingClientRect();
    tip.style.left = Math.min(event.clientX + 14, innerWidth - width - 8) + "px";
    tip.style.top = (event.clientY + height + 24 > innerHeight ? event.clientY - height - 10 : event.clientY + 16) + "px";
  }

  const inside = (canvas, event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  let held = null; // where the mouse went down, and the view then
  for (const part of [timeline, memory]) {
    const {canvas} = part;
    canvas.addEventListener("pointerdown", (event) => {
      held = {x: event.clientX, from: view.from, to: view.to, moved: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = inside(canvas, event);
      if (held) {
        const shift = ((held.x - event.clientX) / (timeline.width - GUTTER)) * (held.to - held.from);
        held.moved ||= Math.abs(held.x - event.clientX) > 3;
        if (held.moved) look(held.from + shift, held.to + shift);
        return hover(event, "");
      }
      const found = part.at(x, y);
      if (part === memory) hover(event, found && memory.about(found));
      else hover(event, found < 0 ? "" : timeline.about(found).slice(0, 4).map(([, text]) => text).join("\n"));
    });
    canvas.addEventListener("pointerup", (event) => {
      const still = held && !held.moved, [x, y] = inside(canvas, event);
      held = null;
      if (!still) return;
      if (part === timeline) return choose(timeline.at(x, y));
      const found = memory.at(x, y);
      memory.chosen = found ? found[4] : "";
      redraw();
    });
    canvas.addEventListener("pointerleave", (event) => hover(event, ""));
    canvas.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey) && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), inside(canvas, event)[0]);
      else move(event.deltaX / 800);
    }, {passive: false});
    canvas.addEventListener("dblclick", () => look(0, data.total_ns));
  }
  const keys = {w: () => zoom(0.6), s: () => zoom(1 / 0.6), a: () => move(-0.25), d: () => move(0.25), 0: () => look(0, data.total_ns), Escape: () => choose(-1)};
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT/.test(event.target.tagName)) return;
    if (event.key === "Enter" && event.target.classList.contains("used")) chooseLine(event.target);
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
  await new Promise((done) => setTimeout(done)); // the timeline is on the screen before the library is read
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await unpacked("library"));
  document.head.append(script);
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
