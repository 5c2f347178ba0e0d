// The page: its controls, its clock and its address.

import { readAddress, usual, writeAddress } from "./address.js";
import { readBundle } from "./bundle.js";
import { Picture, isOver } from "./draw.js";
import { BundleError } from "./errors.js";
import { Game } from "./game.js";
import { places, showAgents, showScore, showSeen, verdict } from "./panel.js";
import { FEWEST, MOST, OWN, POLICIES, WORLDS, letter } from "./worlds.js";
import { chance } from "./xor.js";

const SPEEDS = { slow: 0.3, normal: 1, fast: 4 };
const THINKING = 7; // milliseconds of a frame
const WORDS_EVERY = 250; // milliseconds; faster, nobody could read them

const TRIES = [
  ["Four players, four doors: the numbers make an order, and everybody finds a door of its own.", "world=xor"],
  ["Everybody draws the same number: nothing tells the players apart, and all take the same door.", "world=xor&same=1"],
  ["Sixteen players, with a policy that has never seen more than three.", "world=xor&agents=16&tasks=16&speed=fast"],
  ["Take the numbers away, and let each throw dice of its own: as good as drawing lots, no better.", "world=xor&policy=xor-none&dice=1&agents=2&tasks=2&speed=fast"],
  ["Half of the packets are lost, so orders disagree: see who meets whom.", "world=xor&lost=1"],
  ["Vehicles at one depot. Select one: dashed lines are what it expects of those who drew higher.", "world=dispatch&select=2"],
  ["Vehicles without a mask: all of them make for one job, or none does.", "world=dispatch&policy=dispatch-none&agents=4&tasks=4"],
  ["Simple Spread: select an agent and watch whom it hides, ten times a second.", "world=spread&select=0&speed=slow"],
  ["All start from one point, without a mask: they never part.", "world=spread&start=point&policy=spread-none"],
  ["All start from one point, with the mask: the numbers part them.", "world=spread&start=point"],
];

const $ = (id) => document.getElementById(id);
const bundles = new Map();
let own = null; // the bundle that somebody chose on this page
let state, game, picture;
let asked = 0; // which request for a policy is the newest
let selectedTask = null;

// --- Policies -------------------------------------------------------------------------------------

async function loadBundle(name) {
  if (bundles.has(name)) return bundles.get(name);
  const [json, arrays] = await Promise.all(["json", "safetensors"].map(async (ending) => {
    const address = `policies/${name}/policy.${ending}`;
    const answer = await fetch(address).catch(() => null);
    if (!answer?.ok) throw new BundleError(`The policy “${name}” could not be loaded: there is nothing at ${address}.`);
    return answer;
  }));
  const bundle = await readBundle(await json.text(), await arrays.arrayBuffer(), policyName(name));
  bundles.set(name, bundle);
  return bundle;
}

const policyName = (name) => (name === OWN ? "of your own" : POLICIES[name]?.label ?? name);

/** What a world cannot be played with is one sentence. */
function checkFits(bundle, world, name) {
  const { module, action, title } = WORLDS[world];
  const fits = bundle.agentFeatures === module.AGENT_FEATURES &&
    bundle.taskFeatures === module.TASK_FEATURES && bundle.action === action;
  if (!fits) throw new BundleError(`The policy “${name}” was not trained for ${title}: it is given something else, or acts otherwise.`);
  if (!bundle.anySize) throw new BundleError(`The policy “${name}” plays teams of one size only.`);
}

async function choosePolicy(name) {
  const request = ++asked;
  trouble(null);
  game.set({ policy: null });
  try {
    const bundle = name === OWN ? own : await loadBundle(name);
    checkFits(bundle, state.world, policyName(name));
    if (request === asked) game.set({ policy: bundle });
  } catch (error) {
    if (!(error instanceof BundleError)) throw error;
    if (request === asked) trouble(error.message);
  }
}

