"use strict";
// Token-labelled heatmaps: raw, effective and null attention of one head, side by side on one scale.
(() => {
  const box = document.getElementById("maps");
  const examples = JSON.parse(document.getElementById("examples").textContent);
  if (!box || !examples.length) return;
  const pick = (name) => document.getElementById(name);
  const [which, layerBox, headBox, scaleBox, readout] = ["example", "layer", "head", "own-scale", "readout"].map(pick);
  const names = ["raw", "effective", "null"];

  const unpack = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Int16Array(bytes.buffer);
  };
  for (const e of examples) {
    e.raw = unpack(e.raw);
    e.effective = unpack(e.effective);
  }
  const option = (select, value, text) => select.add(new Option(text, value));
  examples.forEach((e, i) => option(which, i, e.text));
  const fill = () => {
    const e = examples[which.value];
    const keep = [layerBox.value, headBox.value];
    layerBox.replaceChildren();
    headBox.replaceChildren();
    for (let l = 0; l < e.layers; l++) option(layerBox, l, `layer ${l + 1}`);
    option(headBox, "mean", "mean of heads");
    for (let h = 0; h < e.heads; h++) option(headBox, h, `head ${h + 1}`);
    layerBox.value = keep[0] && keep[0] < e.layers ? keep[0] : e.layers - 1;
    headBox.value = keep[1] && (keep[1] === "mean" || keep[1] < e.heads) ? keep[1] : "mean";
  };

  // One map as floats: a head, or the mean of the heads of a layer.
  const read = (e, name, layer, head) => {
    const size = e.tokens.length ** 2;
    const out = new Float32Array(size);
    const heads = head === "mean" ? [...Array(e.heads).keys()] : [Number(head)];
    for (const h of heads) {
      const begin = (layer * e.heads + h) * size;
      for (let i = 0; i < size; i++) {
        const raw = e.raw[begin + i], eff = e.effective[begin + i];
        out[i] += (name === "raw" ? raw : name === "effective" ? eff : raw - eff) * e.unit / heads.length;
      }
    }
    return out;
  };

  // White at 0, blue above, orange below: told apart without telling red from green.
  const colour = (x) => {
    const t = Math.sqrt(Math.min(Math.abs(x), 1));
    const [r, g, b] = x >= 0 ? [8, 69, 148] : [179, 88, 6];
    return [255 + (r - 255) * t, 255 + (g - 255) * t, 255 + (b - 255) * t];
  };

  const canvases = names.map((name) => {
    const figure = document.createElement("figure");
    const canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    figure.append(canvas, caption);
    box.append(figure);
    canvas.addEventListener("mousemove", (event) => hover(event, canvas));
    canvas.addEventListener("mouseleave", () => { readout.textContent = "\u00a0"; });
    return { name, canvas, caption };
  });
  let shown = null;

  const draw = () => {
    const e = examples[which.value];
    const layer = Number(layerBox.value), n = e.tokens.length;
    // Three beside each other where the page is wide enough, else one below the other.
    const third = (box.clientWidth - 32) / 3;
    const room = third > 280 ? third : box.clientWidth;
    const font = Math.max(7, Math.min(12, Math.floor(room / 1.25 / n)));
    const ink = getComputedStyle(document.body).color;
    const maps = names.map((name) => read(e, name, layer, headBox.value));
    const largest = maps.map((map) => map.reduce((a, v) => Math.max(a, Math.abs(v)), 0) || 1);
    const common = Math.max(...largest);
    canvases.forEach(({ name, canvas, caption }, k) => {
      const context = canvas.getContext("2d");
      context.font = `${font}px system-ui, sans-serif`;
      const margin = Math.ceil(Math.max(...e.tokens.map((t) => context.measureText(t).width))) + 6;
      const cell = Math.max(3, Math.min(16, Math.floor((room - margin) / n)));
      const size = margin + n * cell, ratio = window.devicePixelRatio || 1;
      canvas.width = canvas.height = size * ratio;
      canvas.style.width = canvas.style.height = `${size}px`;
      context.scale(ratio, ratio);
      context.font = `${font}px system-ui, sans-serif`;
      context.fillStyle = ink;
      context.textBaseline = "middle";
      e.tokens.forEach((token, i) => {
        context.textAlign = "right";
        context.fillText(token, margin - 4, margin + (i + 0.5) * cell);
        context.save();
        context.translate(margin + (i + 0.5) * cell, margin - 4);
        context.rotate(-Math.PI / 2);
        context.textAlign = "left";
        context.fillText(token, 0, 0);
        context.restore();
      });
      const scale = scaleBox.checked ? largest[k] : common;
      for (let i = 0; i < n * n; i++) {
        const [r, g, b] = colour(maps[k][i] / scale);
        context.fillStyle = `rgb(${r | 0},${g | 0},${b | 0})`;
        context.fillRect(margin + (i % n) * cell, margin + Math.floor(i / n) * cell, cell, cell);
      }
      const low = maps[k].reduce((a, v) => Math.min(a, v), 0);
      const high = maps[k].reduce((a, v) => Math.max(a, v), 0);
      caption.textContent = `${name}: from ${low.toFixed(3)} to ${high.toFixed(3)}`;
      canvas.geometry = { margin, cell, n };
    });
    shown = { e, maps };
  };

  const hover = (event, canvas) => {
    const { margin, cell, n } = canvas.geometry;
    const j = Math.floor((event.offsetX - margin) / cell), i = Math.floor((event.offsetY - margin) / cell);
    if (i < 0 || j < 0 || i >= n || j >= n) { readout.textContent = "\u00a0"; return; }
    const values = names.map((name, k) => `${name} ${shown.maps[k][i * n + j].toFixed(4)}`).join(", ");
    readout.textContent = `from "${shown.e.tokens[i]}" (${i}) to "${shown.e.tokens[j]}" (${j}): ${values}`;
  };

  which.addEventListener("change", () => { fill(); draw(); });
  for (const control of [layerBox, headBox, scaleBox]) control.addEventListener("change", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("resize", draw);
  fill();
  draw();
})();
