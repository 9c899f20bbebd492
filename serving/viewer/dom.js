"use strict";
// Elements are made here, with text as text: nothing that came from a user or a server is ever read as HTML.

const Dom = (() => {
  const make = (tag, attributes = {}, text = null) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    return element;
  };

  const find = (id) => document.getElementById(id);

  const size = (element, width, height) => {
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
  };

  // Options of a select as [value, text] pairs; keeps what is selected if it is still there.
  const options = (select, pairs, value) => {
    select.replaceChildren(...pairs.map(([key, text]) => make("option", { value: key }, text)));
    select.value = pairs.some(([key]) => key === value) ? value : (pairs[0]?.[0] ?? "");
  };

  // Of the buttons of a group, the one with this value is pressed.
  const press = (group, value) => {
    for (const button of group.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(button.value === value));
    }
  };

  return { make, find, size, options, press };
})();
