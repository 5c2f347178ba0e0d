// In words and squares: the numbers, whom the selected agent hides, and what it attends to.

import { colour, inkOn, letter } from "./worlds.js";

const signed = (number) => number.toFixed(2).replace("-", "−");
const percent = (share) => `${Math.round(100 * share)} %`.replace("-", "−");
const ordinal = (n) => `${n}${["th", "st", "nd", "rd"][n % 10 < 4 && Math.floor(n / 10) !== 1 ? n % 10 : 0]}`;
const listed = (names) => (names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names[0]);

/** The place of each agent by its number, 1 for the highest; equal numbers share one. */
export const places = (numbers) => numbers.map((own) => 1 + numbers.filter((other) => other > own).length);

// --- The row of agents ----------------------------------------------------------------------------

/** One button for each agent; they stay the same while numbers change, so that the keyboard keeps its place. */
export function showAgents(box, game, selected, choose) {
  const ids = game.agents.map((agent) => agent.id).join();
  if (box.dataset.ids !== ids) {
    box.dataset.ids = ids;
    box.replaceChildren(...game.agents.map((agent) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "chip";
      button.innerHTML = "<b></b><i></i><small></small>";
      button.firstChild.textContent = letter(agent);
      button.firstChild.style.background = colour(agent);
      button.firstChild.style.color = inkOn(agent);
      button.addEventListener("click", () => choose(agent.id));
      return button;
    }));
  }
  const numbers = game.shown ? game.shownNumbers : game.numbers;
  const place = places(numbers), viewer = game.agents.findIndex((agent) => agent.id === selected);
  const thought = game.shown?.[viewer];
  game.agents.forEach((agent, i) => {
    const button = box.children[i], hidden = Boolean(thought?.hidden[i]) && i !== viewer;
    button.setAttribute("aria-pressed", i === viewer);
    button.classList.toggle("hidden", hidden);
    const unheard = thought && !thought.heard[i];
    button.children[1].style.setProperty("--share", unheard ? 0 : numbers[i]);
    button.children[2].textContent = unheard ? "not heard" : `${numbers[i].toFixed(2)} · ${ordinal(place[i])}`;
    button.setAttribute("aria-label", `Agent ${letter(agent)}, number ${numbers[i].toFixed(2)}, ` +
      `${ordinal(place[i])}${hidden ? ", hidden from the selected agent" : ""}`);
  });
}

// --- What one agent sees --------------------------------------------------------------------------

export function showSeen(parts, game, selected) {
  const viewer = game.agents.findIndex((agent) => agent.id === selected), thought = game.shown?.[viewer];
  const blocks = thought?.attention ?? [];
  parts.block0.parentElement.hidden = parts.block1.parentElement.hidden = blocks.length === 0;
  parts.wants.parentElement.hidden = !thought;
  if (!thought) {
    parts.title.textContent = "What one agent sees";
    parts.words.textContent = "Select an agent, in the picture or by its button: then you see whom it hides and what it attends to.";
    return;
  }
  parts.title.textContent = `What ${letter(game.agents[viewer])} sees`;
  parts.words.textContent = inWords(game, viewer, thought);
  const columns = thought.order.map((agent) => ({ agent: game.agents[agent], hidden: thought.hidden[agent] && agent !== viewer }));
  blocks.forEach((weights, block) => {
    paintWeights(parts[`block${block}`], columns, weights);
    parts[`block${block}Name`].textContent =
      `Block ${block + 1}: each ${game.world.task} (row) spreads its attention over the agents (columns); hatched ones are hidden.`;
  });
  paintWants(parts.wants, thought.wants, colour(game.agents[viewer]));
  parts.wantsName.textContent = game.options.world === "spread"
    ? "How its attention in the last block is spread over landmarks."
    : `How likely it finds each ${game.world.task}, before the likeliest is taken.`;
}

