// Puts a record's page together: the step that is shown, and what keys and clicks do to it.
const KINDS = ["value", "log", "sign"], OTHERS = 3; // pictures of the same line on other cores
const ROWS = 120, MEETING = 16; // of the list of steps that are drawn, and of who meets whom

class Stepping {
  constructor(data, contents) {
    Object.assign(this, {data, contents, step: 0, core: -1, kind: "value"});
    this.steps = data.number.length;
    this.ofCore = data.cores.map(() => []);
    for (let s = 0; s < this.steps; s++) this.ofCore[data.core[s]].push(s);
    this.ofLine = new Map(); // by line, instruction and core, the steps
    for (let s = 0; s < this.steps; s++) {
      const key = this.key(s);
      if (!this.ofLine.has(key)) this.ofLine.set(key, []);
      this.ofLine.get(key).push(s);
    }
    this.met = new Map();
    for (const [a, b, bytes] of data.met) for (const [s, o, way] of [[a, b, "to"], [b, a, "from"]])
      this.met.set(s, [...(this.met.get(s) || []), [way, o, bytes]]);
  }

  key(step, core = this.data.core[step]) {
    return `${core} ${this.data.line[step]} ${this.data.op[step]}`;
  }

  where(step) {
    const {data} = this;
    return `step ${data.number[step]} · ${data.cores[data.core[step]]} · ${shortLine(data.files[data.line[step]][0])} ${data.ops[data.op[step]]}`;
  }

  operands(step) {
    return Array.from({length: this.data.first[step + 1] - this.data.first[step]}, (_, n) => this.data.first[step] + n);
  }

  // ---- moving ----

  go(step) {
    if (!(step >= 0 && step < this.steps)) return;
    this.step = step;
    this.draw();
    this.changed?.(step);
  }

  // The next step, or the one before, of the cores that are looked at.
  next(by) {
    const {data} = this;
    for (let s = this.step + by; s >= 0 && s < this.steps; s += by) if (this.core < 0 || data.core[s] === this.core) return this.go(s);
  }

  sameLine(by) {
    const found = this.ofLine.get(this.key(this.step));
    this.go(found[found.indexOf(this.step) + by] ?? this.step);
  }

  // The first step of a line after this one, or of all.
  goToLine(id) {
    const line = this.data.files.findIndex(([, name]) => name === id);
    const fits = (s) => this.data.line[s] === line && (this.core < 0 || this.data.core[s] === this.core);
    let s = this.step + 1;
    while (s < this.steps && !fits(s)) s++;
    if (s === this.steps) for (s = 0; s < this.step && !fits(s); ) s++;
    if (s < this.steps && fits(s)) this.go(s);
  }

  // The step before this one that wrote a tensor, else the first that did, else one that read it.
  goToTensor(tensor) {
    const found = this.contents.events[tensor].filter(([, o]) => o >= 0).map(([s]) => s);
    const readers = found.length ? [] : Array.from(this.contents.stepOf).filter((_, o) => this.data.tensor[o] === tensor);
    this.go(found.filter((s) => s < this.step).pop() ?? found[0] ?? readers[0] ?? this.step);
  }

  // ---- drawing ----

  draw() {
    const began = performance.now(), {data, step} = this;
    element("now").textContent = this.where(step);
    element("scrub").value = step;
    mark(data.files[data.line[step]][1], true);
    this.drawList();
    this.drawPictures();
    this.drawMeetings();
    this.drawChip();
    this.ms = performance.now() - began;
  }

