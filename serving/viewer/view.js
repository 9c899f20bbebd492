"use strict";
// Puts figures on the page, follows the pointer, and prints figures to files.

// A token with its number, from 1.
const named = (index, tokens) => `${index + 1} \u201c${tokens[index]}\u201d`;

class View {
  constructor(viewer) {
    this.viewer = viewer;
    this.panes = [0, 1, 2].map(
      (which) =>
        new Pane.Pane({
          hover: (mark, event) => this.hover(which, mark, event),
          pick: (mark) => this.pick(mark),
          scroll: (left, top) => this.panes.forEach((pane) => pane.figure && pane.scrollTo(left, top)),
        }),
    );
    Dom.find("panes").append(...this.panes.map((pane) => pane.root));
    this.grid = new Grid(Dom.find("grid"), {
      pick: (layer, head) => viewer.set({ layer, head, mode: "heatmap" }),
      hover: (layer, head, event) => this.hoverHead(layer, head, event),
      need: (layer) => this.needForGrid(layer),
    });
    this.tip = Dom.find("tip");
  }

  get state() {
    return this.viewer.state;
  }

  get session() {
    return this.viewer.session;
  }

  render() {
    const { state, session } = this;
    this.hideTip();
    const isGrid = state.mode === "grid";
    Dom.find("grid").hidden = !isGrid;
    Dom.find("panes").hidden = isGrid;
    document.querySelector(".columns").classList.toggle("wide", state.mode === "difference");
    this.figures = this.makeFigures();
    Dom.find("title").textContent = this.title();
    Dom.find("readout").textContent = "";
    if (isGrid) this.renderGrid();
    else this.renderPanes();
    const figure = this.figures?.at(-1) ?? Figures.one(session, state, this.viewer.theme);
    Panels.logits(Dom.find("logits"), Dom.find("logits-title"), session, state);
    const pick = (token) => this.viewer.set({ token: token === state.token ? null : token });
    Panels.tokens(Dom.find("tokens"), session, figure, state.token, pick);
    Panels.looks(Dom.find("looks"), figure, state.token);
    const chosen = state.token === null ? "" : ` of ${named(state.token, session.input.tokens)}`;
    Dom.find("looks-title").textContent = `Strongest weights${chosen}`;
    this.renderFacts(figure);
  }

  makeFigures() {
    const { state, session } = this;
    if (!session.hasMaps || state.mode === "grid") return null;
    if (state.mode === "difference") return Figures.difference(session, state, this.viewer.theme);
    const figure = Figures.one(session, state, this.viewer.theme);
    return figure && [figure];
  }

  title() {
    const { state, session } = this;
    if (!session.hasMaps) return "This model has no attention signature: there are only its logits.";
    if (state.mode === "grid") return `All heads: ${state.kind} attention`;
    const name = Figures.name(state);
    const text = state.mode === "difference" ? `${name} \u2212 ${Figures.name(Figures.other(state))}` : name;
    return text[0].toUpperCase() + text.slice(1);
  }

  renderPanes() {
    const { state } = this;
    Dom.find("panes").classList.toggle("three", state.mode === "difference");
    const type = state.mode === "lines" ? "lines" : "heatmap";
    const options = { zoom: state.zoom, threshold: state.threshold / 100, look: this.look() };
    this.panes.forEach((pane, i) => {
      const figure = this.figures?.[i];
      pane.root.hidden = !figure;
      pane.figure = null;
      pane.marked = figure ? this.tokenMark(type, figure) : null;
      if (figure) pane.show(type, figure, options);
    });
  }

  // The chosen token, as the lines show it.
  tokenMark(type, figure) {
    const at = type === "lines" ? figure.rows.indexOf(this.state.token) : -1;
    return at < 0 ? null : { side: "query", at };
  }

  renderGrid() {
    const { session, state } = this;
    for (let layer = 0; layer < session.numLayers; layer++) if (session.loaded(layer)) this.showLayer(layer);
    this.grid.select(state.layer, state.head);
    const scales = { head: "Each head has a scale of its own.", layer: "Each layer has a scale of its own." };
    const figure = Figures.one(session, state, this.viewer.theme);
    const limit = Maps.short(figure.scale.limit);
    const all = `All loaded layers have one scale, from \u2212${limit} to +${limit}.`;
    Dom.find("readout").textContent = `${scales[state.scale] ?? all} A click on a head shows it large.`;
  }

