// The messages of a topic as they come, and one by hand.

import { ask, bytes, colourOf, make, number, readAddress, toast, writeAddress } from "./tools.js";

const ROWS_KEPT = 200;

export async function openMessages(main, mode) {
  return new MessagesPage(main, mode).start();
}

class MessagesPage {
  constructor(main, mode) {
    Object.assign(this, { main, mode, leftOut: 0, seen: 0 });
  }

  start() {
    const topic = readAddress().values.get("topic") ?? "";
    document.getElementById("facts").textContent = `cluster ${this.mode.cluster} · seen from node ${this.mode.node}`;
    this.pattern = make("input", { name: "topic", value: topic, placeholder: "orders or orders.>", required: true, class: "wide", "aria-label": "Topic or pattern" });
    this.state = make("span", { class: "soft", role: "status" }, "Nothing is followed.");
    this.stop = make("button", { type: "button", disabled: true, onclick: () => this.close() }, "Stop");
    this.rows = make("tbody");
    this.latency = make("span", { class: "soft" });
    this.main.append(make("div", { class: "page" },
      make("section", { class: "card" },
        make("header", {}, make("h2", {}, "Follow a topic"), this.state, make("span", { class: "spacer" }), this.latency),
        make("div", { class: "inside" },
          make("form", { class: "form", onsubmit: (event) => { event.preventDefault(); this.follow(); } }, this.pattern, make("button", { class: "primary" }, "Follow"), this.stop),
          make("p", { class: "soft" }, "A sample of the messages is shown, the others are counted; publishers never wait for this page."),
          make("div", { class: "messages scroll" }, make("table", {},
            make("thead", {}, make("tr", {}, ...["time", "from", "topic", "order", "key", "value"].map((each) => make("th", {}, each)), make("th", { class: "n" }, "size"))), this.rows)))),
      this.publishing(topic)));
    if (topic) this.follow();
    return () => this.close();
  }

  follow() {
    this.close();
    writeAddress("messages", { topic: this.pattern.value });
    this.topic.value ||= /[*>]/.test(this.pattern.value) ? "" : this.pattern.value;
    this.copyText();
    this.state.textContent = "Subscribing…";
    this.stop.disabled = false;
    this.source = new EventSource(`/api/follow?topic=${encodeURIComponent(this.pattern.value)}`);
    this.source.addEventListener("following", (event) => { this.state.textContent = `Following ${JSON.parse(event.data).topic}`; });
    this.source.addEventListener("messages", (event) => this.add(JSON.parse(event.data)));
    this.source.addEventListener("error", async () => {
      if (this.source?.readyState !== EventSource.CLOSED) return;
      this.state.textContent = "Not followed.";
      try { await ask("/api/follow", { topic: this.pattern.value }); } catch (error) { toast(error.message); }
    });
  }

  close() {
    this.source?.close();
    this.source = null;
    if (this.state) { this.state.textContent = "Nothing is followed."; this.stop.disabled = true; }
  }

  add({ messages, left_out: leftOut, latency_ms: latency, measured }) {
    this.leftOut += leftOut;
    this.seen += messages.length;
    this.state.textContent = `Following ${this.pattern.value} · ${number(this.seen)} shown${this.leftOut ? `, ${number(this.leftOut)} left out` : ""}`;
    if (latency) this.latency.textContent = `latency to this node: median ${latency[0].toFixed(1)} ms, 99 % within ${latency[1].toFixed(1)} ms (${number(measured)} measured)`;
    this.rows.prepend(...messages.reverse().map((message) => this.row(message)));
    while (this.rows.children.length > ROWS_KEPT) this.rows.lastChild.remove();
  }

  row(message) {
    const dot = make("i", { class: "swatch" });
    dot.style.background = colourOf(message.publisher);
    const headers = Object.entries(message.headers).map(([name, value]) => `${name}: ${value}`).join("\n");
    return make("tr", {}, make("td", { class: "mono" }, new Date(message.time * 1000).toISOString().slice(11, 23)), make("td", {}, dot, `node ${message.publisher}`),
      make("td", {}, message.topic), make("td", {}, message.order), make("td", {}, message.key ?? "–"),
      make("td", { class: "value mono", title: [message.value, headers].filter(Boolean).join("\n\n") }, message.value), make("td", { class: "n" }, bytes(message.bytes)));
  }

  publishing(topic) {
    const update = () => this.copyText();
    this.topic = make("input", { name: "to", value: /[*>]/.test(topic) ? "" : topic, required: true, oninput: update });
    this.value = make("input", { name: "value", oninput: update });
    this.order = make("select", { name: "order", onchange: update }, ...["none", "fifo", "causal", "total"].map((each) => make("option", { value: each }, each)));
    this.order.value = this.mode.order;
    this.key = make("input", { name: "key", size: 10, oninput: update });
    this.shell = make("pre", { class: "copy mono" });
    this.python = make("pre", { class: "copy mono" });
    const copy = (box) => make("button", { type: "button", onclick: async () => { await navigator.clipboard.writeText(box.textContent); toast("copied"); } }, "Copy");
    const section = make("section", { class: "card" }, make("header", {}, make("h2", {}, "Publish by hand")),
      make("div", { class: "inside" },
        make("form", { class: "form", onsubmit: (event) => { event.preventDefault(); this.publish(); } },
          make("label", {}, "topic", this.topic), make("label", { class: "wide" }, "value", this.value), make("label", {}, "order", this.order), make("label", {}, "key", this.key),
          make("button", { class: "primary" }, "Publish")),
        make("h3", {}, "The same in a shell ", copy(this.shell)), this.shell, make("h3", {}, "The same in Python ", copy(this.python)), this.python));
    this.copyText();
    return section;
  }

  copyText() {
    const quote = (text) => (/^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
    const topic = this.topic.value || "room", value = this.value.value, order = this.order.value, key = this.key.value;
    const flags = [order === this.mode.order ? "" : ` --order ${order}`, key ? ` --key ${quote(key)}` : ""].join("");
    this.shell.textContent = `antiphon pub ${quote(topic)} ${quote(value || "")}${flags} --servers ${this.mode.address}`;
    const options = [order === this.mode.order ? "" : `, order=${JSON.stringify(order)}`, key ? `, key=${JSON.stringify(key)}` : ""].join("");
    this.python.textContent = `async with antiphon.connect(${JSON.stringify(this.mode.address)}) as client:\n    await client.publish(${JSON.stringify(topic)}, ${JSON.stringify(value)}.encode()${options})`;
  }

  async publish() {
    try {
      const receipt = await ask("/api/publish", {}, { topic: this.topic.value, value: this.value.value, order: this.order.value, key: this.key.value });
      toast(`accepted on ${receipt.topic}`);
      this.value.value = "";
      this.copyText();
    } catch (error) {
      toast(error.message);
    }
  }
}
