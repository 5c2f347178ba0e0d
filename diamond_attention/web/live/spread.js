// Simple Spread: stand on the landmarks without bumping into each other. The sphere physics of VMAS, step by step.

import { Rows } from "./layers.js";

export const RADIUS = 0.15;
export const STEP_SECONDS = 0.1;
const DRAG = 0.25;
const STIFFNESS = 100;
const MARGIN = 1e-3;
const NO_CONTACT_BELOW = 1e-6;

export const AGENT_FEATURES = 5;
export const TASK_FEATURES = 2;

/** Agents are {x, y, vx, vy}, tasks {x, y}; `order` lists the viewer first. */
export function view({ agents, tasks }, order, ranks) {
  const own = agents[order[0]];
  return {
    agents: Rows.of(order.map((agent, i) => {
      const { x, y, vx, vy } = agents[agent];
      return i === 0 ? [x, y, vx, vy, 1] : [x - own.x, y - own.y, vx - own.vx, vy - own.vy, 0];
    })),
    tasks: Rows.of(tasks.map(({ x, y }) => [x - own.x, y - own.y]), TASK_FEATURES),
    ranks,
  };
}

/** The push each agent gets from those it overlaps. */
function contactForces(agents) {
  return agents.map((agent) => {
    let x = 0, y = 0;
    for (const other of agents) {
      if (other === agent) continue;
      const dx = agent.x - other.x, dy = agent.y - other.y, apart = Math.hypot(dx, dy);
      if (apart > 2 * RADIUS || apart < NO_CONTACT_BELOW) continue;
      const overlap = 2 * RADIUS - apart;
      const penetration = overlap + MARGIN * Math.log1p(Math.exp(-overlap / MARGIN));
      x += (STIFFNESS * penetration * dx) / apart;
      y += (STIFFNESS * penetration * dy) / apart;
    }
    return { x, y };
  });
}

const clip = (force) => Math.max(-1, Math.min(1, force));

/** Everybody's next place. Those who started from one point pass through each other (`solid` is false). */
export function advance(agents, actions, solid) {
  const pushes = solid ? contactForces(agents) : agents.map(() => ({ x: 0, y: 0 }));
  return agents.map((agent, i) => {
    const vx = agent.vx * (1 - DRAG) + (clip(actions[i][0]) + pushes[i].x) * STEP_SECONDS;
    const vy = agent.vy * (1 - DRAG) + (clip(actions[i][1]) + pushes[i].y) * STEP_SECONDS;
    return { ...agent, x: agent.x + vx * STEP_SECONDS, y: agent.y + vy * STEP_SECONDS, vx, vy };
  });
}

/** As in the package: distances of landmarks to their nearest agent, ordered overlapping pairs, landmarks covered. */
export function judge({ agents, tasks }) {
  const nearest = tasks.map((task) => Math.min(...agents.map((agent) => Math.hypot(agent.x - task.x, agent.y - task.y))));
  const overlaps = (one, other) => one !== other && Math.hypot(one.x - other.x, one.y - other.y) < 2 * RADIUS;
  const collisions = agents.reduce((sum, one) => sum + agents.filter((other) => overlaps(one, other)).length, 0);
  const distance = nearest.reduce((sum, each) => sum + each, 0);
  return {
    distance,
    collisions,
    covered: nearest.map((each) => each < RADIUS),
    reward: -agents.length * distance - collisions,
  };
}
