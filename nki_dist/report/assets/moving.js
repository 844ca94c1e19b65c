// Moving and zooming a stretch of time, by the mouse and by keys; `place` says where times are drawn.
function moving(view, total, place, redraw) {
  function look(from, to) {
    const least = Math.max(total / 1e6, 1), span = Math.min(Math.max(to - from, least), total || 1);
    view.from = Math.max(0, Math.min(from, total - span));
    view.to = view.from + span;
    redraw();
  }

  function zoom(factor, x = (GUTTER + place.width) / 2) {
    const time = place.time(x);
    look(time - (time - view.from) * factor, time + (view.to - time) * factor);
  }

  const move = (share) => look(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));
  let held = null; // where the mouse went down, and the view then

  // `over` and `click` are told of points of the canvas that didn't move the view.
  function listen({canvas}, over, click) {
    canvas.addEventListener("pointerdown", (event) => {
      held = {x: event.clientX, from: view.from, to: view.to, moved: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return over(event, ...inside(canvas, event));
      const shift = ((held.x - event.clientX) / (place.width - GUTTER)) * (held.to - held.from);
      held.moved ||= Math.abs(held.x - event.clientX) > 3;
      if (held.moved) look(held.from + shift, held.to + shift);
      hover(event, "");
    });
    canvas.addEventListener("pointerup", (event) => {
      const still = held && !held.moved;
      held = null;
      if (still) click(...inside(canvas, event));
    });
    canvas.addEventListener("pointerleave", (event) => hover(event, ""));
    canvas.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey) && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), inside(canvas, event)[0]);
      else move(event.deltaX / 800);
    }, {passive: false});
    canvas.addEventListener("dblclick", () => look(0, total));
  }

  const keys = {w: () => zoom(0.6), s: () => zoom(1 / 0.6), a: () => move(-0.25), d: () => move(0.25), 0: () => look(0, total)};
  return {look, zoom, keys, listen};
}

const inside = (canvas, event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

function hover(event, text) {
  const tip = element("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const {width, height} = tip.getBoundingClientRect();
  tip.style.left = Math.max(Math.min(event.clientX + 14, innerWidth - width - 8), 4) + "px";
  tip.style.top = (event.clientY + height + 24 > innerHeight ? event.clientY - height - 10 : event.clientY + 16) + "px";
}
