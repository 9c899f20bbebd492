"use strict";
// The colour scale with its numbers, and where the values of the map lie on it.

const Legend = (() => {
  const WIDTH = 300;
  const HEIGHT = 46;

  const draw = (surface, scale, range, look, width = WIDTH) => {
    const [left, bar, thick] = [10, width - 20, 10];
    surface.rect(0, 0, surface.width, surface.height, look.paper);
    const steps = Math.round(bar / 2);
    const at = (value) => left + ((value / scale.limit + 1) / 2) * bar;
    for (let i = 0; i < steps; i++) {
      const value = ((i + 0.5) / steps) * 2 * scale.limit - scale.limit;
      surface.rect(left + (i * bar) / steps, 14, bar / steps + 0.5, thick, scale.css(value));
    }
    surface.frame(left - 0.5, 13.5, bar + 1, thick + 1, look.line);
    const small = { size: 11, fill: look.soft, anchor: "middle" };
    surface.text(Maps.short(-scale.limit), left - 8, 36, { ...small, anchor: "start" });
    surface.text("0", at(0), 36, small);
    surface.text(`+${Maps.short(scale.limit)}`, left + bar + 8, 36, { ...small, anchor: "end" });
    // A bracket over the values that there are.
    const within = (value) => Math.max(-scale.limit, Math.min(scale.limit, value));
    const [low, high] = [at(within(range.low)), at(within(range.high))];
    surface.rect(low, 8, Math.max(1, high - low), 1.5, look.ink);
    surface.rect(low - 0.75, 6, 1.5, 7, look.ink);
    surface.rect(high - 0.75, 6, 1.5, 7, look.ink);
  };

  const words = (range, scale) => {
    const parts = [`values from ${Maps.short(range.low)} to ${Maps.short(range.high)}`];
    if (scale.curve === "root") parts.push("colours by square root");
    if (range.missing) parts.push(`${range.missing} values are NaN or infinite (grey or full colour)`);
    return parts.join("; ");
  };

  return { WIDTH, HEIGHT, draw, words };
})();