async function openOwn(files) {
  const ending = (end) => files.find((file) => file.name.endsWith(end));
  const json = ending(".json"), arrays = ending(".safetensors");
  try {
    if (!json || !arrays) throw new BundleError("Choose both files of a bundle at once: policy.json and policy.safetensors.");
    const bundle = await readBundle(await json.text(), await arrays.arrayBuffer(), policyName(OWN));
    checkFits(bundle, state.world, policyName(OWN));
    own = bundle;
    buildPolicies();
    change({ policy: OWN });
  } catch (error) {
    if (!(error instanceof BundleError)) throw error;
    trouble(error.message);
  }
}

function ownFits(world) {
  try {
    checkFits(own, world, policyName(OWN));
    return true;
  } catch {
    return false; // or there is none
  }
}

function trouble(sentence) {
  $("trouble").textContent = sentence ?? "";
  $("trouble").hidden = !sentence;
  $("trouble").className = "trouble";
}

// --- State ----------------------------------------------------------------------------------------

function begin(next) {
  const sameWorld = game && state.world === next.world;
  const ownIsMissing = next.policy === OWN && !ownFits(next.world);
  state = ownIsMissing ? { ...next, policy: WORLDS[next.world].policies[0] } : next;
  game = new Game({ ...state, lost: state.lost ? 0.5 : 0, policy: null });
  selectedTask = null;
  if (!sameWorld) buildPolicies();
  document.documentElement.dataset.theme = state.theme ?? "";
  picture?.readColours();
  choosePolicy(state.policy);
  if (ownIsMissing) {
    trouble("This link is of a policy that somebody chose from files of their own, which no link holds; choose the " +
      "same files below. Until then another one plays.");
  }
  showControls();
}

function change(changes) {
  Object.assign(state, changes);
  const forGame = Object.fromEntries(["same", "dice", "start", "renew"].filter((name) => name in changes).map((name) => [name, changes[name]]));
  if ("lost" in changes) forGame.lost = changes.lost ? 0.5 : 0;
  if (Object.keys(forGame).length) game.set(forGame);
  if ("policy" in changes) choosePolicy(changes.policy);
  showControls();
}

function teamChanged() {
  if (!game.agents.some((agent) => agent.id === state.select)) state.select = null;
  change({ agents: game.agents.length, tasks: game.tasks.length });
}

function select(id) {
  selectedTask = null;
  change({ select: state.select === id ? null : id });
}

function remember() {
  const address = writeAddress(state);
  if (address !== location.hash) history.replaceState(null, "", address);
}

// --- Controls -------------------------------------------------------------------------------------

function button(text, press) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", press);
  return made;
}

function buildControls() {
  $("worlds").replaceChildren(...Object.entries(WORLDS).map(([name, { title }]) => {
    const made = button(title, () => begin({ ...usual(name), theme: state.theme }));
    made.dataset.world = name;
    return made;
  }));
  $("speeds").replaceChildren(...Object.keys(SPEEDS).map((name) => {
    const made = button(name[0].toUpperCase() + name.slice(1), () => change({ speed: name }));
    made.dataset.speed = name;
    return made;
  }));
  $("tries").replaceChildren(...TRIES.map(([words, hash]) => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = `#${hash}`;
    link.textContent = words;
    link.addEventListener("click", () => $("picture").scrollIntoView({ block: "nearest", behavior: "smooth" }));
    item.append(link);
    return item;
  }));
  const team = (id, act) => $(id).addEventListener("click", () => { act(); teamChanged(); });
  team("moreAgents", () => game.addAgent());
  team("fewerAgents", () => game.removeAgent());
  team("moreTasks", () => game.addTask());
  team("fewerTasks", () => game.removeTask());
  for (const name of ["same", "lost", "dice", "renew"]) {
    $(name).addEventListener("change", () => change({ [name]: $(name).checked }));
  }
  $("point").addEventListener("change", () => change({ start: $("point").checked ? "point" : "scattered" }));
  $("pause").addEventListener("click", () => change({ paused: !state.paused }));
  $("step").addEventListener("click", stepOnce);
  $("again").addEventListener("click", () => begin({ ...state, seed: (state.seed * 48271 + 1) % 1000 }));
  $("own").addEventListener("change", () => {
    const files = [...$("own").files];
    $("own").value = ""; // so that the same files can be chosen again
    openOwn(files);
  });
  $("link").addEventListener("click", copyLink);
  $("theme").addEventListener("click", () => {
    const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    change({ theme: dark ? "light" : "dark" });
    document.documentElement.dataset.theme = state.theme;
    picture.readColours();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => picture.readColours());
  addEventListener("hashchange", () => {
    const said = readAddress(location.hash);
    begin({ ...said, theme: said.theme ?? state.theme });
  });
}

