function render({ model, el }) {
  const spec = model.get("spec");
  const root = card(el, "why", "Because", h("span", {}, "one sentence"));
  const explanation = h("div", { class: "lsl-feedback is-right", html: spec.explain });
  const words = {
    open: "Show the explanation",
    empty: "Write a sentence first.",
    keeping: "Keeping your sentence ...",
  };
  return writing(root, model, {
    question: spec.prompt, rows: 2, placeholder: "because ...", words,
    folded: spec.explain ? [explanation] : [],
  });
}
export default { render };
