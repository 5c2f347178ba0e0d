// Dispatch: every vehicle stays or drives to one job, all at once. A job is paid once, and everybody pays the way.

import { Rows } from "./layers.js";

export const TRAVEL_WEIGHT = 0.3;
const VALUE_SPREAD = 0.5;
const LEAST_OPTIMUM = 0.1;

export const AGENT_FEATURES = 3;
export const TASK_FEATURES = 5;

export function newJob(random) {
  return { ...random.place(), value: 1 + VALUE_SPREAD * random.between(-1, 1) };
}

const far = (agent, task) => Math.hypot(task.x - agent.x, task.y - agent.y);

/** Agents are {x, y}, their depots; tasks {x, y, value}. */
export function view({ agents, tasks }, order, ranks) {
  const own = agents[order[0]];
  return {
    agents: Rows.of(order.map((agent, i) => [agents[agent].x - own.x, agents[agent].y - own.y, i === 0 ? 1 : 0])),
    tasks: Rows.of(tasks.map((task) => {
      const way = far(own, task);
      return [task.x - own.x, task.y - own.y, way, task.value, task.value - TRAVEL_WEIGHT * way];
    }), TASK_FEATURES),
    ranks,
  };
}

/** `actions`: 0 stays, j + 1 drives to job j. */
export function judge({ agents, tasks }, actions) {
  const drivers = tasks.map((_, t) => actions.flatMap((action, agent) => (action === t + 1 ? [agent] : [])));
  const driving = drivers.flat();
  const travel = actions.reduce((sum, action, i) => sum + (action > 0 ? far(agents[i], tasks[action - 1]) : 0), 0);
  const earned = tasks.reduce((sum, task, t) => sum + (drivers[t].length > 0 ? task.value : 0), 0);
  const reward = earned - TRAVEL_WEIGHT * travel;
  const best = optimum({ agents, tasks });
  return {
    reward,
    best,
    share: 1 - (best - reward) / Math.max(best, LEAST_OPTIMUM),
    drivers,
    wasted: driving.length - drivers.filter((each) => each.length > 0).length,
  };
}

/** What the best assignment of vehicles to jobs would have earned; whoever would lose by driving stays. */
export function optimum({ agents, tasks }) {
  const gains = agents.map((agent) => tasks.map((task) => Math.max(task.value - TRAVEL_WEIGHT * far(agent, task), 0)));
  const wide = agents.length <= tasks.length;
  return bestAssignment(wide ? gains : tasks.map((_, t) => gains.map((row) => row[t])));
}

/** The Hungarian method: rows are matched one after the other, along paths on which potentials lose nothing. */
function bestAssignment(gains) {
  const rows = gains.length, columns = gains[0]?.length ?? 0;
  const ofRow = Array(rows + 1).fill(0), ofColumn = Array(columns + 1).fill(0);
  const rowOf = Array(columns + 1).fill(0); // 0: nobody; rows and columns count from 1
  for (let row = 1; row <= rows; row++) {
    const slack = Array(columns + 1).fill(Infinity), before = Array(columns + 1).fill(0), done = new Set();
    let column = 0;
    rowOf[0] = row;
    do {
      done.add(column);
      let least = Infinity, next = 0;
      for (let c = 1; c <= columns; c++) {
        if (done.has(c)) continue;
        const cost = -gains[rowOf[column] - 1][c - 1] - ofRow[rowOf[column]] - ofColumn[c];
        if (cost < slack[c]) [slack[c], before[c]] = [cost, column];
        if (slack[c] < least) [least, next] = [slack[c], c];
      }
      for (let c = 0; c <= columns; c++) {
        if (done.has(c)) {
          ofRow[rowOf[c]] += least;
          ofColumn[c] -= least;
        } else slack[c] -= least;
      }
      column = next;
    } while (rowOf[column] !== 0);
    for (; column !== 0; column = before[column]) rowOf[column] = rowOf[before[column]];
  }
  return gains.length === 0 ? 0 : rowOf.slice(1).reduce((sum, row, c) => sum + (row > 0 ? gains[row - 1][c] : 0), 0);
}
