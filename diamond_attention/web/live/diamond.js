// Diamond Attention for one agent's view: tasks and agents attend to each other, lower-ranked peers are hidden.

import { BundleError } from "./errors.js";
import { Linear, Projection, Rows, each, joined, silu, softmaxOrZero } from "./layers.js";

const MASKS = ["rank", "none", "signed", "floor", "first", "split"];

/** One score matrix between tasks and agents, read in both directions. */
class Block {
  constructor(take, name, width) {
    this.agentValues = new Linear(take, `${name}.agent_values`, width, width);
    this.taskValues = new Linear(take, `${name}.task_values`, width, width);
  }

  /** `terms` has one list for each head: what ranks add to the scores of each agent. */
  of(tasks, agents, terms) {
    const width = tasks.columns, size = width / terms.length;
    const agentValues = this.agentValues.of(agents), taskValues = this.taskValues.of(tasks);
    const toTasks = new Rows(tasks.count, width), toAgents = new Rows(agents.count, width);
    const shown = new Rows(tasks.count, agents.count);
    terms.forEach((term, head) => {
      const begin = head * size, end = begin + size;
      for (let t = 0; t < tasks.count; t++) {
        const task = tasks.row(t), weights = new Float32Array(agents.count);
        for (let a = 0; a < agents.count; a++) {
          const agent = agents.row(a);
          let score = 0;
          for (let i = begin; i < end; i++) score += task[i] * agent[i];
          weights[a] = score / Math.sqrt(size) + term[a];
        }
        softmaxOrZero(weights);
        const toTask = toTasks.row(t), taskValue = taskValues.row(t);
        for (let a = 0; a < agents.count; a++) {
          const weight = weights[a];
          shown.row(t)[a] += weight / terms.length;
          if (weight === 0) continue;
          const agentValue = agentValues.row(a), toAgent = toAgents.row(a);
          for (let i = begin; i < end; i++) {
            toTask[i] += weight * agentValue[i];
            toAgent[i] += weight * taskValue[i];
          }
        }
      }
    });
    return { tasks: joined(toTasks, tasks), agents: joined(toAgents, agents), weights: shown };
  }
}

export class Diamond {
  constructor(settings, face, take) {
    const width = settings.width, action = face.action.kind;
    // Weight for weight the same.
    this.mask = settings.mask === "dropout" && settings.dropout_at_execution === false ? "none" : settings.mask;
    if (!MASKS.includes(this.mask)) {
      throw new BundleError(`holds a policy with the mask “${settings.mask}”; this page plays ${MASKS.join(", ")}.`);
    }
    if (!["choice", "paper"].includes(settings.third_block ?? "choice")) {
      throw new BundleError(`holds a policy with the third block “${settings.third_block}”; this page plays choice, paper.`);
    }
    const paper = (settings.third_block ?? "choice") === "paper";
    this.width = width;
    this.action = action;
    this.choice = action === "continuous" && !paper ? new Linear(take, "choice.task_values", width, width) : null;
    const blocks = action === "choose_task" || (action === "continuous" && paper) ? 3 : 2;
    this.embedAgent = new Projection(take, "embed_agent", face.agentFeatures, width);
    this.embedTask = new Projection(take, "embed_task", face.taskFeatures, width);
    this.blocks = Array.from({ length: blocks }, (_, i) => new Block(take, `blocks.${i}`, width));
    const projections = (side) => [0, 1].map((i) => new Projection(take, `${side}_projections.${i}`, 2 * width, width));
    this.agentProjections = projections("agent");
    this.taskProjections = projections("task");
    this.bias = ["signed", "floor"].includes(settings.mask) ? take("rank_bias", 2) : [0, 0];
    if (action === "continuous") {
      this.hidden = new Linear(take, "head.hidden", 2 * width, width);
      this.mean = new Linear(take, "head.mean", width, face.action.size);
      this.logStd = take("head.log_std", face.action.size);
    } else if (action === "choose_task") {
      this.query = new Projection(take, "head.viewer_projection", 2 * width, width);
      this.keys = new Projection(take, "head.task_projection", 2 * width, width);
    } else {
      this.actHidden = new Linear(take, "head.act_hidden", width, width);
      this.act = new Linear(take, "head.act", width, face.action.fixed_actions);
      this.chooseViewer = new Linear(take, "head.choose_viewer", width, width);
      this.chooseTask = new Linear(take, "head.choose_task", width, width);
      this.choose = new Linear(take, "head.choose", width, 1);
    }
  }

