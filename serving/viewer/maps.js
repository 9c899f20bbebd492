"use strict";
// Attention maps as flat arrays, and what is read off them.

const KINDS = ["raw", "effective", "null"];

const Maps = (() => {
  const shapeOf = (nested) => {
    const shape = [];
    for (let level = nested; Array.isArray(level); level = level[0]) shape.push(level.length);
    return shape;
  };

  // Nested arrays of numbers to Float32Array; null is NaN.
  const flatten = (nested) => {
    const shape = shapeOf(nested);
    const out = new Float32Array(shape.reduce((a, b) => a * b, 1));
    let at = 0;
    const fill = (level, depth) => {
      if (!Array.isArray(level) || level.length !== shape[depth]) throw new ApiError("The server's maps are ragged.");
      if (depth === shape.length - 1) for (const value of level) out[at++] = value === null ? NaN : value;
      else for (const part of level) fill(part, depth + 1);
    };
    fill(nested, 0);
    return { shape, data: out };
  };

  // The maps of one layer: `raw` and, where the model gives it, `effective`, both (heads, queries, keys).
  class Layer {
    constructor(raw, effective) {
      const flat = flatten(raw);
      if (flat.shape.length !== 3) throw new ApiError(`Maps of a layer have three axes, these ${flat.shape.length}.`);
      [this.heads, this.queries, this.keys] = flat.shape;
      this.raw = flat.data;
      this.effective = effective ? flatten(effective).data : null;
      this.made = new Map();
    }

    // One head ("mean" for the mean of all) of a kind, as an AttentionMap.
    map(kind, head) {
      const name = `${kind} ${head}`;
      if (!this.made.has(name)) this.made.set(name, new AttentionMap(this.values(kind, head), this.queries, this.keys));
      return this.made.get(name);
    }

    values(kind, head) {
      const size = this.queries * this.keys;
      if (head === "mean") {
        const out = new Float32Array(size);
        for (let h = 0; h < this.heads; h++) {
          const one = this.map(kind, h).data;
          for (let i = 0; i < size; i++) out[i] += one[i] / this.heads;
        }
        return out;
      }
      const part = (data) => data.subarray(head * size, (head + 1) * size);
      if (kind === "raw") return part(this.raw);
      if (kind === "effective") return part(this.effective);
      return minus(part(this.raw), part(this.effective));
    }
  }

  const minus = (a, b) => a.map((value, i) => value - b[i]);

  class AttentionMap {
    constructor(data, queries, keys) {
      this.data = data;
      this.queries = queries;
      this.keys = keys;
    }

    at(query, key) {
      return this.data[query * this.keys + key];
    }

    minus(other) {
      if (other.queries !== this.queries || other.keys !== this.keys) throw new ApiError("Maps differ in shape.");
      return new AttentionMap(minus(this.data, other.data), this.queries, this.keys);
    }

    // Smallest and largest value over rows and columns, number of values that are none, and what rows sum to.
    range(rows, columns) {
      const found = { low: Infinity, high: -Infinity, missing: 0, lowSum: Infinity, highSum: -Infinity, squares: 0 };
      for (const i of rows) {
        let sum = 0;
        for (const j of columns) {
          const value = this.at(i, j);
          if (!Number.isFinite(value)) {
            found.missing++;
            continue;
          }
          sum += value;
          found.squares += value * value;
          if (value < found.low) found.low = value;
          if (value > found.high) found.high = value;
        }
        found.lowSum = Math.min(found.lowSum, sum);
        found.highSum = Math.max(found.highSum, sum);
      }
      if (found.low > found.high) Object.assign(found, { low: 0, high: 0, lowSum: 0, highSum: 0 });
      return found;
    }
  }

  const SPECIAL = /^(\[(CLS|SEP|PAD|MASK|UNK)\]|<\/?(s|pad|cls|sep|mask|unk)>)$/i;

  // Which tokens are shown: indices of queries and of keys. Compressed keys of a Linformer are no tokens: all stay.
  const visible = (input, queries, keys, hide) => {
    const kept = (i) =>
      !(hide.padding && input.paddingMask[i] === 0) && !(hide.special && SPECIAL.test(input.tokens[i] ?? ""));
    const all = (n) => [...Array(n).keys()];
    const rows = all(queries).filter(kept);
    return { rows, columns: keys === queries && !input.compressed ? rows : all(keys) };
  };

  const keyTokens = (input, keys) => {
    if (keys === input.tokens.length && !input.compressed) return input.tokens;
    return Array.from({ length: keys }, (_, i) => `key ${i + 1}`);
  };

  // The shortest decimal that is this float32.
  const exact = (value) => {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    for (let digits = 6; digits < 9; digits++) {
      const text = value.toPrecision(digits);
      if (Math.fround(Number(text)) === Math.fround(value)) return String(Number(text));
    }
    return String(Number(value.toPrecision(9)));
  };

  // For reading: four decimals, or an exponent where those would say nothing.
  const short = (value) => {
    if (!Number.isFinite(value)) return exact(value);
    if (value !== 0 && (Math.abs(value) < 5e-4 || Math.abs(value) >= 1e5)) return minusSign(value.toExponential(1));
    return minusSign(value.toFixed(4));
  };
  const minusSign = (text) => text.replace(/-/g, "\u2212");

  return { flatten, shapeOf, Layer, AttentionMap, visible, keyTokens, exact, short };
})();
