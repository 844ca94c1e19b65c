// What tensors hold at a step, put together from the pictures of what was written until then.
const UNWRITTEN = -2, INITIAL = -1; // who wrote an element, in place of an operand
const CELLS = 1 << 20, HELD = 24; // elements of a tensor that are told apart; tensors that are kept
const NAN = 1, INFINITE = 2, SIGNED = 4, UNSIGNED = 8; // what `odd` of a picture is made of

class Contents {
  constructor(data, pictures) {
    Object.assign(this, {data, pictures, held: new Map()});
    data.tensors = data.tensors.map(([name, memory, shape, dtype, core, rows, itemsize, place, bytes]) =>
      ({name, memory, shape, dtype, core, rows, itemsize, place, bytes, size: shape.reduce((a, b) => a * b, 1)}));
    for (const tensor of data.tensors) tensor.columns = Math.max(tensor.size / (tensor.rows || 1), 1);
    const {values, rows, columns, down, across, of} = pictures, count = values.length / 4, raw = new Uint8Array(values.length);
    for (let byte = 0; byte < 4; byte++) // they were packed byte by byte
      for (let n = 0, at = byte * count; n < count; n++) raw[4 * n + byte] = values[at + n];
    this.floats = new Float32Array(raw.buffer);
    this.integers = new Int32Array(raw.buffer);
    this.words = new Uint32Array(raw.buffer);
    this.stepOf = new Uint32Array(data.tensor.length);
    for (let s = 0; s + 1 < data.first.length; s++) this.stepOf.fill(s, data.first[s], data.first[s + 1]);
    this.events = data.tensors.map(() => []); // by tensor: [step, operand that writes, or -1 for a birth]
    for (const [step, tensor] of data.births) this.events[tensor].push([step - 0.25, -1]); // between two steps
    for (let o = 0; o < data.tensor.length; o++) if (data.writes[o]) this.events[data.tensor[o]].push([this.stepOf[o], o]);
    this.events.forEach((found) => found.sort(([a, x], [b, y]) => a - b || x - y));
    this.pictureOf = new Map();
    this.extra = [];
    for (let p = 0, place = 0; p < of.length; p++) {
      const width = Math.ceil(columns[p] / across[p]), size = width * Math.ceil(rows[p] / down[p]);
      const array = pictures.odd[p] & SIGNED ? this.integers : pictures.odd[p] & UNSIGNED ? this.words : this.floats;
      const picture = {number: p, columns: columns[p], rows: rows[p], down: down[p], across: across[p], width, values: array.subarray(place, place + size)};
      if (of[p] === 0x7fffffff) this.extra.push(picture);
      else this.pictureOf.set(of[p], picture);
      place += size;
    }
  }

  // A tensor that nobody has written yet; what is larger than CELLS is shown by parts of it.
  blank(tensor) {
    const {rows, columns} = this.data.tensors[tensor];
    let down = 1, across = 1;
    while (Math.ceil(rows / down) * Math.ceil(columns / across) > CELLS) rows / down > columns / across ? (down *= 2) : (across *= 2);
    const size = Math.ceil(rows / down) * Math.ceil(columns / across);
    return {tensor, rows, columns, down, across, width: Math.ceil(columns / across), height: Math.ceil(rows / down),
      values: new Float64Array(size), by: new Int32Array(size).fill(UNWRITTEN), done: 0};
  }

  // What a tensor holds before a step, or after it.
  at(tensor, step, after) {
    const key = `${tensor} ${after}`, events = this.events[tensor], last = after ? step + 0.5 : step;
    let end = 0;
    for (let high = events.length; end < high; ) { // how many come before
      const middle = (end + high) >> 1;
      if (events[middle][0] < last) end = middle + 1;
      else high = middle;
    }
    let found = this.held.get(key), from = end;
    this.held.delete(key);
    while (from > 0 && !(found && found.done === from) && !this.covers(events[from - 1][1], tensor)) from--;
    if (!found || found.done !== from) {
      found = this.blank(tensor);
      const initial = this.pictureOf.get(-1 - tensor);
      if (initial && !from) this.fill(found, initial);
      if (from > 0) from--;
    }
    for (; from < end; from++) {
      const operand = events[from][1];
      if (operand >= 0) this.write(found, operand); // a birth comes first, if there is one, and all is blank
    }
    found.done = end;
    this.held.set(key, found);
    if (this.held.size > HELD) this.held.delete(this.held.keys().next().value);
    return found;
  }

