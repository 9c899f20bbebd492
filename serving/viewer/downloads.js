"use strict";
// The current view as a file.

const Downloads = (() => {
  const save = (blob, name) => {
    const link = Dom.make("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // Quoted where CSV needs it. Cells with tokens begin with a number, so no spreadsheet takes them for a formula.
  const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const numbered = (tokens, i) => cell(`${i + 1}:${tokens[i] ?? ""}`);

  // One line for each query; `figures` are { layer, head, kind, map, rows, columns, rowTokens, columnTokens }.
  const csv = (figures) => {
    const { columns, columnTokens } = figures[0];
    const lines = [["layer", "head", "kind", "query", ...columns.map((j) => numbered(columnTokens, j))].join(",")];
    for (const figure of figures) {
      for (const i of figure.rows) {
        const values = figure.columns.map((j) => Maps.exact(figure.map.at(i, j)));
        lines.push([figure.layer, figure.head, figure.kind, numbered(figure.rowTokens, i), ...values].join(","));
      }
    }
    return `${lines.join("\r\n")}\r\n`;
  };

  const saveCsv = (figures, name) => save(new Blob([csv(figures)], { type: "text/csv;charset=utf-8" }), `${name}.csv`);

  // `print(make)` draws on what `make(width, height)` gives.
  const saveSvg = (print, name) => {
    const surface = print((width, height) => new SvgSurface(width, height));
    save(new Blob([surface.toString()], { type: "image/svg+xml" }), `${name}.svg`);
  };

  const savePng = (print, name) => {
    const canvas = document.createElement("canvas");
    // Twice as fine as the page, unless no browser could make a canvas of that size.
    print((width, height) => new CanvasSurface(canvas, width, height, width * height * 4 > 6e7 ? 1 : 2));
    canvas.toBlob((blob) => save(blob, `${name}.png`));
  };

  return { csv, saveCsv, saveSvg, savePng };
})();
