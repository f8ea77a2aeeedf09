"use strict";
// Everything here is a convenience: the page says the same without it.
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const announce = (text) => { document.getElementById("announce").textContent = text; };

  // Copy a command. Without a clipboard, which some browsers deny to local files, select it.
  for (const button of all("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = document.getElementById(button.dataset.copy);
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      let copied = false;
      try {
        await navigator.clipboard.writeText(code.textContent);
        copied = true;
      } catch {
        copied = document.execCommand("copy");
      }
      announce(copied ? "Copied." : "Selected; copy it with the keyboard.");
      const label = button.firstChild;
      label.data = copied ? "Copied" : "Selected";
      setTimeout(() => { label.data = "Copy"; }, 2000);
    });
  }

  // Filter lists. What has nothing left to show goes with it.
  const filter = (form, byUser) => {
    const section = form.parentElement;
    const text = (form.elements.text.value || "").trim().toLowerCase().split(/\s+/).filter(Boolean);
    const side = form.elements.side ? form.elements.side.value : "";
    const boxes = all("input[name=verdict]", form);
    const verdicts = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const items = all(form.dataset.items, section);
    let shown = 0;
    for (const item of items) {
      item.words ??= (item.textContent + " " + (item.closest(".part")?.querySelector("h4")?.textContent ?? "")).toLowerCase();
      const fits = text.every((word) => item.words.includes(word))
        && (!side || item.dataset.side === side)
        && (!boxes.length || item.dataset.verdict.trim().split(" ").some((verdict) => verdicts.has(verdict)));
      item.hidden = !fits;
      shown += fits;
    }
    for (const part of all(".part, .document", section)) {
      const any = all(form.dataset.items, part).some((item) => !item.hidden);
      part.hidden = !any;
      if (any && byUser && part.tagName === "DETAILS") part.open = true;
    }
    form.querySelector(".shown").textContent = `${shown} of ${items.length} ${form.dataset.noun} shown`;
    section.querySelector(".none").hidden = shown > 0 || items.length === 0;
  };
  for (const form of all("form.filter")) {
    form.hidden = false;
    form.addEventListener("input", () => filter(form, true));
    form.addEventListener("submit", (event) => event.preventDefault());
    filter(form);
  }
  for (const link of all("a[data-find]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const form = document.querySelector("#cases form.filter");
      form.elements.text.value = link.dataset.find;
      for (const box of all("input[name=verdict]", form)) box.checked = true;
      filter(form, true);
      document.getElementById("cases-heading").focus();
    });
  }

  // A link to something inside closed details opens them; paper shows everything.
  const reveal = () => {
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { return; }
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };
  // j and k: the next probable cause, and the previous one.
  const causes = all(".accused > h3");
  document.addEventListener("keydown", (event) => {
    const step = { j: 1, k: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
    const tops = causes.map((heading) => heading.getBoundingClientRect().top);
    const next = step > 0 ? tops.findIndex((top) => top > 32) : tops.findLastIndex((top) => top < -8);
    if (next < 0) return;
    causes[next].focus({ preventScroll: true });
    causes[next].scrollIntoView();
  });
  window.addEventListener("hashchange", reveal);
  if (location.hash) reveal();
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    for (const details of closed) details.open = true;
  });
  window.addEventListener("afterprint", () => { for (const details of closed) details.open = false; });
})();