  showLayer(layer) {
    const { maps, scale } = Figures.heads(this.session, this.state, this.viewer.theme, layer);
    this.grid.show(layer, maps, Figures.shown(this.session, this.state, this.session.loaded(layer)), scale);
  }

  async needForGrid(layer) {
    const { session } = this;
    if (this.state.mode !== "grid" || session.loaded(layer)) return;
    try {
      await session.layer(layer);
      if (session === this.session && this.state.mode === "grid") this.renderGrid();
    } catch (error) {
      if (session !== this.session || session.signal.aborted) return;
      this.grid.fail(layer, `${error.message} ${error.hint ?? ""}`);
    }
  }

  renderFacts(figure) {
    const { session, state } = this;
    const remark = Dom.find("remark");
    remark.hidden = true;
    if (!figure) {
      Panels.facts(Dom.find("facts"), []);
      return;
    }
    const { range } = figure;
    const pairs = [["smallest, largest", `${Maps.short(range.low)}, ${Maps.short(range.high)}`]];
    pairs.push(["sums of rows", `${Maps.short(range.lowSum)} to ${Maps.short(range.highSum)}`]);
    const share = Figures.nullShare(session, state, state);
    if (share !== null) pairs.push(["null part of raw", `${(100 * share).toFixed(2)} % (norm)`]);
    pairs.push(["tokens shown", `${figure.rows.length} of ${session.input.tokens.length}`]);
    Panels.facts(Dom.find("facts"), pairs);
    if (share !== null && share < 1e-4 && (state.kind !== "raw" || state.mode === "difference")) {
      remark.hidden = false;
      remark.textContent =
        "Effective and raw attention are equal here up to rounding: with so few tokens, all of it reaches the output.";
    }
  }

  look() {
    const style = getComputedStyle(document.documentElement);
    const mask = this.session.input.paddingMask;
    const look = { isPadding: (index) => mask[index] === 0 };
    for (const name of ["paper", "ink", "soft", "line", "accent"]) {
      look[name] = style.getPropertyValue(`--${name}`).trim();
    }
    return look;
  }

  // Lines of text about a cell of the figures.
  cellWords({ row, column }) {
    const figure = this.figures[0];
    const [query, key] = [figure.rows[row], figure.columns[column]];
    const place = `${named(query, figure.rowTokens)} \u2192 ${named(key, figure.columnTokens)}`;
    if (this.figures.length === 3) {
      const values = this.figures.map(({ map }) => Maps.short(map.at(query, key)));
      return [place, `A ${values[0]}`, `B ${values[1]}`, `A \u2212 B ${values[2]}`];
    }
    const layer = this.session.loaded(this.state.layer);
    const kinds = layer.effective ? KINDS : ["raw"];
    return [place, ...kinds.map((kind) => `${kind} ${Maps.short(layer.map(kind, this.state.head).at(query, key))}`)];
  }

  hover(which, mark, event) {
    if (!this.figures || !this.session) return;
    const isLines = this.state.mode === "lines";
    const kept = mark ?? this.tokenMark(isLines ? "lines" : "heatmap", this.figures[0]);
    this.panes.forEach((pane) => pane.figure && pane.mark(kept));
    if (!mark || isLines) {
      this.hideTip();
      if (mark) {
        const figure = this.figures[0];
        const ofQuery = mark.side === "query";
        const index = (ofQuery ? figure.rows : figure.columns)[mark.at];
        const token = named(index, ofQuery ? figure.rowTokens : figure.columnTokens);
        Dom.find("readout").textContent = `Lines of ${mark.side} ${token}`;
      }
      return;
    }
    const words = this.cellWords(mark);
    Dom.find("readout").textContent = words.join(" \u00b7 ");
    this.showTip(words, event);
  }

