"use strict";
// A figure on the page: a canvas that shows the part its scroll box is at, a legend, and what the pointer is on.

const Pane = (() => {
  const KINDS_OF_FIGURE = { heatmap: Heatmap, lines: Lines };

  class Pane {
    // `on`: functions `hover(mark, event)`, `pick(mark)` and `scroll(left, top)`.
    constructor(on) {
      this.on = on;
      this.root = Dom.make("div", { class: "pane" });
      this.box = Dom.make("div", { class: "scroller", tabindex: "0" });
      this.spacer = Dom.make("div", { class: "spacer" });
      this.canvas = Dom.make("canvas", { role: "img" });
      this.legend = Dom.make("canvas", { class: "legend", role: "img" });
      this.words = Dom.make("p", { class: "legend-words" });
      this.spacer.append(this.canvas);
      this.box.append(this.spacer);
      this.root.append(this.box, this.legend, this.words);
      this.marked = null;
      this.box.addEventListener("scroll", () => {
        this.draw();
        on.scroll?.(this.box.scrollLeft, this.box.scrollTop);
      });
      const at = (event) => {
        const corner = this.canvas.getBoundingClientRect();
        return this.hit(event.clientX - corner.left, event.clientY - corner.top);
      };
      this.canvas.addEventListener("pointermove", (event) => on.hover(at(event), event));
      this.canvas.addEventListener("pointerdown", (event) => on.hover(at(event), event));
      this.canvas.addEventListener("pointerleave", () => on.hover(null, null));
      this.canvas.addEventListener("click", (event) => {
        const mark = at(event);
        if (mark) on.pick(mark);
      });
    }

    // `options`: zoom, threshold, and `look` (colours of the page).
    show(type, figure, options) {
      Object.assign(this, { type, figure, options });
      this.canvas.setAttribute("aria-label", figure.label);
      this.fit();
    }

    // Sizes of everything, for the width there is.
    fit() {
      if (!this.figure) return;
      const { figure, options } = this;
      this.place = KINDS_OF_FIGURE[this.type].layout(figure, this.root.clientWidth - 2, options.zoom);
      Dom.size(this.spacer, this.place.width, this.place.height);
      this.draw();
      const ratio = window.devicePixelRatio || 1;
      const width = Math.min(Legend.WIDTH, this.root.clientWidth);
      Dom.size(this.legend, width, Legend.HEIGHT);
      const surface = new CanvasSurface(this.legend, width, Legend.HEIGHT, ratio);
      Legend.draw(surface, figure.scale, figure.range, options.look, width);
      const words = Legend.words(figure.range, figure.scale);
      this.legend.setAttribute("aria-label", `Colour scale: ${words}`);
      this.words.textContent = words;
    }

    mark(mark) {
      if (JSON.stringify(mark) === JSON.stringify(this.marked)) return;
      this.marked = mark;
      this.draw();
    }

    scrollTo(left, top) {
      if (this.box.scrollLeft !== left || this.box.scrollTop !== top) this.box.scrollTo(left, top);
    }

    // Scrolls so that a cell can be seen.
    reveal({ row, column }) {
      const { cell, left, top } = this.place;
      const near = (at, from, size) => Math.max(at + cell - size, Math.min(at, from));
      const x = near(column * cell, this.box.scrollLeft, this.box.clientWidth - left - 8);
      const y = near(row * cell, this.box.scrollTop, this.box.clientHeight - top - 8);
      this.scrollTo(x, y);
    }

    hit(x, y) {
      const { scrollLeft, scrollTop } = this.box;
      if (this.type === "lines") return Lines.hit(this.figure, this.place, x + scrollLeft, y, scrollTop);
      return Heatmap.hit(this.figure, this.place, x, y, scrollLeft, scrollTop);
    }

    draw() {
      const width = Math.min(this.place.width, this.box.clientWidth);
      const height = Math.min(this.place.height, this.box.clientHeight);
      Dom.size(this.canvas, width, height);
      const surface = new CanvasSurface(this.canvas, width, height, window.devicePixelRatio || 1);
      const part = { x: this.box.scrollLeft, y: this.box.scrollTop, marked: this.marked, ...this.options };
      KINDS_OF_FIGURE[this.type].draw(surface, this.figure, this.place, this.options.look, part);
    }
  }

  // A whole figure with its title and legend on a surface that `make(width, height)` gives, for files.
  const print = (parts, title, look, make) => {
    const places = parts.map(({ type, figure, zoom }) => KINDS_OF_FIGURE[type].layout(figure, 900, zoom));
    const gap = 24;
    const width = Math.max(places.reduce((sum, { width }) => sum + Math.max(width, Legend.WIDTH) + gap, gap), 480);
    const height = 48 + Math.max(...places.map((place) => place.height)) + Legend.HEIGHT + 34;
    const surface = make(width, height);
    surface.rect(0, 0, width, height, look.paper);
    surface.text(title, gap, 24, { size: 14, fill: look.ink, weight: 600 });
    let x = gap;
    parts.forEach(({ type, figure, threshold }, i) => {
      const place = places[i];
      surface.inner(x, 48, place.width, place.height, () =>
        KINDS_OF_FIGURE[type].draw(surface, figure, place, look, { threshold }),
      );
      const under = 48 + place.height + 4;
      const legend = () => Legend.draw(surface, figure.scale, figure.range, look);
      surface.inner(x, under, Legend.WIDTH, Legend.HEIGHT, legend);
      const words = { size: 11, fill: look.soft };
      surface.text(Legend.words(figure.range, figure.scale), x + 2, under + Legend.HEIGHT + 8, words);
      x += Math.max(place.width, Legend.WIDTH) + gap;
    });
    return surface;
  };

  return { Pane, print };
})();
