// The page only draws: every number it shows is an answer of the server, which asks the package.

const $ = (id) => document.getElementById(id);
const NAMES = { pred: "Prediction", target: "Target" };
const COORDINATES = ["x1", "y1", "x2", "y2"];
const EDGES = ["left", "top", "right", "bottom"];
const CORNERS = { "top left": [0, 1], "top right": [2, 1], "bottom right": [2, 3], "bottom left": [0, 3] };
const RELATIONS = {
  apart: "The boxes are apart: a small move leaves IoU at 0, so its gradient is 0 and its arrows are gone. "
    + "Only a loss that looks beyond the overlap still pulls.",
  touching: "The boxes touch: they share nothing yet.",
  overlapping: "The boxes overlap: each edge moves the intersection, the union or both, so each is pulled.",
  nested: "One box lies in the other, so the hull is the larger box and GIoU is IoU.",
  identical: "The boxes are identical: every loss is 0, and so is every gradient.",
};
const SVG = "http://www.w3.org/2000/svg";
// An arrow's tip at (0, 0), pointing right. Four shapes, so that colour is not the only difference.
const HEADS = [
  { d: "M0 0L-9 -4.5V4.5Z", kind: "head-full" },
  { d: "M-7 -5L0 0L-7 5", kind: "head-open" },
  { d: "M0 0L-9 -4.5V4.5Z", kind: "head-hollow" },
  { d: "M0 0L-6 -4.5L-12 0L-6 4.5Z", kind: "head-full" },
];
const MOUSE = 11; // pixels that the pointer may miss a corner by
const FINGER = 20;
const LONGEST = 180; // pixels of an arrow, which a pull without end would have
const SHORTEST = 6; // so that a weak pull does not look like none
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

const setup = await (await fetch("api/setup")).json();

const state = {
  pred: [], target: [], // as the user has them, also while the server has not answered yet
  threshold: 0.5,
  places: ["iou", "giou", ...Array(setup.compared - 2).fill(null)], // a chosen loss keeps its place and so its colour
  says: "",
};
let answer = null; // the last one, with the pair and the threshold it is for
let view = { x: 0, y: 0, scale: 1, step: 1, width: 0, height: 0 };

// ---- small tools

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "circle", "defs", "pattern"].includes(name);
  const node = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const clean = (value) => Number(value.toPrecision(12)); // 0.1 + 0.2 is 0.3
const copy = (box) => [...box];
const equal = (a, b) => a.every((value, i) => value === b[i]);
const minus = (text) => text.replace("-", "−");
const AREA = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

function fixed(value) {
  return value !== 0 && Math.abs(value) < 5e-5 ? minus(value.toExponential(1)) : minus(value.toFixed(4));
}

function significant(value) {
  if (value === 0) return "0";
  return minus(Math.abs(value) < 1e-4 || Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toPrecision(3));
}

// Paths and not rects: SVG does not draw a rect without width.
function outline([x1, y1, x2, y2]) {
  return `M${x1} ${y1}H${Math.max(x1, x2)}V${Math.max(y1, y2)}H${x1}Z`;
}

const hullOf = (boxes) => [
  Math.min(...boxes.map((b) => b[0])), Math.min(...boxes.map((b) => b[1])),
  Math.max(...boxes.map((b) => b[2])), Math.max(...boxes.map((b) => b[3])),
];

function later(milliseconds, action) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(action, milliseconds); };
}

// ---- the server

async function ask(path, query) {
  const response = await fetch(`api/${path}?${new URLSearchParams(query)}`);
  const result = await response.json();
  if (!response.ok) throw new Error(result.error);
  return result;
}

// One question at a time: while it is out, later ones melt into the one that follows it.
let asking = false;
let changed = false;
async function refresh() {
  changed = true;
  if (asking) return;
  asking = true;
  while (changed) {
    changed = false;
    const asked = { pred: copy(state.pred), target: copy(state.target), threshold: state.threshold };
    try {
      answer = { ...await ask("pair", asked), ...asked };
      $("problem").textContent = "";
      render();
    } catch (error) {
      complain(error);
    }
  }
  asking = false;
}