  // What an argument holds: only what is shown is looked up, as it may be large.
  fill(found, {columns, down, across, width, values}) {
    for (let y = 0, cell = 0; y < found.height; y++)
      for (let x = 0; x < found.width; x++, cell++) {
        const n = y * found.down * found.columns + x * found.across, row = Math.floor(n / columns);
        found.values[cell] = values[Math.floor(row / down) * width + Math.floor((n - row * columns) / across)];
      }
    found.by.fill(INITIAL);
  }

  mean({values}) {
    return values.reduce((sum, v) => sum + v, 0) / (values.length || 1);
  }

  write(found, operand, picture = this.pictureOf.get(operand)) {
    if (picture) this.paint(found, this.data.accesses[this.data.access[operand]], picture, operand);
  }

  // Whether nothing of a tensor is left from before.
  covers(operand, tensor) {
    if (operand < 0) return true;
    const [first, shape, strides, , size] = this.data.accesses[this.data.access[operand]];
    return typeof first === "number" && !strides.some((s, n) => !s && shape[n] > 1) &&
      shape.reduce((a, b) => a * b, size) === this.data.tensors[tensor].size * this.data.tensors[tensor].itemsize;
  }

  // Fill in what a picture has, each kept element for those that it stands for.
  paint(found, access, picture, who) {
    const {itemsize} = this.data.tensors[found.tensor], {columns, down, across, width, values} = picture;
    // Of a large tensor one element of those that are shown as one is enough.
    const steps = access[2].map((s) => (s === itemsize ? found.across : s === itemsize * found.columns ? found.down : 1));
    places(access, (place, n) => {
      const element = Math.floor(place / itemsize), row = Math.floor(element / found.columns);
      const cell = Math.floor(row / found.down) * found.width + Math.floor((element - row * found.columns) / found.across);
      const line = Math.floor(n / columns);
      found.values[cell] = values[Math.floor(line / down) * width + Math.floor((n - line * columns) / across)];
      found.by[cell] = who;
    }, steps);
  }

  // Rows and columns [from, to, from, to] of a tensor that an operand lies in.
  box(operand) {
    const access = this.data.accesses[this.data.access[operand]], {columns, itemsize} = this.data.tensors[this.data.tensor[operand]];
    const box = [Infinity, -Infinity, Infinity, -Infinity];
    places(access, (place) => {
      const element = Math.floor(place / itemsize), row = Math.floor(element / columns), column = element - row * columns;
      box[0] = Math.min(box[0], row);
      box[1] = Math.max(box[1], row + 1);
      box[2] = Math.min(box[2], column);
      box[3] = Math.max(box[3], column + 1);
    }, access[1].map((n) => Math.max(n - 1, 1)));
    return box;
  }
}

// The first byte of elements of an access, and their numbers in its order: of every `steps[d]`-th of a dimension.
function places([first, shape, strides, run, size], told, steps = shape.map(() => 1)) {
  if (typeof first !== "number") { // rows that were chosen at run time
    first.forEach((start, n) => { for (let k = 0; k < run; k += size) told(start + k, (n * run + k) / size); });
    return;
  }
  const last = shape.length - 1, index = shape.map(() => 0), weights = shape.map((_, d) => shape.slice(d + 1).reduce((a, b) => a * b, 1));
  if (shape.some((n) => !n)) return;
  for (let place = first, base = 0, d = last; d >= 0; ) {
    for (let k = 0; k < shape[last]; k += steps[last]) told(place + k * strides[last], base + k);
    for (d = last - 1; d >= 0; d--) {
      index[d] += steps[d];
      place += steps[d] * strides[d];
      base += steps[d] * weights[d];
      if (index[d] < shape[d]) break;
      place -= index[d] * strides[d];
      base -= index[d] * weights[d];
      index[d] = 0;
    }
  }
}