  // A picture of each operand before, and of what is written after; kept while the step is redrawn.
  drawPictures() {
    const place = element("pictures"), {data, contents, step} = this, wanted = [];
    const operands = this.operands(step), tensors = [...new Set(operands.map((o) => data.tensor[o]))];
    for (const tensor of tensors) {
      const mine = operands.filter((o) => data.tensor[o] === tensor), boxes = mine.map((o) => ({box: contents.box(o), writes: data.writes[o]}));
      const names = [...new Set(mine.map((o) => data.params[data.param[o]]))].join(", "), writes = mine.some((o) => data.writes[o]);
      const both = [[contents.at(tensor, step, false), "before"], ...(writes ? [[contents.at(tensor, step, true), "after"]] : [])];
      const exact = this.exact?.step === step ? this.exact : null;
      if (exact) both.forEach(([found], after) => mine.forEach((o) => exact.paint(found, o, after)));
      const scale = new Scale(this.kind, both.map(([found]) => found));
      for (const [found, when] of both)
        wanted.push({tensor, found, scale, boxes: boxes.filter((b) => (when === "before" ? !b.writes || mine.length === 1 : b.writes)), when,
          caption: `${names} ${when}`, note: `${this.told(tensor)}${this.sampled(found, mine, when)} · ${scale.text}`});
    }
    wanted.push(...this.elsewhere(operands));
    place.textContent = "";
    for (const w of wanted) {
      const picture = new Picture(place, w.caption, w.note, {
        about: (row, column, cell) => this.about(w.found, row, column, cell),
        choose: (cell, chosen) => this.choose(w.found, cell, chosen),
      });
      picture.show(w.found, w.scale, w.boxes);
    }
  }

  // What the same line wrote on other cores, in the same round.
  elsewhere(operands) {
    const {data, contents, step} = this, round = this.ofLine.get(this.key(step)).indexOf(step), found = [];
    const written = operands.findIndex((o) => data.writes[o]), mine = data.core[step];
    for (let c = 0; c < data.cores.length && written >= 0 && found.length < OTHERS; c++) {
      const other = c === mine ? undefined : this.ofLine.get(this.key(step, c))?.[round];
      if (other === undefined) continue;
      const o = this.operands(other)[written], after = contents.at(data.tensor[o], other, true), scale = new Scale(this.kind, [after]);
      found.push({found: after, scale, boxes: [{box: contents.box(o), writes: 1}], caption: `${data.params[data.param[o]]} after, on ${data.cores[c]}`, note: `step ${data.number[other]} · ${scale.text}`});
    }
    return found;
  }

  told(tensor) {
    const {name, memory, shape, dtype} = this.data.tensors[tensor];
    return `${name} · ${memory} · ${shape.join(" × ")} ${dtype}`;
  }

  sampled(found, operands, when) {
    const who = when === "after" ? operands : [...new Set(found.by.subarray(0, 4096))].map((o) => (o < 0 ? -1 - found.tensor : o));
    const picture = who.map((o) => this.contents.pictureOf.get(o)).find((p) => p && p.down * p.across > 1);
    if (!picture || this.exact?.step === this.step) return "";
    if (when === "before") return ` · a sample (1 of ${picture.down * picture.across})`;
    const {low, high, odd} = this.contents.pictures, n = picture.number;
    return ` · a sample (1 of ${picture.down * picture.across}); all: ${short(low[n])} … ${short(high[n])}, mean of these ${short(this.contents.mean(picture))}${odd[n] & NAN ? ", has NaN" : ""}${odd[n] & INFINITE ? ", has infinities" : ""}`;
  }

  about(found, row, column, cell) {
    const {name, shape} = this.data.tensors[found.tensor], index = [];
    let left = row * found.columns + column;
    for (const n of [...shape].reverse()) { index.unshift(left % n); left = Math.floor(left / n); }
    const who = found.by[cell], title = `${name}[${index.join(", ")}]`;
    if (who === UNWRITTEN) return `${title}: nobody had written it`;
    const picture = this.contents.pictureOf.get(who < 0 ? -1 - found.tensor : who), about = picture && picture.down * picture.across > 1 && this.exact?.step !== this.step ? " ≈ " : " = ";
    return `${title}${about}${number(found.values[cell])}\n${who < 0 ? "as the kernel was given it" : "written in " + this.where(this.contents.stepOf[who])}`;
  }