function inWords(game, viewer, thought) {
  const { agent: agentWord, task } = game.world, own = letter(game.agents[viewer]);
  const names = (test) => game.agents.flatMap((agent, i) => (i !== viewer && test(i) ? [letter(agent)] : []));
  const place = 1 + thought.ranks.filter((number) => number > thought.ranks[viewer]).length;
  const rank = place === 1 ? "highest" : `${ordinal(place)} highest`;
  const hidden = names((i) => thought.hidden[i]), damped = names((i) => thought.damped[i]);
  const missed = names((i) => !thought.heard[i]), tied = names((i) => thought.ranks[i] === thought.ranks[viewer]);
  const said = [`${own} drew ${thought.ranks[viewer].toFixed(2)}, the ${rank} of ${game.agents.length} as it has heard them.`];
  if (missed.length) said.push(`It did not hear ${listed(missed)} and guesses.`);
  if (tied.length) said.push(`It has the same number as ${listed(tied)}: nothing puts one before the other.`);
  if (thought.expected) {
    const turns = names((i) => thought.expected[i] !== null && thought.expected[i] !== undefined);
    const byName = new Map(game.agents.map((agent, i) => [letter(agent), i]));
    said.push(turns.length
      ? `In its head ${listed(turns.map((name) => `${name} takes ${task} ${thought.expected[byName.get(name)] + 1}`))} first.`
      : "Nobody decides before it.");
    if (hidden.length) said.push(`It does not wait for ${listed(hidden)}.`);
  } else if (hidden.length) {
    said.push(`It hides ${listed(hidden)}, who drew lower numbers, and sees ${hidden.length === game.agents.length - 1 ? `no other ${agentWord}` : "the rest"}.`);
  } else if (damped.length) {
    said.push(`It sees everybody, but gives less weight to ${listed(damped)}.`);
  } else {
    said.push("It sees everybody.");
  }
  const best = thought.wants.reduce((most, want, t) => (want > thought.wants[most] ? t : most), 0);
  if (Array.isArray(thought.action)) {
    said.push(`It looks most at landmark ${best + 1} (${percent(thought.wants[best])}).`);
  } else {
    const chosen = thought.action - (game.world.action === "choose_task" ? 0 : 1);
    said.push(chosen < 0 ? "It stays." : `It takes ${task} ${chosen + 1}.`);
  }
  return said.join(" ");
}

/** A drawing surface as large as its box, in the page's colours. */
function surface(canvas, width, height) {
  const ratio = Math.min(devicePixelRatio || 1, 2), context = canvas.getContext("2d");
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.aspectRatio = `${width} / ${height}`;
    canvas.style.maxWidth = `${width}px`;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(canvas);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `600 11px ${style.fontFamily}`;
  return { context, of: (name) => style.getPropertyValue(name).trim() };
}

function paintWeights(canvas, columns, weights) {
  const cell = 18, left = 18, top = 20;
  const { context, of } = surface(canvas, left + cell * columns.length + 1, top + cell * weights.count + 1);
  columns.forEach(({ agent, hidden }, a) => {
    const x = left + a * cell;
    context.fillStyle = colour(agent);
    context.globalAlpha = hidden ? 0.3 : 1;
    context.beginPath();
    context.arc(x + cell / 2, 9, 8, 0, 2 * Math.PI);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = hidden ? of("--ink") : inkOn(agent);
    context.fillText(letter(agent), x + cell / 2, 9.5);
    for (let t = 0; t < weights.count; t++) {
      const y = top + t * cell;
      context.fillStyle = of("--line");
      context.fillRect(x + 0.5, y + 0.5, cell - 1.5, cell - 1.5);
      context.globalAlpha = weights.row(t)[a];
      context.fillStyle = of("--accent");
      context.fillRect(x + 0.5, y + 0.5, cell - 1.5, cell - 1.5);
      context.globalAlpha = 1;
      if (!hidden) continue;
      context.strokeStyle = of("--faint");
      context.lineWidth = 1;
      context.beginPath();
      for (const shift of [0, 8]) {
        context.moveTo(x + 1 + shift, y + cell - 2);
        context.lineTo(x + cell - 2, y + 1 + shift);
      }
      context.stroke();
    }
  });
  context.fillStyle = of("--faint");
  for (let t = 0; t < weights.count; t++) context.fillText(String(t + 1), 8, top + (t + 0.5) * cell);
}

