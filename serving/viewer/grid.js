"use strict";
// All heads of all layers at a glance. A layer is asked for when its row comes into sight.

class Grid {
  // `on`: functions `pick(layer, head)`, `hover(layer, head, event)` and `need(layer)`.
  constructor(host, on) {
    this.host = host;
    this.on = on;
    this.rows = [];
    const seen = (entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) on.need(Number(target.dataset.layer));
    };
    this.observer = new IntersectionObserver(seen, { rootMargin: "120px" });
  }

  // Empty rows for a new input.
  reset(layers) {
    this.observer.disconnect();
    this.rows = Array.from({ length: layers }, (_, layer) => {
      const row = Dom.make("section", { class: "grid-row", "data-layer": layer, "aria-label": `Layer ${layer + 1}` });
      const heads = Dom.make("div", { class: "heads" });
      heads.append(Dom.make("p", { class: "waiting" }, "Waiting\u2026"));
      row.append(Dom.make("h3", {}, `Layer ${layer + 1}`), heads);
      return { row, heads, cells: [] };
    });
    this.host.replaceChildren(...this.rows.map(({ row }) => row));
    this.rows.forEach(({ row }) => this.observer.observe(row));
  }

  fail(layer, message) {
    const again = Dom.make("button", { type: "button" }, "Try again");
    again.addEventListener("click", () => this.on.need(layer));
    this.rows[layer].heads.replaceChildren(Dom.make("p", { class: "waiting" }, message), again);
    this.rows[layer].cells = [];
  }

  // Draws one layer. `maps`: of its heads; `scale(map)`: the colours of each.
  show(layer, maps, shown, scale) {
    const { heads, cells } = this.rows[layer];
    if (cells.length !== maps.length) {
      this.rows[layer].cells = maps.map((_, head) => this.cell(layer, head));
      heads.replaceChildren(...this.rows[layer].cells.map(({ button }) => button));
    }
    maps.forEach((map, head) => {
      const { canvas, button } = this.rows[layer].cells[head];
      const range = map.range(shown.rows, shown.columns);
      const values = `${Maps.short(range.low)} to ${Maps.short(range.high)}`;
      button.setAttribute("aria-label", `Layer ${layer + 1}, head ${head + 1}, values from ${values}`);
      this.paint(canvas, map, shown, scale(map));
    });
  }

  cell(layer, head) {
    const button = Dom.make("button", { type: "button", class: "head" });
    const canvas = Dom.make("canvas", { "aria-hidden": "true" });
    button.append(canvas, Dom.make("span", { "aria-hidden": "true" }, String(head + 1)));
    button.addEventListener("click", () => this.on.pick(layer, head));
    button.addEventListener("pointermove", (event) => this.on.hover(layer, head, event));
    button.addEventListener("pointerleave", () => this.on.hover(layer, head, null));
    return { button, canvas };
  }

  // More tokens than pixels: the strongest weight of those that share a pixel is shown, so that none is lost.
  paint(canvas, map, { rows, columns }, scale) {
    const ratio = window.devicePixelRatio || 1;
    const pixels = Math.max(1, Math.round((canvas.clientWidth || 72) * ratio));
    const [height, width] = [Math.min(rows.length, pixels), Math.min(columns.length, pixels)];
    canvas.width = canvas.height = pixels;
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    if (!height || !width) return;
    const from = (at, parts, all) => Math.floor((at * all) / parts);
    const strongest = (i, j) => {
      let best = 0;
      for (let r = from(i, height, rows.length); r < from(i + 1, height, rows.length); r++) {
        for (let c = from(j, width, columns.length); c < from(j + 1, width, columns.length); c++) {
          const value = map.at(rows[r], columns[c]);
          if (Number.isNaN(value)) return value;
          if (Math.abs(value) > Math.abs(best)) best = value;
        }
      }
      return best;
    };
    context.drawImage(bitmap(height, width, (i, j) => scale.rgb(strongest(i, j))), 0, 0, pixels, pixels);
  }

  select(layer, head) {
    this.rows.forEach(({ cells }, l) =>
      cells.forEach(({ button }, h) => button.classList.toggle("chosen", l === layer && h === head)),
    );
  }

  // All loaded heads on one surface that `make(width, height)` gives, for files.
  static print(layers, shown, title, look, make) {
    const [side, gap, left, top] = [96, 10, 70, 66];
    const heads = Math.max(...layers.map(({ maps }) => maps.length));
    const surface = make(left + heads * (side + gap) + 14, top + layers.length * (side + gap) + 14);
    surface.rect(0, 0, surface.width, surface.height, look.paper);
    surface.text(title, 14, 24, { size: 14, fill: look.ink, weight: 600 });
    const soft = { size: 11, fill: look.soft };
    for (let head = 0; head < heads; head++) {
      surface.text(`head ${head + 1}`, left + head * (side + gap) + side / 2, 54, { ...soft, anchor: "middle" });
    }
    const cell = side / Math.max(shown.rows.length, shown.columns.length, 1);
    layers.forEach(({ layer, maps, scale }, i) => {
      const y = top + i * (side + gap);
      surface.text(`layer ${layer + 1}`, 14, y + side / 2, soft);
      maps.forEach((map, head) => {
        const x = left + head * (side + gap);
        const colours = scale(map);
        const colour = (r, c) => colours.rgb(map.at(shown.rows[r], shown.columns[c]));
        surface.cells(x, y, cell, shown.rows.length, shown.columns.length, colour);
        surface.frame(x - 0.5, y - 0.5, cell * shown.columns.length + 1, cell * shown.rows.length + 1, look.line);
      });
    });
    return surface;
  }
}
