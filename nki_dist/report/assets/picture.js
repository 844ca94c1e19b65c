// A tensor as a picture: partitions down, the free dimension across.
const LARGEST = [300, 190], CELL = 14; // CSS pixels of a picture, and of an element where few are shown
// What colours are mixed of: from low to high (also without colour vision), and around zero.
const RAMP = ["#00204c", "#213d6b", "#555b6c", "#7b7a77", "#a59c74", "#d3c064", "#ffe945"];
const AROUND = ["#08478f", "#3a86c8", "#a9cfe8", "#f1f1ee", "#f2c48c", "#d07a1e", "#7f3b08"];
const IN_THE_DARK = ["#9fd0ff", "#4f97d9", "#1d4c78", "#26282c", "#74480f", "#d6811f", "#ffd49a"];
const MASK = 1e4; // values this many times as large as usual ones are at the end of the scale
const ODD = {nan: "#e5007d", high: "#000000", low: "#00a3c4"}; // NaN and the infinities, which are striped

const packedColor = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0; // as canvases hold it
const hex = (c) => [1, 3, 5].map((p) => parseInt(c.slice(p, p + 2), 16));
const mixed = (stops) => Uint32Array.from({length: 256}, (_, n) => {
  const at = (n / 255) * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2);
  const [a, b] = [stops[k], stops[k + 1]].map(hex);
  return packedColor(a.map((v, p) => Math.round(v + (b[p] - v) * (at - k))));
});
const [NANS, HIGH, LOW] = Object.values(ODD).map((c) => packedColor(hex(c)));
const TABLES = {ramp: mixed(RAMP), light: mixed(AROUND), dark: mixed(IN_THE_DARK)};
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

// How values become colours: by value, logarithm or sign, the same for several pictures.
class Scale {
  constructor(kind, contents) {
    let [low, high] = [Infinity, -Infinity];
    const usual = contents.flatMap(({values, by}) => Array.from(values.subarray(0, 4096)).filter((v, n) => by[n] !== UNWRITTEN && v && Number.isFinite(v))).map(Math.abs).sort((a, b) => a - b);
    const most = kind === "value" && usual.length ? usual[usual.length >> 2] * MASK : Infinity;
    for (const {values, by} of contents)
      for (let n = 0; n < values.length; n++) {
        const v = values[n];
        if (by[n] === UNWRITTEN || !Number.isFinite(v) || v > most || v < -most) continue;
        const x = kind === "log" ? (v ? Math.log10(Math.abs(v)) : NaN) : v;
        if (x < low) low = x;
        if (x > high) high = x;
      }
    if (low > high) [low, high] = [0, 0];
    const around = kind === "value" && low < 0 && high > 0, far = Math.max(-low, high);
    Object.assign(this, {kind, low, high, table: TABLES[around || kind === "sign" ? (isDark() ? "dark" : "light") : "ramp"]});
    [this.from, this.to] = around ? [-far, far] : [low, high];
  }

  color(value) {
    if (value !== value) return NANS;
    if (value === Infinity) return HIGH;
    if (value === -Infinity) return LOW;
    if (this.kind === "sign") return this.table[value > 0 ? 215 : value < 0 ? 40 : 128];
    const x = this.kind === "log" ? (value ? Math.log10(Math.abs(value)) : this.from) : value;
    return this.table[this.to > this.from ? Math.max(0, Math.min(255, Math.round(((x - this.from) / (this.to - this.from)) * 255))) : 128];
  }

  get text() {
    return this.kind === "sign" ? "− 0 +" : `${this.kind === "log" ? "log₁₀ " : ""}${short(this.from)} … ${short(this.to)}`;
  }
}

const number = (v) => (Number.isInteger(v) && Math.abs(v) < 1e7 ? String(v) : Number.isFinite(v) ? String(+v.toPrecision(6)) : v !== v ? "NaN" : v > 0 ? "inf" : "-inf");
const short = (v) => (Number.isInteger(v) && Math.abs(v) < 1e5 ? String(v) : Number.isFinite(v) ? String(+v.toPrecision(3)) : number(v));

