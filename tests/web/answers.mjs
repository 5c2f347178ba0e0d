// Reads questions from a file, asks the modules of the live page, and prints their answers: for test_equal_to_jax.py.

import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [page, file] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${page}/${name}.js`));
const [{ readBundle }, { Rows }, spread, dispatch, xor, { BundleError }, { hear }, { Random }] = await Promise.all(
  ["bundle", "layers", "spread", "dispatch", "xor", "errors", "broadcast", "random"].map(load));
const worlds = { spread, dispatch, xor };

async function bundleAt(folder) {
  const [json, arrays] = await Promise.all([
    readFile(`${folder}/policy.json`, "utf8"), readFile(`${folder}/policy.safetensors`)]);
  return readBundle(json, arrays.buffer.slice(arrays.byteOffset, arrays.byteOffset + arrays.byteLength), "made");
}

const nested = (rows) => Array.from({ length: rows.count }, (_, row) => Array.from(rows.row(row)));

const answers = {
  async decide({ folder, views }) {
    const { policy } = await bundleAt(folder);
    return views.map(({ agents, tasks, ranks }) => {
      const { mean, logits, wants, attention = [] } =
        policy.decide({ agents: Rows.of(agents), tasks: Rows.of(tasks), ranks });
      return { answer: mean ?? logits, wants: Array.from(wants), attention: attention.map(nested) };
    });
  },
  async refuse({ folder }) {
    try {
      await bundleAt(folder);
      return "read";
    } catch (error) {
      if (!(error instanceof BundleError)) throw error;
      return error.message;
    }
  },
  view: ({ world, state, order, ranks }) => {
    const { agents, tasks } = worlds[world].view(state, order, ranks);
    return { agents: nested(agents), tasks: nested(tasks) };
  },
  advance: ({ agents, actions, solid }) => spread.advance(agents, actions, solid),
  judge: ({ world, state, actions }) => worlds[world].judge(state, actions),
  hear: ({ numbers, lost, times }) => {
    const random = new Random(7);
    return Array.from({ length: times }, () => hear(numbers, 1, lost, random));
  },
  chance: ({ players, actions }) => xor.chance(players, actions),
  time: async ({ folder, views, times }) => {
    const { policy } = await bundleAt(folder);
    const read = views.map(({ agents, tasks, ranks }) => ({ agents: Rows.of(agents), tasks: Rows.of(tasks), ranks }));
    return Array.from({ length: times }, () => {
      const begun = performance.now();
      read.forEach((view) => policy.decide(view));
      return performance.now() - begun;
    });
  },
};

const questions = JSON.parse(await readFile(file, "utf8"));
const answered = [];
for (const { ask, ...rest } of questions) answered.push((await answers[ask](rest)) ?? null);
process.stdout.write(JSON.stringify(answered));