function complain(error) {
  const gone = error instanceof TypeError; // what a fetch without an answer throws
  $("problem").textContent = gone ? "The explorer does not answer. Is it still running?" : error.message;
}

// ---- the view: which part of the plane the canvas shows

// What the user typed may be no pair of boxes.
const drawable = () => [state.pred, state.target].every(([x1, y1, x2, y2]) => x1 <= x2 && y1 <= y2);
const pair = () => (drawable() ? state : answer);

function fit() {
  const { width, height } = $("canvas").getBoundingClientRect();
  const [x1, y1, x2, y2] = hullOf([pair().pred, pair().target]);
  const span = Math.max((x2 - x1) / (0.54 * width), (y2 - y1) / (0.6 * height)) || 1 / width;
  const step = 10 ** Math.round(Math.log10((span * width) / 150)); // of keys and of the drag
  const [x, y] = [(x1 + x2 - span * width) / 2, (y1 + y2 - span * height) / 2];
  view = { x, y, scale: 1 / span, step, width, height };
  $("canvas").setAttribute("viewBox", `0 0 ${width} ${height}`);
  $("key-step").textContent = `${step} for a step, with Shift ${10 * step}.`;
  drawGrid();
}

const toPixels = ([x1, y1, x2, y2]) => [
  (x1 - view.x) * view.scale, (y1 - view.y) * view.scale, (x2 - view.x) * view.scale, (y2 - view.y) * view.scale,
];

function inView(box) {
  const [x1, y1, x2, y2] = toPixels(box);
  return x1 >= 0 && y1 >= 0 && x2 <= view.width && y2 <= view.height;
}

function drawGrid() {
  const rough = 80 / view.scale;
  const power = 10 ** Math.floor(Math.log10(rough));
  const gap = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const { width, height } = view;
  const lines = (from, length) => {
    const places = [];
    for (let i = Math.ceil(from / gap); (i * gap - from) * view.scale < length; i++) {
      places.push([(i * gap - from) * view.scale, minus(String(clean(i * gap)))]);
    }
    return places;
  };
  layers.grid.replaceChildren(
    ...lines(view.x, width).flatMap(([x, number]) => [
      element("line", { class: "grid", x1: x, x2: x, y1: 0, y2: height }),
      ...(x > 44 && x < width - 20 ? [element("text", { class: "tick across", x, y: height - 6 }, number)] : []),
    ]),
    ...lines(view.y, height).flatMap(([y, number]) => [
      element("line", { class: "grid", y1: y, y2: y, x1: 0, x2: width }),
      ...(y > 12 && y < height - 20 ? [element("text", { class: "tick", x: 6, y: y + 4 }, number)] : []),
    ]),
  );
}

// ---- the canvas: what is drawn once and then moved

const layers = {};
const parts = {};
const grips = []; // what takes focus: a box or one of its corners

