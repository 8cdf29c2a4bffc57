function render({ model, el }) {
  const spec = model.get("spec");
  const root = card(el, "why", "Because", h("span", {}, "one sentence"));
  const id = freshId("because");
  const area = h("textarea", { id, rows: 2, placeholder: "because ..." });
  area.value = model.get("saved");
  const status = h("span", { class: "lsl-muted", role: "status", "aria-live": "polite" });
  const explanation = h("div", { class: "lsl-feedback is-right", hidden: true, html: spec.explain });
  const open = h("button", { type: "button" }, "Show the explanation");

  const unfold = () => {
    explanation.hidden = !model.get("opened");
    open.setAttribute("aria-expanded", String(model.get("opened")));
    open.hidden = !spec.explain || model.get("opened");
  };
  const save = (event) => {
    event?.preventDefault();
    if (!area.value.trim()) { status.textContent = "Write a sentence first."; return; }
    status.textContent = "Keeping your sentence ...";
    model.set("text", area.value.trim());
    if (spec.explain) model.set("opened", true);
    model.save_changes();
    unfold();
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save(event);
  });
  open.addEventListener("click", () => {
    model.set("opened", true);
    model.save_changes();
    unfold();
    explanation.tabIndex = -1;
    explanation.focus();
  });
  const keep = h("button", { type: "submit", class: "lsl-primary" }, "Keep it");
  root.append(h("form", { onsubmit: save },
    h("label", { for: id, class: "lsl-question", style: "display:block", html: spec.prompt }), area,
    h("div", { class: "lsl-row" }, keep, open, status)), explanation);
  unfold();
  const confirm = () => { status.textContent = model.get("saved") ? "Kept." : ""; };
  return listen(model, ["saved", "opened"], () => { confirm(); unfold(); });
}
export default { render };
