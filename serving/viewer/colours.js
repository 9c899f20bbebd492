"use strict";
// A diverging scale: nothing at zero, blue above, orange below, which those who do not tell red from green see too.

const Colours = (() => {
  const THEMES = {
    light: { zero: [255, 255, 255], above: [8, 69, 148], below: [179, 72, 0], none: [150, 150, 150] },
    dark: { zero: [22, 26, 31], above: [124, 189, 255], below: [255, 158, 74], none: [110, 110, 110] },
  };
  const LEAST = 1e-4; // a smaller limit would show rounding errors in full colour

  class Scale {
    // `limit`: value of the strongest colour. `curve`: "linear", or "root" to see small weights beside large ones.
    constructor(limit, curve, theme) {
      this.limit = Math.max(limit, LEAST);
      this.curve = curve;
      this.theme = THEMES[theme];
    }

    strength(value) {
      const part = Math.min(Math.abs(value) / this.limit, 1);
      return this.curve === "root" ? Math.sqrt(part) : part;
    }

    rgb(value) {
      const { zero, above, below, none } = this.theme;
      if (Number.isNaN(value)) return none;
      const end = value < 0 ? below : above;
      const part = this.strength(value);
      return zero.map((from, i) => Math.round(from + (end[i] - from) * part));
    }

    css(value) {
      return `rgb(${this.rgb(value).join(",")})`;
    }

    // Colour of a line, whose opacity says how strong it is.
    hue(value) {
      return `rgb(${(value < 0 ? this.theme.below : this.theme.above).join(",")})`;
    }

    // Black or white, whichever can be read on a colour.
    ink(value) {
      const [r, g, b] = this.rgb(value);
      return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
    }
  }

  const limitOf = (range) => Math.max(Math.abs(range.low), Math.abs(range.high));

  // Limit of many maps on one scale.
  const common = (maps, rows, columns) => Math.max(0, ...maps.map((map) => limitOf(map.range(rows, columns))));

  return { Scale, limitOf, common, LEAST };
})();
