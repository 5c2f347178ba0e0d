// Reads the folder again every few seconds, and draws what has changed. Text is only ever set as text.

const EVERY = 3000; // milliseconds
const $ = (id) => document.getElementById(id);
const shown = {}; // by address, what is drawn
let column = ""; // the score of each run’s own world

/** Nobody answers, as opposed to an answer that is a complaint. */
class GoneError extends Error {}

async function answerAt(address) {
  try {
    const answer = await fetch(address, { cache: "no-store" });
    return { good: answer.ok, text: await answer.text() };
  } catch {
    throw new GoneError("“diamond web” does not answer any more; start it again, and this page goes on.");
  }
}

/** Asks, and draws what is not what it was the last time. What could not be drawn is tried again. */
async function follow(address, show) {
  const { good, text } = await answerAt(address);
  if (!good) throw new Error(text);
  if (shown[address] === text) return;
  delete shown[address];
  show(JSON.parse(text));
  shown[address] = text;
}

function made(tag, text = null, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== null) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function drawn(tag, attributes, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

const short = (number) => {
  const size = Math.abs(number);
  if (size >= 1e6) return `${+(number / 1e6).toPrecision(3)}M`;
  if (size >= 1e3) return `${+(number / 1e3).toPrecision(3)}k`;
  return size !== 0 && size < 0.01 ? number.toExponential(1) : String(+number.toPrecision(3));
};

// --- Runs -----------------------------------------------------------------------------------------

function showOverview(overview) {
  showRuns(overview);
  showColumns(overview);
  showPictures(overview);
}

function showRuns({ folder, runs, left_out: leftOut }) {
  $("title").textContent = `Runs in ${folder}`;
  $("leftOut").replaceChildren(...leftOut.map((sentence) => made("li", sentence)));
  $("leftOut").hidden = leftOut.length === 0;
  const states = {};
  for (const run of runs) states[run.state] = (states[run.state] ?? 0) + 1;
  const told = Object.entries(states).map(([state, number]) => `${number} ${state}`).join(", ");
  $("summary").textContent = runs.length
    ? `${runs.length} run${runs.length > 1 ? "s" : ""}: ${told}.`
    : `There are no runs here yet. “diamond train xor --out ${folder}/xor” makes one; this page sees it by itself.`;
  $("summary").removeAttribute("data-waiting");
  $("summary").hidden = false;
  $("runsPart").hidden = runs.length === 0;
  const head = made("tr");
  head.append(...["run", "world", "policy", "state", "steps", ""].map((name) => made("th", name)));
  $("runs").replaceChildren(head, ...runs.map((run) => {
    const row = made("tr", null, { "data-state": run.state });
    const steps = made("td");
    if (run.steps) {
      const bar = made("span", null, { class: "bar" });
      bar.style.setProperty("--share", Math.min(1, run.step / run.steps));
      steps.append(bar, `${short(run.step)} of ${short(run.steps)}`);
    }
    const left = run.state === "training" && run.rate ? `${duration((run.steps - run.step) / run.rate)} to go` : run.sentence;
    row.append(made("td", run.path || "."), made("td", run.world ?? ""), made("td", run.policy ?? ""),
      made("td", run.state, { class: "state" }), steps, made("td", left ?? "", { class: "sentence" }));
    return row;
  }));
}

function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function showColumns({ columns }) {
  const wanted = ["", ...columns], names = [...$("column").options].map((option) => option.value);
  if (!wanted.includes(column)) column = "";
  if (names.join() !== wanted.join()) {
    $("column").replaceChildren(...wanted.map((name) => made("option", name || "score of its world", { value: name })));
  }
  $("column").value = column;
  $("curvesPart").hidden = columns.length === 0;
}

// --- Curves ---------------------------------------------------------------------------------------

const WIDE = 460, HIGH = 270, LEFT = 48, BOTTOM = 30, TOP = 26, RIGHT = 18;

function showCurves(groups) {
  const panels = new Map();
  for (const group of groups) panels.set(group.panel, [...(panels.get(group.panel) ?? []), group]);
  $("panels").replaceChildren(...[...panels].map(([title, members]) => panel(title, members)));
  if (groups.length === 0) $("panels").replaceChildren(made("p", "No update has been written yet that has this number.", { class: "note" }));
}

/** Round numbers that lie between two, about five of them. */
function ticks(low, high) {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  return Array.from({ length: Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1 }, (_, i) => (Math.ceil(low / step - 1e-9) + i) * step);
}

function panel(title, groups) {
  const points = groups.flatMap((group) => group.seeds.flatMap((seed) => seed.points));
  const values = points.map(([, value]) => value);
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  if (high - low < 1e-9 * Math.max(1, Math.abs(high))) [low, high] = [low - 0.5, high + 0.5];
  const last = points.reduce((most, [step]) => Math.max(most, step), 1);
  const x = (step) => LEFT + (step / last) * (WIDE - LEFT - RIGHT);
  const y = (value) => HIGH - BOTTOM - ((value - low) / (high - low)) * (HIGH - BOTTOM - TOP);
  const picture = drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": title });
  picture.append(drawn("text", { x: LEFT, y: 14, class: "title" }, title));
  for (const value of ticks(low, high)) {
    picture.append(drawn("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(value), y2: y(value), class: "grid" }));
    picture.append(drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  }
  for (const step of ticks(0, last)) picture.append(drawn("text", { x: x(step), y: HIGH - 12, "text-anchor": "middle" }, short(step)));
  const path = (line, attributes) => drawn("path", {
    d: line.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join(""), ...attributes });
  const legend = made("ul", null, { class: "legend" });
  for (const { line, colour, mean, seeds } of groups) {
    const failed = seeds.filter((seed) => seed.failed).length;
    for (const seed of seeds) {
      const faint = mean.length > 0 || seed.failed;
      if (mean.length > 0 && !$("seeds").checked) continue;
      picture.append(path(seed.points, { class: "seed", stroke: colour, "stroke-width": faint ? 1 : 2,
        opacity: faint ? 0.55 : 1, "stroke-dasharray": seed.failed ? "4 4" : "none" }));
    }
    if (mean.length > 0) picture.append(path(mean, { class: "mean", stroke: colour, "stroke-width": 2.4 }));
    const item = made("li"), mark = made("i");
    mark.style.background = colour;
    item.append(mark, `${line}, ${seeds.length} seed${seeds.length > 1 ? "s" : ""}` +
      (failed ? `, ${failed} of them failed and in no mean (dashed)` : ""));
    legend.append(item);
  }
  const figure = made("figure");
  figure.append(picture, legend);
  return figure;
}

// --- Scores and pictures --------------------------------------------------------------------------

function showScores({ tables, sentences }) {
  $("scoresPart").hidden = tables.length + sentences.length === 0;
  $("scores").replaceChildren(
    ...sentences.map((sentence) => made("p", sentence, { class: "sentence" })),
    ...tables.flatMap(({ world, explanations, headings, rows }) => {
      const table = made("table"), wide = made("div", null, { class: "wide" });
      for (const [cells, tag] of [[headings, "th"], ...rows.map((row) => [row, "td"])]) {
        const row = made("tr");
        row.append(...cells.map((cell) => made(tag, cell)));
        table.append(row);
      }
      wide.append(table);
      return [made("h3", world), ...explanations.map((sentence) => made("p", sentence, { class: "note" })), wide];
    }));
}

function showPictures({ pictures }) {
  $("picturesPart").hidden = pictures.length === 0;
  const addresses = pictures.map(({ address }) => address).join("\n"); // when each was changed is part of them
  if ($("pictures").dataset.addresses === addresses) return;
  $("pictures").dataset.addresses = addresses;
  $("pictures").replaceChildren(...pictures.map(({ name, address }) => {
    const film = /\.(mp4|webm)$/.test(name), figure = made("figure");
    figure.append(film ? made("video", null, { src: address, controls: "", loop: "", muted: "" })
      : made("img", null, { src: address, alt: name, loading: "lazy" }), made("figcaption", name));
    return figure;
  }));
}

// --- Again and again ------------------------------------------------------------------------------

async function look() {
  const troubles = [];
  // What is wrong with one part hides no other.
  const parts = [() => follow("overview", showOverview),
    () => $("curvesPart").hidden || follow(`curves/${encodeURIComponent(column)}`, showCurves),
    () => follow("scores", showScores)];
  for (const part of parts) {
    try {
      await part();
    } catch (error) {
      troubles.push(error.message);
      if (error instanceof GoneError) break;
    }
  }
  $("trouble").textContent = troubles.join(" ");
  $("trouble").hidden = troubles.length === 0;
  if (troubles.length === 0) $("when").textContent = `Read at ${new Date().toLocaleTimeString()}.`;
}

function redraw() {
  for (const address of Object.keys(shown)) if (address.startsWith("curves/")) delete shown[address];
  look();
}

$("column").addEventListener("change", () => {
  column = $("column").value;
  redraw();
});
$("seeds").addEventListener("change", redraw);

while (!("refused" in document.documentElement.dataset)) {
  if (!document.hidden) await look();
  await new Promise((done) => setTimeout(done, EVERY));
}
