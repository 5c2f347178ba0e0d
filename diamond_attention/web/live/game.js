// One team in one world: it draws numbers, hears them, decides, acts. Knows nothing of the page.

import { hear } from "./broadcast.js";
import { mostLikely } from "./commitments.js";
import { Random } from "./random.js";
import { FEWEST, MOST, WORLDS } from "./worlds.js";

const RENEW_AFTER = 100; // decisions; as long as an episode of training
const REMEMBERED = 60; // rounds of which the score is told

export class Game {
  constructor(options) {
    this.begin(options);
  }

  /** `options`: {world, agents, tasks, policy, lost, same, dice, start, renew, seed}; policy is a bundle or null. */
  begin(options) {
    this.options = options;
    this.world = WORLDS[options.world];
    this.random = new Random(options.seed);
    this.decisions = 0;
    this.agents = Array.from({ length: options.agents }, (_, id) => ({ id }));
    this.tasks = Array.from({ length: options.tasks }, () => this.world.newTask(this.random));
    this.place();
    this.history = [];
    this.clock = 0;
    this.rethink();
  }

  /** Everybody at one point, or everybody somewhere. */
  place() {
    const point = this.random.place();
    for (const agent of this.agents) {
      Object.assign(agent, this.options.start === "point" ? point : this.random.place(), { vx: 0, vy: 0 });
    }
    this.before = this.agents;
  }

  set(changes) {
    const startsElsewhere = "start" in changes && changes.start !== this.options.start;
    Object.assign(this.options, changes);
    if (startsElsewhere) this.place();
    const otherwise = ["policy", "same", "lost", "dice", "start"].some((name) => name in changes);
    if (otherwise) this.history = [];
    if ("policy" in changes) this.shown = null;
    this.rethink();
  }

  // --- Who is there -------------------------------------------------------------------------------

  addAgent() {
    if (this.agents.length >= MOST) return;
    const taken = new Set(this.agents.map((agent) => agent.id));
    const id = Array.from({ length: MOST }, (_, i) => i).find((i) => !taken.has(i));
    const { x, y } = this.options.start === "point" ? this.agents[0] : this.random.place();
    this.agents = [...this.agents, { id, x, y, vx: 0, vy: 0 }].sort((one, other) => one.id - other.id);
    this.teamChanged();
  }

  removeAgent(agent = this.agents.at(-1)) {
    if (this.agents.length <= FEWEST) return;
    this.agents = this.agents.filter((each) => each !== agent);
    this.teamChanged();
  }

  addTask() {
    if (this.tasks.length < MOST) this.tasks = [...this.tasks, this.world.newTask(this.random)];
    this.teamChanged();
  }

  removeTask(task = this.tasks.at(-1)) {
    if (this.tasks.length > 1) this.tasks = this.tasks.filter((each) => each !== task);
    this.teamChanged();
  }

  teamChanged() {
    this.options.agents = this.agents.length;
    this.options.tasks = this.tasks.length;
    this.history = [];
    this.rethink();
  }

  /** An agent or a task is taken somewhere else. */
  move(thing, x, y) {
    const changed = { ...thing, x, y };
    if ("vx" in thing) Object.assign(changed, { vx: 0, vy: 0 });
    const swap = (list) => list.map((each) => (each === thing ? changed : each));
    [this.agents, this.tasks] = [swap(this.agents), swap(this.tasks)];
    this.before = this.before.map((agent) => (agent.id === changed.id && "vx" in thing ? changed : agent));
    if (this.world.wave) this.rethink();
    return changed;
  }

  // --- Deciding -----------------------------------------------------------------------------------

  /** Begins a decision anew: new numbers, and nobody has decided. */
  rethink() {
    const { same } = this.options, one = this.random.number();
    this.numbers = this.agents.map(() => (same ? one : this.random.number()));
    this.thoughts = [];
    this.result = null;
    if (this.world.wave) this.clock = 0;
    if (!this.shown || this.shown.length !== this.agents.length || this.world.wave) this.shown = null;
  }

  get decided() {
    return this.thoughts.length === this.agents.length;
  }

  /** One agent after the other decides, each on its own view, until `enough()`. */
  think(enough = () => false) {
    while (this.options.policy && !this.decided && !enough()) {
      const viewer = this.thoughts.length;
      const { order, heard, ranks } = hear(this.numbers, viewer, this.options.lost, this.random);
      const answer = this.options.policy.policy.decide(this.world.module.view(this, order, ranks));
      const byAgent = (list) => list && this.agents.map((_, agent) => list[order.indexOf(agent)]);
      this.thoughts.push({
        ...answer,
        order,
        heard: byAgent(heard),
        ranks: byAgent(ranks),
        hidden: byAgent(answer.hidden),
        damped: byAgent(answer.damped),
        expected: byAgent(answer.expected),
        action: this.act(answer),
      });
    }
    if (this.decided && this.world.wave && this.result === null) this.judge();
    // Where everybody decides all the time, what is shown are the decisions that are being carried out.
    if (this.decided && (this.world.wave || this.shown === null)) this.show(this.thoughts, this.numbers);
  }

  show(thoughts, numbers) {
    this.shown = thoughts;
    this.shownNumbers = numbers;
  }

  act({ mean, logStd, logits }) {
    const { dice } = this.options;
    if (mean) return mean.map((x, i) => (dice ? x + Math.exp(logStd[i]) * this.random.normal() : x));
    return mostLikely(dice ? logits.map((logit) => logit + this.random.gumbel()) : logits);
  }

  judge() {
    this.result = this.world.module.judge(this, this.thoughts.map((thought) => thought.action));
  }

  // --- Time ---------------------------------------------------------------------------------------

  /** How far the team is between this decision's beginning and its end, from 0 to 1. */
  get phase() {
    return Math.min(this.clock / this.world.seconds, 1);
  }

  /** So many seconds of the world pass. It waits for who has not decided: a slow machine has a slow world. */
  pass(seconds) {
    if (!this.options.policy || (this.world.wave && !this.decided)) return;
    this.clock += seconds;
    if (this.clock < this.world.seconds) return;
    const over = Math.min(this.clock - this.world.seconds, this.world.seconds);
    this.clock = this.world.seconds;
    if (!this.decided) return;
    this.finish();
    this.clock = over;
  }

  /** The decision is carried out to its end. */
  finish() {
    this.think();
    if (!this.decided) return;
    const actions = this.thoughts.map((thought) => thought.action);
    this.decisions += 1;
    if (this.world.wave) {
      this.remember(this.world.action === "choose_task" ? Number(this.result.won) : this.result.share);
      if (this.result.drivers) {
        this.tasks = this.tasks.map((task, t) =>
          this.result.drivers[t].length > 0 ? this.world.newTask(this.random) : task);
      }
      this.rethink();
      return;
    }
    const carriedOut = [this.thoughts, this.numbers];
    this.before = this.agents;
    this.agents = this.world.module.advance(this.agents, actions, this.options.start !== "point");
    const judged = this.world.module.judge(this);
    this.remember(judged.covered.filter(Boolean).length / this.tasks.length);
    if (this.options.renew && this.decisions % RENEW_AFTER === 0) this.renew();
    this.rethink();
    this.show(...carriedOut);
    this.result = judged;
  }

  remember(score) {
    this.history.push(score);
    if (this.history.length > REMEMBERED) this.history.shift();
  }

  /** New places for tasks and, where they start from one point, for agents. */
  renew() {
    this.tasks = this.tasks.map(() => this.world.newTask(this.random));
    if (this.options.start === "point") this.place();
  }
}
