"use strict";
// Two things to draw on with the same methods: a canvas, and an SVG document. A figure is drawn once for both.

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

class CanvasSurface {
  constructor(canvas, width, height, ratio) {
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    this.context = canvas.getContext("2d");
    this.context.scale(ratio, ratio);
    this.width = width;
    this.height = height;
  }

  rect(x, y, width, height, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
  }

  frame(x, y, width, height, stroke, thick = 1) {
    this.context.strokeStyle = stroke;
    this.context.lineWidth = thick;
    this.context.strokeRect(x, y, width, height);
  }

  // From left to right with level ends.
  curve(x1, y1, x2, y2, stroke, opacity, thick) {
    const c = this.context;
    const middle = (x1 + x2) / 2;
    c.globalAlpha = opacity;
    c.strokeStyle = stroke;
    c.lineWidth = thick;
    c.beginPath();
    c.moveTo(x1, y1);
    c.bezierCurveTo(middle, y1, middle, y2, x2, y2);
    c.stroke();
    c.globalAlpha = 1;
  }

  // `turn` in degrees around the anchor.
  text(string, x, y, { size = 12, fill = "#000", anchor = "start", turn = 0, weight = 400 } = {}) {
    const c = this.context;
    c.font = `${weight} ${size}px ${FONT}`;
    c.fillStyle = fill;
    c.textAlign = { start: "left", middle: "center", end: "right" }[anchor];
    c.textBaseline = "middle";
    c.save();
    c.translate(x, y);
    c.rotate((turn * Math.PI) / 180);
    c.fillText(string, 0, 0);
    c.restore();
  }

  // Draws `inside` with everything outside the box cut off.
  clip(x, y, width, height, inside) {
    const c = this.context;
    c.save();
    c.beginPath();
    c.rect(x, y, width, height);
    c.clip();
    inside();
    c.restore();
  }

  // Draws `inside` on a part of the surface as if it were the whole.
  inner(x, y, width, height, inside) {
    const outer = [this.width, this.height];
    this.context.save();
    this.context.translate(x, y);
    [this.width, this.height] = [width, height];
    inside();
    [this.width, this.height] = outer;
    this.context.restore();
  }

  // A matrix of colours; `colour(row, column)` gives [r, g, b].
  cells(x, y, cell, rows, columns, colour) {
    if (!rows || !columns) return;
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(bitmap(rows, columns, colour), x, y, columns * cell, rows * cell);
  }
}

// One pixel for each cell.
const bitmap = (rows, columns, colour) => {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  let at = 0;
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const [r, g, b] = colour(i, j);
      image.data[at++] = r;
      image.data[at++] = g;
      image.data[at++] = b;
      image.data[at++] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
};

class SvgSurface {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.root = this.make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT });
    this.place = this.root;
    this.clips = 0;
  }

  make(tag, attributes) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) {
      element.setAttribute(name, typeof value === "number" ? String(Math.round(value * 100) / 100) : value);
    }
    return element;
  }

  add(tag, attributes) {
    const element = this.make(tag, attributes);
    this.place.append(element);
    return element;
  }

  rect(x, y, width, height, fill) {
    this.add("rect", { x, y, width, height, fill });
  }

  frame(x, y, width, height, stroke, thick = 1) {
    this.add("rect", { x, y, width, height, fill: "none", stroke, "stroke-width": thick });
  }

  curve(x1, y1, x2, y2, stroke, opacity, thick) {
    const [a, b, c, d, m] = [x1, y1, x2, y2, (x1 + x2) / 2].map((value) => Math.round(value * 100) / 100);
    const path = `M${a},${b}C${m},${b} ${m},${d} ${c},${d}`;
    this.add("path", { d: path, fill: "none", stroke, "stroke-opacity": opacity, "stroke-width": thick });
  }

  text(string, x, y, { size = 12, fill = "#000", anchor = "start", turn = 0, weight = 400 } = {}) {
    const place = { x, y, fill, "font-size": size, "text-anchor": anchor, "dominant-baseline": "central" };
    if (turn) place.transform = `rotate(${turn} ${x} ${y})`;
    if (weight !== 400) place["font-weight"] = weight;
    this.add("text", place).textContent = printable(string);
  }

  clip(x, y, width, height, inside) {
    const id = `clip${this.clips++}`;
    this.add("clipPath", { id }).append(this.make("rect", { x, y, width, height }));
    const outer = this.place;
    this.place = this.add("g", { "clip-path": `url(#${id})` });
    inside();
    this.place = outer;
  }

  inner(x, y, width, height, inside) {
    const outer = [this.place, this.width, this.height];
    this.place = this.add("g", { transform: `translate(${x} ${y})` });
    [this.width, this.height] = [width, height];
    inside();
    [this.place, this.width, this.height] = outer;
  }

  // Rectangles while they are few; else an image, a pixel for each cell.
  cells(x, y, cell, rows, columns, colour) {
    if (rows * columns > 20000 || cell < 3) {
      const href = bitmap(rows, columns, colour).toDataURL();
      const size = { x, y, width: columns * cell, height: rows * cell, preserveAspectRatio: "none" };
      this.add("image", { ...size, href, "image-rendering": "pixelated" });
      return;
    }
    const outer = this.place;
    this.place = this.add("g", { "shape-rendering": "crispEdges" });
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        this.rect(x + j * cell, y + i * cell, cell, cell, `rgb(${colour(i, j).join(",")})`);
      }
    }
    this.place = outer;
  }

  toString() {
    return new XMLSerializer().serializeToString(this.root);
  }
}

// XML has no control characters; a tokenizer may.
const printable = (string) => string.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
