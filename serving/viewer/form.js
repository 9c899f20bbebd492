"use strict";
// The fields in which a server, a model and an input are given.

class Form {
  // `on.submit()` when something is to be shown, `on.change()` when another model is chosen.
  constructor(on) {
    this.models = [];
    for (const id of ["server", "labels", "text", "pair", "ids", "segments", "version"]) this[id] = Dom.find(id);
    this.modelSelect = Dom.find("model-select");
    this.modelInput = Dom.find("model-input");
    Dom.find("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      on.submit();
    });
    for (const field of document.querySelectorAll("#ask textarea")) {
      field.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        on.submit();
      });
    }
    this.server.addEventListener("change", () => {
      this.arrange();
      this.setVersions(this.listedVersions(), "");
      on.change();
    });
    for (const field of [this.modelSelect, this.modelInput]) {
      field.addEventListener("change", () => {
        this.setVersions(this.listedVersions(), "");
        on.change();
      });
    }
  }

  // The server this page came from, if it has models; else the usual address.
  async start() {
    this.models = await Api.listed();
    const here = new URL("..", document.baseURI).href.replace(/\/+$/, "");
    this.home = this.models.length ? here : "http://localhost:8501";
  }

  // With a list of models there is a choice, elsewhere a name to write.
  arrange() {
    const known = this.models.length > 0 && this.isHome();
    this.modelSelect.hidden = !known;
    this.modelInput.hidden = known;
    document.querySelector("label[for^=model]").htmlFor = known ? "model-select" : "model-input";
    if (known) {
      Dom.options(this.modelSelect, this.models.map(({ name }) => [name, name]), this.modelSelect.value);
    }
  }

  isHome() {
    try {
      return this.address() === this.home;
    } catch {
      return false; // the address is no address, which is said when it is used
    }
  }

  address() {
    return this.server.value.trim() ? Api.serverAddress(this.server.value) : this.home;
  }

  get model() {
    return this.modelSelect.hidden ? this.modelInput.value.trim() : this.modelSelect.value;
  }

  fill(state) {
    for (const id of ["labels", "text", "pair", "ids", "segments"]) this[id].value = state[id];
    this.server.value = state.server;
    this.server.placeholder = this.home;
    this.arrange();
    this.modelInput.value = state.model;
    if (state.model && !this.modelSelect.hidden) {
      if (!this.models.some(({ name }) => name === state.model)) {
        this.modelSelect.append(Dom.make("option", { value: state.model }, state.model));
      }
      this.modelSelect.value = state.model;
    }
    this.setVersions(this.listedVersions(), state.version);
  }

  read() {
    const state = { server: this.server.value.trim(), model: this.model, version: this.version.value };
    for (const id of ["labels", "text", "pair", "ids", "segments"]) state[id] = this[id].value;
    return state;
  }

  listedVersions() {
    const model = this.models.find(({ name }) => name === this.model);
    const ready = (model?.versions ?? []).filter((each) => (each?.state ?? "AVAILABLE") === "AVAILABLE");
    return ready.map((each) => String(each?.version ?? each));
  }

  setVersions(versions, chosen) {
    const all = chosen && !versions.includes(chosen) ? [...versions, chosen] : versions;
    Dom.options(this.version, [["", "latest"], ...all.map((version) => [version, version])], chosen);
  }

  // The exporter's description of a version, where the list of models has it.
  about(version) {
    const model = this.models.find(({ name }) => name === this.model);
    if (!model || this.modelSelect.hidden) return null;
    const found = (model.versions ?? []).find((each) => String(each?.version ?? each) === version);
    return found?.description ?? model.description ?? null;
  }

  takesText(yes) {
    Dom.find("text-fields").hidden = !yes;
    Dom.find("id-fields").hidden = yes;
  }
}
