"use strict";
// A map as a matrix of colours: queries down, keys across.

const Heatmap = (() => {
  const CHARACTER = 6.4; // width of a letter of the labels, more or less
  const LONGEST = 16;

  const cut = (token, most = LONGEST) => (token.length > most ? `${token.slice(0, most - 1)}\u2026` : token);
  const room = (tokens, size = 12) =>
    Math.ceil(Math.min(LONGEST, Math.max(3, ...tokens.map((token) => token.length))) * CHARACTER * (size / 12)) + 14;

  // Where things are. `figure` is { map, rows, columns, rowTokens, columnTokens, scale, title }.
  const layout = (figure, width, zoom) => {
    const { rows, columns } = figure;
    const shown = (indices, tokens) => indices.map((i) => tokens[i] ?? "");
    const left = room(shown(rows, figure.rowTokens));
    const top = room(shown(columns, figure.columnTokens)) + (figure.title ? 22 : 0);
    const fitted = Math.max(3, Math.min(34, Math.floor((width - left - 8) / Math.max(columns.length, 1))));
    const cell = zoom ? Math.max(2, Math.round(fitted * 1.25 ** zoom)) : fitted;
    return { left, top, cell, width: left + columns.length * cell + 8, height: top + rows.length * cell + 8 };
  };

  // Draws on a surface that shows the part from (x, y) on; labels stay at its edges.
  const draw = (surface, figure, place, look, { x = 0, y = 0, marked = null } = {}) => {
    const { map, rows, columns, scale } = figure;
    const { left, top, cell } = place;
    surface.rect(0, 0, surface.width, surface.height, look.paper);
    const firstRow = Math.max(0, Math.floor(y / cell));
    const firstColumn = Math.max(0, Math.floor(x / cell));
    const lastRow = Math.min(rows.length, Math.ceil((y + surface.height - top) / cell));
    const lastColumn = Math.min(columns.length, Math.ceil((x + surface.width - left) / cell));
    const atX = (j) => left + j * cell - x;
    const atY = (i) => top + i * cell - y;
    surface.clip(left, top, surface.width - left, surface.height - top, () => {
      surface.cells(atX(firstColumn), atY(firstRow), cell, lastRow - firstRow, lastColumn - firstColumn, (i, j) =>
        scale.rgb(map.at(rows[firstRow + i], columns[firstColumn + j])),
      );
      if (cell >= 30) values(surface, figure, { atX, atY, cell, firstRow, lastRow, firstColumn, lastColumn });
      if (marked) surface.frame(atX(marked.column) - 0.5, atY(marked.row) - 0.5, cell + 1, cell + 1, look.ink, 1.5);
    });
    surface.frame(left - 0.5, top - 0.5, columns.length * cell + 1, rows.length * cell + 1, look.line);
    if (figure.title) surface.text(figure.title, 6, 11, { size: 12, fill: look.ink, weight: 600 });
    const every = Math.max(1, Math.ceil(11 / cell)); // labels need eleven pixels
    const size = Math.min(12, Math.max(9, cell));
    const style = (index, at, anchor) => ({
      size,
      anchor,
      fill: at ? look.accent : look.isPadding(index) ? look.soft : look.ink,
      weight: at ? 700 : 400,
    });
    const near = (at, place_) => at === undefined || at === null || Math.abs(at - place_) * cell >= 11 || at === place_;
    surface.clip(0, top - 4, left, surface.height - top + 4, () => {
      for (let i = firstRow; i < lastRow; i++) {
        const at = marked?.row === i;
        if (!at && (i % every || !near(marked?.row, i))) continue;
        surface.text(cut(figure.rowTokens[rows[i]] ?? ""), left - 6, atY(i + 0.5), style(rows[i], at, "end"));
      }
    });
    surface.clip(left - 4, 0, surface.width - left + 4, top, () => {
      for (let j = firstColumn; j < lastColumn; j++) {
        const at = marked?.column === j;
        if (!at && (j % every || !near(marked?.column, j))) continue;
        const token = cut(figure.columnTokens[columns[j]] ?? "");
        surface.text(token, atX(j + 0.5), top - 6, { ...style(columns[j], at, "start"), turn: -90 });
      }
    });
  };

  const values = (surface, { map, rows, columns, scale }, at) => {
    for (let i = at.firstRow; i < at.lastRow; i++) {
      for (let j = at.firstColumn; j < at.lastColumn; j++) {
        const value = map.at(rows[i], columns[j]);
        const text = Number.isFinite(value) ? value.toFixed(2).replace("-", "\u2212") : "NaN";
        const style = { size: Math.min(12, at.cell / 3.2), fill: scale.ink(value), anchor: "middle" };
        surface.text(text, at.atX(j + 0.5), at.atY(i + 0.5), style);
      }
    }
  };

  // The cell at a point of the surface, or null.
  const hit = (figure, place, pointX, pointY, x, y) => {
    if (pointX < place.left || pointY < place.top) return null;
    const row = Math.floor((pointY - place.top + y) / place.cell);
    const column = Math.floor((pointX - place.left + x) / place.cell);
    const inside = row >= 0 && column >= 0 && row < figure.rows.length && column < figure.columns.length;
    return inside ? { row, column } : null;
  };

  return { layout, draw, hit, cut, room };
})();
