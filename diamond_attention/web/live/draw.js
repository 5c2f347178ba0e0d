// The picture: who is where, whom the selected agent hides, and what it attends to.

import { RADIUS } from "./spread.js";
import { colour, inkOn, letter } from "./worlds.js";

const MARGIN = 1.3; // world units from the middle to the edge
const FARTHEST = 4; // agents that leave are followed so far

/** 0 before `from`, 1 after `to`, smooth between them. */
function between(phase, from, to) {
  const share = Math.min(1, Math.max(0, (phase - from) / (to - from)));
  return share * share * (3 - 2 * share);
}

const mix = (one, other, share) => ({ x: one.x + (other.x - one.x) * share, y: one.y + (other.y - one.y) * share });

/** How far a wave has carried everybody to their tasks: they go, stay there, and come back. */
const outward = (phase) => between(phase, 0.25, 0.5) - between(phase, 0.9, 1);
export const isOver = (phase) => phase >= 0.5;

export class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.reach = MARGIN;
    this.readColours();
    new ResizeObserver(() => this.fit()).observe(canvas);
    this.fit();
  }

  readColours() {
    const style = getComputedStyle(this.canvas), of = (name) => style.getPropertyValue(name).trim();
    this.ink = of("--ink");
    this.faint = of("--faint");
    this.line = of("--line");
    this.ground = of("--stage");
    this.good = of("--good");
    this.bad = of("--bad");
    this.face = style.fontFamily;
  }

  fit() {
    const ratio = Math.min(devicePixelRatio || 1, 2), box = this.canvas.getBoundingClientRect();
    this.size = Math.max(box.width, 50);
    this.height = Math.max(box.height, 50);
    this.canvas.width = Math.round(this.size * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.ratio = ratio;
  }

  toScreen({ x, y }) {
    const scale = this.size / (2 * this.reach);
    return { x: this.size / 2 + x * scale, y: this.size / 2 - y * scale };
  }

  toWorld({ x, y }) {
    const scale = this.size / (2 * this.reach);
    return { x: (x - this.size / 2) / scale, y: (this.size / 2 - y) / scale };
  }

  /** What is drawn at a place of the canvas: {agent} or {task}, or null. */
  at(point) {
    const near = (drawn, radius) => drawn.reduce((best, each, i) => {
      const apart = Math.hypot(each.x - point.x, each.y - point.y);
      return apart < Math.max(radius, 16) && apart <= best.apart ? { i, apart } : best;
    }, { i: -1, apart: Infinity }).i;
    const agent = near(this.agentsAt ?? [], this.agentRadius);
    if (agent >= 0) return { agent };
    const task = near(this.tasksAt ?? [], 22);
    return task >= 0 ? { task } : null;
  }

  /** `selected` is an agent’s number, `task` one of the tasks; each may be null. */
  draw(game, selected, task) {
    const { context } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.size, this.height);
    context.lineCap = context.lineJoin = "round";
    this.follow(game);
    this.layOut(game);
    this.paintGround(game);
    const viewer = game.agents.findIndex((agent) => agent.id === selected);
    const thought = viewer >= 0 ? game.shown?.[viewer] : null;
    if (game.options.world === "xor") this.paintDoors(game);
    else this.paintTasks(game);
    if (task !== null) this.paintChosen(this.tasksAt[game.tasks.indexOf(task)]);
    if (thought) this.paintAttention(game, viewer, thought);
    game.agents.forEach((agent, i) => i !== viewer && this.paintAgent(game, i, thought, false));
    if (viewer >= 0) this.paintAgent(game, viewer, thought, true);
  }

  follow(game) {
    const farthest = game.world.placed
      ? Math.max(1, ...[...game.agents, ...game.tasks].flatMap(({ x, y }) => [Math.abs(x), Math.abs(y)])) : 1;
    const wanted = Math.min(FARTHEST, Math.max(MARGIN, farthest + 0.25));
    this.reach += (wanted - this.reach) * 0.06;
  }

  // --- Where everything is ------------------------------------------------------------------------

  layOut(game) {
    const number = game.agents.length, scale = this.size / (2 * this.reach);
    if (!game.world.placed) {
      const step = Math.min(this.size / (game.tasks.length + 0.6), this.size / 4.5);
      this.doorWidth = step * 0.8;
      this.agentRadius = Math.min(this.size / (number + 1) / 2.5, this.doorWidth * 0.36, 30);
      const spaced = (count, width, i) => this.size / 2 + (i - (count - 1) / 2) * width;
      this.tasksAt = game.tasks.map((_, t) => ({ x: spaced(game.tasks.length, step, t), y: this.height * 0.66 }));
      const home = Math.min(this.size / (number + 0.6), this.size / 5);
      this.homes = game.agents.map((_, i) => ({ x: spaced(number, home, i), y: this.height * 0.17 }));
    } else {
      this.agentRadius = game.world.wave ? Math.max(9, 0.085 * scale) : RADIUS * scale;
      this.tasksAt = game.tasks.map((task) => this.toScreen(task));
      this.homes = this.fanned(game, game.world.wave ? game.agents : this.interpolated(game));
    }
    this.agentsAt = this.homes;
    if (game.world.wave && game.decided) this.carry(game);
  }

  interpolated(game) {
    const before = new Map(game.before.map((agent) => [agent.id, agent]));
    return game.agents.map((agent) => mix(before.get(agent.id) ?? agent, agent, game.phase));
  }

  /** Agents on one point stand around it where they wait, and a little aside of each other where they move. */
  fanned(game, places) {
    const groups = new Map();
    places.forEach(({ x, y }, i) => {
      const key = `${x.toFixed(4)} ${y.toFixed(4)}`;
      groups.set(key, [...(groups.get(key) ?? []), i]);
    });
    const shown = places.map((place) => this.toScreen(place));
    for (const group of groups.values()) {
      if (group.length === 1) continue;
      const around = game.world.wave
        ? Math.max(this.agentRadius * 1.5, (group.length * this.agentRadius * 2.15) / (2 * Math.PI)) : 0;
      group.forEach((i, place) => {
        const turn = (2 * Math.PI * place) / group.length - Math.PI / 2;
        shown[i].x += around ? Math.cos(turn) * around : (place - (group.length - 1) / 2) * 5;
        shown[i].y += around ? Math.sin(turn) * around : (place - (group.length - 1) / 2) * -3;
      });
    }
    return shown;
  }

  /** Everybody on the way to the task it has chosen, side by side with others who chose it. */
  carry(game) {
    const fixed = game.world.action === "choose_task" ? 0 : 1, share = outward(game.phase);
    const targets = game.thoughts.map((thought) => thought.action - fixed);
    this.agentsAt = this.homes.map((home, i) => {
      if (targets[i] < 0) return home;
      const there = targets.flatMap((target, agent) => (target === targets[i] ? [agent] : []));
      const task = this.tasksAt[targets[i]], aside = there.indexOf(i) - (there.length - 1) / 2;
      const step = game.world.placed ? this.agentRadius * 1.3 : Math.min(this.agentRadius * 1.5,
        (this.doorWidth * 0.9) / there.length);
      const low = game.world.placed ? 0 : this.doorWidth * 0.12;
      return mix(home, { x: task.x + aside * step, y: task.y + low }, share);
    });
  }

  // --- What is painted ----------------------------------------------------------------------------

  paintGround(game) {
    const { context } = this;
    if (!game.world.placed) {
      context.strokeStyle = this.line;
      context.lineWidth = 1.5;
      for (const { x, y } of this.homes) {
        context.beginPath();
        context.arc(x, y, this.agentRadius, 0, 2 * Math.PI);
        context.stroke();
      }
      return;
    }
    const from = this.toScreen({ x: -1, y: 1 }), to = this.toScreen({ x: 1, y: -1 });
    context.strokeStyle = this.line;
    context.lineWidth = 1;
    context.setLineDash([2, 6]);
    context.strokeRect(from.x, from.y, to.x - from.x, to.y - from.y);
    context.setLineDash([]);
    if (!game.world.wave) return;
    for (const agent of game.agents) {
      const { x, y } = this.toScreen(agent);
      context.fillStyle = this.line;
      context.beginPath();
      context.arc(x, y, 5, 0, 2 * Math.PI);
      context.fill();
    }
  }

  paintDoors(game) {
    const { context } = this, over = game.decided && isOver(game.phase);
    const wide = this.doorWidth, high = Math.min(wide * 1.5, this.height * 0.46);
    this.tasksAt.forEach(({ x, y }, t) => {
      const here = over ? game.result.choosers[t].length : 0;
      context.beginPath();
      context.roundRect(x - wide / 2, y - high / 2, wide, high, [wide / 2, wide / 2, 4, 4]);
      context.fillStyle = this.ground;
      context.fill();
      if (here > 0) {
        context.globalAlpha = 0.22;
        context.fillStyle = here > 1 ? this.bad : this.good;
        context.fill();
        context.globalAlpha = 1;
      }
      context.lineWidth = here > 0 ? 3 : 1.5;
      context.strokeStyle = here > 1 ? this.bad : here === 1 ? this.good : this.faint;
      context.stroke();
      this.write(String(t + 1), x, y + high / 2 + 16, Math.min(15, wide * 0.4), this.faint);
    });
  }

  paintTasks(game) {
    const { context } = this, wave = game.world.wave;
    const scale = this.size / (2 * this.reach);
    const covered = wave ? [] : game.result?.covered ?? [];
    this.tasksAt.forEach(({ x, y }, t) => {
      const drivers = wave && game.decided && isOver(game.phase) ? game.result.drivers[t]?.length ?? 0 : 0;
      const radius = wave ? (0.05 + 0.055 * (game.tasks[t].value - 0.5)) * scale : 0.07 * scale;
      context.beginPath();
      if (wave) context.roundRect(x - radius, y - radius, 2 * radius, 2 * radius, 4);
      else {
        context.moveTo(x, y - radius * 1.25);
        context.lineTo(x + radius * 1.25, y);
        context.lineTo(x, y + radius * 1.25);
        context.lineTo(x - radius * 1.25, y);
        context.closePath();
      }
      const good = covered[t] || drivers === 1, bad = drivers > 1;
      context.fillStyle = bad ? this.bad : good ? this.good : this.ground;
      context.globalAlpha = bad || good ? 0.35 : 1;
      context.fill();
      context.globalAlpha = 1;
      context.strokeStyle = bad ? this.bad : good ? this.good : this.ink;
      context.lineWidth = 1.8;
      context.stroke();
      if (!wave) { // as far as an agent may be away to cover it
        context.beginPath();
        context.arc(x, y, RADIUS * scale, 0, 2 * Math.PI);
        context.lineWidth = covered[t] ? 2.5 : 1.2;
        context.setLineDash(covered[t] ? [] : [2, 4]);
        context.stroke();
        context.setLineDash([]);
      }
      const place = wave ? y + Math.max(radius, this.agentRadius) + 11 : y - RADIUS * scale - 9;
      this.write(wave ? `${t + 1}: ${game.tasks[t].value.toFixed(1)}` : String(t + 1), x, place, 11, this.faint);
    });
  }

  paintChosen({ x, y }) {
    const { context } = this, around = 17, corner = 7;
    context.strokeStyle = this.ink;
    context.lineWidth = 2;
    context.beginPath();
    for (const [right, down] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
      context.moveTo(x + right * (around - corner), y + down * around);
      context.lineTo(x + right * around, y + down * around);
      context.lineTo(x + right * around, y + down * (around - corner));
    }
    context.stroke();
  }

  /** Lines to tasks as wide as the agent wants them, to peers as wide as it looks at them, to what it expects. */
  paintAttention(game, viewer, thought) {
    const { context } = this, from = this.agentsAt[viewer];
    context.strokeStyle = colour(game.agents[viewer]);
    const line = (begin, end, width, alpha, dash = []) => {
      context.globalAlpha = alpha;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(begin.x, begin.y);
      context.lineTo(end.x, end.y);
      context.stroke();
    };
    game.agents.forEach((peer, i) => {
      if (i === viewer || i >= this.agentsAt.length) return;
      const look = peerAttention(thought, i);
      if (look > 0.02) line(from, this.agentsAt[i], 1 + 5 * look, 0.55, [1, 6]);
      const expected = thought.expected?.[i];
      if (expected === null || expected === undefined || !this.tasksAt[expected]) return;
      context.strokeStyle = colour(peer);
      const home = game.world.placed ? this.toScreen(peer) : this.homes[i]; // where it waits beside it is left by then
      line(home, this.tasksAt[expected], 1.5, 0.7, [4, 5]);
      context.strokeStyle = colour(game.agents[viewer]);
    });
    thought.wants.forEach((want, t) => {
      if (want > 0.02 && this.tasksAt[t]) line(from, this.tasksAt[t], 1 + 7 * want, 0.4 + 0.5 * want);
    });
    context.globalAlpha = 1;
    context.setLineDash([]);
  }

  paintAgent(game, i, thought, isViewer) {
    const { context } = this, agent = game.agents[i], { x, y } = this.agentsAt[i], radius = this.agentRadius;
    const hidden = thought?.hidden[i] && !isViewer, damped = thought?.damped[i] && !isViewer;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    if (hidden || damped) {
      context.fillStyle = this.ground;
      context.fill();
      context.globalAlpha = hidden ? 0.18 : 0.5;
    }
    context.fillStyle = colour(agent);
    context.fill();
    context.globalAlpha = 1;
    if (hidden) {
      context.setLineDash([3, 4]);
      context.lineWidth = 1.6;
      context.strokeStyle = colour(agent);
      context.stroke();
      context.setLineDash([]);
    }
    if (isViewer) {
      context.lineWidth = 3;
      context.strokeStyle = this.ink;
      context.stroke();
    }
    this.write(letter(agent), x, y + 1, Math.max(10, radius * 0.95), hidden ? this.faint : inkOn(agent), 700);
    if (game.shown && radius > 11) this.paintNumber(game, i, thought, x, y + radius + 10);
  }

  /** The number that was drawn or, where an agent is selected, that it has heard. */
  paintNumber(game, i, thought, x, y) {
    // A new one every tenth of a second cannot be read, and on the way, or at a job, it would lie on others.
    const out = outward(game.phase);
    if (!game.world.wave || (out > 0.05 && (game.world.placed || out < 0.95))) return;
    const unheard = thought && !thought.heard[i];
    const shown = unheard ? "?" : (thought?.ranks[i] ?? game.numbers[i]).toFixed(2).replace(/^0/, "");
    this.write(shown, x, y, 11, unheard ? this.bad : this.ink);
  }

  write(text, x, y, size, ink, weight = 500) {
    const { context } = this;
    context.font = `${weight} ${size}px ${this.face}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = ink;
    context.fillText(text, x, y);
  }
}

/** How much of its attention in the second block an agent gives to a peer, over all tasks. */
export function peerAttention(thought, peer) {
  const weights = thought.attention?.[1], column = thought.order.indexOf(peer);
  if (!weights || weights.count === 0) return 0;
  let sum = 0;
  for (let t = 0; t < weights.count; t++) sum += weights.row(t)[column];
  return sum / weights.count;
}

