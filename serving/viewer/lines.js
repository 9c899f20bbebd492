"use strict";
// A map as lines from queries on the left to keys on the right: opacity says how strong, colour which sign.

const Lines = (() => {
  const layout = (figure, width, zoom) => {
    const { rows, columns } = figure;
    const count = Math.max(rows.length, columns.length, 1);
    const step = Math.max(8, Math.round((count > 60 ? 16 : 22) * 1.25 ** zoom));
    const tokens = (indices, all) => indices.map((i) => all[i] ?? "");
    const left = Math.max(100, Heatmap.room(tokens(rows, figure.rowTokens)) + 44);
    const right = Heatmap.room(tokens(columns, figure.columnTokens)) + 44;
    const whole = Math.max(260, Math.min(width, 760));
    return { left, right, step, top: 34, width: whole, height: 34 + count * step + 10 };
  };

  // `marked` is { side: "query" | "key", at } to show the lines of one token only.
  const draw = (surface, figure, place, look, { y = 0, marked = null, threshold = 0.05 } = {}) => {
    const { map, rows, columns, scale } = figure;
    const { left, step, top } = place;
    const end = place.width - place.right;
    const atY = (i) => top + (i + 0.5) * step - y;
    surface.rect(0, 0, surface.width, surface.height, look.paper);
    surface.clip(0, top - 8, surface.width, surface.height - top + 8, () => {
      if (marked) values(surface, figure, place, marked, atY);
      for (const [i, query] of rows.entries()) {
        for (const [j, key] of columns.entries()) {
          const value = map.at(query, key);
          const part = Math.abs(value) / scale.limit;
          if (!(part >= threshold) || part === 0) continue;
          if (marked && (marked.side === "query" ? marked.at !== i : marked.at !== j)) continue;
          const [from, to] = [atY(i), atY(j)];
          if (Math.max(from, to) < 0 || Math.min(from, to) > surface.height) continue;
          surface.curve(left, from, end, to, scale.hue(value), Math.max(0.04, scale.strength(value)), 1.6);
        }
      }
      const token = (text, x, at, index, anchor, side) => {
        if (atY(at) < 0 || atY(at) > surface.height) return;
        const on = marked?.side === side && marked.at === at;
        const fill = on ? look.accent : look.isPadding(index) ? look.soft : look.ink;
        const style = { size: Math.min(13, step * 0.72), anchor, fill, weight: on ? 700 : 400 };
        surface.text(Heatmap.cut(text), x, atY(at), style);
      };
      rows.forEach((index, i) => token(figure.rowTokens[index] ?? "", left - 7, i, index, "end", "query"));
      columns.forEach((index, j) => token(figure.columnTokens[index] ?? "", end + 7, j, index, "start", "key"));
    });
    const heading = { size: 11, fill: look.soft, weight: 600 };
    surface.text("query attends", left - 7, 12, { ...heading, anchor: "end" });
    surface.text("to key", end + 7, 12, heading);
  };

  // What the lines of one token weigh, beside the tokens they lead to.
  const values = (surface, { map, rows, columns, scale }, place, marked, atY) => {
    const ofQuery = marked.side === "query";
    const x = ofQuery ? place.width - 42 : 2;
    (ofQuery ? columns : rows).forEach((index, i) => {
      if (atY(i) < 0 || atY(i) > surface.height) return;
      const value = ofQuery ? map.at(rows[marked.at], index) : map.at(index, columns[marked.at]);
      surface.rect(x, atY(i) - place.step / 2 + 1, 40, place.step - 2, scale.css(value));
      const text = Number.isFinite(value) ? value.toFixed(3).replace("-", "\u2212") : "NaN";
      const style = { size: Math.min(11, place.step * 0.7), anchor: "middle", fill: scale.ink(value) };
      surface.text(text, x + 20, atY(i), style);
    });
  };

  const hit = (figure, place, pointX, pointY, y) => {
    const at = Math.floor((pointY - place.top + y) / place.step);
    if (at < 0 || pointY < place.top - 8) return null;
    if (pointX <= place.left + 12 && at < figure.rows.length) return { side: "query", at };
    if (pointX >= place.width - place.right - 12 && at < figure.columns.length) return { side: "key", at };
    return null;
  };

  return { layout, draw, hit };
})();
