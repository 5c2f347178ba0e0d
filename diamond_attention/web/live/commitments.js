// Commitments for one agent's view: it plays the turns of those ranked above it in its own head, then its own.

import { BundleError } from "./errors.js";
import { Linear, Projection, Rows, softmaxOrZero } from "./layers.js";

const CLAIM_UNIT = 30;
const SMALLEST_DEMAND = 1e-6;

export class Commitments {
  constructor(settings, face, take) {
    if (face.action.kind === "continuous") throw new BundleError("holds commitments with continuous actions.");
    this.fixedActions = face.action.kind === "choose_task" ? 0 : face.action.fixed_actions;
    this.rounds = settings.rounds;
    this.roundsEachTurn = settings.rounds_each_turn;
    if (![this.rounds, this.roundsEachTurn].every((rounds) => Number.isInteger(rounds) && rounds >= 0 && rounds <= 1000)) {
      throw new BundleError("has a policy.json that does not say how many rounds of prices there are.");
    }
    const columns = (frames, wanted) => frames.flatMap((frame, column) => (frame === wanted ? [column] : []));
    this.common = [face.agentFrames, face.taskFrames].map((frames) => columns(frames, "common"));
    this.places = [face.agentFrames, face.taskFrames].map((frames) => columns(frames, "place"));
    if (this.places[0].length > this.places[1].length) {
      throw new BundleError("has a policy.json that gives agents places of more parts than tasks; export it again.");
    }
    const features = this.common[0].length + this.common[1].length + (this.places[0].length > 0 ? 1 : 0);
    this.embed = new Projection(take, "embed", features, settings.width);
    this.score = new Linear(take, "score", settings.width, 1);
    this.claim = CLAIM_UNIT * take("claim")[0];
    this.step = Math.exp(take("step")[0]);
    this.sharpness = Math.exp(take("sharpness")[0]);
    this.fixed = take("fixed", this.fixedActions);
  }

  /** [agent][task]: how everybody sees the tasks, as the viewer works it out. */
  scores(view) {
    const pairs = [];
    for (let a = 0; a < view.agents.count; a++) {
      const agent = view.agents.row(a);
      for (let t = 0; t < view.tasks.count; t++) {
        const task = view.tasks.row(t);
        const features = [...this.common[0].map((c) => agent[c]), ...this.common[1].map((c) => task[c])];
        if (this.places[0].length > 0) {
          features.push(Math.hypot(...this.places[0].map((c, i) => task[this.places[1][i]] - agent[c])));
        }
        pairs.push(features);
      }
    }
    const scores = this.score.of(this.embed.of(Rows.of(pairs))).values, tasks = view.tasks.count;
    return Array.from({ length: view.agents.count }, (_, a) => Array.from(scores.subarray(a * tasks, (a + 1) * tasks)));
  }

  /** Every bidder spreads one bid over the options it likes; a task with more than one bid becomes dearer. */
  prices(scores, bidders, before, rounds) {
    let prices = before;
    for (let round = 0; round < rounds; round++) {
      const demand = prices.map(() => 0);
      for (const bidder of bidders) {
        const options = [...this.fixed, ...scores[bidder].map((score, t) => score - prices[t])];
        softmaxOrZero(options).slice(this.fixedActions).forEach((bid, t) => (demand[t] += bid));
      }
      prices = prices.map((price, t) =>
        Math.max(price + this.step * Math.log(Math.max(demand[t], SMALLEST_DEMAND)), 0));
    }
    return prices;
  }

  /** The logits of one agent, given what those ranked above it have chosen. */
  turn(agent, scores, ranks, firstPrices, chosen) {
    const higher = ranks.map((rank) => rank > ranks[agent]);
    const claimed = new Set(chosen.filter((task, peer) => task !== null && higher[peer]));
    const own = scores.map((row) => row.map((score, t) => score + (claimed.has(t) ? this.claim : 0)));
    const left = ranks.flatMap((_, peer) => (higher[peer] ? [] : [peer]));
    const prices = this.prices(own, left, firstPrices, this.roundsEachTurn);
    return [...this.fixed, ...own[agent].map((score, t) => score - prices[t])].map((each) => each * this.sharpness);
  }

  decide(view) {
    const ranks = view.ranks, scores = this.scores(view), everybody = ranks.map((_, agent) => agent);
    const firstPrices = this.prices(scores, everybody, Array(view.tasks.count).fill(0), this.rounds);
    const chosen = everybody.map(() => null);
    const higher = everybody.filter((peer) => ranks[peer] > ranks[0]).sort((a, b) => ranks[b] - ranks[a]);
    for (const peer of higher) {
      const task = mostLikely(this.turn(peer, scores, ranks, firstPrices, chosen)) - this.fixedActions;
      if (task >= 0) chosen[peer] = task;
    }
    const logits = this.turn(0, scores, ranks, firstPrices, chosen);
    return {
      logits,
      wants: softmaxOrZero([...logits]).slice(this.fixedActions),
      hidden: ranks.map((rank, peer) => peer > 0 && !(rank > ranks[0])),
      damped: ranks.map(() => false),
      expected: chosen,
    };
  }
}

/** Of equal ones the first. */
export function mostLikely(logits) {
  return logits.reduce((best, logit, option) => (logit > logits[best] ? option : best), 0);
}
