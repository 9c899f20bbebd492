"use strict";
// What is shown, and the part of the address behind the # that says so. Layers and heads count from 1 there and on the
// page, from 0 in the code and in requests.

const State = (() => {
  const MODES = ["heatmap", "lines", "grid", "difference"];
  const DEFAULTS = {
    server: "",
    model: "",
    version: "",
    text: "",
    pair: "",
    ids: "",
    segments: "",
    labels: "",
    layer: 0,
    head: 0,
    kind: "raw",
    mode: "heatmap",
    withLayer: 0,
    withHead: 0,
    withKind: "effective",
    scale: "head",
    curve: "linear",
    zoom: 0,
    threshold: 5,
    hideSpecial: false,
    hidePadding: true,
    token: null,
    theme: "",
  };
  const CHOICES = {
    kind: KINDS,
    withKind: KINDS,
    mode: MODES,
    scale: ["head", "layer", "all"],
    curve: ["linear", "root"],
    theme: ["", "light", "dark"],
  };
  const LIMITS = { zoom: [-4, 12], threshold: [0, 50] };
  const COUNTED = ["layer", "withLayer", "head", "withHead", "token"];

  const read = (hash) => {
    const given = new URLSearchParams(hash.replace(/^#/, ""));
    const state = { ...DEFAULTS };
    for (const [name, fallback] of Object.entries(DEFAULTS)) {
      const text = given.get(name);
      if (text === null) continue;
      if (COUNTED.includes(name)) {
        if (name.toLowerCase().endsWith("head") && text === "mean") state[name] = "mean";
        else if (/^[1-9]\d{0,5}$/.test(text)) state[name] = Number(text) - 1;
      } else if (name in CHOICES) {
        if (CHOICES[name].includes(text)) state[name] = text;
      } else if (typeof fallback === "number") {
        const [least, most] = LIMITS[name];
        const value = Number(text);
        if (Number.isInteger(value)) state[name] = Math.max(least, Math.min(value, most));
      } else if (typeof fallback === "boolean") {
        state[name] = text === "1";
      } else {
        state[name] = text;
      }
    }
    return state;
  };

  const write = (state) => {
    const out = new URLSearchParams();
    for (const [name, fallback] of Object.entries(DEFAULTS)) {
      const value = state[name];
      if (value === fallback) continue;
      if (COUNTED.includes(name)) out.set(name, value === "mean" ? value : String(value + 1));
      else if (typeof value === "boolean") out.set(name, value ? "1" : "0");
      else out.set(name, String(value));
    }
    return out.toString();
  };

  // Whole numbers, separated by spaces or commas.
  const numbers = (text, name) => {
    const parts = text.split(/[\s,]+/).filter(Boolean);
    const wrong = parts.find((part) => !/^\d{1,9}$/.test(part));
    if (wrong !== undefined) throw new ApiError(`"${wrong}" in ${name} is not a whole number.`);
    return parts.map(Number);
  };

  return { DEFAULTS, LIMITS, read, write, numbers };
})();
