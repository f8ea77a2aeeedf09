"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const colours = ["#0b57a4", "#b3541e", "#17632f", "#7b3fa0", "#8a6d00", "#a3201a"];
let scenario, steps, fork = null, at = 0, timer = null;

function make(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

function colour(lane) {
  const number = scenario.lanes.indexOf(lane);
  return number < scenario.clients ? colours[Math.max(0, number) % colours.length] : "var(--muted)";
}

function open(name, step = 0) {
  scenario = data.stories.find((story) => story.name === name) || data.stories[0];
  element("scenario").value = scenario.name;
  tell(scenario.steps, step, null);
}

function tell(shown, step, name) {
  steps = shown;
  fork = name;
  element("title").textContent = scenario.title;
  element("about").textContent = name === null ? scenario.about : "What if: " + name + ". The other clients then go on.";
  element("ends").textContent = name === null ? "At the end: " + scenario.ends : "";
  element("back").hidden = name === null;
  element("slider").max = steps.length - 1;
  const head = make("thead"), row = make("tr");
  row.append(...scenario.lanes.map((lane) => make("th", lane)));
  head.append(row);
  const body = make("tbody");
  steps.forEach(([lane, text, , , decides], number) => {
    const line = make("tr", "", decides ? "decides" : "");
    for (const column of scenario.lanes) {
      const cell = make("td");
      if (column === lane || (lane === "host" && column === scenario.lanes[0])) {
        const whole = data.texts[text], said = make("span", whole.length > 140 ? whole.slice(0, 139) + "…" : whole);
        said.style.setProperty("--lane", colour(lane));
        cell.append(said);
      }
      line.append(cell);
    }
    line.addEventListener("click", () => go(number));
    body.append(line);
  });
  element("lanes").replaceChildren(head, body);
  go(Math.min(step, steps.length - 1));
}

function go(step) {
  at = Math.max(0, Math.min(step, steps.length - 1));
  const [, text, rule, view] = steps[at];
  element("slider").value = at;
  element("sentence").textContent = `${at + 1}. ${data.texts[text]}.`;
  element("rule").textContent = rule === null ? "" : `${data.rules[rule][0]}: ${data.rules[rule][1]}`;
  show(data.views[view], at ? data.views[steps[at - 1][3]] : null);
  const options = fork === null ? scenario.forks[at] || [] : [];
  element("forks").replaceChildren(...(options.length ? [make("span", "What if now:")] : []), ...options.map(([name, forked]) => {
    const button = make("button", /^[A-Z]/.test(name) ? `${name} goes first` : name);
    button.addEventListener("click", () => tell(forked, 0, button.textContent));
    return button;
  }));
  const lines = element("lanes").tBodies[0].rows;
  [...lines].forEach((line, number) => line.classList.toggle("here", number === at));
  const box = element("lanes").parentElement, line = lines[at];
  box.scrollTop = line.offsetTop - box.clientHeight / 2;
  if (fork === null) history.replaceState(null, "", `#${scenario.name}/${at + 1}`);
}

function show(view, before) {
  const readers = view.readers.flatMap(([who, sees]) => {
    const then = before && before.readers.find(([name]) => name === who);
    const now = make("dd", sees, before && (!then || then[1] !== sees) ? "new" : "");
    return [make("dt", who), now];
  });
  element("readers").replaceChildren(...readers);
  const known = new Set(before ? before.ledger.map(String) : view.ledger.map(String));
  element("ledger").replaceChildren(...view.ledger.map((row) => {
    const line = make("tr", "", known.has(String(row)) ? "" : "new");
    line.append(...row.map((cell) => make("td", cell)));
    return line;
  }));
  const names = new Set((before || view).log.map(([name]) => name));
  element("log").replaceChildren(...view.log.map(([name, durable]) => {
    const line = make("li", "", names.has(name) ? "" : "new");
    line.append(make("code", name, durable ? "" : "unsynced"));
    return line;
  }));
  if (!view.ledger.length) element("ledger").append(make("caption", "nothing yet"));
  if (!view.log.length) element("log").append(make("li", "nothing yet"));
}

function goToDecision() {
  const next = steps.findIndex((step, number) => number > at && step[4]);
  go(next < 0 ? steps.length - 1 : next);
}

function stop() {
  clearInterval(timer);
  timer = null;
  document.querySelector("[data-go=play]").textContent = "Play";
}

const moves = {
  first: () => go(0),
  last: () => go(steps.length - 1),
  previous: () => go(at - 1),
  next: () => go(at + 1),
  decision: goToDecision,
  play: () => {
    if (timer !== null) return stop();
    document.querySelector("[data-go=play]").textContent = "Stop";
    timer = setInterval(() => (at < steps.length - 1 ? go(at + 1) : stop()), 1200);
  },
};
const keys = { ArrowLeft: "previous", ArrowRight: "next", Home: "first", End: "last", d: "decision", " ": "play" };

document.querySelectorAll("[data-go]").forEach((button) =>
  button.addEventListener("click", () => {
    if (button.dataset.go !== "play") stop();
    moves[button.dataset.go]();
  }));
document.addEventListener("keydown", (event) => {
  if (event.target.matches("select, input, button") && event.key === " ") return;
  if (event.target.matches("select, input") || !(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (keys[event.key] !== "play") stop();
  moves[keys[event.key]]();
});
let touched = null;
document.addEventListener("touchstart", (event) => { touched = event.changedTouches[0]; }, { passive: true });
document.addEventListener("touchend", (event) => {
  const end = event.changedTouches[0], across = end.clientX - touched.clientX;
  if (!event.target.matches("input, select") && Math.abs(across) > 60 && Math.abs(across) > 2 * Math.abs(end.clientY - touched.clientY)) {
    stop();
    go(at + (across < 0 ? 1 : -1));
  }
}, { passive: true });
element("slider").addEventListener("input", (event) => { stop(); go(Number(event.target.value)); });
element("scenario").append(...data.stories.map((story) => {
  const option = make("option", story.title);
  option.value = story.name;
  return option;
}));
element("scenario").addEventListener("change", (event) => { stop(); open(event.target.value); });
element("back").addEventListener("click", () => { stop(); const name = location.hash.slice(1).split("/"); open(scenario.name, Number(name[1] || 1) - 1); });
function follow() {
  const [name, step] = location.hash.slice(1).split("/");
  open(name, Number(step || 1) - 1);
}
window.addEventListener("hashchange", follow);
follow();