  pick(mark) {
    const figure = this.figures[0];
    if (mark.side === "key") return;
    const token = figure.rows[mark.side ? mark.at : mark.row];
    this.viewer.set({ token: token === this.state.token ? null : token });
  }

  // Moves the marked cell by the keyboard.
  step(down, right) {
    if (!this.figures || this.state.mode === "lines") return;
    const { rows, columns } = this.figures[0];
    const from = this.panes[0].marked ?? { row: -down, column: -right };
    const within = (value, count) => Math.max(0, Math.min(value, count - 1));
    const mark = { row: within(from.row + down, rows.length), column: within(from.column + right, columns.length) };
    for (const pane of this.panes.filter(({ figure }) => figure)) {
      pane.mark(mark);
      pane.reveal(mark);
    }
    Dom.find("readout").textContent = this.cellWords(mark).join(" \u00b7 ");
  }

  hoverHead(layer, head, event) {
    if (!event) return this.hideTip();
    const { session, state } = this;
    const map = session.loaded(layer).map(state.kind, head);
    const { rows, columns } = Figures.shown(session, state, map);
    const range = map.range(rows, columns);
    const values = `from ${Maps.short(range.low)} to ${Maps.short(range.high)}`;
    const words = [`Layer ${layer + 1}, head ${head + 1}`, values];
    const share = Figures.nullShare(session, state, { layer, head });
    if (share !== null) words.push(`null part ${(100 * share).toFixed(2)} %`);
    return this.showTip(words, event);
  }

  showTip(words, event) {
    this.tip.replaceChildren(...words.map((text) => Dom.make("div", {}, text)));
    this.tip.hidden = false;
    const { offsetWidth, offsetHeight } = this.tip;
    const below = event.clientY + 18;
    const x = Math.min(event.clientX + 14, innerWidth - offsetWidth - 8);
    const y = below + offsetHeight > innerHeight ? event.clientY - offsetHeight - 10 : below;
    this.tip.style.left = `${Math.max(4, x)}px`;
    this.tip.style.top = `${y}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }

  // What a file is called, and what it says at its head.
  get fileName() {
    const { model, version } = this.session;
    return `${model}-${version}-${this.title()}`.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").toLowerCase();
  }

  print(make) {
    const { session, state } = this;
    const title = `${session.model} version ${session.version}: ${this.title()}`;
    if (state.mode === "grid") {
      const loaded = this.loadedLayers();
      const layers = loaded.map((layer) => Figures.heads(session, state, this.viewer.theme, layer));
      return Grid.print(layers, Figures.shown(session, state, session.loaded(loaded[0])), title, this.look(), make);
    }
    const type = state.mode === "lines" ? "lines" : "heatmap";
    const parts = this.figures.map((figure) => ({ type, figure, zoom: state.zoom, threshold: state.threshold / 100 }));
    return Pane.print(parts, title, this.look(), make);
  }

  loadedLayers() {
    return [...this.session.layers.keys()].filter((layer) => this.session.loaded(layer)).sort((a, b) => a - b);
  }

  // The numbers of the view, a figure for each map.
  tables() {
    const { session, state } = this;
    const place = ({ layer, head, kind }) => ({ layer: layer + 1, head: head === "mean" ? head : head + 1, kind });
    if (state.mode === "grid") {
      return this.loadedLayers().flatMap((layer) =>
        Array.from({ length: session.loaded(layer).heads }, (_, head) => {
          const which = { layer, head, kind: state.kind };
          return { ...Figures.one(session, state, this.viewer.theme, which), ...place(which) };
        }),
      );
    }
    if (state.mode !== "difference") return [{ ...this.figures[0], ...place(state) }];
    const names = [place(state), place(Figures.other(state)), { layer: "", head: "", kind: "difference" }];
    return this.figures.map((figure, i) => ({ ...figure, ...names[i] }));
  }

  download(type) {
    if (!this.session?.hasMaps) return;
    if (type === "csv") Downloads.saveCsv(this.tables(), this.fileName);
    else (type === "svg" ? Downloads.saveSvg : Downloads.savePng)((make) => this.print(make), this.fileName);
  }
}
