"use strict";
// One input to one version of one model: what the server answers, asked for when it is needed and then kept.

class Session {
  // `about`: the exporter's description of the model where the server tells it, else {}.
  static async open(server, model, version, about, signal) {
    const status = await server.status(model, signal);
    const entries = status?.model_version_status ?? [];
    const ready = entries.filter((each) => each.state === "AVAILABLE").map((each) => String(each.version));
    ready.sort((a, b) => b.length - a.length || (a < b ? 1 : -1)); // numbers beyond 2^53 too, largest first
    if (!ready.length) {
      const said = entries.map((each) => each.status?.error_message).find(Boolean);
      throw new ApiError(`No version of "${model}" is loaded.`, said ? `The server says: ${said}` : "Try again.", 503);
    }
    if (version && !ready.includes(version)) {
      throw new ApiError(`The server has no version ${version} of "${model}".`, `There is: ${ready.join(", ")}.`, 404);
    }
    // One version for all requests, also if a new one is loaded meanwhile.
    const session = new Session();
    Object.assign(session, { server, model, versions: ready, version: version || ready[0] });
    session.abilities = Api.abilities(await server.metadata(model, session.version, signal));
    session.about = about(session.version) ?? {};
    session.running = 0;
    session.waiting = [];
    session.layers = new Map();
    return session;
  }

  // A server that batches refuses inputs of different lengths that came together. Alone, each is answered.
  async predict(signature, inputs) {
    const signal = this.signal;
    for (let refusals = 0; ; refusals++) {
      try {
        return await this.server.predict(this.model, this.version, signature, inputs, signal);
      } catch (error) {
        const mixed = error.hint?.includes("different shapes and padding is turned off");
        if (!mixed || refusals === 5) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 100 * Math.random()));
    }
  }

  async askText(text, pair, signal) {
    this.signal = signal;
    const found = await this.predict("text", { text: [text], text_pair: [pair] });
    return this.keep(found, found.tokens[0].map(Api.string), found.logits);
  }

  async askIds(ids, segments, signal) {
    this.signal = signal;
    const names = this.abilities.defaultInputs;
    if (!names.includes("token_ids")) {
      const what = `The inputs of "${this.model}" are ${names.join(", ") || "unknown"}.`;
      throw new ApiError("This model takes no token ids, so there is no attention to show.", what);
    }
    if (!ids.length) throw new ApiError("There are no token ids.", "Write whole numbers, separated by spaces.");
    if (segments.length && segments.length !== ids.length) {
      const what = `There are ${segments.length} segment ids for ${ids.length} token ids.`;
      throw new ApiError(what, "There has to be one for each token.");
    }
    const given = {
      token_ids: [ids],
      segment_ids: [segments.length ? segments : ids.map(() => 0)],
      padding_mask: [ids.map(() => 1)],
    };
    const found = await this.predict("serving_default", given);
    return this.keep(given, ids.map(String), found.logits ?? found); // a single output has no name
  }

  async keep(found, tokens, logits) {
    const take = (name) => found[name][0].map(Number);
    this.input = {
      tokens,
      tokenIds: take("token_ids"),
      segmentIds: take("segment_ids"),
      paddingMask: take("padding_mask"),
      compressed: this.abilities.compressed,
    };
    this.logits = Maps.flatten(logits[0]);
    if (this.abilities.layers === null && this.abilities.perLayer) this.abilities.layers = await this.countLayers();
    return this;
  }

  given() {
    const { tokenIds, segmentIds, paddingMask } = this.input;
    return { token_ids: [tokenIds], segment_ids: [segmentIds], padding_mask: [paddingMask] };
  }

  // Where metadata do not tell, the model's own refusal does.
  async countLayers() {
    try {
      await this.predict("layer_attention", { ...this.given(), layer: [1 << 30] });
    } catch (error) {
      const said = /layer must be from 0 to (\d+)/.exec(error.hint ?? "");
      if (said) return Number(said[1]) + 1;
      throw error;
    }
    throw new ApiError("The model does not say how many layers it has.");
  }

  // Whether the text filled all places, where the model's description tells how many there are.
  get wasCut() {
    return this.abilities.text && this.input.tokens.length === this.about.max_length;
  }

  get numLayers() {
    return this.abilities.layers ?? this.stackedLayers ?? 0;
  }

  get hasMaps() {
    return this.abilities.perLayer || this.abilities.stacked !== null;
  }

  loaded(index) {
    const kept = this.layers.get(index);
    return kept instanceof Maps.Layer ? kept : null;
  }

  loadedLayers() {
    return [...this.layers.values()].filter((kept) => kept instanceof Maps.Layer);
  }

  // The maps of a layer. Two requests at a time: a server has others to answer.
  layer(index) {
    if (!this.layers.has(index)) {
      const asked = this.queued(() => this.fetchLayer(index)).then(
        (layer) => {
          this.layers.set(index, layer);
          return layer;
        },
        (error) => {
          this.layers.delete(index);
          throw error;
        },
      );
      this.layers.set(index, asked);
    }
    return Promise.resolve(this.layers.get(index));
  }

  async queued(work) {
    while (this.running >= 2) await new Promise((resolve) => this.waiting.push(resolve));
    this.running++;
    try {
      return await work();
    } finally {
      this.running--;
      this.waiting.shift()?.();
    }
  }

  async fetchLayer(index) {
    if (this.abilities.perLayer) {
      const found = await this.predict("layer_attention", { ...this.given(), layer: [index] });
      return new Maps.Layer(found.attention[0], found.effective_attention[0]);
    }
    this.all ??= this.predict(this.abilities.stacked, this.given());
    const found = await this.all.catch((error) => {
      this.all = null;
      throw error;
    });
    this.stackedLayers = found.attention[0].length;
    return new Maps.Layer(found.attention[0][index], found.effective_attention?.[0][index]);
  }
}
