// The timeline: a row for each engine and queue of the cores shown. `view` is the stretch of time
// that is visible, shared with the memory below.
const GUTTER = 112, ROW = 19, AXIS = 24;

class Timeline {
  constructor(data, view) {
    Object.assign(this, {data, view, canvas: document.getElementById("timeline")});
    this.chosen = -1;
    this.line = -1; // only events of this line at full strength
    this.critical = false;
    this.cores = new Set();
  }

  show(cores) {
    this.cores = new Set(cores);
    this.places = []; // rows and headings from the top
    let y = AXIS, last = -1;
    const order = this.data.rows.map((row, n) => [row, n]);
    order.sort(([a, n], [b, m]) => a.core - b.core || rank(a.engine) - rank(b.engine) || n - m);
    order.forEach(([row, n]) => {
      if (!this.cores.has(row.core) || row.first === row.last) return;
      if (row.core !== last && this.data.cores.length > 1) {
        this.places.push({y, heading: this.data.cores[row.core]});
        y += ROW;
      }
      last = row.core;
      this.places.push({y, row: n});
      y += ROW;
    });
    this.height = y + 4;
  }

  get dimmed() {
    return this.critical || this.line >= 0;
  }

  strong(event) {
    const {data} = this;
    if (this.critical && !data.critical[event]) return false;
    return this.line < 0 || (data.kind[event] !== MERGED && data.kinds[data.kind[event]][2] === this.line);
  }

  x(time) {
    return GUTTER + ((time - this.view.from) / (this.view.to - this.view.from)) * (this.width - GUTTER);
  }

