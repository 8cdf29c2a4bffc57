const FIRST_CONFIDENCE = 70;
const SLIDER_STOPS = 200;

const rounded = (value, spec) => {
  if (spec.step) {
    const stepped = spec.low + Math.round((value - spec.low) / spec.step) * spec.step;
    return Number(Math.min(spec.high, stepped).toPrecision(12));
  }
  return Number(value.toPrecision(2));
};
// One stop for each step, so that every arrow key changes the number.
const stopsOf = ({ low, high, step, log }) =>
  step && !log ? Math.min(SLIDER_STOPS, Math.ceil((high - low) / step)) : SLIDER_STOPS;
const atShare = (share, { low, high, log }) =>
  log ? low * (high / low) ** share : low + (high - low) * share;
const shareOf = (value, { low, high, log }) =>
  log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);

const numberField = (spec, draft) => {
  const unit = spec.unit ? ` (${spec.unit})` : "";
  const [boxId, slideId] = [freshId("number"), freshId("slide")];
  const box = h("input", { type: "number", id: boxId, min: spec.low, max: spec.high,
    step: spec.step || "any", value: draft.guess ?? "", placeholder: "?" });
  const start = draft.guess ?? atShare(0.5, spec);
  const stops = stopsOf(spec);
  const slide = h("input", { type: "range", id: slideId, min: 0, max: stops,
    value: Math.round(shareOf(start, spec) * stops), "aria-label": `your guess${unit}` });
  slide.addEventListener("input", () => {
    draft.guess = rounded(atShare(slide.value / stops, spec), spec);
    box.value = draft.guess;
    slide.setAttribute("aria-valuetext", `${draft.guess} ${spec.unit}`);
  });
  box.addEventListener("input", () => {
    draft.guess = box.value === "" ? null : Number(box.value);
    if (draft.guess > 0 || !spec.log) slide.value = shareOf(draft.guess ?? start, spec) * stops;
  });
  return h("div", { class: "lsl-field" }, h("label", { for: boxId }, `Your guess${unit}`), slide, box);
};

const confidenceField = (draft) => {
  const id = freshId("confidence");
  const out = h("output", { for: id }, `${draft.confidence}% sure`);
  const slide = h("input", { type: "range", id, min: 50, max: 100, step: 5, value: draft.confidence });
  slide.addEventListener("input", () => {
    draft.confidence = Number(slide.value);
    out.textContent = `${draft.confidence}% sure`;
    slide.setAttribute("aria-valuetext", out.textContent);
  });
  return h("div", { class: "lsl-field", title: "50%: a coin toss. 100%: certain." },
    h("label", { for: id }, "Confidence"), slide, out);
};

const shownGuess = (spec, guess) =>
  spec.kind === "choice" ? spec.choices[guess] : `${guess}${spec.unit ? " " + spec.unit : ""}`;

function render({ model, el }) {
  const spec = model.get("spec");
  const root = card(el, "guess", "Predict", h("span", {}, "before you run it"));
  const question = h("p", { class: "lsl-question", html: spec.question });
  const body = h("div");
  const status = h("div", { class: "lsl-feedback", role: "status", "aria-live": "polite" });
  root.append(question, body, status);
  const draft = { guess: null, confidence: FIRST_CONFIDENCE };

  const submit = (event) => {
    event.preventDefault();
    if (draft.guess == null || Number.isNaN(draft.guess)) {
      return say(status, "Choose an answer first.");
    }
    say(status, "Recording your guess. If a cell is running, it is kept when that ends.");
    model.set("answer", { guess: draft.guess, confidence: draft.confidence, at: Date.now() });
    model.save_changes();
  };

  const form = () => {
    const field = spec.kind === "choice"
      ? options(h("legend", { hidden: true, html: spec.question }), spec.choices, draft.guess,
          (index) => { draft.guess = index; })
      : numberField(spec, draft);
    return h("form", { onsubmit: submit, novalidate: true }, field, confidenceField(draft),
      h("div", { class: "lsl-row" }, h("button", { type: "submit", class: "lsl-primary" }, "Record my guess"),
        h("span", { class: "lsl-muted" }, spec.hint)));
  };

  const recorded = (answer, locked) => {
    const change = h("button", { type: "button" }, "Change my guess");
    change.addEventListener("click", () => { Object.assign(draft, answer); draw(true); });
    return h("div", {}, h("p", { class: "lsl-recorded" }, "Your guess: ",
      h("b", { html: shownGuess(spec, answer.guess) }), `, ${answer.confidence}% sure.`),
      h("div", { class: "lsl-row" }, locked ? h("span", { class: "lsl-muted" },
        "Locked: the result has been shown.") : change));
  };

  const draw = (editing = false) => {
    const answer = model.get("recorded");
    const done = answer.guess != null;
    const hadFocus = root.contains(document.activeElement);
    body.replaceChildren(done && !editing ? recorded(answer, model.get("locked")) : form());
    say(status, model.get("problem") || (done && !editing && !model.get("locked")
      ? "Recorded. Run the next cell." : ""));
    if (hadFocus) body.querySelector("button[type=button], input:checked, input")?.focus();
  };

  draw();
  return listen(model, ["recorded", "locked", "problem"], () => draw());
}
export default { render };
