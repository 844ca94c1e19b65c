"use strict";
// What the page holds, unpacked: `data` (the head) with the columns of events as typed arrays.
const ARRAYS = {float64: Float64Array, float32: Float32Array, uint32: Uint32Array, int32: Int32Array, uint8: Uint8Array, uint16: Uint16Array};
const MERGED = 0xffffffff;

async function unpacked(id) {
  const element = document.getElementById(id), text = atob(element.textContent);
  const bytes = new Uint8Array(text.length);
  for (let n = 0; n < bytes.length; n++) bytes[n] = text.charCodeAt(n); // ten times as fast as Uint8Array.from
  element.textContent = "";
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// A head with its columns as typed arrays.
async function bundle(id) {
  return columnsOf(await unpacked(id));
}

function columnsOf(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  for (const [name, [place, type, count]] of Object.entries(data.columns))
    data[name] = new ARRAYS[type](buffer, 8 + length + place, count);
  return data;
}

async function readEvents(id) {
  const data = await bundle(id);
  data.rows = data.rows.map(([core, name, engine, first, last]) => ({core, name, engine, first, last}));
  return data;
}

// The library's script, which is read once everything else is on the screen.
async function readLibrary() {
  await new Promise((done) => setTimeout(done));
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await unpacked("library"));
  document.head.append(script);
}

const element = (id) => document.getElementById(id);
const html = (text) => String(text).replace(/[&<>"]/g, (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "#888";
const kib = (bytes) => (bytes >= 1024 ? (bytes / 1024).toLocaleString("en", {maximumFractionDigits: 1}) + " KiB" : bytes + " B");
const shortLine = (line) => line.split(/[\\/]/).pop();

// A time in ns as text, precise to `step` ns.
function timeText(ns, step = ns / 1000) {
  const [unit, size] = step >= 1e5 ? ["ms", 1e6] : ["µs", 1e3];
  const digits = Math.max(0, Math.min(4, Math.ceil(Math.log10(size / Math.max(step, 1e-3)))));
  return (ns / size).toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits}) + " " + unit;
}

const took = (ns) => (ns >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : ns >= 1e3 ? (ns / 1e3).toFixed(3) + " µs" : ns.toFixed(1) + " ns");

// The first place in `array` from `low` up to `high` whose value is above `value`.
function above(array, value, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Steps of an axis: 1, 2 or 5 times a power of ten, about `count` of them.
function stepOf(span, count) {
  const rough = span / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((n) => n * power >= rough) || 10);
}

// A canvas as wide as its place, sharp on every screen; returns its context in CSS pixels.
function fitted(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.parentElement.clientWidth;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
  context.textBaseline = "middle";
  return [context, width];
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
