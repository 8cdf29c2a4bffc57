function render({ model, el }) {
  const spec = model.get("spec");
  const count = h("span", { role: "status", "aria-live": "polite" });
  const root = card(el, "why", "In your own words", count);
  const id = freshId("explain");
  const area = h("textarea", { id, rows: 4, placeholder: "As you would tell a colleague ..." });
  area.value = model.get("saved");
  const status = h("span", { class: "lsl-muted", role: "status", "aria-live": "polite" });
  const model_answer = h("div", { class: "lsl-feedback is-right", hidden: true, tabindex: "-1" },
    h("p", { class: "lsl-after" }, "One way to say it"), h("p", { html: spec.answer }));
  const rubric = h("fieldset", { class: "lsl-options", style: "margin-top:12px", hidden: true },
    h("legend", { class: "lsl-after" }, "Tick what your own answer says"));
  const open = h("button", { type: "button" }, "Show a model answer");

  const tell = () => {
    const opened = model.get("opened");
    count.textContent = opened ? `${model.get("ticked").length} of ${spec.points.length} points` : "";
  };
  spec.points.forEach((point) => {
    const box = h("input", { type: "checkbox", checked: model.get("ticked").includes(point.key) });
    box.addEventListener("change", () => {
      const rest = model.get("ticked").filter((key) => key !== point.key);
      model.set("ticked", box.checked ? [...rest, point.key] : rest);
      model.save_changes();
      tell();
    });
    rubric.append(h("label", { class: "lsl-option" }, box, h("span", { html: point.text })));
  });
  const unfold = () => {
    const opened = model.get("opened");
    model_answer.hidden = rubric.hidden = !opened;
    open.hidden = opened;
    open.setAttribute("aria-expanded", String(opened));
    tell();
  };
  const save = (event) => {
    event?.preventDefault();
    if (!area.value.trim()) { status.textContent = "Write an answer first."; return; }
    status.textContent = "Keeping your answer ...";
    model.set("text", area.value.trim());
    model.set("opened", true);
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
    model_answer.focus();
  });
  const keep = h("button", { type: "submit", class: "lsl-primary" }, "Keep it");
  root.append(h("form", { onsubmit: save },
    h("label", { for: id, class: "lsl-question", style: "display:block", html: spec.question }),
    area, h("div", { class: "lsl-row" }, keep, open, status)), model_answer, rubric);
  unfold();
  const confirm = () => { status.textContent = model.get("saved") ? "Kept." : ""; };
  return listen(model, ["saved", "opened"], () => { confirm(); unfold(); });
}
export default { render };
