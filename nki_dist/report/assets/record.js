// Keys, buttons and the timeline of a record's page.
async function main() {
  const data = await bundle("packed"), pictures = await bundle("pictures-packed");
  const state = (window.report = new Stepping(data, new Contents(data, pictures))), {compared, start, live} = pictures;
  const scrub = element("scrub"), cores = element("cores");
  scrub.max = state.steps - 1;
  scrub.oninput = () => state.go(+scrub.value);
  for (const [n, name] of [[-1, "all cores"], ...data.cores.map((name, n) => [n, name])]) cores.add(new Option(name, n));
  cores.hidden = data.cores.length < 2;
  cores.onchange = () => {
    state.core = +cores.value;
    if (state.core >= 0) state.go(state.ofCore[state.core][Math.max(state.at(state.core, state.step), 0)]);
  };
  for (const kind of KINDS) element("kind").add(new Option(kind));
  const recolor = () => {
    state.kind = element("kind").value;
    state.draw();
    if (compared.shape) drawCompared(state, state.contents.extra, compared);
  };
  element("kind").onchange = recolor;
  const turn = (select) => {
    select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
    select.onchange();
  };
  const keys = {
    ArrowLeft: () => state.next(-1), ArrowRight: () => state.next(1), "[": () => state.sameLine(-1), "]": () => state.sameLine(1),
    f: () => state.go(0), l: () => state.go(state.steps - 1), c: () => turn(cores), m: () => turn(element("kind")),
    "?": () => { element("keys").open = !element("keys").open; }, o: () => live && askOrigin(state),
  };
  for (const [id, key] of [["previous", "ArrowLeft"], ["following", "ArrowRight"], ["before-line", "["], ["after-line", "]"]]) element(id).onclick = keys[key];
  const striped = (shade) => `repeating-linear-gradient(135deg, ${shade} 0 3px, #fff 3px 6px)`;
  const dots = [[ODD.nan, "NaN"], [striped(ODD.high), "+inf"], [striped(ODD.low), "−inf"]].map(([shade, name]) => `<span><i class="dot" style="background:${shade}"></i>${name}</span>`);
  element("odd").innerHTML = dots.join("") + '<span><i class="dot unwritten"></i>nobody wrote</span><span><i class="dot reads"></i>read</span><span><i class="dot writes"></i>written</span>';
  document.addEventListener("click", ({target}) => {
    const row = target.closest(".code .used, [data-step], [data-tensor]");
    if (!row) return;
    if (row.dataset.step) state.go(+row.dataset.step);
    else if (row.dataset.tensor) state.goToTensor(+row.dataset.tensor);
    else state.goToLine(row.id);
  });
  for (const memory of ["sbuf", "psum"]) {
    const canvas = element(memory);
    canvas.onpointermove = (event) => {
      const box = state.chipAt(canvas, event);
      hover(event, box ? `${state.told(box.tensor)}\npartitions ${box.top} to ${box.top + box.high - 1}, from byte ${box.left}: ${kib(box.wide)}` : "");
    };
    canvas.onpointerleave = (event) => hover(event, "");
    canvas.onclick = (event) => { const box = state.chipAt(canvas, event); if (box) state.goToTensor(box.tensor); };
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || (/SELECT/.test(event.target.tagName) && event.key !== "?")) return;
    if (event.key === "Enter" && event.target.matches(".used, [data-step]")) event.target.click();
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  });
  state.go(start);
  if (compared.shape) drawCompared(state, state.contents.extra, compared);
  document.body.dataset.ready = "pictures";
  await new Promise((done) => setTimeout(done)); // all of this is on the screen before the rest is read
  const redraws = [() => state.draw()];
  const more = element("time").textContent && await readTimeline(state);
  if (more) {
    Object.assign(keys, more.keys);
    redraws.push(more.redraw);
    element("in-time").onclick = keys.t;
  } else ["time-section", "in-time"].forEach((id) => element(id).remove());
  const redrawAll = () => redraws.forEach((draw) => draw());
  addEventListener("resize", redrawAll);
  let waiting = 0;
  state.changed = (step) => {
    if (more) more.show(step);
    if (live) readExact(state, step);
    clearTimeout(waiting); // the chart follows when one comes to rest
    waiting = setTimeout(() => window.Plotly && drawRanges(state), 300);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { redrawAll(); recolor(); if (window.Plotly) drawRanges(state); });
  state.changed(state.step);
  if (!element("library").textContent) element("ranges-section").remove();
  else {
    await readLibrary();
    drawRanges(state);
  }
  document.body.dataset.ready = "all";
}

