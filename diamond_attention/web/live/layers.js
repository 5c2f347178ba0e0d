// The arithmetic that all kinds of policy share, on rows of numbers. docs/policy_format.md has it in words.

/** Rows of equal length, one after the other. */
export class Rows {
  constructor(count, columns, values = new Float32Array(count * columns)) {
    this.count = count;
    this.columns = columns;
    this.values = values;
  }

  /** Rows from nested lists; `columns` says how wide they are where there are none. */
  static of(lists, columns = lists[0].length) {
    const rows = new Rows(lists.length, columns);
    lists.forEach((list, row) => rows.values.set(list, row * columns));
    return rows;
  }

  row(number) {
    return this.values.subarray(number * this.columns, (number + 1) * this.columns);
  }

  first() {
    return new Rows(1, this.columns, this.row(0));
  }
}

/** Row by row, one after the other's features. */
export function joined(left, right) {
  const rows = new Rows(left.count, left.columns + right.columns);
  for (let row = 0; row < left.count; row++) {
    rows.values.set(left.row(row), row * rows.columns);
    rows.values.set(right.row(row), row * rows.columns + left.columns);
  }
  return rows;
}

export const silu = (x) => x / (1 + Math.exp(-x));

export function each(rows, change) {
  return new Rows(rows.count, rows.columns, rows.values.map(change));
}

export function normalised(rows) {
  const result = new Rows(rows.count, rows.columns);
  for (let row = 0; row < rows.count; row++) {
    const from = rows.row(row), to = result.row(row);
    let mean = 0, variance = 0;
    for (const x of from) mean += x;
    mean /= from.length;
    for (const x of from) variance += (x - mean) ** 2;
    const scale = 1 / Math.sqrt(variance / from.length + 1e-5);
    for (let i = 0; i < from.length; i++) to[i] = (from[i] - mean) * scale;
  }
  return result;
}

/** In place; a list in which everything is hidden becomes zeros. */
export function softmaxOrZero(scores) {
  const peak = scores.reduce((most, score) => Math.max(most, score), -Infinity);
  if (peak === -Infinity) return scores.fill(0);
  let total = 0;
  for (let i = 0; i < scores.length; i++) total += scores[i] = Math.exp(scores[i] - peak);
  for (let i = 0; i < scores.length; i++) scores[i] /= total;
  return scores;
}

/** y = weight · x + bias. */
export class Linear {
  constructor(take, name, into, out) {
    this.weight = take(`${name}.weight`, out, into);
    this.bias = take(`${name}.bias`, out);
    this.into = into;
    this.out = out;
  }

  of(rows) {
    const { weight, bias, into, out } = this;
    const result = new Rows(rows.count, out);
    for (let row = 0; row < rows.count; row++) {
      const x = rows.row(row), y = result.row(row);
      let o = 0;
      // Four outputs at once: each of them alone would wait for its own last addition.
      for (; o + 4 <= out; o += 4) {
        const start = o * into;
        let a = 0, b = 0, c = 0, d = 0;
        for (let i = 0, w = start; i < into; i++, w++) {
          const value = x[i];
          a += weight[w] * value;
          b += weight[w + into] * value;
          c += weight[w + 2 * into] * value;
          d += weight[w + 3 * into] * value;
        }
        y[o] = a + bias[o];
        y[o + 1] = b + bias[o + 1];
        y[o + 2] = c + bias[o + 2];
        y[o + 3] = d + bias[o + 3];
      }
      for (; o < out; o++) {
        let sum = 0;
        for (let i = 0; i < into; i++) sum += weight[o * into + i] * x[i];
        y[o] = sum + bias[o];
      }
    }
    return result;
  }
}

/** Two linear layers around a SiLU, then normalised. */
export class Projection {
  constructor(take, name, into, width) {
    this.one = new Linear(take, `${name}.first`, into, width);
    this.two = new Linear(take, `${name}.second`, width, width);
  }

  of(rows) {
    return normalised(this.two.of(each(this.one.of(rows), silu)));
  }
}