  // To the step that wrote an element; in the picture after a step that is the step itself.
  choose(found, cell, picture) {
    picture.at = [Math.floor(cell / found.width), cell % found.width];
    picture.draw();
    const who = found.by[cell];
    this.asked = {step: who >= 0 ? this.contents.stepOf[who] : -1, tensor: found.tensor, cell, found};
    if (who >= 0 && this.contents.stepOf[who] !== this.step) this.go(this.contents.stepOf[who]);
  }

  // ---- the list ----

  // Rows around the step: of what is folded the round that it is in.
  rows() {
    const {data, step} = this, core = data.core[step], steps = this.ofCore[core], at = this.at(core, step), rows = [];
    const add = (from, to, folds, depth) => {
      let n = from;
      for (const [start, length, rounds, inner] of folds) {
        const first = start + (folds === data.folds[core] ? 0 : from);
        for (; n < first; n++) rows.push({step: steps[n], depth});
        const round = Math.max(0, Math.min(rounds - 1, Math.floor((at - first) / length)));
        rows.push({rounds, round, length, first, depth});
        add(first + round * length, first + (round + 1) * length, inner, depth + 1);
        n = first + rounds * length;
      }
      for (; n < to; n++) rows.push({step: steps[n], depth});
    };
    add(0, steps.length, data.folds[core], 0);
    return rows;
  }

  at(core, step) {
    return above(this.ofCore[core], step, 0, this.ofCore[core].length) - 1;
  }

  drawList() {
    const {data, step} = this, list = element("list"), rows = this.rows(), here = rows.findIndex((r) => r.step === step);
    const from = Math.max(0, here - ROWS / 2), core = data.core[step], steps = this.ofCore[core];
    list.textContent = "";
    element("list-of").textContent = `${data.cores[core]}: ${steps.length.toLocaleString("en")} steps`;
    for (const row of rows.slice(from, from + ROWS)) {
      const item = document.createElement("button");
      item.style.paddingLeft = 8 + 14 * row.depth + "px";
      if (row.rounds) {
        item.className = "loop";
        item.textContent = `⟳ round ${row.round + 1} of ${row.rounds.toLocaleString("en")}, ${row.length} steps each`;
        item.title = "the next round; with Shift the one before";
        item.onclick = (event) => this.go(steps[row.first + Math.max(0, Math.min(row.rounds - 1, row.round + (event.shiftKey ? -1 : 1))) * row.length]);
      } else {
        const written = this.operands(row.step).find((o) => data.writes[o]);
        item.textContent = `${data.number[row.step]}  ${shortLine(data.files[data.line[row.step]][0])}  ${data.ops[data.op[row.step]]}${written === undefined ? "" : " → " + data.tensors[data.tensor[written]].name}`;
        item.classList.toggle("chosen", row.step === step);
        item.onclick = () => this.go(row.step);
      }
      list.append(item);
    }
    const chosen = list.querySelector(".chosen");
    if (chosen) list.scrollTop = chosen.offsetTop - list.clientHeight / 2;
  }

