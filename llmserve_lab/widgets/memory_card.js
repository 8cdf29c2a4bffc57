function render({ model, el }) {
  const spec = model.get("spec");
  const root = card(el, "memory", spec.kicker, h("span", {}, "calculated"));
  const form = h("form", { class: "lsl-fields", onsubmit: (event) => event.preventDefault() });
  const picture = h("div", { role: "status", "aria-live": "polite" });
  root.append(h("p", { class: "lsl-question", html: spec.question }), form, picture);
  const choice = { ...model.get("choice") };

  const send = (name, value) => {
    choice[name] = value;
    model.set("choice", { ...choice });
    model.save_changes();
  };

  const chooser = (field, id) => {
    const list = h("select", { id }, ...field.options.map(({ value, label }) =>
      h("option", { value, selected: value === choice[field.name] }, label)));
    list.addEventListener("change", () => send(field.name, field.options[list.selectedIndex].value));
    return [list];
  };

  const slider = (field, id) => {
    const index = Math.max(0, field.options.findIndex(({ value }) => value === choice[field.name]));
    const out = h("output", { for: id }, field.options[index].label);
    const slide = h("input", { type: "range", id, min: 0, max: field.options.length - 1, value: index,
      "aria-valuetext": field.options[index].label });
    slide.addEventListener("input", () => {
      const { value, label } = field.options[slide.value];
      out.textContent = label;
      slide.setAttribute("aria-valuetext", label);
      send(field.name, value);
    });
    return [slide, out];
  };

  spec.fields.forEach((field) => {
    const id = freshId(field.name);
    const parts = field.kind === "range" ? slider(field, id) : chooser(field, id);
    form.append(h("div", { class: "lsl-field" }, h("label", { for: id }, field.label), ...parts));
  });
  const draw = () => { picture.innerHTML = model.get("picture"); };
  draw();
  return listen(model, ["picture"], draw);
}
export default { render };