class Picture {
  // `about(row, column, cell)` is the text of an element; `choose(cell)` goes where it leads.
  constructor(place, caption, note, {about, choose}) {
    Object.assign(this, {about, choose, view: null, at: null, boxes: []});
    this.figure = document.createElement("figure");
    const text = document.createElement("figcaption"), b = document.createElement("b"), span = document.createElement("span");
    b.textContent = caption;
    span.textContent = " " + note;
    text.append(b, span);
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("aria-label", `${caption} ${note}`);
    this.figure.append(text, this.canvas);
    place.append(this.figure);
    this.listen();
  }

  show(contents, scale, boxes = []) {
    Object.assign(this, {contents, scale, boxes});
    this.view ||= {x: 0, y: 0, w: contents.width, h: contents.height};
    this.draw();
  }

  get zoomed() {
    return this.view.w < this.contents.width || this.view.h < this.contents.height;
  }

  draw() {
    const {contents, view, canvas} = this, ratio = window.devicePixelRatio || 1;
    const most = Math.min(LARGEST[0], Math.max(this.figure.parentElement.clientWidth - 16, 120));
    this.wide = Math.round(Math.min(most, Math.max(contents.width * CELL, 28)));
    this.high = Math.round(Math.min(LARGEST[1], Math.max(contents.height * CELL, 18)));
    const w = Math.round(this.wide * ratio), h = Math.round(this.high * ratio);
    [canvas.width, canvas.height] = [w, h];
    [canvas.style.width, canvas.style.height] = [this.wide + "px", this.high + "px"];
    const context = canvas.getContext("2d"), image = context.createImageData(w, h);
    const points = new Uint32Array(image.data.buffer), {values, by, width, height} = contents, scale = this.scale;
    const down = Math.max(1, Math.min(4, Math.floor(view.h / h))), across = Math.max(1, Math.min(4, Math.floor(view.w / w)));
    const columns = Int32Array.from({length: w}, (_, x) => Math.min(Math.floor(view.x + (x / w) * view.w), width - 1));
    const [light, line] = (isDark() ? ["#2c2e32", "#606266"] : ["#e2e3e4", "#b2b4b8"]).map((c) => packedColor(hex(c)));
    for (let y = 0, n = 0; y < h; y++) {
      const row = Math.min(Math.floor(view.y + (y / h) * view.h), height - 1) * width;
      for (let x = 0; x < w; x++, n++) {
        let cell = row + columns[x];
        // Of several elements under a point of the screen one that isn't finite is shown.
        for (let r = 0; r < down; r++) for (let c = 0; c < across; c++) {
          const other = cell + r * width + c;
          if (by[other] !== UNWRITTEN && values[other] - values[other] !== 0) { cell = other; r = down; break; }
        }
        if (by[cell] === UNWRITTEN) points[n] = (x + y) % 8 < 2 ? line : light;
        else if (Math.abs(values[cell]) === Infinity && (x + y) % 6 < 3) points[n] = 0xffffffff;
        else points[n] = scale.color(values[cell]);
      }
    }
    context.putImageData(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.outline(context);
    this.numbers(context);
  }

  place(row, column) {
    const {view, contents} = this;
    return [((column / contents.across - view.x) / view.w) * this.wide, ((row / contents.down - view.y) / view.h) * this.high];
  }

  outline(context) {
    for (const {box, writes} of this.boxes) {
      const [left, top] = this.place(box[0], box[2]), [right, bottom] = this.place(box[1], box[3]);
      for (const [width, shade] of [[4, "#fff"], [2, writes ? "#d03b00" : "#1a5fd0"]]) {
        context.lineWidth = width;
        context.strokeStyle = shade;
        context.setLineDash(writes || width === 4 ? [] : [5, 3]);
        context.strokeRect(Math.max(left, 0) + 1, Math.max(top, 0) + 1, Math.min(right, this.wide) - Math.max(left, 0) - 2, Math.min(bottom, this.high) - Math.max(top, 0) - 2);
      }
    }
    context.setLineDash([]);
    if (this.at) {
      const {contents} = this, [left, top] = this.place(this.at[0] * contents.down, this.at[1] * contents.across);
      for (const [width, shade] of [[4, "#fff"], [2, "#111"]]) {
        [context.lineWidth, context.strokeStyle] = [width, shade];
        context.strokeRect(left, top, Math.max(this.wide / this.view.w, 3), Math.max(this.high / this.view.h, 3));
      }
    }
  }

  // Where elements are large enough they are numbers.
  numbers(context) {
    const {view, contents} = this, wide = this.wide / view.w, high = this.high / view.h;
    if (wide < 40 || high < 13) return;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = Math.floor(view.y); row < Math.min(view.y + view.h, contents.height); row++)
      for (let column = Math.floor(view.x); column < Math.min(view.x + view.w, contents.width); column++) {
        const cell = row * contents.width + column, value = contents.values[cell];
        if (contents.by[cell] === UNWRITTEN) continue;
        const color = this.scale.color(value), [r, g, b] = [color & 255, (color >> 8) & 255, (color >> 16) & 255];
        context.fillStyle = r * 0.3 + g * 0.6 + b * 0.1 > 140 ? "#111" : "#fff";
        context.fillText(short(value), (column + 0.5 - view.x) * wide, (row + 0.5 - view.y) * high, wide - 2);
      }
  }