function buildCanvas() {
  const tile = { id: "empty", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
  const hatch = element("pattern", tile, element("line", { class: "hatch", y2: 7, "stroke-width": 2 }));
  for (const name of ["grid", "areas", "outlines", "arrows", "grips"]) layers[name] = element("g");
  for (const name of ["hull", "union-1", "union-2", "intersection"]) {
    parts[name] = element("path", { class: name.replace(/-.*/, "") });
    layers.areas.append(parts[name]);
  }
  for (const which of ["target", "pred"]) {
    parts[which] = element("path", { class: `outline is-${which}` });
    parts[`${which}-tag`] = element("text", { class: `tag is-${which}` }, NAMES[which].toLowerCase());
    layers.outlines.append(parts[which], parts[`${which}-tag`]);
  }
  for (const which of ["pred", "target"]) {
    addGrip(which, "box", [0, 1, 2, 3]);
    for (const [name, sides] of Object.entries(CORNERS)) addGrip(which, name, sides);
  }
  $("canvas").append(element("defs", {}, hatch), ...Object.values(layers));
}

function addGrip(which, name, sides) {
  const whole = name === "box";
  const spoken = { role: "img", "aria-roledescription": whole ? "box" : "corner" };
  const node = element("g", { class: `grip is-${which}`, "data-grip": `${which} ${name}`, tabindex: 0, ...spoken },
    element("path", { class: "halo", d: "M-8 -8H8V8H-8Z" }),
    whole ? element("path", { class: "touch" }) : element("path", { class: "knob", d: "M-3.5 -3.5H3.5V3.5H-3.5Z" }));
  node.addEventListener("keydown", (event) => nudge(event, which, sides));
  layers.grips.append(node);
  grips.push({ which, name, sides, node, whole });
}

function drawBoxes() {
  for (const which of ["pred", "target"]) {
    const box = toPixels(pair()[which]);
    parts[which].setAttribute("d", outline(box));
    placeTag(which, box);
  }
  for (const { which, name, sides, node, whole } of grips) {
    const box = pair()[which];
    const pixels = toPixels(box);
    if (whole) {
      const [halo, touch] = node.children;
      halo.setAttribute("d", outline(grown(pixels, 5)));
      touch.setAttribute("d", outline(grown(roomy(pixels, FINGER), FINGER)));
      node.setAttribute("aria-label", `${NAMES[which]}: ${COORDINATES.map((c, i) => `${c} ${box[i]}`).join(", ")}`);
    } else {
      node.setAttribute("transform", `translate(${pixels[sides[0]]} ${pixels[sides[1]]})`);
      node.setAttribute("aria-label", `${NAMES[which]}, ${name} corner: ${box[sides[0]]}, ${box[sides[1]]}`);
    }
  }
}

// Beside a corner, where no arrow starts; above or below it where the canvas ends.
function placeTag(which, [x1, y1, x2, y2]) {
  const [x, y, anchor] = which === "pred"
    ? x1 > 74 && y2 - y1 > 40 ? [x1 - 9, y1 + 4, "end"] : [x1, y1 - 9, "start"]
    : x2 < view.width - 54 && y2 - y1 > 40 ? [x2 + 9, y2 + 4, "start"] : [x2, y2 + 17, "end"];
  const tag = parts[`${which}-tag`];
  for (const [name, value] of Object.entries({ x, y, "text-anchor": anchor })) tag.setAttribute(name, value);
}

function drawAreas() {
  const draw = (name, box) => parts[name].setAttribute("d", box ? outline(toPixels(box)) : "");
  draw("hull", answer.hull.box);
  draw("union-1", answer.pred);
  draw("union-2", answer.target);
  draw("intersection", answer.intersection.box);
}

// ---- arrows

const chosen = () => state.places.flatMap((key, place) => (key ? [{ key, place, label: setup.losses[key].label }] : []));

function arrow(place, x, y, angle, length) {
  const { d, kind } = HEADS[place];
  const shaft = `M0 0H${Math.max(0, length - 5)}`;
  const size = Math.min(1, length / 9);
  return element("g", { transform: `translate(${x} ${y}) rotate(${angle})` },
    element("path", { class: "clear", d: shaft }), element("path", { class: "shaft", d: shaft }),
    element("path", { class: kind, d, transform: `translate(${length} 0) scale(${size})` }));
}

function drawArrows() {
  const [x1, y1, x2, y2] = toPixels(answer.pred);
  const middles = [[x1, (y1 + y2) / 2], [(x1 + x2) / 2, y1], [x2, (y1 + y2) / 2], [(x1 + x2) / 2, y2]];
  const shown = chosen();
  const groups = shown.map(({ key, place }, row) => {
    const group = element("g", { class: `loss-${place + 1}`, "data-loss": key });
    const aside = (row - (shown.length - 1) / 2) * 15; // beside each other along the edge
    answer.losses[key].pull.forEach((pull, edge) => {
      const across = edge % 2 === 0;
      const x = middles[edge][0] + (across ? 0 : aside);
      const y = middles[edge][1] + (across ? aside : 0);
      const angle = (across ? 0 : 90) + (pull < 0 ? 180 : 0);
      const strength = Math.abs(pull);
      const mark = strength === 0
        ? element("circle", { class: "ring", cx: x, cy: y, r: 4 })
        : arrow(place, x, y, angle, Math.max(SHORTEST, (LONGEST * strength) / (1 + strength)));
      mark.dataset.edge = EDGES[edge];
      group.append(mark);
    });
    return group;
  });
  layers.arrows.replaceChildren(...groups);
}

function mark(place) {
  const attributes = { class: `mark loss-${place + 1}`, viewBox: "0 0 28 14", "aria-hidden": "true" };
  return element("svg", attributes, arrow(place, 1, 7, 0, 25));
}

// ---- numbers

function render() {
  if (!held && !(inView(answer.pred) && inView(answer.target))) fit();
  drawBoxes();
  drawAreas();
  drawArrows();
  showInputs();
  $("intersection").textContent = AREA.format(answer.intersection.area);
  $("union").textContent = AREA.format(answer.union.area);
  $("hull").textContent = AREA.format(answer.hull.area);
  $("iou").textContent = fixed(answer.iou);
  $("threshold").style.setProperty("--iou", answer.iou);
  const [verdict, reason] = $("verdict").children;
  verdict.textContent = answer.correct ? "✓ Hit" : "✗ Miss";
  reason.textContent = `at a threshold of ${answer.threshold.toFixed(2)}`;
  $("says").textContent = state.says;
  $("relation").textContent = RELATIONS[answer.relation];
  for (const [key, { value }] of Object.entries(answer.losses)) $(`value-${key}`).textContent = fixed(value);
  showPulls();
  descent.follow();
  announce();
}

function showInputs() {
  for (const which of ["pred", "target"]) {
    inputsOf(which).forEach((input, i) => {
      if (input.valueAsNumber !== state[which][i] && Number.isFinite(state[which][i])) input.value = state[which][i];
    });
  }
}

function showPulls() {
  const rows = chosen().map(({ key, place, label }) => {
    const { gradient } = answer.losses[key];
    const note = element("small", {}, setup.losses[key].note);
    const name = element("span", { role: "rowheader" }, mark(place), `${label} `, note);
    const cells = gradient.map((slope) => element("span", { role: "cell" }, significant(slope)));
    return element("div", { role: "row", "data-loss": key }, name, ...cells);
  });
  $("pulls").replaceChildren($("pulls").firstElementChild, ...rows);
}

const announce = later(500, () => {
  const losses = chosen().map(({ key, label }) => `${label} loss ${fixed(answer.losses[key].value)}`);
  const verdict = `${answer.correct ? "Hit" : "Miss"} at ${answer.threshold.toFixed(2)}`;
  $("live").textContent = `${verdict}. IoU ${fixed(answer.iou)}, ${answer.relation}. ${losses.join(", ")}.`;
});

// ---- moving: by pointer, by key, by typing

// Move the given sides of a box; a side that is moved past the other one stops there.
function moved(box, sides, dx, dy) {
  const result = copy(box);
  for (const i of sides) result[i] = clean(box[i] + (i % 2 ? dy : dx));
  if (sides.length === 4) return result;
  for (const i of sides) result[i] = i < 2 ? Math.min(result[i], box[i + 2]) : Math.max(result[i], box[i - 2]);
  return result;
}

function put(which, box) {
  if (equal(box, state[which])) return;
  state[which] = box;
  state.says = "";
  pressPreset(null);
  if (drawable()) drawBoxes(); // at once; the numbers follow
  refresh();
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
function nudge(event, which, sides) {
  if (!(event.key in ARROWS) || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const step = view.step * (event.shiftKey ? 10 : 1);
  const [x, y] = ARROWS[event.key];
  put(which, moved(state[which], sides, x * step, y * step));
}

// A small box can be taken beside it too, so that between its corners there is room to move it.
function roomy([x1, y1, x2, y2], reach) {
  const least = 3 * reach;
  const x = Math.max(0, (least - (x2 - x1)) / 2);
  const y = Math.max(0, (least - (y2 - y1)) / 2);
  return [x1 - x, y1 - y, x2 + x, y2 + y];
}

// What lies under the pointer: a corner before an edge before a box, and of two boxes the smaller.
function under(x, y, reach) {
  const boxes = ["pred", "target"].map((which) => ({ which, box: roomy(toPixels(state[which]), reach) }));
  boxes.sort((a, b) => size(a.box) - size(b.box));
  const near = (a, b) => Math.abs(a - b) <= reach;
  for (const { which, box } of boxes) {
    for (const [name, sides] of Object.entries(CORNERS)) {
      if (near(box[sides[0]], x) && near(box[sides[1]], y)) return { which, name, sides };
    }
  }
  const inX = (box) => x > box[0] && x < box[2];
  const inY = (box) => y > box[1] && y < box[3];
  for (const { which, box } of boxes) {
    const close = (i) => Math.abs(box[i] - (i % 2 ? y : x)) <= 0.6 * reach && (i % 2 ? inX(box) : inY(box));
    const edge = [0, 1, 2, 3].find(close);
    if (edge !== undefined) return { which, name: "edge", sides: [edge] };
  }
  const found = boxes.find(({ box }) => inX(box) && inY(box));
  return found && { which: found.which, name: "box", sides: [0, 1, 2, 3] };
}

const grown = ([x1, y1, x2, y2], by) => [x1 - by, y1 - by, x2 + by, y2 + by];
const size = ([x1, y1, x2, y2]) => (x2 - x1) * (y2 - y1);

function cursorOf(grip) {
  if (!grip) return "";
  if (grip.name === "box") return held ? "grabbing" : "grab";
  if (grip.name === "edge") return grip.sides[0] % 2 ? "ns-resize" : "ew-resize";
  return ["top left", "bottom right"].includes(grip.name) ? "nwse-resize" : "nesw-resize";
}

let held = null;
function pointerAt(event) {
  const { left, top } = $("canvas").getBoundingClientRect();
  return [event.clientX - left, event.clientY - top];
}

const reachOf = (event) => (event.pointerType === "mouse" ? MOUSE : FINGER);

function take(event) {
  if (event.button !== 0 || held) return;
  const [x, y] = pointerAt(event);
  const grip = under(x, y, reachOf(event));
  if (!grip) return;
  held = { ...grip, x, y, start: copy(state[grip.which]), pointer: event.pointerId };
  $("canvas").setPointerCapture(event.pointerId);
  const name = grip.name === "edge" ? "box" : grip.name;
  grips.find((g) => g.which === grip.which && g.name === name).node.focus({ preventScroll: true });
  $("canvas").style.cursor = cursorOf(held);
}

function drag(event) {
  const [x, y] = pointerAt(event);
  if (!held) {
    $("canvas").style.cursor = cursorOf(under(x, y, reachOf(event)));
    return;
  }
  if (event.pointerId !== held.pointer) return;
  const snap = (pixels) => Math.round(pixels / view.scale / view.step) * view.step;
  const box = moved(held.start, held.sides, snap(x - held.x), snap(y - held.y));
  if (inView(box)) put(held.which, box);
}

function release(event) {
  if (held?.pointer === event.pointerId) held = null;
}

function listenToCanvas() {
  $("canvas").addEventListener("pointerdown", take);
  $("canvas").addEventListener("mousedown", (event) => event.preventDefault()); // `take` has set the focus
  $("canvas").addEventListener("pointermove", drag);
  $("canvas").addEventListener("lostpointercapture", release);
  $("fit").addEventListener("click", () => { fit(); render(); });
  new ResizeObserver(() => { fit(); if (answer) render(); }).observe($("canvas"));
}

const inputsOf = (which) => [...$(which).querySelectorAll("input")];

function buildInputs() {
  for (const which of ["pred", "target"]) {
    COORDINATES.forEach((name, i) => {
      const input = element("input", { type: "number", step: "any", "aria-label": `${NAMES[which]} ${name}` });
      input.addEventListener("input", () => put(which, inputsOf(which).map((other) => other.valueAsNumber)));
      input.addEventListener("keydown", (event) => {
        if (event.key === "ArrowUp" || event.key === "ArrowDown") {
          event.preventDefault();
          const step = view.step * (event.shiftKey ? 10 : 1) * (event.key === "ArrowUp" ? 1 : -1);
          put(which, moved(state[which], [i], step, step));
        }
      });
      input.addEventListener("blur", () => { if (!drawable() || $("problem").textContent) restore(); });
      $(which).append(input);
    });
  }
}

// Back to the last pair that the server could answer.
function restore() {
  for (const which of ["pred", "target"]) state[which] = copy(answer[which]);
  showInputs();
  refresh();
}

// ---- presets, threshold, choice of losses

function buildPresets() {
  for (const [title, presets] of Object.entries(setup.presets)) {
    const buttons = presets.map((preset) => {
      const button = element("button", { type: "button", "aria-pressed": "false", title: preset.says }, preset.label);
      button.addEventListener("click", () => load(preset, button));
      return button;
    });
    const id = `presets-${$("presets").children.length}`;
    const group = element("div", { role: "group", "aria-labelledby": id }, ...buttons);
    $("presets").append(element("div", {}, element("h2", { id }, title), group));
  }
}

function pressPreset(button) {
  for (const other of $("presets").querySelectorAll("button")) other.setAttribute("aria-pressed", other === button);
}

function load(preset, button) {
  state.pred = copy(preset.pred);
  state.target = copy(preset.target);
  state.says = preset.says;
  pressPreset(button);
  fit();
  drawBoxes();
  refresh();
}

function buildLosses() {
  for (const [key, { label, note }] of Object.entries(setup.losses)) {
    const box = element("input", { type: "checkbox", id: `loss-${key}` });
    box.addEventListener("change", () => choose(key, box.checked));
    const [place, leader] = ["place", "leader"].map((name) => element("span", { class: name }));
    const value = element("span", { id: `value-${key}` });
    const row = element("label", { title: note }, box, place, element("span", {}, label), leader, " ", value);
    $("losses").append(element("li", {}, row));
  }
  showChoice();
}

function choose(key, on) {
  state.places[on ? state.places.indexOf(null) : state.places.indexOf(key)] = on ? key : null;
  showChoice();
  drawArrows();
  showPulls();
  descent.follow();
  announce();
}

function showChoice() {
  const full = !state.places.includes(null);
  for (const key of Object.keys(setup.losses)) {
    const box = $(`loss-${key}`);
    const at = state.places.indexOf(key);
    box.checked = at >= 0;
    box.disabled = full && at < 0;
    box.nextElementSibling.replaceChildren(...(at >= 0 ? [mark(at)] : []));
  }
}

// ---- descent

const descent = {
  of: "", // the pair and the losses that are shown
  paths: null, // once they are asked for
  panels: [], step: 0, playing: false,

  follow() {
    const now = JSON.stringify([answer.pred, answer.target, chosen()]);
    if (now !== this.of) {
      this.of = now;
      this.paths = null;
      this.step = 0;
      this.stop();
      this.build();
    }
    this.drawThreshold();
  },

  stop() {
    this.playing = false;
    $("play").textContent = "Play";
  },

  // Whether there are paths of what is shown now.
  async load() {
    if (this.paths || !this.panels.length) return Boolean(this.paths);
    const { of } = this;
    const { pred, target } = answer;
    try {
      const paths = await ask("descent", { pred, target, losses: chosen().map(({ key }) => key).join(",") });
      if (of !== this.of) return false; // the boxes have moved on
      this.paths ??= paths;
    } catch (error) {
      complain(error);
      return false;
    }
    this.build();
    return true;
  },

  async show(next) {
    this.stop();
    if (!await this.load()) return;
    this.step = Math.min(setup.steps, next(this.step));
    this.draw();
    this.announce();
  },

  async play() {
    if (this.playing) return this.stop();
    if (!await this.load()) return;
    if (STILL.matches) return this.show(() => setup.steps); // no motion: the end, with the way there drawn
    this.playing = true;
    $("play").textContent = "Pause";
    const from = this.step < setup.steps ? this.step : 0;
    let start = null;
    const frame = (time) => {
      if (!this.playing) return;
      start ??= time;
      this.step = Math.min(setup.steps, from + Math.floor((time - start) / 33));
      this.draw();
      if (this.step < setup.steps) return requestAnimationFrame(frame);
      this.stop();
      this.announce();
    };
    requestAnimationFrame(frame);
  },

  build() {
    this.panels = chosen().map(({ key, place, label }) => {
      const path = this.paths?.[key] ?? { boxes: [answer.pred], ious: [answer.iou], losses: [answer.losses[key].value] };
      const now = element("path", { class: "now" });
      const trail = element("path", { class: "trail" });
      const dot = element("path", { class: "dot" });
      const line = element("path", { class: "line" });
      const [iou, loss] = [element("dd"), element("dd")];
      const scene = element("svg", { class: "scene", viewBox: this.frame(), "aria-hidden": "true" },
        element("path", { class: "is-target", d: outline(answer.target) }), trail, now);
      const level = element("path", { class: "at" });
      const plot = { viewBox: `0 0 ${setup.steps} 1`, preserveAspectRatio: "none", "aria-hidden": "true" };
      const curve = element("svg", { class: "curve", ...plot }, level, line, dot);
      const numbers = element("dl", {}, element("dt", {}, "IoU"), iou, element("dt", {}, "loss"), loss);
      const title = element("h3", {}, mark(place), label);
      const node = element("figure", { class: `loss-${place + 1}`, "data-loss": key }, title, scene, curve, numbers);
      return { path, label, node, level, now, trail, dot, line, iou, loss };
    });
    $("panels").replaceChildren(...this.panels.map(({ node }) => node));
    this.drawThreshold();
    this.draw();
  },

  // The same part of the plane in every panel.
  frame() {
    const paths = Object.values(this.paths ?? {}).flatMap(({ boxes }) => boxes);
    const [x1, y1, x2, y2] = hullOf([answer.pred, answer.target, ...paths]);
    const height = 1.15 * Math.max((x2 - x1) * 0.75, y2 - y1) || 1;
    return [(x1 + x2) / 2 - (height * 2) / 3, (y1 + y2) / 2 - height / 2, (height * 4) / 3, height].join(" ");
  },

  drawThreshold() {
    for (const { level } of this.panels) level.setAttribute("d", `M0 ${1 - answer.threshold}H${setup.steps}`);
  },

  draw() {
    $("time").value = this.step;
    $("now").textContent = this.step;
    for (const { path, now, trail, dot, line, iou, loss } of this.panels) {
      now.setAttribute("d", outline(path.boxes[this.step]));
      trail.setAttribute("d", path.boxes.slice(0, this.step).filter((_, i) => i % 10 === 0).map(outline).join(""));
      const points = path.ious.slice(0, this.step + 1).map((value, i) => `${i} ${1 - value}`);
      line.setAttribute("d", `M${points.join("L")}`);
      dot.setAttribute("d", `M${this.step} ${1 - path.ious[this.step]}h0.001`);
      iou.textContent = fixed(path.ious[this.step]);
      loss.textContent = fixed(path.losses[this.step]);
    }
  },

  announce: later(400, () => {
    const ious = descent.panels.map(({ path, label }) => `${label} ${fixed(path.ious[descent.step])}`);
    $("descent-live").textContent = `Step ${descent.step}. IoU by ${ious.join(", ")}.`;
  }),
};

function listenToControls() {
  $("threshold").addEventListener("input", () => { state.threshold = $("threshold").valueAsNumber; refresh(); });
  $("time").max = setup.steps;
  $("step").addEventListener("click", () => descent.show((step) => step + 1));
  $("play").addEventListener("click", () => descent.play());
  $("back").addEventListener("click", () => descent.show(() => 0));
  $("time").addEventListener("input", () => descent.show(() => $("time").valueAsNumber));
}

buildCanvas();
buildInputs();
buildPresets();
buildLosses();
load(Object.values(setup.presets)[0][0], $("presets").querySelector("button"));
listenToCanvas();
listenToControls();