  // Who gives whom how many bytes in the meeting that the step is part of: a row for each rank, or
  // core of the only one; of more than MEETING some are one row, but not the step's own.
  drawMeetings() {
    const {data, step} = this, place = element("meetings"), met = new Set([step]);
    for (const s of met) for (const [, other] of this.met.get(s) || []) met.add(other);
    place.textContent = "";
    if (met.size < 2) return;
    const all = [...met], rank = (s) => data.ranks[data.core[s]], core = (s) => +data.cores[data.core[s]].split(" ").pop();
    const [who, what] = new Set(all.map(rank)).size > 1 ? [rank, "rank"] : [core, "core"];
    const names = [...new Set(all.map(who))].sort((a, b) => a - b), own = names.indexOf(who(step)), fold = Math.ceil(names.length / MEETING), rows = [];
    names.forEach((name, n) => (n % fold && n !== own && n - 1 !== own ? rows.at(-1).push(name) : rows.push([name])));
    const row = new Map(rows.flatMap((group, n) => group.map((name) => [name, n]))), mine = row.get(who(step)), bytes = rows.map(() => rows.map(() => null));
    for (const s of all) for (const [way, other, n] of this.met.get(s)) if (way === "to") bytes[row.get(who(s))][row.get(who(other))] += n;
    const most = Math.max(...bytes.flat()), [unit, size] = most >= 1 << 20 ? ["MiB", 1 << 20] : most >= 1024 ? ["KiB", 1024] : ["bytes", 1];
    const heads = rows.map((group, n) => {
      const first = all.find((s) => who(s) === group[0] && core(s) === core(step)) ?? all.find((s) => who(s) === group[0]);
      return `${n === mine ? " class=own" : ""}><button class=link data-step=${first} title="${html(this.where(first))}">${group.length > 1 ? `${group[0]}–${group.at(-1)}` : group[0]}</button></th>`;
    });
    const cell = (n, a, b) => `<td class="n${a === mine || b === mine ? " own" : ""}" style="--share:${n === null || !most ? 0 : Math.round((45 * n) / most)}%">${n === null ? "·" : (n / size).toLocaleString("en", {maximumFractionDigits: n < 100 * size ? 1 : 0})}</td>`;
    place.innerHTML = `<p class="note" id="meetings-of">${most ? `Who gets how much from whom, in ${unit}` : "Who waits for whom"}: from a ${what} (down) to a ${what} (across)</p>
      <div><table aria-labelledby="meetings-of"><thead><tr><th>${what}</th>${heads.map((head) => "<th scope=col" + head).join("")}</tr></thead>
      <tbody>${bytes.map((line, a) => `<tr><th scope=row${heads[a]}${line.map((n, b) => cell(n, a, b)).join("")}</tr>`).join("")}</tbody></table></div>`;
  }

  // ---- SBUF and PSUM ----

  // By tensor on chip: first and last step of its core that touch it.
  get lives() {
    if (this.spans) return this.spans;
    this.spans = new Map();
    this.data.tensor.forEach((tensor, o) => {
      if (!this.data.tensors[tensor].place) return;
      const span = this.spans.get(tensor), step = this.contents.stepOf[o];
      if (span) span[1] = step;
      else this.spans.set(tensor, [step, step]);
    });
    return this.spans;
  }

  drawChip() {
    const {data, step} = this, core = data.core[step], used = new Set(this.operands(step).map((o) => data.tensor[o]));
    element("chip-of").textContent = data.cores[core];
    this.onChip = [];
    for (const memory of ["sbuf", "psum"]) {
      const canvas = element(memory), [context, width] = fitted(canvas, 128), all = [];
      let most = 1;
      for (const [tensor, [from, to]] of this.lives) {
        const {memory: where, core: own, rows, place, bytes} = data.tensors[tensor];
        if (where !== memory || own !== core) continue;
        most = Math.max(most, place[1] + bytes);
        if (from <= step && step <= to) all.push({canvas, tensor, top: place[0], high: rows, left: place[1], wide: bytes});
      }
      canvas.hidden = element(memory + "-of").hidden = most === 1;
      const scale = width / most, tints = ["box-a", "box-b", "box-c", "box-d"].map(color);
      context.strokeStyle = color("line");
      context.strokeRect(0.5, 0.5, width - 1, 127);
      for (const box of all.sort((a, b) => used.has(a.tensor) - used.has(b.tensor))) {
        box.x = box.left * scale;
        box.w = Math.max(box.wide * scale, 2);
        context.fillStyle = used.has(box.tensor) ? color("accent") : tints[box.tensor % 4];
        context.fillRect(box.x, box.top, Math.max(box.w - 1, 1), Math.max(box.high - 0.5, 1));
        context.fillStyle = used.has(box.tensor) ? "#fff" : color("text");
        const name = data.tensors[box.tensor].name;
        if (box.high > 11 && context.measureText(name).width < box.w - 6) context.fillText(name, box.x + 3, box.top + Math.min(box.high / 2, 64));
      }
      element(memory + "-of").textContent = `${memory.toUpperCase()}, ${kib(most)} of each partition used at most; ${all.length} tensors now`;
      this.onChip.push(...all);
    }
  }

