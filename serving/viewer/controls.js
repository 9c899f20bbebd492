"use strict";
// Buttons, selects and keys.

const Controls = (() => {
  const THEMES = { "": "light", light: "dark", dark: "" };
  const KEYS = {
    r: { kind: "raw" },
    e: { kind: "effective" },
    n: { kind: "null" },
    h: { mode: "heatmap" },
    l: { mode: "lines" },
    d: { mode: "difference" },
    g: { mode: "grid" },
  };
  const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

  const connect = (viewer) => {
    const group = (id, act) =>
      Dom.find(id).addEventListener("click", (event) => {
        const button = event.target.closest("button");
        if (button && !button.disabled) act(button.value);
      });
    group("mode", (mode) => viewer.set({ mode }));
    group("kind", (kind) => viewer.set({ kind }));
    group("zoom", (value) => zoom(viewer, { out: -1, in: 1, fit: 0 }[value]));
    group("save", (type) => viewer.view.download(type));
    const change = (id, read) =>
      Dom.find(id).addEventListener("change", ({ target }) => viewer.set({ [id]: read(target) }));
    const index = ({ value }) => (value === "mean" ? value : Number(value));
    for (const id of ["layer", "head", "withLayer", "withHead"]) change(id, index);
    for (const id of ["withKind", "scale", "curve"]) change(id, ({ value }) => value);
    for (const id of ["hideSpecial", "hidePadding"]) change(id, ({ checked }) => checked);
    Dom.find("threshold").addEventListener("input", ({ target }) => viewer.set({ threshold: Number(target.value) }));
    Dom.find("labels").addEventListener("change", ({ target }) => viewer.set({ labels: target.value }));
    Dom.find("again").addEventListener("click", () => viewer.submit());
    Dom.find("theme").addEventListener("click", () => viewer.set({ theme: THEMES[viewer.state.theme] }));
    Dom.find("link").addEventListener("click", () => copyLink(viewer));
    Dom.find("help-button").addEventListener("click", () => Dom.find("help").showModal());
    Dom.find("help-close").addEventListener("click", () => Dom.find("help").close());
    addEventListener("keydown", (event) => key(viewer, event));
  };

  const zoom = (viewer, by) => {
    const level = by === 0 ? 0 : viewer.state.zoom + by;
    const [least, most] = State.LIMITS.zoom;
    viewer.set({ zoom: Math.max(least, Math.min(level, most)) });
  };

  const key = (viewer, event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || Dom.find("help").open) return;
    if (event.target.closest?.("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const act = action(viewer, event);
    if (!act) return;
    event.preventDefault();
    act();
  };

  // What a key does, or null.
  const action = (viewer, event) => {
    const { state, session } = viewer;
    if (event.key === "?") return () => Dom.find("help").showModal();
    if (event.key === "/") return () => Dom.find(Dom.find("text-fields").hidden ? "ids" : "text").focus();
    if (event.key === "t") return () => viewer.set({ theme: THEMES[state.theme] });
    if (!session?.hasMaps) return null;
    if (event.key in ARROWS) {
      const [down, right] = ARROWS[event.key];
      if (event.shiftKey) return () => viewer.view.step(down, right);
      return () => viewer.set({ layer: Math.max(0, state.layer + down), head: nextHead(state.head, right) });
    }
    if (event.key === "g" && state.mode === "grid") return () => viewer.set({ mode: "heatmap" });
    if (event.key === "Enter" && state.mode === "grid" && !event.target.closest?.("button")) {
      return () => viewer.set({ mode: "heatmap" });
    }
    if ("en".includes(event.key) && !session.abilities.effective) return null;
    if (event.key in KEYS) return () => viewer.set(KEYS[event.key]);
    const steps = { "+": 1, "=": 1, "-": -1, 0: 0 };
    return event.key in steps ? () => zoom(viewer, steps[event.key]) : null;
  };

  // The mean of heads comes before the first.
  const nextHead = (head, by) => {
    if (by === 0) return head;
    const at = (head === "mean" ? -1 : head) + by;
    return at < 0 ? "mean" : at;
  };

  const copyLink = async (viewer) => {
    viewer.save();
    try {
      await navigator.clipboard.writeText(location.href);
      viewer.say("The link to this view is copied.");
    } catch {
      viewer.say(`The browser does not let this page copy. The link: ${location.href}`);
    }
  };

  // Shows the state in the controls.
  const refresh = ({ state, session }) => {
    Dom.press(Dom.find("mode"), state.mode);
    Dom.press(Dom.find("kind"), state.kind);
    Dom.find("theme").textContent = { "": "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[state.theme];
    for (const id of ["scale", "curve", "threshold"]) Dom.find(id).value = state[id];
    for (const id of ["hideSpecial", "hidePadding"]) Dom.find(id).checked = state[id];
    Dom.find("threshold-value").textContent = `${state.threshold} %`;
    Dom.find("threshold-label").hidden = state.mode !== "lines";
    Dom.find("zoom").hidden = state.mode === "grid";
    Dom.find("against").hidden = state.mode !== "difference";
    if (!session) return;
    Dom.find("about").textContent = `${session.model}, version ${session.version}`;
    Dom.find("padding-label").hidden = session.input.paddingMask.every((value) => value !== 0);
    for (const toolbar of document.querySelectorAll(".toolbar")) toolbar.hidden = !session.hasMaps;
    for (const button of Dom.find("kind").querySelectorAll("button")) {
      button.disabled = button.value !== "raw" && !session.abilities.effective;
    }
    const heads = session.loadedLayers()[0]?.heads ?? 0;
    const counted = (count) => Array.from({ length: count }, (_, i) => [String(i), String(i + 1)]);
    for (const [layer, head] of [["layer", "head"], ["withLayer", "withHead"]]) {
      Dom.options(Dom.find(layer), counted(session.numLayers), String(state[layer]));
      Dom.options(Dom.find(head), [...counted(heads), ["mean", "mean"]], String(state[head]));
    }
    const kinds = session.abilities.effective ? KINDS : ["raw"];
    Dom.options(Dom.find("withKind"), kinds.map((kind) => [kind, kind]), state.withKind);
  };

  return { connect, refresh, nextHead };
})();