  /** What ranks add to the scores of a block, in each of its heads. */
  rankTerms(block, ranks) {
    const own = ranks[0];
    const of = (lower, higher = 0) => ranks.map((rank) => (rank < own ? lower : rank > own ? higher : 0));
    if (this.mask === "rank" || (this.mask === "first" && block === 0)) return [of(-Infinity)];
    if (this.mask === "split") return [of(-Infinity), of(0)];
    if (this.mask === "signed") return [of(-this.bias[block], this.bias[block])];
    if (this.mask === "floor") return [of(-Math.log1p(Math.exp(this.bias[block])))];
    return [of(0)];
  }

  /** `view`: {agents, tasks} as Rows, the viewer in row 0, and {ranks}, its own first. */
  decide(view) {
    let agents = this.embedAgent.of(view.agents), tasks = this.embedTask.of(view.tasks);
    const first = this.blocks[0].of(tasks, agents, this.rankTerms(0, view.ranks));
    tasks = this.taskProjections[0].of(first.tasks);
    agents = this.agentProjections[0].of(first.agents);
    const second = this.blocks[1].of(tasks, agents, this.rankTerms(1, view.ranks));
    tasks = this.taskProjections[1].of(second.tasks);
    const viewer = this.agentProjections[1].of(second.agents.first());
    const seen = { attention: [first.weights, second.weights], ...this.readers(view.ranks) };

    if (this.action === "act_or_choose_task") return { ...seen, ...this.chosen(this.actOrChoose(viewer, tasks)) };
    if (this.choice !== null) return { ...seen, ...this.move(...this.chooseAmong(tasks, viewer)) };
    const third = this.blocks[2].of(tasks, viewer, [[0]]);
    if (this.action === "continuous") return { ...seen, ...this.move(third.agents, third.weights.values) };
    const keys = this.keys.of(third.tasks), query = this.query.of(third.agents).row(0);
    const logits = Array.from({ length: keys.count }, (_, t) =>
      keys.row(t).reduce((sum, key, i) => sum + key * query[i], 0) / this.width ** 0.25);
    return { ...seen, ...this.chosen(logits) };
  }

  /** Who is hidden from the viewer in every block and head, and who is only damped or hidden in some. */
  readers(ranks) {
    const lower = ranks.map((rank) => rank < ranks[0]);
    const nobody = ranks.map(() => false);
    if (this.mask === "rank") return { hidden: lower, damped: nobody };
    return { hidden: nobody, damped: ["floor", "first", "split", "signed"].includes(this.mask) ? lower : nobody };
  }

  chooseAmong(tasks, viewer) {
    const own = viewer.row(0), values = this.choice.of(tasks);
    const weights = new Float32Array(tasks.count);
    for (let t = 0; t < tasks.count; t++) {
      weights[t] = tasks.row(t).reduce((sum, x, i) => sum + x * own[i], 0) / Math.sqrt(this.width);
    }
    softmaxOrZero(weights);
    const gathered = new Rows(1, this.width);
    for (let t = 0; t < tasks.count; t++) {
      const value = values.row(t);
      for (let i = 0; i < this.width; i++) gathered.values[i] += weights[t] * value[i];
    }
    return [joined(gathered, viewer), weights];
  }

  move(features, weights) {
    const mean = this.mean.of(each(this.hidden.of(features), silu)).row(0);
    return { mean: Array.from(mean), logStd: Array.from(this.logStd), wants: Array.from(weights) };
  }

  actOrChoose(viewer, tasks) {
    const fixed = this.act.of(each(this.actHidden.of(viewer), silu)).row(0);
    const own = this.chooseViewer.of(viewer).row(0), features = this.chooseTask.of(tasks);
    for (let t = 0; t < tasks.count; t++) {
      const row = features.row(t);
      for (let i = 0; i < row.length; i++) row[i] = silu(row[i] + own[i]);
    }
    return [...fixed, ...this.choose.of(features).values];
  }

  chosen(logits) {
    const fixed = this.act?.out ?? 0;
    return { logits, wants: softmaxOrZero(Float64Array.from(logits)).slice(fixed) };
  }
}
