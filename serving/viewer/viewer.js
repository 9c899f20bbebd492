"use strict";
// The page: what is chosen becomes a state, the state becomes figures, and the address says the state.

class Viewer {
  constructor() {
    this.state = { ...State.DEFAULTS };
    this.session = null;
    this.form = new Form({ submit: () => this.submit(), change: () => this.look() });
    this.view = new View(this);
    Controls.connect(this);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.render());
    addEventListener("hashchange", () => this.follow());
    addEventListener("resize", () => this.render());
  }

  async start() {
    await this.form.start();
    await this.follow();
    document.body.removeAttribute("aria-busy");
  }

  // Shows what the address says.
  async follow() {
    if (location.hash.slice(1) === this.written) return;
    const before = JSON.stringify(this.asked);
    this.state = State.read(location.hash);
    this.form.fill(this.state);
    this.setTheme();
    Controls.refresh(this);
    if (!(this.state.text || this.state.ids)) await this.look();
    else if (!this.session || JSON.stringify(this.question()) !== before) await this.run();
    else await this.set({});
  }

  question() {
    const { server, model, version, text, pair, ids, segments } = { ...this.state, ...this.form.read() };
    return { server, model, version, text, pair, ids, segments };
  }

  // What the chosen model can do, before there is an input.
  async look() {
    this.render();
    if (!this.form.model) {
      Dom.find("connection").open = true;
      return;
    }
    this.looking?.abort();
    this.looking = new AbortController();
    const { signal } = this.looking;
    await this.attempt(async () => this.form.takesText((await this.open(signal)).abilities.text), signal);
  }

  open(signal) {
    const server = new Api.Server(this.form.address());
    const about = (version) => this.form.about(version);
    return Session.open(server, this.form.model, this.form.version.value, about, signal);
  }

  submit() {
    Object.assign(this.state, this.form.read(), { token: null });
    this.save();
    return this.run();
  }

  // Asks the server, and shows the answer in place of the last one.
  async run() {
    this.asked = this.question();
    const signal = this.restart();
    let found = null;
    await this.attempt(async () => {
      if (!this.form.model) throw new ApiError("Which model?", "Write the name under which the server has it.");
      this.say("Asking the server\u2026");
      const session = await this.open(signal);
      this.form.setVersions(session.versions, this.form.version.value);
      this.form.takesText(session.abilities.text);
      await this.ask(session, signal);
      if (session.hasMaps) await session.layer(Math.min(this.state.layer, Math.max(session.numLayers - 1, 0)));
      found = session;
      this.say("");
    }, signal);
    if (signal.aborted) return;
    this.session = found;
    Dom.find("result").hidden = !found;
    if (!found) return;
    this.state.model = this.form.model;
    this.view.grid.reset(found.numLayers);
    await this.set({});
    if (found.wasCut) this.say(`The text was cut to ${found.input.tokens.length} tokens, as many as the model takes.`);
  }

  ask(session, signal) {
    const { text, pair, ids, segments } = this.state;
    if (!session.abilities.text) {
      return session.askIds(State.numbers(ids, "the token ids"), State.numbers(segments, "the segment ids"), signal);
    }
    if (!text.trim()) throw new ApiError("There is no text.", "Write a sentence.");
    return session.askText(text, pair, signal);
  }

  // Stops everything that was asked for before.
  restart() {
    this.stop?.abort();
    this.looking?.abort();
    this.stop = new AbortController();
    return this.stop.signal;
  }

  // Runs something that may fail.
  async attempt(work, signal) {
    Dom.find("error").hidden = true;
    document.body.setAttribute("aria-busy", "true");
    try {
      await work();
    } catch (error) {
      if (!signal.aborted) this.fail(error);
    } finally {
      if (!signal.aborted) document.body.removeAttribute("aria-busy");
    }
  }

  fail(error) {
    this.say("");
    Dom.find("error").hidden = false;
    Dom.find("error-title").textContent = error instanceof ApiError ? error.message : "The page failed.";
    Dom.find("error-hint").textContent = error instanceof ApiError ? error.hint : String(error);
    if ([0, 404].includes(error.status)) Dom.find("connection").open = true;
  }

  say(text) {
    Dom.find("status").textContent = text;
  }

  // Keeps what is chosen within what there is.
  clamp() {
    const { session, state } = this;
    const heads = session.loadedLayers()[0]?.heads ?? 1;
    const within = (value, count) => (value === "mean" ? value : Math.max(0, Math.min(value, count - 1)));
    for (const name of ["layer", "withLayer"]) state[name] = within(state[name], session.numLayers);
    for (const name of ["head", "withHead"]) state[name] = within(state[name], heads);
    if (!session.abilities.effective) Object.assign(state, { kind: "raw", withKind: "raw" });
    if (state.token !== null) state.token = within(state.token, session.input.tokens.length);
  }

  // Changes the state and shows it, after loading what that needs.
  async set(changes) {
    Object.assign(this.state, changes);
    if ("theme" in changes) this.setTheme();
    const { session } = this;
    if (session) this.clamp();
    this.save();
    const missing = this.missing();
    if (missing.length) {
      Controls.refresh(this);
      await this.attempt(async () => {
        this.say(`Loading layer ${missing.map((layer) => layer + 1).join(" and ")}\u2026`);
        await Promise.all(missing.map((layer) => session.layer(layer)));
        this.say("");
      }, session.signal);
    }
    // While this waited another choice may have been made, which then shows itself.
    if (session === this.session && !this.missing().length) this.render();
  }

  // Layers that the state needs and that are not loaded.
  missing() {
    const { session, state } = this;
    if (!session?.hasMaps) return [];
    const needed = state.mode === "difference" ? [state.layer, state.withLayer] : [state.layer];
    return [...new Set(needed)].filter((layer) => !session.loaded(layer));
  }

  save() {
    this.written = State.write(this.state);
    try {
      history.replaceState(null, "", `#${this.written}`);
    } catch {
      location.hash = this.written;
    }
    this.written = location.hash.slice(1);
  }

  get theme() {
    return this.state.theme || (this.dark.matches ? "dark" : "light");
  }

  setTheme() {
    document.documentElement.dataset.theme = this.state.theme;
  }

  render() {
    Controls.refresh(this);
    if (this.session) this.view.render();
  }
}

const viewer = new Viewer();
viewer.start();
