"use strict";
// What a state asks to be drawn: maps, the tokens at their edges, their scales and titles.

const Figures = (() => {
  const headName = (head) => (head === "mean" ? "mean of heads" : `head ${head + 1}`);
  const name = ({ layer, head, kind }) => `${kind}, layer ${layer + 1}, ${headName(head)}`;

  // Which queries and keys are shown.
  const shown = (session, state, layer) =>
    Maps.visible(session.input, layer.queries, layer.keys, { padding: state.hidePadding, special: state.hideSpecial });

  // The maps that share a scale with one: of a kind, over a head, a layer or all layers that are loaded.
  const sharing = (session, scope, { layer, head, kind }) => {
    const heads = (each) => Array.from({ length: each.heads }, (_, h) => each.map(kind, h));
    if (scope === "layer") return heads(session.loaded(layer));
    if (scope === "all") return session.loadedLayers().flatMap(heads);
    return [session.loaded(layer).map(kind, head)];
  };

  const make = (session, state, theme, map, limit, title, label) => {
    const { rows, columns } = shown(session, state, map);
    return {
      map,
      rows,
      columns,
      rowTokens: session.input.tokens,
      columnTokens: Maps.keyTokens(session.input, map.keys),
      range: map.range(rows, columns),
      scale: new Colours.Scale(limit, state.curve, theme),
      title,
      label,
    };
  };

  const limit = (session, state, which) => {
    const { rows, columns } = shown(session, state, session.loaded(which.layer));
    return Colours.common(sharing(session, state.scale, which), rows, columns);
  };

  // One head; null while its layer is not loaded.
  const one = (session, state, theme, which = state, title = "") => {
    const layer = session.loaded(which.layer);
    if (!layer) return null;
    const map = layer.map(which.kind, which.head);
    return make(session, state, theme, map, limit(session, state, which), title, `Attention: ${name(which)}`);
  };

  const other = (state) => ({ layer: state.withLayer, head: state.withHead, kind: state.withKind });

  // A, B and A - B. A and B are on one scale, their difference on its own.
  const difference = (session, state, theme) => {
    const [a, b] = [state, other(state)];
    const layers = [a, b].map((which) => session.loaded(which.layer));
    if (layers.some((layer) => !layer)) return null;
    const maps = [a, b].map((which, i) => layers[i].map(which.kind, which.head));
    const both = Math.max(limit(session, state, a), limit(session, state, b));
    const minus = maps[0].minus(maps[1]);
    const { rows, columns } = shown(session, state, minus);
    const own = Colours.limitOf(minus.range(rows, columns));
    return [
      make(session, state, theme, maps[0], both, `A: ${name(a)}`, `A: ${name(a)}`),
      make(session, state, theme, maps[1], both, `B: ${name(b)}`, `B: ${name(b)}`),
      make(session, state, theme, minus, own, "A \u2212 B", `Difference: ${name(a)} minus ${name(b)}`),
    ];
  };

  // The heads of a layer and the scale of each, for the grid.
  const heads = (session, state, theme, layer) => {
    const loaded = session.loaded(layer);
    const maps = Array.from({ length: loaded.heads }, (_, head) => loaded.map(state.kind, head));
    const limits = new Map();
    const all = state.scale === "head" ? null : limit(session, state, { layer, head: 0, kind: state.kind });
    const { rows, columns } = shown(session, state, loaded);
    for (const map of maps) limits.set(map, all ?? Colours.limitOf(map.range(rows, columns)));
    return { layer, maps, scale: (map) => new Colours.Scale(limits.get(map), state.curve, theme) };
  };

  // How large a part of the raw map is null, by Frobenius norms; null where that is not known.
  const nullShare = (session, state, { layer, head }) => {
    const loaded = session.loaded(layer);
    if (!loaded?.effective) return null;
    const { rows, columns } = shown(session, state, loaded);
    const squares = (kind) => loaded.map(kind, head).range(rows, columns).squares;
    return squares("raw") > 0 ? Math.sqrt(squares("null") / squares("raw")) : 0;
  };

  return { name, headName, shown, one, other, difference, heads, nullShare };
})();
