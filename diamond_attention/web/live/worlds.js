// The three worlds as the page plays them: what begins, what a decision does, and what it is called.

import * as dispatch from "./dispatch.js";
import * as spread from "./spread.js";
import * as xor from "./xor.js";

/** Tasks of a kind nobody may move stand still; `wave` worlds decide once, act, and begin anew. */
export const WORLDS = {
  xor: {
    module: xor,
    title: "XOR game",
    agent: "player",
    task: "door",
    wave: true,
    placed: false,
    seconds: 1.8,
    action: "choose_task",
    size: 4,
    policies: ["xor-commitments", "xor-rank", "xor-none"],
    words: "Every player must pick a door that nobody else picks. All see exactly the same, all run the same program, " +
      "and nobody may talk: only their random numbers tell them apart.",
    newTask: () => ({}),
  },
  dispatch: {
    module: dispatch,
    title: "Dispatch",
    agent: "vehicle",
    task: "job",
    wave: true,
    placed: true,
    seconds: 2.6,
    action: "act_or_choose_task",
    size: 6,
    policies: ["dispatch-commitments", "dispatch-rank", "dispatch-none"],
    words: "Every vehicle picks a job, all at the same moment. A job is paid once, and every way costs. " +
      "Bigger jobs pay more. Drag vehicles and jobs.",
    newTask: dispatch.newJob,
  },
  spread: {
    module: spread,
    title: "Simple Spread",
    agent: "agent",
    task: "landmark",
    wave: false,
    placed: true,
    seconds: spread.STEP_SECONDS,
    action: "continuous",
    size: 4,
    policies: ["spread", "spread-floor", "spread-none"],
    words: "Every landmark wants an agent on it, and agents must not bump into each other. Everybody decides anew ten " +
      "times a second. Drag landmarks and agents.",
    newTask: (random) => random.place(),
  },
};

/** What the policies of the page are; a bundle of one's own is called by its file. */
export const POLICIES = {
  "xor-commitments": {
    label: "Commitments",
    words: "Each agent plays the turns of those with higher numbers in its own head, then picks what is left. " +
      "Trained with 2 and 3 players.",
  },
  "xor-rank": {
    label: "Rank mask",
    words: "The paper’s mask: each agent hides those with lower numbers. Trained with 2 to 4 players; see what " +
      "it does with more.",
  },
  "xor-none": {
    label: "No mask",
    words: "The same network, nobody hidden: the numbers are never looked at, so all do the same. Trained with 2.",
  },
  "dispatch-commitments": {
    label: "Commitments",
    words: "Each vehicle plays the turns of those with higher numbers in its own head, then picks what is left. " +
      "Trained with 2 to 6 vehicles.",
  },
  "dispatch-rank": {
    label: "Rank mask",
    words: "The paper’s mask: each vehicle hides those with lower numbers. Trained with 4 vehicles at one depot.",
  },
  "dispatch-none": {
    label: "No mask",
    words: "The same network, nobody hidden: from one depot all vehicles do the same. Trained with 4 at one depot.",
  },
  spread: {
    label: "Rank mask",
    words: "The paper’s mask: each agent hides those with lower numbers. Trained with 4 agents.",
  },
  "spread-floor": {
    label: "Learned floor",
    words: "Nobody is blinded: lower-ranked peers are only damped, by an amount that was learned. Trained with 4 agents.",
  },
  "spread-none": {
    label: "No mask",
    words: "The same network, nobody hidden. Only their places tell agents apart; start them from one point and they " +
      "never part. Trained with 4 agents.",
  },
};

export const FEWEST = 2, MOST = 16;
/** In place of a policy’s name: files that somebody chose on this page. */
export const OWN = "own";
/** Letters, so that nobody takes them for a rank or a task. */
export const letter = (agent) => String.fromCharCode(65 + agent.id);
/** Okabe and Ito’s colours, which colour-blind people can tell apart; a larger team begins again. */
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c8c8c"];
const DARK_INK = new Set(["#e69f00", "#56b4e9", "#f0e442", "#cc79a7"]);
export const colour = (agent) => COLOURS[agent.id % COLOURS.length];
export const inkOn = (agent) => (DARK_INK.has(colour(agent)) ? "#111" : "#fff");
