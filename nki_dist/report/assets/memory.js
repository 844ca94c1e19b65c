// SBUF and PSUM of one core over time, under the timeline and in its time.
const HEIGHTS = {sbuf: 150, psum: 84}, SPACE = 26;

class Memory {
  constructor(data, view) {
    Object.assign(this, {data, view, canvas: document.getElementById("memory"), core: 0, chosen: ""});
  }

  x(time) {
    return GUTTER + ((time - this.view.from) / (this.view.to - this.view.from)) * (this.width - GUTTER);
  }

  get parts() {
    let y = AXIS;
    return this.data.memories.filter((m) => m.core === this.core).map((memory) => {
      const high = HEIGHTS[memory.region], top = y;
      y += high + SPACE;
      const most = memory.boxes.reduce((n, box) => Math.max(n, box[2] + box[3]), 1);
      return {memory, top, high, most, scale: high / most};
    });
  }

  draw() {
    const parts = this.parts, last = parts[parts.length - 1];
    const height = last ? last.top + last.high + 6 : AXIS;
    const [context, width] = fitted(this.canvas, height);
    this.width = width;
    axis(context, this, height);
    for (const part of parts) this.drawPart(context, part);
  }

  drawPart(context, {memory, top, high, most, scale}) {
    const {boxes, capacity, peak, region, steps} = memory, bottom = top + high;
    context.fillStyle = color("text");
    context.fillText(region.toUpperCase(), 0, top + 6);
    context.fillStyle = color("faint");
    context.fillText(`peak ${kib(peak)}`, 0, top + 22);
    const share = `(${((100 * peak) / capacity).toFixed(peak < capacity / 100 ? 1 : 0)} %)`;
    context.fillText(`of ${kib(capacity)} ${peak > capacity ? "(spilled)" : share}`, 0, top + 37);
    context.save();
    context.beginPath();
    context.rect(GUTTER, top - 1, this.width - GUTTER, high + 2);
    context.clip();
    const tints = ["box-a", "box-b", "box-c", "box-d"].map(color), text = color("text");
    boxes.forEach(([from, to, low, size, title], n) => {
      const a = this.x(from), b = this.x(to);
      if (b < GUTTER || a > this.width) return;
      const y = bottom - (low + size) * scale, h = Math.max(size * scale - (size * scale > 3 ? 1 : 0), 0.5);
      const w = Math.max(b - a - (b - a > 3 ? 1 : 0), 0.5);
      context.fillStyle = title === this.chosen ? color("accent") : tints[n % tints.length];
      context.fillRect(a, y, w, h);
      const left = Math.max(a, GUTTER), room = Math.min(b, this.width) - left - 8;
      if (h > 11 && room > 24 && context.measureText(title).width <= room) {
        context.fillStyle = title === this.chosen ? "#fff" : text;
        context.fillText(title, left + 4, y + h / 2 + 0.5);
      }
    });
    context.restore();
    context.strokeStyle = color("faint");
    context.beginPath();
    context.moveTo(GUTTER, bottom + 0.5);
    context.lineTo(this.width, bottom + 0.5);
    context.stroke();
    if (capacity <= most) {
      const y = bottom - capacity * scale;
      context.strokeStyle = color("cc");
      context.strokeRect(GUTTER, y, this.width - GUTTER, 0.01);
    }
  }

  // The tensor under a point: [from, to, low, size, title, shape], or undefined.
  at(x, y) {
    for (const {memory, top, high, scale} of this.parts) {
      if (y < top || y > top + high) continue;
      const byte = (top + high - y) / scale;
      return memory.boxes.find(([from, to, low, size]) =>
        this.x(from) <= x && x <= Math.max(this.x(to), this.x(from) + 2) && low <= byte && byte <= low + size);
    }
  }

  about([from, to, , size, title, shape]) {
    return `${title}\n${shape}\n${kib(size)} per partition\n${timeText(from, 0.1)} to ${timeText(to, 0.1)}`;
  }
}
