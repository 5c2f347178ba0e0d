// The state of the page as words in its address, so that a link shows what its sender saw.

import { FEWEST, MOST, OWN, WORLDS } from "./worlds.js";

const number = (low, high) => (text) => {
  const value = Math.round(Number(text));
  return text !== "" && Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : undefined;
};
const one = (...names) => (text) => (names.includes(text) ? text : undefined);
const flag = (text) => ({ 0: false, 1: true })[text];

const READ = {
  world: one(...Object.keys(WORLDS)),
  agents: number(FEWEST, MOST),
  tasks: number(1, MOST),
  policy: (text) => text,
  lost: flag,
  same: flag,
  dice: flag,
  start: one("point", "scattered"),
  renew: flag,
  seed: number(0, 2 ** 31),
  speed: one("slow", "normal", "fast"),
  paused: flag,
  select: number(0, MOST - 1),
  theme: one("light", "dark"),
};

export function usual(world) {
  return {
    world,
    agents: WORLDS[world].size,
    tasks: WORLDS[world].size,
    policy: WORLDS[world].policies[0],
    lost: false,
    same: false,
    dice: false,
    start: world === "dispatch" ? "point" : "scattered",
    renew: true,
    seed: 1,
    speed: "normal",
    paused: false,
    select: null,
    theme: null,
  };
}

/** What the address says; what it does not say, or says wrongly, is as usual. */
export function readAddress(hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  const world = READ.world(said.get("world")) ?? "xor";
  const state = usual(world);
  for (const [name, read] of Object.entries(READ)) {
    const value = said.has(name) ? read(said.get(name)) : undefined;
    if (value !== undefined) state[name] = value;
  }
  if (![...WORLDS[world].policies, OWN].includes(state.policy)) state.policy = WORLDS[world].policies[0];
  return state;
}

/** Only what is not as usual. */
export function writeAddress(state) {
  const ordinary = usual(state.world), said = new URLSearchParams({ world: state.world });
  for (const name of Object.keys(READ)) {
    const value = state[name];
    if (name === "world" || value === ordinary[name] || value === null || value === undefined) continue;
    said.set(name, typeof value === "boolean" ? Number(value) : value);
  }
  return `#${said}`;
}
