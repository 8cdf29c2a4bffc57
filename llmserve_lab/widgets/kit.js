// Shared by the cards: make elements, keep keys inside, announce changes.
const h = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (name === "html") element.innerHTML = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null && child !== false));
  return element;
};

// JupyterLab turns keys such as `b` or `d d` into commands unless they stop here.
const guard = (root) => {
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const type of ["keydown", "keypress", "keyup"]) {
    root.addEventListener(type, (event) => event.stopPropagation());
  }
};

let serial = 0;
const freshId = (name) => `lsl-${name}-${Date.now().toString(36)}-${serial++}`;

const card = (el, kind, kicker, extra) => {
  const root = h("section", { class: `lsl lsl-card lsl-${kind}`, "aria-label": kicker });
  guard(root);
  root.append(h("p", { class: "lsl-kicker" }, h("span", {}, kicker), extra));
  el.classList.add("lsl-host");
  el.append(root);
  return root;
};

// Radio buttons with number keys 1 to 9; Enter submits the form that they stand in.
const options = (legend, choices, chosen, onchange) => {
  const name = freshId("choice");
  const list = h("fieldset", { class: "lsl-options" }, legend);
  choices.forEach((choice, index) => {
    const input = h("input", { type: "radio", name, value: index, checked: index === chosen,
      onchange: () => onchange(index) });
    list.append(h("label", { class: "lsl-option" }, input, h("span", { html: choice }),
      h("span", { class: "lsl-mark" }, h("kbd", { "aria-hidden": "true" }, String(index + 1)))));
  });
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inputs = [...list.querySelectorAll("input")];
    const wanted = inputs[Number(event.key) - 1];
    if (wanted && !wanted.disabled) {
      event.preventDefault();
      wanted.focus();
      wanted.click();
    } else if (event.key === "Enter") {
      event.preventDefault();
      list.closest("form")?.requestSubmit();
    }
  });
  return list;
};

const say = (region, html, state = "") => {
  region.className = `lsl-feedback ${state}`;
  region.innerHTML = html;
};

const listen = (model, names, update) => {
  names.forEach((name) => model.on(`change:${name}`, update));
  return () => names.forEach((name) => model.off(`change:${name}`, update));
};

// A text of the learner's own that is kept. What is `folded` opens with it, or when asked for.
const writing = (root, model, { question, rows, placeholder, words, folded, onfold = () => {} }) => {
  const id = freshId("writing");
  const area = h("textarea", { id, rows, placeholder });
  area.value = model.get("saved");
  const status = h("span", { class: "lsl-muted", role: "status", "aria-live": "polite" });
  const open = h("button", { type: "button" }, words.open);
  const keep = h("button", { type: "submit", class: "lsl-primary" }, "Keep it");

  const fold = () => {
    const opened = model.get("opened");
    folded.forEach((part) => { part.hidden = !opened; });
    open.hidden = opened || !folded.length;
    open.setAttribute("aria-expanded", String(opened));
    onfold(opened);
  };
  const save = (event) => {
    event.preventDefault();
    if (!area.value.trim()) { status.textContent = words.empty; return; }
    status.textContent = words.keeping;
    model.set("text", area.value.trim());
    if (folded.length) model.set("opened", true);
    model.save_changes();
    fold();
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save(event);
  });
  open.addEventListener("click", () => {
    model.set("opened", true);
    model.save_changes();
    fold();
    folded[0].tabIndex = -1;
    folded[0].focus();
  });
  root.append(h("form", { onsubmit: save },
    h("label", { for: id, class: "lsl-question", style: "display:block", html: question }), area,
    h("div", { class: "lsl-row" }, keep, open, status)), ...folded);
  fold();
  return listen(model, ["saved", "opened"], () => {
    status.textContent = model.get("saved") ? "Kept." : "";
    fold();
  });
};
