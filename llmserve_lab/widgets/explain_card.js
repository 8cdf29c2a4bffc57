function render({ model, el }) {
  const spec = model.get("spec");
  const count = h("span", { role: "status", "aria-live": "polite" });
  const root = card(el, "why", "In your own words", count);
  const answer = h("div", { class: "lsl-feedback is-right" },
    h("p", { class: "lsl-after" }, "One way to say it"), h("p", { html: spec.answer }));
  const rubric = h("fieldset", { class: "lsl-options", style: "margin-top:12px" },
    h("legend", { class: "lsl-after" }, "Tick what your own answer says"));

  const tell = (opened) => {
    count.textContent = opened ? `${model.get("ticked").length} of ${spec.points.length} points` : "";
  };
  spec.points.forEach((point) => {
    const box = h("input", { type: "checkbox", checked: model.get("ticked").includes(point.key) });
    box.addEventListener("change", () => {
      const rest = model.get("ticked").filter((key) => key !== point.key);
      model.set("ticked", box.checked ? [...rest, point.key] : rest);
      model.save_changes();
      tell(true);
    });
    rubric.append(h("label", { class: "lsl-option" }, box, h("span", { html: point.text })));
  });
  const words = {
    open: "Show a model answer",
    empty: "Write an answer first.",
    keeping: "Keeping your answer ...",
  };
  return writing(root, model, {
    question: spec.question, rows: 4, placeholder: "As you would tell a colleague ...", words,
    folded: [answer, rubric], onfold: tell,
  });
}
export default { render };