  chipAt(canvas, event) {
    const [x, y] = inside(canvas, event);
    return this.onChip.findLast((b) => b.canvas === canvas && b.x <= x && x < b.x + b.w && b.top <= y && y < b.top + b.high);
  }
}

// Expected, result, and where they differ.
function drawCompared(state, [wanted, got, off], {shape, tensor}) {
  const grid = (picture, values = picture.values) => {
    const [rows, columns] = [Math.ceil(shape[0] / picture.down), picture.width];
    return {rows: shape[0], columns: shape[1], down: picture.down, across: picture.across, width: columns, height: rows, values, by: new Int32Array(values.length)};
  };
  const a = grid(wanted), b = grid(got), c = grid(off, got.values.map((v, n) => v - wanted.values[n]));
  off.values.forEach((wrong, n) => { if (!wrong) c.by[n] = UNWRITTEN; });
  const both = new Scale(state.kind, [a, b]), place = element("compared");
  place.textContent = "";
  for (const [name, found, scale] of [["expected", a, both], ["result", b, both], ["difference where off", c, new Scale(state.kind, [c])]])
    new Picture(place, name, scale.text, {
      about: (row, column, cell) => `${tensor}: row ${row}, column ${column}\nresult ${number(got.values[cell])}, expected ${number(wanted.values[cell])}`,
      choose: (cell, picture) => { picture.at = [Math.floor(cell / found.width), cell % found.width]; picture.draw(); },
    }).show(found, scale);
}

// The ranges of all that was written to tensors of one name, over the steps.
function drawRanges(state) {
  const {data, contents} = state, {low, high, odd} = contents.pictures;
  const written = state.operands(state.step).find((o) => data.writes[o]) ?? data.first[state.step], name = data.tensors[data.tensor[written]].name;
  const found = [];
  for (const [o, picture] of contents.pictureOf) if (o >= 0 && data.tensors[data.tensor[o]].name === name) found.push([contents.stepOf[o], picture.number, picture]);
  found.sort(([a], [b]) => a - b);
  element("ranges-of").textContent = name;
  const every = Math.ceil(found.length / 4000), some = found.filter(([, p], n) => n % every === 0 || odd[p] & 3), x = some.map(([s]) => data.number[s]);
  const line = (y, title, more) => ({x, y, name: title, mode: "lines+markers", marker: {size: 3}, line: {width: 1}, ...more});
  const bad = some.filter(([, p]) => odd[p] & 3);
  Plotly.react("ranges", [
    line(some.map(([, p]) => low[p]), "least", {line: {width: 1, color: color("vector")}}),
    line(some.map(([, p]) => high[p]), "greatest", {fill: "tonexty", line: {width: 1, color: color("tensor")}}),
    line(some.map(([, , picture]) => contents.mean(picture)), "mean", {line: {width: 1, dash: "dot", color: color("text")}}),
    {x: bad.map(([s]) => data.number[s]), y: bad.map(([, p]) => high[p]), mode: "markers", name: "has NaN or infinities", marker: {color: ODD.nan, size: 8, symbol: "x"}},
  ], {...looks(), showlegend: true, xaxis: lineAxis("step", {}), yaxis: lineAxis("", {})}, CONFIG);
  const chart = element("ranges");
  chart.removeAllListeners("plotly_click");
  chart.on("plotly_click", ({points}) => state.go(data.number.indexOf(points[0].x)));
}
