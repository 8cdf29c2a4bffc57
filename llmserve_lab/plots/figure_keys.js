(() => {
  const note = document.currentScript?.parentElement?.querySelector(".lsl-figure-note");
  if (!note) return;
  const area = note.closest(".jp-OutputArea, .output_area, .output") ?? document.body;
  const graphAbove = () => [...area.querySelectorAll(".js-plotly-plot")].filter(
    (graph) => graph.compareDocumentPosition(note) & Node.DOCUMENT_POSITION_FOLLOWING).pop();

  const quiet = (event) => { event.preventDefault(); event.stopPropagation(); };

  // plotly's slider listens to the mouse only: a key becomes a press at the step's place.
  const press = (group, step, count) => {
    const rail = group.querySelector(".slider-rail-touch-rect");
    const grip = group.querySelector(".slider-grip-rect");
    const box = rail.getBoundingClientRect(), inset = grip.getBoundingClientRect().width / 2;
    const clientX = box.left + inset + (box.width - 2 * inset) * step / Math.max(1, count - 1);
    const at = { clientX, clientY: box.top + box.height / 2, bubbles: true, cancelable: true, view: window };
    rail.dispatchEvent(new MouseEvent("mousedown", at));
    rail.dispatchEvent(new MouseEvent("mouseup", at));
  };

  const sliderKeys = (graph) => {
    const group = graph.querySelector(".slider-group");
    const slider = graph.layout?.sliders?.[0];
    if (!group || !slider || group.dataset.lslKeys) return;
    const count = slider.steps.length;
    const current = () => graph.layout.sliders[0].active ?? 0;
    const announce = () => {
      group.setAttribute("aria-valuenow", current());
      group.setAttribute("aria-valuetext", slider.steps[current()]?.label ?? "");
    };
    Object.entries({ tabindex: 0, role: "slider", "aria-label": slider.currentvalue?.prefix?.trim() || "step", "aria-valuemin": 0,
      "aria-valuemax": count - 1, "data-lsl-keys": 1, "data-lm-suppress-shortcuts": "true" })
      .forEach(([name, value]) => group.setAttribute(name, value));
    announce();
    group.addEventListener("keydown", (event) => {
      const to = { ArrowRight: current() + 1, ArrowUp: current() + 1, ArrowLeft: current() - 1,
        ArrowDown: current() - 1, PageUp: current() + 10, PageDown: current() - 10,
        Home: 0, End: count - 1 }[event.key];
      if (event.key !== "Tab") event.stopPropagation();
      if (to === undefined) return;
      quiet(event);
      press(group, Math.min(count - 1, Math.max(0, to)), count);
      setTimeout(announce, 60);
    });
  };

  const menuKeys = (graph) => {
    graph.querySelectorAll(".updatemenu-button, .updatemenu-header").forEach((button) => {
      if (button.dataset.lslKeys) return;
      const label = button.textContent;
      Object.entries({ tabindex: 0, role: "button", "aria-label": label, "data-lsl-keys": 1,
        "data-lm-suppress-shortcuts": "true" })
        .forEach(([name, value]) => button.setAttribute(name, value));
      button.addEventListener("keydown", (event) => {
        if (event.key !== "Tab") event.stopPropagation();
        if (event.key !== "Enter" && event.key !== " ") return;
        quiet(event);
        button.dispatchEvent(new MouseEvent("click", { bubbles: true, view: window }));
        setTimeout(() => focusLike(graph, label), 80);
      });
    });
  };

  const focusLike = (graph, label) => {
    menuKeys(graph);
    [...graph.querySelectorAll(".updatemenu-button")].find((b) => b.textContent === label)?.focus();
  };

  const attach = (tries) => {
    const graph = graphAbove();
    if (!graph?.querySelector(".main-svg")) {
      if (tries > 0) setTimeout(() => attach(tries - 1), 150);
      return;
    }
    graph.setAttribute("role", "group");
    graph.setAttribute("aria-label", note.textContent);
    const refresh = () => { sliderKeys(graph); menuKeys(graph); };
    refresh();
    graph.on?.("plotly_afterplot", refresh);
  };
  attach(100);
})();