function buildPolicies() {
  const names = [...WORLDS[state.world].policies, ...(ownFits(state.world) ? [OWN] : [])];
  $("policies").replaceChildren(...names.map((name) => {
    const label = document.createElement("label"), input = document.createElement("input");
    const title = document.createElement("b"), words = document.createElement("small");
    Object.assign(input, { type: "radio", name: "policy", value: name });
    input.addEventListener("change", () => change({ policy: name }));
    const { label: called, words: told } = POLICIES[name] ?? { label: "Of your own", words: ownWords() };
    title.textContent = called;
    words.textContent = told;
    label.append(input, title, words);
    return label;
  }));
}

function ownWords() {
  const kind = own.mask === null ? own.kind : `${own.kind}, mask ${own.mask}`;
  return `From files that you chose: ${kind}. They stay in your browser; a link does not hold them.`;
}

function showControls() {
  const { agent, task, words, placed, wave } = WORLDS[state.world];
  const plural = (word) => word[0].toUpperCase() + word.slice(1) + "s";
  $("words").textContent = words;
  $("picture").dataset.world = state.world;
  $("agentsName").textContent = plural(agent);
  $("tasksName").textContent = plural(task);
  $("agentCount").textContent = game.agents.length;
  $("taskCount").textContent = game.tasks.length;
  $("fewerAgents").disabled = game.agents.length <= FEWEST;
  $("moreAgents").disabled = game.agents.length >= MOST;
  $("fewerTasks").disabled = game.tasks.length <= 1;
  $("moreTasks").disabled = game.tasks.length >= MOST;
  $("pointRow").hidden = !placed;
  $("pointName").textContent = wave ? "All from one depot" : "All start from one point";
  $("renewRow").hidden = wave;
  for (const name of ["same", "lost", "dice", "renew"]) $(name).checked = state[name];
  $("point").checked = state.start === "point";
  $("pause").textContent = state.paused ? "Play" : "Pause";
  document.querySelectorAll("#policies input").forEach((input) => (input.checked = input.value === state.policy));
  for (const made of $("worlds").children) made.setAttribute("aria-pressed", made.dataset.world === state.world);
  for (const made of $("speeds").children) made.setAttribute("aria-pressed", made.dataset.speed === state.speed);
  $("picture").setAttribute("aria-label", `${game.agents.length} ${agent}s and ${game.tasks.length} ${task}s`);
  remember();
}

async function copyLink() {
  remember();
  try {
    await navigator.clipboard.writeText(location.href);
    $("link").textContent = "Copied";
  } catch {
    $("link").textContent = "The link is in the address line";
  }
  setTimeout(() => ($("link").textContent = "Copy a link to this"), 2000);
}

function stepOnce() {
  if (!state.paused) change({ paused: true });
  if (!game.options.policy) return;
  game.think();
  // A wave is looked at when everybody has arrived, and ended by the next step.
  if (game.world.wave && !isOver(game.phase)) game.clock = 0.7 * game.world.seconds;
  else {
    game.finish();
    if (!game.world.wave) game.clock = game.world.seconds; // drawn where everybody has arrived
  }
}

// --- Hands ----------------------------------------------------------------------------------------

