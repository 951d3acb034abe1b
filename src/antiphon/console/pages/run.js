// A recorded run: the diagram, why a message waited, the longest waits, and the violations.

import { Diagram, maximum } from "./diagram.js";
import { ask, colourOf, duration, make, number, readAddress, spoken, toast, writeAddress } from "./tools.js";

export const views = [{ name: "run", title: "Run", open: (main) => openRun(main) }];

const LARGE_ROWS = 300_000;

export async function openRun(main, extras = {}) {
  let run;
  for (;;) {
    run = await ask("/api/run");
    if (run.ready) break;
    main.replaceChildren(make("p", { class: "waiting", role: "status" }, `Reading ${run.files.join(", ")}…`));
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  return new RunPage(main, run, extras).start();
}

export class RunPage {
  constructor(main, run, extras) {
    Object.assign(this, { main, run, extras });
    this.view = extras.view ?? "run";
    this.panel = "waits";
  }

  async start() {
    this.build();
    this.say();
    await this.follow(true);
    return () => this.diagram.close();
  }

  build() {
    const { run } = this;
    const canvas = make("canvas", { class: "diagram", tabindex: "0", role: "application",
      "aria-label": "Space-time diagram. Arrow keys move, plus and minus zoom, Home shows the whole run, n and p go from dot to dot, Escape ends a choice." });
    const strip = make("canvas", { class: "strip", "aria-label": "The whole run; press a place to go there", role: "img" });
    const tip = make("div", { class: "tip", hidden: true });
    this.spokenLine = make("p", { class: "skip", "aria-live": "polite" });
    this.diagram = new Diagram(canvas, strip, tip, {
      fetch: (values) => ask("/api/slice", values),
      chosen: (what) => this.choose(what),
      moved: () => this.keepAddress(),
      drawn: () => { this.legend.dataset.exact = this.diagram.slice?.exact ? "1" : "0"; this.showLegend(); },
      failed: (error) => toast(error.message),
      said: (text) => { this.spokenLine.textContent = text; },
    });
    this.topics = make("select", { "aria-label": "Topic", onchange: () => { this.diagram.topic = this.topics.value === "" ? null : Number(this.topics.value); this.diagram.request(0); this.keepAddress(); } });
    this.fillTopics();
    this.find = make("input", { type: "search", placeholder: "Find a message: 0:3", title: "The node that published it, and its number there", size: 20, "aria-label": "Find a message by its node and number" });
    this.control = make("input", { type: "checkbox", onchange: () => { this.diagram.control = this.control.checked; this.diagram.request(0); } });
    this.legend = make("div", { class: "legend", "aria-hidden": "true" });
    this.tabs = make("div", { class: "tabs", role: "tablist" });
    this.body = make("div", { class: "body", role: "tabpanel", tabindex: "0" });
    this.main.replaceChildren(
      make("div", { class: "toolbar" },
        ...(this.extras.controls?.(this) ?? []),
        make("span", { class: "group" },
          make("button", { type: "button", "aria-label": "Zoom in", title: "Zoom in (+)", onclick: () => this.diagram.zoom(0.5) }, "+"),
          make("button", { type: "button", "aria-label": "Zoom out", title: "Zoom out (−)", onclick: () => this.diagram.zoom(2) }, "−"),
          make("button", { type: "button", title: "The whole run (Home)", onclick: () => { const whole = this.diagram.whole(); this.diagram.show(whole.from, whole.to, 0); } }, "Whole run")),
        this.topics,
        make("form", { role: "search", onsubmit: (event) => { event.preventDefault(); this.seek(); } }, this.find),
        run.has_copies ? make("label", { title: "Acknowledgements, questions and answers between nodes" }, this.control, "control messages") : null),
      make("div", { class: "run" },
        make("div", { class: "picture card" }, canvas, this.legend, strip, tip),
        make("aside", { class: "side card", "aria-label": "Details" }, this.tabs, this.body)),
      this.spokenLine);
    this.diagram.open(run);
    window.antiphonDiagram = this.diagram;
  }

  fillTopics() {
    const named = Object.entries(this.run.topics);
    const known = named.length ? named.sort((a, b) => a[1].localeCompare(b[1])) : this.run.topic_numbers.map((each) => [each, `topic ${each}`]);
    this.topics.replaceChildren(make("option", { value: "" }, "all topics"), ...known.map(([value, name]) => make("option", { value }, name)));
    this.topics.hidden = known.length < 2;
  }

  topicName(topic) { return this.run.topics[topic] ?? `topic ${topic}`; }

  say() {
    const { run } = this;
    const parts = [run.name, `${number(run.nodes.length)} nodes`, [run.fabric, run.order].filter(Boolean).join(", "),
      `${number(run.totals.published)} messages`, `${number(run.totals.delivered)} deliveries`, `${number(run.rows)} rows`];
    document.getElementById("facts").textContent = parts.filter(Boolean).join(" · ");
    document.title = `${run.name} · Antiphon console`;
  }

  // The address says what is shown, and opens it again.

  async follow() {
    const { values } = readAddress();
    if (values.has("from")) this.diagram.open(this.run, { from: Number(values.get("from")), to: Number(values.get("to")), lane: Number(values.get("lane") ?? 0) });
    if (values.has("topic")) { this.topics.value = values.get("topic"); this.diagram.topic = Number(values.get("topic")); this.diagram.request(0); }
    const chosen = values.get("message");
    if (chosen) {
      const [topic, source, sequence] = chosen.split(":").map(Number);
      await this.choose({ topic, source, sequence, node: values.get("node") ?? undefined }, !values.has("from"));
    } else {
      await this.openPanel(values.get("panel") ?? (values.has("violation") ? "violations" : "waits"));
    }
    if (values.has("violation")) await this.openPanel("violations");
  }

  keepAddress() {
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => {
      const { view, topic, selection } = this.diagram;
      writeAddress(this.view, {
        from: Math.round(view.from), to: Math.round(view.to), lane: view.lane ? view.lane.toFixed(1) : undefined, topic: topic ?? undefined,
        message: selection ? `${selection.topic}:${selection.source}:${selection.sequence}` : undefined,
        node: selection?.seen_from ?? undefined, panel: this.panel === "waits" || this.panel === "message" ? undefined : this.panel,
      });
    }, 150);
  }

  async seek() {
    const parts = this.find.value.split(/[:\s]+/).filter(Boolean).map(Number);
    if (parts.length < 2 || parts.some(Number.isNaN)) return toast("write the node and the number of the message: 0:3");
    const [source, sequence] = parts.slice(-2);
    const topics = parts.length > 2 ? [parts[0]] : Object.keys(this.run.topics).length ? Object.keys(this.run.topics) : this.run.topic_numbers.length ? this.run.topic_numbers : [0];
    // Live nodes number from the first message of their life on.
    for (const topic of this.diagram.topic !== null ? [this.diagram.topic] : topics) {
      for (const wide of this.run.unit === "microseconds" && sequence < 4294967296 ? [4294967296 + sequence, sequence] : [sequence]) {
        const found = await ask("/api/message", { topic, source, sequence: wide });
        if (found.found) return this.show(found, true);
      }
    }
    return toast(`this run has no message ${sequence} of node ${source}`);
  }

  async choose(what, moves = false) {
    if (what === null) {
      this.diagram.select(null);
      this.keepAddress();
      return this.openPanel("waits");
    }
    let found;
    try {
      found = await ask("/api/message", what);
    } catch (error) {
      return toast(error.message);
    }
    return found.found ? this.show(found, moves) : toast("this run has no such message");
  }

  async show(found, moves) {
    this.diagram.select(found);
    if (moves) this.focusOn(found);
    this.keepAddress();
    await this.openPanel("message");
  }

  focusOn(found) {
    const times = [found.published, ...found.deliveries.map((each) => each.time), ...found.steps.flatMap((step) => [step.begin, step.end])].filter((time) => time !== null);
    const nodes = [found.source, found.seen_from, ...found.steps.map((step) => step.node)].filter((node) => node !== null);
    this.diagram.focus(Math.min(...times), Math.max(...times), nodes);
  }

  // The side.

  async openPanel(name) {
    this.panel = name;
    const titles = { waits: this.run.has_copies ? "Longest waits" : "Slowest", message: "Message", violations: "Violations" };
    const shown = this.diagram.selection ? ["message", "waits", "violations"] : ["waits", "violations"];
    // A played run has no trace to judge yet; antiphon simulate judges its file.
    if (this.extras.panel) { titles.faults = "Nodes"; shown[shown.length - 1] = "faults"; }
    this.tabs.replaceChildren(...shown.map((each) => make("button", { type: "button", role: "tab", "aria-selected": each === name ? "true" : "false", onclick: () => this.openPanel(each).then(() => this.keepAddress()) }, titles[each])));
    if (name === "message") this.body.replaceChildren(...this.message());
    else if (name === "violations") await this.violations();
    else if (name === "faults") this.extras.panel(this);
    else await this.waits();
    this.showLegend();
  }

  showLegend() {
    const entry = (kind, text) => make("span", {}, make("i", { class: kind }, kind === "cut" ? "✕" : ""), text);
    const chosen = this.diagram.selection !== null;
    const exact = this.diagram.slice?.exact !== false;
    this.legend.replaceChildren(...(exact ? [entry("ring", "published"), entry("dot", "delivered")] : [make("span", {}, "Height: deliveries. Press to zoom in.")]),
      this.run.has_copies ? entry("bar", exact ? "held until what it follows" : "longest wait") : null,
      this.run.totals.dropped ? entry("cut", "lost copy") : null,
      ...(chosen ? [entry("past", "its past"), entry("future", "its future")] : []),
    );
    for (const each of [...this.legend.childNodes]) if (each.nodeType === 3 && each.textContent === "null") each.remove();
  }

  message() {
    const found = this.diagram.selection;
    const { unit } = this.run;
    const late = [...found.deliveries].sort((a, b) => b.time - a.time);
    const most = Math.max(1, maximum(found.deliveries.map((each) => each.took ?? 0)));
    const heading = make("h2", {}, make("i", { class: "swatch" }), `Message ${spoken(found.sequence)} of node ${found.source}`);
    heading.firstChild.style.background = colourOf(found.source);
    const away = found.deliveries.filter((each) => each.node !== found.source);
    return [
      heading,
      make("p", { class: "soft" }, `${this.topicName(found.topic)} · delivered at ${number(found.deliveries.length)} of ${number(this.run.nodes.length)} nodes` +
        (away.length && found.published !== null ? `, the last one after ${duration(most, unit)}` : "")),
      make("h3", {}, found.seen_from === null ? "Why" : found.deliveries.some((each) => each.node === found.seen_from) ? `Why at this time at node ${found.seen_from}` : `Why not at node ${found.seen_from}`),
      make("ol", { class: "story" }, found.steps.map((step) => make("li", {},
        make("button", { type: "button", onclick: () => this.look(step) }, step.text)))),
      found.hops.length ? make("h3", {}, "Its way") : null,
      found.hops.length ? make("p", {}, found.hops.map((hop) => hop.sender).concat(found.seen_from).join(" → "), make("span", { class: "soft" }, ` · ${found.hops.map((hop) => duration(hop.arrived - hop.sent, unit)).join(" + ")}`)) : null,
      make("h3", {}, "Its deliveries, the last one first"),
      found.waiting.length ? make("p", {}, make("span", { class: "chip warn" }, "not delivered"), " at ", ...found.waiting.slice(0, 40).flatMap((each, at) => [at ? ", " : "",
        make("button", { type: "button", class: "quiet", onclick: () => this.choose({ message: found.message, node: each.node }) }, `node ${each.node}`)])) : null,
      make("table", {},
        make("thead", {}, make("tr", {}, make("th", {}, "node"), make("th", { class: "n" }, "after"), this.run.has_copies ? make("th", { class: "n" }, "held") : null, make("th", {}, ""))),
        make("tbody", {}, late.slice(0, 60).map((each) => this.deliveryRow(each, found, most)))),
    ].filter(Boolean);
  }

  deliveryRow(each, found, most) {
    const { unit } = this.run;
    const meter = make("div", { class: "meter" }, make("i"));
    meter.firstChild.style.width = `${((each.took ?? 0) / most) * 100}%`;
    return make("tr", { class: "link", onclick: () => this.choose({ message: found.message, node: each.node }) },
      make("td", {}, make("button", { type: "button" }, `node ${each.node}`)),
      make("td", { class: "n" }, each.took === null ? "?" : duration(each.took, unit)),
      this.run.has_copies ? make("td", { class: "n" }, each.held > 0 ? duration(each.held, unit) : "–") : null,
      make("td", {}, meter));
  }

  look(step) {
    this.diagram.selection.step = step;
    this.diagram.focus(step.begin, step.end, [step.node]);
  }

  async waits() {
    const waits = await ask("/api/waits");
    if (this.panel !== "waits") return;
    const { unit } = this.run;
    const most = Math.max(1, ...waits.map((each) => each.held ?? each.took));
    this.body.replaceChildren(
      make("p", { class: "soft" }, this.run.has_copies ? "A node holds a message until it has delivered everything that the message follows." : "This trace says when messages were delivered, and not when they arrived."),
      waits.length ? make("table", {},
        make("thead", {}, make("tr", {}, make("th", {}, "at"), make("th", {}, "message"), make("th", { class: "n" }, this.run.has_copies ? "held" : "after"), make("th", {}, ""))),
        make("tbody", {}, waits.map((each) => {
          const meter = make("div", { class: "meter held" }, make("i"));
          meter.firstChild.style.width = `${((each.held ?? each.took) / most) * 100}%`;
          return make("tr", { class: "link", onclick: () => this.choose({ topic: each.topic, source: each.source, sequence: each.sequence, node: each.node }, true) },
            make("td", {}, `node ${each.node}`), make("td", {}, make("button", { type: "button" }, `${spoken(each.sequence)} of node ${each.source}`)),
            make("td", { class: "n" }, duration(each.held ?? each.took, unit)), make("td", {}, meter));
        }))) : make("p", {}, "Nothing had to wait."));
  }

  async violations() {
    if (this.run.rows > LARGE_ROWS && !this.judging && !readAddress().values.has("violation")) {
      this.body.replaceChildren(make("p", {}, `Judging ${number(this.run.rows)} rows takes a while.`),
        make("button", { type: "button", class: "primary", onclick: () => { this.judging = true; this.violations(); } }, "Judge the run"));
      return;
    }
    this.body.replaceChildren(make("p", { class: "soft", role: "status" }, "Judging…"));
    const found = await ask("/api/violations");
    if (this.panel !== "violations") return;
    if (!found.judged) return this.body.replaceChildren(make("p", {}, found.why));
    if (!found.violations.length) return this.body.replaceChildren(make("p", {}, make("span", { class: "chip good" }, "nothing violated"), " Every promise of this run was kept."));
    this.body.replaceChildren(...found.violations.map((each) => make("div", { class: "violation" },
      make("h2", {}, `${each.kind} `, make("span", { class: "chip bad" }, number(each.count))),
      make("p", {}, each.text), each.story.length ? make("pre", {}, each.story.join("\n")) : null,
      each.source === null ? null : make("button", { type: "button", onclick: () => this.goTo(each) }, "Show it in the diagram"))));
    const wanted = readAddress().values.get("violation");
    const first = found.violations.find((each) => each.kind === wanted) ?? found.violations[0];
    if (wanted !== null && !this.hasGone && first.source !== null) { this.hasGone = true; await this.goTo(first, true); }
  }

  async goTo(violation, stays = false) {
    const what = { topic: violation.topic, source: violation.source, sequence: violation.sequence };
    let found = await ask("/api/message", { ...what, node: violation.node });
    if (!found.found) found = await ask("/api/message", what);
    if (!found.found) return violation.time === null ? undefined : this.diagram.focus(violation.time, violation.time, [violation.node]);
    this.diagram.select(found);
    this.focusOn(found);
    this.keepAddress();
    return stays ? this.openPanel("violations") : this.openPanel("message");
  }
}