function paintWants(canvas, wants, ink) {
  const row = 18, left = 18, wide = 150;
  const { context, of } = surface(canvas, left + wide + 40, row * wants.length + 2);
  Array.from(wants).forEach((want, t) => {
    const y = t * row;
    context.fillStyle = of("--line");
    context.fillRect(left, y + 3, wide, row - 6);
    context.fillStyle = ink;
    context.fillRect(left, y + 3, wide * want, row - 6);
    context.fillStyle = of("--faint");
    context.fillText(String(t + 1), 8, y + row / 2);
    context.fillText(percent(want), left + wide + 20, y + row / 2);
  });
}

// --- The score ------------------------------------------------------------------------------------

/** What the world says of the decision that was just carried out. */
export function verdict(game, over) {
  const { options, result, world } = game;
  if (!result || (world.wave && !over)) {
    return { words: world.wave ? "Everybody has drawn a number and decides …" : " ", good: null };
  }
  if (options.world === "xor") {
    const crowded = result.choosers.findIndex((each) => each.length > 1);
    if (crowded < 0) return { words: "Everybody has a door to itself: won.", good: true };
    if (game.agents.length > game.tasks.length) return { words: "More players than doors: nobody can win.", good: false };
    return { words: `${listed(result.choosers[crowded].map((i) => letter(game.agents[i])))} met at door ${crowded + 1}: lost.`, good: false };
  }
  if (options.world === "dispatch") {
    const wasted = result.wasted > 1 ? `${result.wasted} vehicles` : result.wasted === 1 ? "One vehicle" : "Nobody";
    return {
      words: `${wasted} drove in vain. This wave earned ${signed(result.reward)} of the ${signed(result.best)} that were possible.`,
      good: result.share > 0.97 ? true : result.share < 0.8 ? false : null,
    };
  }
  const covered = result.covered.filter(Boolean).length, touching = result.collisions / 2;
  return {
    words: `${covered} of ${game.tasks.length} landmarks covered, ${touching ? `${touching} pair${touching > 1 ? "s" : ""} of agents touching` : "nobody touching"}.`,
    good: covered === game.tasks.length && touching === 0 ? true : null,
  };
}

export function showScore(parts, game, byLots) {
  const { history, options } = game, mean = history.reduce((sum, each) => sum + each, 0) / history.length;
  const number = history.length;
  parts.name.textContent = { xor: "Games won", dispatch: "Share of the best plan", spread: "Landmarks covered" }[options.world];
  parts.score.textContent = number ? percent(mean) : "–";
  parts.note.textContent = {
    xor: () => `of the last ${number} ${number === 1 ? "game" : "games"}; drawing lots wins ${byLots < 0.01 ? byLots.toExponential(0) : percent(byLots)}.`,
    dispatch: () => `in the last ${number} ${number === 1 ? "wave" : "waves"}; the best plan is worked out with all vehicles known to one planner.`,
    spread: () => "of the last six seconds.",
  }[options.world]();
  const { context, of } = surface(parts.history, 300, 40);
  const step = 300 / 60;
  history.forEach((score, i) => {
    const high = Math.max(2, 38 * Math.max(0, Math.min(1, score)));
    context.fillStyle = score > 0.97 ? of("--good") : score > 0.5 ? of("--accent") : of("--bad");
    context.fillRect(i * step, 40 - high, step - 1.5, high);
  });
  if (options.world !== "xor" || !number) return;
  context.strokeStyle = of("--ink");
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(0, 39 - 38 * byLots);
  context.lineTo(300, 39 - 38 * byLots);
  context.stroke();
  context.setLineDash([]);
}