// The timeline of the same launch: a click goes to the step, and the step is marked there.
async function readTimeline(state) {
  const time = await readEvents("time"), view = {from: 0, to: time.total_ns || 1}, timeline = (state.timeline = new Timeline(time, view));
  const events = new Map(), steps = new Map(), {data} = state;
  time.rows.forEach(({core, first, last}) => { for (let e = first; e < last; e++) if (time.position[e] >= 0) events.set(`${core} ${time.position[e]}`, e); });
  for (let s = 0; s < state.steps; s++) {
    const e = data.position[s] < 0 ? undefined : events.get(`${data.core[s]} ${data.position[s]}`);
    if (e !== undefined) steps.set(e, s);
  }
  let waiting = false;
  const redraw = () => {
    if (!waiting) requestAnimationFrame(() => { waiting = false; timeline.draw(); });
    waiting = true;
  };
  const {look, keys, listen} = moving(view, time.total_ns, timeline, redraw);
  listen(timeline, (event, x, y) => {
    const found = timeline.at(x, y);
    hover(event, found < 0 ? "" : timeline.about(found).slice(0, 4).map(([, text]) => text).join("\n"));
  }, (x, y) => { if (goTo(timeline.at(x, y))) back(); });
  const goTo = (event) => steps.has(event) && (state.go(steps.get(event)), true), back = () => element("now").scrollIntoView({block: "nearest"});
  // Along the queue of the step, or to what began last on the one above or below.
  timeline.canvas.addEventListener("keydown", (event) => {
    const along = {ArrowLeft: -1, ArrowRight: 1}[event.key], across = {ArrowUp: -1, ArrowDown: 1}[event.key], at = timeline.chosen;
    if (event.key === "Enter") back();
    else if (at < 0 || !(along || across)) return;
    else if (along) {
      const {first, last} = time.rows[timeline.rowOf(at)];
      for (let e = at + along; e >= first && e < last && !goTo(e); ) e += along;
    } else {
      const rows = timeline.places.filter(({row}) => row !== undefined).map(({row}) => row);
      for (let n = rows.indexOf(timeline.rowOf(at)) + across, done = false; rows[n] !== undefined && !done; n += across) {
        const {first, last} = time.rows[rows[n]], near = Math.max(above(time.start, time.start[at], first, last) - 1, first);
        for (let e = near; e < last && !(done = goTo(e)); ) e++;
      }
    }
    event.preventDefault();
    event.stopPropagation();
  });
  const near = (core) => { const rank = data.ranks[core], first = data.ranks.indexOf(rank); return data.ranks.map((r, n) => [r, n]).filter(([, n]) => n >= first && n < first + 4).map(([, n]) => n); };
  const show = (step) => {
    const core = data.core[step], e = data.position[step] < 0 ? undefined : events.get(`${core} ${data.position[step]}`);
    timeline.chosen = e ?? -1;
    if (!timeline.cores.has(core)) timeline.show(near(core));
    if (e !== undefined && (time.start[e] < view.from || time.start[e] > view.to)) look(time.start[e] - (view.to - view.from) / 2, time.start[e] + (view.to - view.from) / 2);
    redraw();
  };
  timeline.show(near(0));
  keys.t = () => { timeline.canvas.focus({preventScroll: true}); timeline.canvas.scrollIntoView({block: "nearest"}); };
  return {keys, redraw, show};
}

// ---- served: everything, not only what is in the file ----

async function readExact(state, step) {
  const answer = await fetch(`values?step=${state.data.number[step]}`);
  if (!answer.ok || state.step !== step) return;
  const found = columnsOf(await answer.arrayBuffer()), {contents, data} = state;
  state.exact = {step, paint(target, operand, after) {
    const name = `${data.params[data.param[operand]]} ${after}`, values = found[name];
    if (!values) return;
    const kept = target.by.slice();
    contents.paint(target, data.accesses[data.access[operand]], {columns: values.length, down: 1, across: 1, width: values.length, values}, operand);
    if (!(after && data.writes[operand])) target.by.set(kept); // who wrote it is known, and that nobody did
  }};
  state.draw();
}

async function askOrigin(state) {
  const {asked, data} = state;
  if (!asked) return;
  const {found, cell} = asked, row = Math.floor(cell / found.width) * found.down, column = (cell % found.width) * found.across;
  const answer = await fetch(`origin?step=${data.number[state.step]}&tensor=${asked.tensor}&element=${row * found.columns + column}`);
  element("asked").innerHTML = await answer.text(); // escaped where it was made
}

main().catch((error) => {
  element("now").textContent = `This page can't be drawn here: ${error}`;
  throw error;
});