function pointAt(event) {
  const box = $("picture").getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function listenToHands() {
  const canvas = $("picture");
  let held = null, moved = 0, start = null;
  // A finger on an agent drags it, a finger beside it scrolls the page.
  canvas.addEventListener("touchstart", (event) => {
    if (picture.at(pointAt(event.touches[0]))) event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    start = pointAt(event);
    const found = picture.at(start);
    if (!found) return;
    held = found.agent !== undefined ? game.agents[found.agent] : game.tasks[found.task];
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const point = pointAt(event);
    canvas.style.cursor = held ? "grabbing" : picture.at(point) ? "grab" : "default";
    if (!held) return;
    moved = Math.max(moved, Math.hypot(point.x - start.x, point.y - start.y));
    if (moved < 5 || !game.world.placed) return;
    held = present(held);
    if (!held) return;
    const { x, y } = picture.toWorld(point);
    held = moveTo(held, x, y);
  });
  const drop = () => {
    if (held && moved < 5) {
      if ("vx" in held) select(held.id);
      else selectedTask = held;
    }
    held = null;
  };
  canvas.addEventListener("pointerup", drop);
  canvas.addEventListener("pointercancel", () => (held = null));
}

/** The agent or task that somebody holds may have been moved by the world meanwhile, or be gone. */
function present(thing) {
  return "vx" in thing ? game.agents.find((agent) => agent.id === thing.id) : game.tasks.find((task) => task === thing);
}

const inside = (place) => Math.max(-2, Math.min(2, place));

function moveTo(thing, x, y) {
  const moved = game.move(thing, inside(x), inside(y));
  if (thing === selectedTask) selectedTask = moved;
  return moved;
}

/** Unless the world has put another in its place. */
function chosenTask() {
  if (!game.tasks.includes(selectedTask)) selectedTask = null;
  return selectedTask;
}

function listenToKeys() {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, a")) return;
    const chosen = chosenTask() ?? game.agents.find((agent) => agent.id === state.select);
    const onButton = event.target.matches("button");
    if (steps[event.key] && chosen && game.world.placed) {
      const [x, y] = steps[event.key];
      moveTo(chosen, chosen.x + 0.05 * x, chosen.y + 0.05 * y);
    } else if (event.key === "Delete" && chosen) {
      if (chosen === selectedTask) game.removeTask(chosen); // the last one stays
      else game.removeAgent(chosen);
      teamChanged();
    } else if (event.key === " " && !onButton) change({ paused: !state.paused });
    else if (event.key === "n") stepOnce();
    else if (event.key === "Escape") {
      selectedTask = null;
      change({ select: null });
    } else return;
    event.preventDefault();
  });
}

// --- Time -----------------------------------------------------------------------------------------

const frames = []; // milliseconds that the last ones took to compute
let lastFrame = null, lastWords = 0;

function frame(now) {
  const begun = performance.now();
  const passed = lastFrame === null ? 0 : Math.min((now - lastFrame) / 1000, 0.1);
  lastFrame = now;
  game.think(() => performance.now() - begun > THINKING);
  if (!state.paused) game.pass(passed * SPEEDS[state.speed]);
  picture.draw(game, state.select, chosenTask());
  showVerdict();
  if (now - lastWords > WORDS_EVERY) {
    lastWords = now;
    showWords();
  }
  frames.push(performance.now() - begun);
  if (frames.length > 600) frames.shift();
  requestAnimationFrame(frame);
}

function showVerdict() {
  const { words, good } = verdict(game, isOver(game.phase));
  if ($("verdict").textContent === words) return;
  $("verdict").textContent = words;
  $("verdict").dataset.good = good ?? "";
}

function showWords() {
  showAgents($("agents"), game, state.select, select);
  showSeen(SEEN, game, state.select);
  showScore(SCORE, game, chance(game.agents.length, game.tasks.length));
  const ordered = [...frames].sort((a, b) => a - b), most = ordered[Math.floor(0.95 * (ordered.length - 1))];
  if (most !== undefined) $("timing").textContent = `95 % of frames take less than ${Math.max(1, Math.ceil(most))} ms.`;
}

const SEEN = Object.fromEntries(["block0", "block1", "block0Name", "block1Name", "wants", "wantsName"].map((id) => [id, $(id)]));
Object.assign(SEEN, { title: $("seenTitle"), words: $("seenWords") });
const SCORE = { name: $("scoreName"), score: $("score"), note: $("scoreNote"), history: $("history") };

buildControls();
begin(readAddress(location.hash));
$("main").hidden = false;
picture = new Picture($("picture"));
listenToHands();
listenToKeys();
requestAnimationFrame(frame);

/** For whoever looks at the page through a debugger, and for its tests. */
window.live = { get game() { return game; }, get state() { return state; }, frames, get picture() { return picture; }, letter, places };
