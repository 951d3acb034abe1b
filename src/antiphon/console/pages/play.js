// A simulated run that is played: forward, back, at a chosen speed; crash a node or cut a link at the moment that is shown.

import { ask, make, number, readAddress, toast, writeAddress } from "./tools.js";
import { RunPage } from "./run.js";

export const views = [{ name: "play", title: "Play", open: (main) => openPlay(main) }];

const SECONDS = 24;

async function openPlay(main) {
  const run = await ask("/api/run");
  const player = new Player(run);
  const page = new RunPage(main, run, { view: "play", controls: (page) => player.controls(page), panel: () => player.panel() });
  player.page = page;
  const close = await page.start();
  player.begin();
  return () => { player.pause(); close(); };
}

class Player {
  constructor(run) {
    this.run = run;
    this.now = Number(readAddress().values.get("now") ?? run.first_time);
    this.isPlaying = false;
  }

  controls(page) {
    this.page = page;
    this.playing = make("button", { type: "button", class: "primary", "aria-label": "Play", title: "Play or pause (space)", onclick: () => this.toggle() }, "▶ Play");
    this.speed = make("select", { "aria-label": "Speed" }, ...[["0.05", "1/20"], ["0.25", "1/4"], ["1", "normal"], ["4", "× 4"]].map(([value, name]) => make("option", { value }, name)));
    this.speed.value = "1";
    this.clock = make("output", { class: "mono", "aria-label": "Time" });
    const step = (label, title, work) => make("button", { type: "button", "aria-label": title, title, onclick: work }, label);
    return [
      make("span", { class: "group" }, step("|◀", "Back to the start", () => this.go(this.run.first_time)), step("◀", "One step back (,)", () => this.step(-1)),
        step("▶", "One step forward (.)", () => this.step(1)), step("▶|", "To the end", () => this.go(this.run.last_time))),
      this.playing, this.speed, this.clock];
  }

  begin() {
    this.page.main.addEventListener("keydown", (event) => {
      if (["INPUT", "SELECT", "BUTTON"].includes(event.target.tagName)) return;
      const keys = { " ": () => this.toggle(), ".": () => this.step(1), ",": () => this.step(-1) };
      if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
    });
    this.go(this.now);
    this.page.openPanel("faults");
  }

  toggle() {
    if (this.isPlaying) return this.pause();
    if (this.now >= this.run.last_time) this.go(this.run.first_time);
    this.isPlaying = true;
    this.playing.textContent = "⏸ Pause";
    this.playing.setAttribute("aria-label", "Pause");
    let before = performance.now();
    const advance = (instant) => {
      if (!this.isPlaying) return;
      // A view that is nearer is played slower: the eye follows pixels, and not ticks.
      const { view } = this.page.diagram;
      const span = Math.min(view.to - view.from, this.run.last_time - this.run.first_time);
      const next = this.now + ((instant - before) / 1000) * (span / SECONDS) * Number(this.speed.value);
      before = instant;
      this.go(Math.min(next, this.run.last_time), false);
      if (this.now >= this.run.last_time) return this.pause();
      return requestAnimationFrame(advance);
    };
    return requestAnimationFrame(advance);
  }

  pause() {
    this.isPlaying = false;
    this.playing.textContent = "▶ Play";
    this.playing.setAttribute("aria-label", "Play");
    this.note();
  }

  async step(direction) {
    if (this.isPlaying) this.pause();
    const { time } = await ask("/api/step", { from: Math.round(this.now), direction });
    this.go(time);
  }

  go(time, notes = true) {
    this.now = time;
    const { diagram } = this.page;
    diagram.now = time;
    const { view } = diagram;
    if (time > view.to || time < view.from) diagram.show(time - (view.to - view.from) * 0.15, time + (view.to - view.from) * 0.85);
    diagram.draw();
    this.clock.textContent = `time ${number(time)} of ${number(this.run.last_time)}`;
    if (notes) this.note();
  }

  note() {
    const { values } = readAddress();
    writeAddress("play", { ...Object.fromEntries(values), now: Math.round(this.now) });
    if (this.page.panel === "faults") this.panel();
  }

  stateOf(lane) {
    const absence = this.run.absences.find(([each, from, to]) => each === lane && from <= this.now && (to === null || this.now < to));
    return absence ? absence[3] : "up";
  }

  panel() {
    const { body } = this.page;
    const at = number(Math.floor(this.now) + 1);
    const act = (text, wanted, kind = "", label = text) => make("button", { type: "button", class: kind, "aria-label": label, onclick: () => this.intervene(wanted) }, text);
    const nodes = this.run.nodes;
    const choose = (label, value) => { const found = make("select", { "aria-label": label }, ...nodes.map((node) => make("option", { value: String(node) }, `node ${node}`))); found.value = String(value); return found; };
    this.one ??= choose("One end of the link", nodes[0]);
    this.other ??= choose("The other end of the link", nodes[1] ?? nodes[0]);
    body.replaceChildren(
      make("p", { class: "soft" }, `Intervene at time ${at}. The run is made again from there, and stays repeatable.`),
      make("h3", {}, "Cut a link"),
      make("div", { class: "form" }, this.one, this.other,
        act("Cut", () => ({ kind: "cut", nodes: [Number(this.one.value), Number(this.other.value)] }), "danger"), act("Heal", () => ({ kind: "heal", nodes: [Number(this.one.value), Number(this.other.value)] }))),
      ...(this.run.interventions.length ? [make("h3", {}, "What you did"),
        make("ol", { class: "story" }, this.run.interventions.map((each) => make("li", {}, told(each)))), act("Undo the last one", () => ({ kind: "undo" }))] : []),
      make("h3", {}, "Nodes"),
      make("table", {}, make("tbody", {}, nodes.slice(0, 200).map((node, lane) => {
        const state = this.stateOf(lane);
        const kinds = { up: [["Crash", "crash", "danger"], ["Pause", "pause", ""]], down: [["Restart", "restart", ""]], paused: [["Resume", "resume", ""], ["Crash", "crash", "danger"]], away: [] }[state];
        return make("tr", {}, make("td", {}, `node ${node}`), make("td", {}, make("span", { class: `chip ${{ up: "good", paused: "warn" }[state] ?? "bad"}` }, state)),
          make("td", { class: "n" }, kinds.map(([text, kind, style]) => act(text, () => ({ kind, nodes: [node] }), style, `${text} node ${node}`))));
      }))),
      make("h3", {}, "As a scenario file"), make("button", { type: "button", onclick: () => this.copy() }, "Copy"));
  }

  async copy() {
    const { text } = await ask("/api/scenario");
    await navigator.clipboard.writeText(text);
    toast("copied; antiphon simulate and antiphon play run it");
  }

  async intervene(make) {
    if (this.isPlaying) this.pause();
    try {
      await ask("/api/intervene", {}, { ...make(), at: Math.floor(this.now) + 1 });
    } catch (error) {
      return toast(error.message);
    }
    this.run = await ask("/api/run");
    const { page } = this;
    page.run = this.run;
    page.diagram.select(null);
    page.diagram.open(this.run);
    page.say();
    return this.go(this.now);
  }
}

function told(fault) {
  if (fault.kind === "partition") return `time ${number(fault.at)}: cut the link between nodes ${fault.groups[0][0]} and ${fault.groups.at(-1)[0]}${fault.until ? `, healed at ${number(fault.until)}` : ""}`;
  return `time ${number(fault.at)}: ${fault.kind} of node ${fault.node}`;
}