  zoom(factor, x = this.wide / 2, y = this.high / 2) {
    const {view, contents} = this;
    for (const [at, size, most, part] of [["x", "w", contents.width, x / this.wide], ["y", "h", contents.height, y / this.high]]) {
      const span = Math.min(Math.max(view[size] * factor, Math.min(most, size === "w" ? 5 : 8)), most);
      view[at] = Math.max(0, Math.min(view[at] + (view[size] - span) * part, most - span));
      view[size] = span;
    }
    this.draw();
  }

  cellAt(x, y) {
    const {view, contents} = this;
    const row = Math.floor(view.y + (y / this.high) * view.h), column = Math.floor(view.x + (x / this.wide) * view.w);
    return row >= 0 && column >= 0 && row < contents.height && column < contents.width ? [row, column] : null;
  }

  text([row, column]) {
    return this.about(row * this.contents.down, column * this.contents.across, row * this.contents.width + column);
  }

  listen() {
    const {canvas} = this;
    canvas.addEventListener("pointermove", (event) => {
      const at = this.cellAt(...inside(canvas, event));
      hover(event, at ? this.text(at) : "");
    });
    canvas.addEventListener("pointerleave", (event) => hover(event, ""));
    canvas.addEventListener("click", (event) => {
      const at = this.cellAt(...inside(canvas, event));
      if (at) this.choose(at[0] * this.contents.width + at[1], this);
    });
    canvas.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey || document.activeElement === canvas) || (event.deltaY > 0 && !this.zoomed)) return;
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY / 300), ...inside(canvas, event));
    }, {passive: false});
    canvas.addEventListener("keydown", (event) => {
      const way = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key], {contents, view} = this;
      if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 0.6 : 1 / 0.6);
      else if (event.key === "Enter" && this.at) this.choose(this.at[0] * contents.width + this.at[1], this);
      else if (way) {
        const [row, column] = this.at || [Math.floor(view.y), Math.floor(view.x)];
        this.at = [Math.max(0, Math.min(row + way[0], contents.height - 1)), Math.max(0, Math.min(column + way[1], contents.width - 1))];
        view.y = Math.max(Math.min(view.y, this.at[0]), this.at[0] + 1 - view.h);
        view.x = Math.max(Math.min(view.x, this.at[1]), this.at[1] + 1 - view.w);
        this.draw();
        const [x, y] = this.place(this.at[0] * contents.down, this.at[1] * contents.across), box = canvas.getBoundingClientRect();
        hover({clientX: box.left + x, clientY: box.top + y}, this.text(this.at));
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
}
