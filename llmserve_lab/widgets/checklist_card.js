function render({ model, el }) {
  const spec = model.get("spec");
  const done = h("span", { role: "status", "aria-live": "polite" });
  const root = card(el, "why", spec.kicker, done);
  root.append(h("p", { class: "lsl-muted", style: "margin:4px 0 10px", html: spec.lead }));
  const count = () => { done.textContent = `${model.get("checked").length} of ${spec.items.length}`; };
  const list = h("div", { class: "lsl-options" });
  spec.items.forEach((item) => {
    const box = h("input", { type: "checkbox", checked: model.get("checked").includes(item.key) });
    box.addEventListener("change", () => {
      const rest = model.get("checked").filter((key) => key !== item.key);
      model.set("checked", box.checked ? [...rest, item.key] : rest);
      model.save_changes();
      count();
    });
    list.append(h("label", { class: "lsl-option" }, box, h("span", { html: item.text })));
  });
  root.append(list);
  count();
}
export default { render };
