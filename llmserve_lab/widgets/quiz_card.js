const WHY_OTHERS = "What the other answers get wrong";

function render({ model, el }) {
  const spec = model.get("spec");
  const count = spec.questions.length;
  const place = h("span");
  const root = card(el, "quiz", spec.kicker, place);
  const body = h("div");
  root.append(body);
  const stateOf = (key) => model.get("state")[key] ?? { tries: [], solved: false };
  const keep = (key, entry) => {
    model.set("state", { ...model.get("state"), [key]: entry });
    model.save_changes();
  };
  const firstOpen = spec.questions.findIndex((item) => !stateOf(item.key).solved);
  let index = firstOpen < 0 ? count - 1 : firstOpen;

  const others = (item, right) => {
    const list = h("ul", {}, ...item.choices.flatMap((choice, i) => i === right ? []
      : [h("li", { html: `<b>${choice.text}</b>: ${choice.why}` })]));
    return h("details", {}, h("summary", {}, WHY_OTHERS), list);
  };

  const show = (focus) => {
    const item = spec.questions[index];
    const right = item.choices.findIndex((choice) => choice.right);
    let chosen = stateOf(item.key).solved ? right : null;
    place.textContent = count > 1 ? `${index + 1} of ${count}` : "";
    const status = h("div", { class: "lsl-feedback", role: "status", "aria-live": "polite" });
    const list = options(h("legend", { class: "lsl-question", html: item.question }),
      item.choices.map((choice) => choice.text), chosen, (i) => { chosen = i; });
    const check = h("button", { type: "submit", class: "lsl-primary" }, "Check");
    const next = h("button", { type: "button" }, "Next question");
    const hint = h("span", { class: "lsl-muted" }, "Arrow or number keys choose, Enter checks.");
    const row = h("div", { class: "lsl-row" }, check, hint);

    const mark = () => {
      const { tries, solved } = stateOf(item.key);
      list.querySelectorAll(".lsl-option").forEach((option, i) => {
        const wrong = tries.includes(i) && i !== right;
        const good = solved && i === right;
        option.classList.toggle("is-wrong", wrong);
        option.classList.toggle("is-right", good);
        if (wrong || good) option.querySelector(".lsl-mark").textContent = good ? "✓ right" : "✕ tried";
        option.querySelector("input").disabled = solved;
      });
      if (!solved) return;
      row.replaceChildren(...(index + 1 < count ? [next]
        : [h("span", { class: "lsl-muted" }, count > 1 ? "All answered." : "Answered.")]));
    };
    const explain = () => {
      const good = chosen === right;
      say(status, `<b>${good ? "Right." : "Not this one."}</b> ${item.choices[chosen].why}`,
        good ? "is-right" : "is-wrong");
      if (good) status.append(others(item, right));
    };
    const submit = (event) => {
      event.preventDefault();
      if (stateOf(item.key).solved) return;
      if (chosen == null) return say(status, "Choose an answer first.");
      const { tries } = stateOf(item.key);
      keep(item.key, { tries: [...tries, chosen], solved: chosen === right });
      explain();
      mark();
      if (chosen === right) row.querySelector("button")?.focus();
    };
    next.addEventListener("click", () => { index += 1; show(true); });
    body.replaceChildren(h("form", { onsubmit: submit, novalidate: true }, list, row, status));
    mark();
    if (chosen != null) explain();
    if (focus) list.querySelector("input:not(:disabled)")?.focus();
  };
  show(false);
}
export default { render };