  time(x) {
    return this.view.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.view.to - this.view.from);
  }

  draw() {
    const [context, width] = fitted(this.canvas, this.height);
    this.width = width;
    if (width <= GUTTER) return; // the page has no width yet
    axis(context, this, this.height);
    for (const {y, row, heading} of this.places) {
      context.fillStyle = color(heading ? "text" : "soft");
      context.font = context.font.replace(/^(600 )?/, heading ? "600 " : "");
      context.fillText(heading || this.data.rows[row].name, heading ? 0 : 8, y + ROW / 2, GUTTER - 14);
      if (row !== undefined) this.drawRow(context, this.data.rows[row], y);
    }
    this.drawMessages(context);
    this.drawChosen(context);
  }

  drawRow(context, row, y) {
    const {start, took, kind, kinds} = this.data, {from, to} = this.view;
    const scale = (this.width - GUTTER) / (to - from), columns = Math.ceil(this.width - GUTTER);
    const fine = [new Float32Array(columns + 1), new Float32Array(columns + 1)]; // dim, strong
    const wide = [[], []];
    let event = Math.max(row.first, above(start, from, row.first, row.last) - 1);
    for (; event < row.last && start[event] < to; event++) {
      const a = (start[event] - from) * scale, b = a + took[event] * scale;
      if (b < 0) continue;
      const strength = !this.dimmed || this.strong(event) ? 1 : 0;
      if (b - a < 2) fine[strength][Math.max(0, Math.min(columns, Math.floor(a)))] += Math.max(b - a, 1e-4);
      else wide[strength].push([Math.max(a, -2), Math.min(b, columns + 2), event]);
    }
    context.save();
    context.beginPath();
    context.rect(GUTTER, y, columns, ROW);
    context.clip();
    const base = color(row.engine), top = y + 2, high = ROW - 4;
    for (const strength of [0, 1]) {
      const full = strength ? 1 : 0.22;
      context.fillStyle = base;
      // Narrower than two pixels: as dense as they cover.
      const cover = fine[strength];
      for (let c = 0; c <= columns; ) {
        const level = shade(cover[c]);
        let next = c + 1;
        while (next <= columns && shade(cover[next]) === level) next++;
        if (level) {
          context.globalAlpha = (full * (2 + level)) / 10;
          context.fillRect(GUTTER + c, top, next - c, high);
        }
        c = next;
      }
      context.globalAlpha = full;
      for (const [a, b] of wide[strength]) context.fillRect(GUTTER + a, top, Math.max(b - a - 1, 1), high);
    }
    context.fillStyle = "#fff";
    context.globalAlpha = 1;
    for (const [a, b, e] of wide[1]) {
      const room = Math.min(b, columns) - Math.max(a, 0) - 10;
      if (room < 30) continue;
      const name = kind[e] === MERGED ? "…" : kinds[kind[e]][0];
      if (context.measureText(name).width <= room) context.fillText(name, GUTTER + Math.max(a, 0) + 5, y + ROW / 2);
    }
    context.restore();
  }

  drawMessages(context) {
    const middle = new Map();
    for (const {y, row} of this.places) {
      if (row === undefined) continue;
      const {core, engine} = this.data.rows[row];
      if (!middle.has(core) || engine === "cc" || this.data.rows[row].name.includes("sendrecv")) middle.set(core, y + ROW / 2);
    }
    const seen = this.data.messages.filter(
      ([a, sent, b, arrived]) => middle.has(a) && middle.has(b) && arrived > this.view.from && sent < this.view.to);
    if (seen.length > 400) return;
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.width, this.height);
    context.clip();
    context.strokeStyle = color("text");
    context.globalAlpha = 0.45;
    for (const [a, sent, b, arrived] of seen) {
      context.beginPath();
      context.moveTo(this.x(sent), middle.get(a));
      context.lineTo(this.x(arrived), middle.get(b));
      context.stroke();
    }
    context.restore();
  }

  drawChosen(context) {
    if (this.chosen < 0) return;
    const {start, took} = this.data, place = this.places.find(({row}) => row === this.rowOf(this.chosen));
    if (!place) return;
    const a = Math.max(this.x(start[this.chosen]), GUTTER), b = this.x(start[this.chosen] + took[this.chosen]);
    if (b < GUTTER || a > this.width) return;
    context.strokeStyle = color("text");
    context.lineWidth = 2;
    context.strokeRect(a, place.y + 1, Math.max(b - a - 1, 3), ROW - 2);
    context.lineWidth = 1;
  }

  rowOf(event) {
    return this.data.rows.findIndex(({first, last}) => first <= event && event < last);
  }

  // The event under a point of the canvas, or -1.
  at(x, y) {
    const place = this.places.find((p) => p.row !== undefined && p.y <= y && y < p.y + ROW);
    if (!place || x < GUTTER) return -1;
    const {first, last} = this.data.rows[place.row], {start, took} = this.data;
    const time = this.time(x), near = (2 * (this.view.to - this.view.from)) / (this.width - GUTTER);
    const event = above(start, time, first, last) - 1;
    for (const e of [event, event + 1])
      if (e >= first && e < last && start[e] - near <= time && time <= start[e] + took[e] + near) return e;
    return -1;
  }

  // What an event is, as pairs of a name and a text.
  about(event) {
    const {data} = this, row = data.rows[this.rowOf(event)];
    const where = data.cores.length > 1 ? `${row.name}, ${data.cores[row.core]}` : row.name;
    const times = `${timeText(data.start[event], 0.1)} + ${took(data.took[event])}`;
    if (data.kind[event] === MERGED) return [["instructions", `${data.merged[event]} short ones`], ["on", where], ["time", times]];
    const [opcode, , line, tensors, known] = data.kinds[data.kind[event]];
    const found = [["instruction", opcode], ["line", shortLine(data.lines[line][0])], ["on", where], ["time", times + (known ? "" : " (cost assumed)")]];
    if (tensors) found.push(["operands", tensors]);
    if (data.critical[event]) found.push(["path", "on the critical path"]);
    return found;
  }

  // What fixed the start of an event, as text.
  waited(event) {
    const {data} = this, cause = data.cause[event];
    if (cause < 0) return "";
    const name = data.kind[cause] === MERGED ? "several instructions" : data.kinds[data.kind[cause]][0];
    const reasons = {queue: "its queue, busy with", data: "the result of", reuse: "memory in use by", issue: "the issue of", memory: "room on chip, left by", resource: "a port or DMA engines, used by"};
    return `${reasons[data.reasons[data.reason[event]]] || "waited for"} ${name}`;
  }
}

// Engines from the top: those that compute, then what moves data.
const ENGINES = ["tensor", "vector", "scalar", "gpsimd", "sync", "cc", "dma"];
const rank = (engine) => (ENGINES.includes(engine) ? ENGINES.indexOf(engine) : ENGINES.length);
const shade = (cover) => (cover ? Math.ceil(Math.min(1, cover) * 8) : 0);

// Vertical lines and their times.
function axis(context, place, height) {
  const {from, to} = place.view, step = stepOf(to - from, (place.width - GUTTER) / 110);
  context.fillStyle = color("faint");
  context.strokeStyle = color("line");
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    const x = Math.round(place.x(time)) + 0.5;
    context.beginPath();
    context.moveTo(x, AXIS - 6);
    context.lineTo(x, height);
    context.stroke();
    const text = timeText(time, step), half = context.measureText(text).width / 2;
    if (x + half <= place.width) context.fillText(text, Math.max(x - half, 0), 9);
  }
}
