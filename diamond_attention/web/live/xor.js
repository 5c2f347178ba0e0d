// The XOR game: everybody sees the same and must choose something else than all others. One choice, one reward.

import { Rows } from "./layers.js";

const FREQUENCIES = [1, 0.5, 0.25, 0.125, 0.0625, 0.03125];

export const AGENT_FEATURES = 1;
export const TASK_FEATURES = 12;

/** Nothing tells players apart but their numbers. */
export function view({ tasks }, order, ranks) {
  return {
    agents: Rows.of(order.map(() => [1])),
    tasks: Rows.of(tasks.map((_, number) => {
      const angles = FREQUENCIES.map((frequency) => Math.PI * number * frequency);
      return [...angles.map(Math.sin), ...angles.map(Math.cos)];
    }), TASK_FEATURES),
    ranks,
  };
}

export function judge({ agents, tasks }, actions) {
  const choosers = tasks.map((_, t) => actions.flatMap((action, agent) => (action === t ? [agent] : [])));
  const distinct = choosers.filter((each) => each.length > 0).length;
  return { won: distinct === agents.length, distinct: distinct / agents.length, choosers };
}

/** The best that players can do who share no random numbers: draw lots, each on its own. */
export function chance(players, actions) {
  return Array.from({ length: players }, (_, taken) => (actions - taken) / actions).reduce((all, each) => all * each, 1);
}
