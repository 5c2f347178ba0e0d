// A policy bundle (docs/policy_format.md) as a policy that plays: policy.json and policy.safetensors.

import { Commitments } from "./commitments.js";
import { Diamond } from "./diamond.js";
import { BundleError } from "./errors.js";

const NEWEST_FORMAT = 2;
const KINDS = { diamond: Diamond, commitments: Commitments };
const MOST_WIDTH = 4096;

/** `json` is text, `arrays` an ArrayBuffer; `name` is what errors call the bundle. */
export async function readBundle(json, arrays, name) {
  try {
    const described = parse(json);
    await checkDigest(arrays, described.sha256);
    return build(described, readArrays(arrays));
  } catch (error) {
    throw error instanceof BundleError ? new BundleError(`The policy “${name}” ${error.message}`) : error;
  }
}

function parse(json) {
  let described;
  try {
    described = JSON.parse(json);
  } catch {
    throw new BundleError("has a policy.json that is not JSON; export it again.");
  }
  if (!Number.isInteger(described?.format) || described.format < 1) {
    throw new BundleError("has no format number, so it is not a policy bundle.");
  }
  if (described.format > NEWEST_FORMAT) {
    throw new BundleError(
      `has format ${described.format}, and this page reads up to ${NEWEST_FORMAT}; take a newer version of the page.`);
  }
  if (!Object.hasOwn(KINDS, described.kind)) {
    throw new BundleError(`is of the kind “${described.kind}”; this page plays ${Object.keys(KINDS).join(" and ")}.`);
  }
  return described;
}

/** Some browsers offer no digest on pages that came over plain HTTP; names, shapes and numbers are checked anyway. */
async function checkDigest(arrays, wanted) {
  if (!globalThis.crypto?.subtle) return;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", arrays));
  const found = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (found !== wanted) throw new BundleError("is damaged: policy.safetensors is not the file policy.json was made for.");
}

/** Name -> {shape, values}. */
export function readArrays(buffer) {
  const broken = new BundleError("is damaged: policy.safetensors cannot be read; export it again.");
  if (buffer.byteLength < 8) throw broken;
  const length = new DataView(buffer).getBigUint64(0, true);
  if (length > BigInt(buffer.byteLength - 8)) throw broken;
  const begin = 8 + Number(length);
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(buffer.slice(8, begin)));
  } catch {
    throw broken;
  }
  const found = new Map();
  for (const [name, described] of Object.entries(header ?? {})) {
    if (name === "__metadata__") continue;
    const { dtype, shape, data_offsets: offsets } = described ?? {};
    const size = Array.isArray(shape) ? shape.reduce((product, each) => product * each, 4) : NaN;
    const [from, to] = Array.isArray(offsets) ? offsets : [];
    const whole = Number.isInteger(from) && from >= 0 && to - from === size && begin + to <= buffer.byteLength;
    if (dtype !== "F32" || !whole) throw broken;
    const values = new Float32Array(buffer.slice(begin + from, begin + to));
    if (!values.every(Number.isFinite)) throw new BundleError(`is damaged: ${name} holds what is not a number.`);
    found.set(name, { shape, values });
  }
  return found;
}

const isFeature = (feature) => typeof feature === "object" && feature !== null && !Array.isArray(feature);

function build(described, arrays) {
  const { settings, action } = described, number = { continuous: "size", act_or_choose_task: "fixed_actions" };
  if (!["continuous", "choose_task", "act_or_choose_task"].includes(action?.kind)) {
    throw new BundleError("acts in a way that this page does not know.");
  }
  const features = [described.agent_features, described.task_features];
  const sizes = [settings?.width, action[number[action.kind]] ?? 0, ...features.map((list) => list?.length)];
  if (!sizes.every((size) => Number.isInteger(size) && size >= 0 && size <= MOST_WIDTH) || settings.width < 1 ||
    !features.every((list) => Array.isArray(list) && list.every(isFeature))) {
    throw new BundleError("has a policy.json that does not describe a policy; export it again.");
  }
  const left = new Set(arrays.keys());
  const take = (name, ...shape) => {
    const found = arrays.get(name);
    if (!found || found.shape.join() !== shape.join()) {
      throw new BundleError(`is damaged: it lacks the array ${name} of shape [${shape.join(", ")}].`);
    }
    left.delete(name);
    return found.values;
  };
  const frames = (list) => list.map((feature) => feature.frame ?? "own");
  const face = {
    action,
    agentFeatures: features[0].length,
    taskFeatures: features[1].length,
    agentFrames: frames(features[0]),
    taskFrames: frames(features[1]),
  };
  const policy = new KINDS[described.kind](settings, face, take);
  if (left.size > 0) throw new BundleError(`is damaged: nobody knows its array ${[...left][0]}.`);
  return {
    policy,
    kind: described.kind,
    mask: settings.mask ?? null,
    action: action.kind,
    agentFeatures: features[0].length,
    taskFeatures: features[1].length,
    anySize: described.any_team_size === true,
  };
}
